"""The words of a row on its software: one row of a table for each policy and each word that is
read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from validate_rows import cases, row

from meshwright.describe.families import FAMILIES
from meshwright.describe.fields import fields_of
from meshwright.describe.framework import frameworks
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.software import Software
from meshwright.layout.setting_rules import broken_settings
from meshwright_studies.validate import published, validate
from meshwright_studies.validate.jobs import job, job_and_notes
from meshwright_studies.validate.software import software_of
from meshwright_studies.validate.words import texts_of_row, word_table


@cases
def test_a_program_is_its_framework(
    software: str, year: int | str, name: str
) -> None:
    found = software_of(row(software=software, year=year))
    assert found.framework == name
    assert bool(found.notes) == (name == "unknown"), found.notes
    assert (
        job(row(software=software, year=year)).framework == frameworks()[name]
    )


@pytest.mark.parametrize(
    ("notes", "setting"),
    [
        ("cuda_graph somehow", "cuda_graphs"),
        ("moe_token_dispatcher_type=teleport", "dispatcher"),
    ],
)
def test_a_setting_with_an_unknown_value_is_noted_and_stays_the_frameworks(
    notes: str, setting: str
) -> None:
    found = software_of(row(notes=notes))
    assert not found.settings.given
    assert len(found.notes) == 1
    assert (
        f"not understood: {setting} is the framework's own" in found.notes[0]
    )
    assert found.notes[0] in job_and_notes(row(notes=notes)).notes


def test_an_unknown_word_beside_a_known_program_is_noted() -> None:
    assert software_of(row(software="Megatron-LM + warp-drive")).notes == (
        "of its software 'warp-drive' is not understood",
    )


def test_fp8_without_a_recipe_is_noted() -> None:
    assert (
        "float8 is the framework's own"
        in software_of(row(precision="fp8")).notes[0]
    )


def test_the_states_that_korthikanti_counts_are_those_of_fp32_gradients() -> (
    None
):
    """Figure 1 has 18 bytes for each of the 12 h^2 weights of a layer: 2 of the weight, 12 of
    Adam's numbers, and so 4 of the gradient. Megatron-LM's own table (docs/distrib_optimizer.md,
    2022-05) has 18 with fp32 gradients, 20 with 16-bit ones.
    """
    rows = [r for r in published() if r["source"] == "korthikanti2022-mem"]
    assert len(rows) == 8
    for r in rows:
        model, p = r["model"], r["parallel"]
        weights = 12 * model["hidden"] ** 2 * model["layers"]
        each = r["measured"]["memory_params_opt_gib"] * 2**30
        each *= p["tp"] * p["pp"] / weights
        job = job_and_notes(r).job
        assert each == pytest.approx(2 + 12 + job.gradient_bytes, rel=1e-3)
        assert job.how.count.weight_gradient == "apart"


def test_torch_s_replicas_overlap_where_a_row_names_them() -> None:
    """Those of table 1 without a pipeline, by the scripts of the paper; they go with no pipeline
    and no ZeRO.
    """
    rows = [r for r in published() if r["source"] == "megatron2021-t1"]
    said = {r["id"][-3:]: software_of(r).settings.dp_overlap for r in rows}
    assert [name for name, how in said.items() if how] == [
        "001", "002", "003", "004"
    ]  # fmt: skip
    for r in rows[:2]:
        about = job_and_notes(r)
        layout = about.job.layout
        assert not broken_settings(about.job, layout)
        for wrong in ({"pp": 2}, {"zero": 1}):
            (why,) = broken_settings(about.job, replace(layout, **wrong))
            assert "DistributedDataParallel" in why


def test_the_words_give_only_values_that_a_job_takes() -> None:
    words = word_table()
    for setting in words.settings:
        kind = fields_of(Software)[setting.field].kind
        for value, _ in setting.values:
            assert kind.kept(value, setting.field) is not None
    assert {value for value, _ in words.gradients.values} == set(
        fields_of(Software)["gradients"].kind.words
    )
    assert {name for name, _ in words.kernels.values} - {""} <= set(
        fields_of(Job)["attention_kernel"].kind.words
    )
    assert {name for name, _ in words.precision.values} <= set(PRECISIONS)
    known = {*frameworks(), "unknown"}
    assert {rule.name for rule in words.frameworks} <= known
    assert set(FAMILIES) <= set(frameworks())
    texts = set(texts_of_row({}))
    for rule in (*words.frameworks, *words.habits):
        Software(**rule.sets)
        assert {*rule.framework} <= known
        assert rule.says or rule.lacks or rule.framework, rule
        assert {*rule.says, *rule.lacks} <= texts


def test_every_published_row_is_understood() -> None:
    """The note on torchtitan's default is the only one: no word of the catalogue's programs and
    settings is left over.
    """
    notes = {note for r in published() for note in software_of(r).notes}
    assert notes == {
        "torch.compile is not named: taken as off, as torchtitan has it"
    }
    assert all(software_of(r).framework != "unknown" for r in published())


def test_a_paper_set_is_not_told_of_a_framework() -> None:
    from meshwright.describe.assumptions import assumptions

    (found,) = [
        c
        for c in validate([row()], assumptions("lbl-2024")).rows
        if c.quantity == "step_time"
    ]
    assert found.skipped is None
    assert found.kind == "Hopper, dense, 16 bits"


def test_a_gate_that_is_balanced_otherwise_is_noted() -> None:
    strange = software_of(row(software="NeMo AutoModel, balanced gate"))
    assert any("balanced gate" in note for note in strange.notes)
