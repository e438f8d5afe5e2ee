"""How sure a prediction says it is: widths by part, distance from evidence, and the nearest runs."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from layouts import cut
from meshwright import (
    Choices,
    Job,
    Layout,
    Prediction,
    catalog,
    cluster,
    dump_job,
    load_job,
    model,
    predict,
)
from meshwright.describe.assumptions import SETS, changed
from meshwright.describe.families import framework_family
from meshwright.describe.kernels import kernels
from meshwright.prediction import certainty
from meshwright.prediction.certainty import BEYOND, PARTS
from meshwright.prediction.classes import sharding, untested_mixers
from meshwright.report.text import evidence

NOTHING = dict.fromkeys((*PARTS, *BEYOND), 0.0)
CLASS = "Hopper, Megatron Core, dense, 16 bits"


def known(**changes: Any) -> dict[str, Any]:
    """Evidence of a step that is unsure by a tenth, and of nothing else."""
    of_class = {"rows": 7, "sources": ["a", "b", "c"]}
    found = {
        "low": -3.0,
        "high": 1.0,
        "pair": 0.02,
        "unsure": {**NOTHING, "step": 0.1},
        "most": {"chips": 64, "tokens": 8192},
        "classes": {CLASS: of_class},
    }
    return {"realistic": {**found, **changes}}


@pytest.fixture
def dense() -> Prediction:
    job = Job("llama3-8b", "64xh100-sxm", 64, cut("tp8 dp8"))
    return predict(job)


def told(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setattr(certainty, "evidence", lambda: known(**changes))


def test_a_layout_shards_weights_or_gradients_beside_what_cuts_it() -> None:
    for words, said in (
        ("tp8 zero1", ""),
        ("zero2", "ZeRO-2"),
        ("tp2 pp4 zero3", "ZeRO-3 tp pp"),
        ("cp2 zero3", "ZeRO-3 cp"),
    ):
        assert sharding(cut(words)) == said


def test_an_interval_is_quantiles_times_the_width(
    monkeypatch: pytest.MonkeyPatch, dense: Prediction
) -> None:
    """Width 0.1, quantiles -3 and 1: e^-0.3 to e^0.1 times the step."""
    told(monkeypatch)
    sure = dense.certainty
    assert sure is not None and dense.interval_s is not None
    assert (sure.width, sure.kind, sure.rows) == (
        pytest.approx(0.1),
        CLASS,
        7,
    )
    assert "sources" not in sure.note
    assert dense.interval_s == pytest.approx(
        (
            dense.step_time_s * math.exp(-0.3),
            dense.step_time_s * math.exp(0.1),
        )
    )


def test_few_sources_say_so(
    monkeypatch: pytest.MonkeyPatch, dense: Prediction
) -> None:
    """The interval is that of all runs: they too were predicted without their laboratory."""
    of_class = {"rows": 7, "sources": ["a", "b"]}
    told(monkeypatch, classes={CLASS: of_class})
    sure = dense.certainty
    assert sure and "only 2 published sources of this kind (a, b)" in sure.note
    assert (sure.low, sure.high) == pytest.approx(
        (math.exp(-0.3), math.exp(0.1))
    )


def test_parts_widen_by_their_share(
    monkeypatch: pytest.MonkeyPatch, dense: Prediction
) -> None:
    """0.1 of the step and 0.5 of what waits for the host: root of the sum of squares."""
    told(monkeypatch, unsure={**NOTHING, "step": 0.1, "host": 0.5})
    p = predict(replace(dense.job, model=model("gpt2"), layout=cut("dp64")))
    sure, share = p.certainty, p.time_s["host"] / p.step_time_s
    assert sure is not None and share > 0.05
    assert sure.width == pytest.approx(math.hypot(0.1, 0.5 * share), rel=1e-3)


def test_seconds_of_a_step_beside_all_layers_are_a_part(
    monkeypatch: pytest.MonkeyPatch, dense: Prediction
) -> None:
    """A framework's fixed seconds, known within a factor: their share of the step counts, as much
    as there is of it and at most all."""
    told(monkeypatch, unsure={**NOTHING, "overhead": 0.5})
    by = dense.job.profile
    assert by is not None and by.step_s > 0
    sure = dense.certainty
    assert sure is not None
    whole = sum(s for cause, s in dense.time_s.items() if cause != "other")
    assert sure.width == pytest.approx(0.5 * by.step_s / whole)
    small = dict.fromkeys(dense.time_s, 0.0) | {"optimizer": by.step_s / 2}
    assert certainty.part_shares(dense.job, small)["overhead"] == 1.0


@pytest.mark.parametrize(
    ("part", "changes", "times", "words"),
    [
        (
            "chips",
            {"cluster": "256xh100-sxm"},
            2.0,
            "more chips",
        ),  # 64 were seen: two doublings
        ("tokens", {"seq": 16384}, 1.0, "longer sequences"),
        (
            "chip",
            {"cluster": "64xmi300x"},
            1.0,
            "no published run used such chips",
        ),
        (
            "share",
            {"cluster": "64xtrainium2"},
            1.0,
            "nobody measured what share of its peak",
        ),
        ("framework", {"framework": "meshwright"}, 1.0, "used this framework"),
        ("class", {"model": "mixtral-8x7b"}, 1.0, "is of its class"),
        ("experts", {"model": "mixtral-8x7b"}, 1.0, "is of its class"),
        ("numbers", {"precision": "fp8"}, 1.0, "kind has this precision"),
        (
            "sharding",
            {"model": "mixtral-8x7b"},
            1.0,
            "published run is sharded like this",
        ),
        ("fp4", {"precision": "fp4", "cluster": "64xb200"}, 1.0, ""),
    ],
)
def test_distance_from_evidence_widens(
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    changes: dict[str, Any],
    times: float,
    words: str,
) -> None:
    told(monkeypatch, unsure={**NOTHING, part: 0.1})
    named = {
        "model": "llama3-8b",
        "cluster": "64xh100-sxm",
        "batch": 256,
        **changes,
    }
    job = Job(
        model(named.pop("model")),
        cluster(named.pop("cluster")),
        layout=cut("tp8 dp8"),
        **named,
    )
    sure = certainty.certainty(
        predict(replace(job, layout=Layout(dp=job.cluster.chips, zero=3)))
    )
    assert sure is not None and words in sure.note
    assert sure.width == pytest.approx(0.1 * times)
    slower = part == "framework"  # cautious already: not faster by it
    assert (sure.low == 1.0) == slower and sure.high > 1.0


def test_a_chip_of_a_family_with_runs_is_no_new_one() -> None:
    """Estimated kernels of a TPU v4 do not make it one that nobody knows: v5e and v5p ran."""
    known = certainty.evidence()["realistic"]
    far = {
        name: certainty.distance(Job("llama3-8b", name, 64), known)
        for name in ("64xtpu-v4", "64xtrainium2", "64xmi300x")
    }
    assert kernels("tpu").estimated
    assert [(at["chip"], at["share"]) for at in far.values()] == [
        (0, 0),
        (1, 1),
        (1, 0),
    ]


def test_two_predictions_of_one_class_are_surer_of_their_ratio(
    monkeypatch: pytest.MonkeyPatch, dense: Prediction
) -> None:
    """A step by itself is unsure by a tenth; layouts of one job differ by a fiftieth: e^(3 x 0.02);
    on other chips both widths count."""
    told(monkeypatch)
    found = certainty.ratio(dense, dense)
    assert found == pytest.approx((math.exp(-0.06), math.exp(0.06)))
    other = predict(replace(dense.job, cluster=cluster("64xb200")))
    apart = certainty.ratio(dense, other)
    assert apart is not None and apart[1] > math.exp(
        3 * math.hypot(0.1, 0.1) - 1e-9
    )


def test_what_mixes_tokens_as_in_no_run_is_said() -> None:
    """Of the evidence no model that the catalogue knows has scans or indexers."""
    runs = {run.model for run in certainty.evidence_runs()}
    known = [name for name in runs if catalog.has("models", name)]
    assert len(known) > 9
    assert not any(untested_mixers(model(name)) for name in known)
    job = Job("jamba-1.5-mini", "64xh100-sxm", 256)
    p = predict(job, Layout(dp=64, zero=1))
    assert p.certainty
    assert p.certainty.note.endswith("no run has scans of state spaces")


def test_no_runs_no_interval() -> None:
    job = Job(
        "gpt3-175b",
        "64xa100-80",
        64,
        Layout(tp=8, pp=8),
        framework=None,
    )
    assert (
        predict(
            replace(job, assumptions="lbl-2024", precision="fp16-pure")
        ).interval_s
        is None
    )


def test_a_changed_set_is_not_the_one_that_runs_were_compared_with(
    dense: Prediction,
) -> None:
    """Another option of `realistic` leaves the name, but neither interval nor ties; what limits a
    search, or the memory of a chip, leaves both.
    """
    how = dense.job.assumptions
    ring = replace(how, network=replace(how.network, collective="ring"))
    other = predict(replace(dense.job, assumptions=ring))
    assert other.interval_s is None
    assert certainty.resolution(other.job) == 0.0
    assert [n for n in other.notes if "realistic is changed" in n] == [
        "realistic is changed in network.collective: no published run was compared with that, so"
        " no interval is given"
    ]
    share = replace(how.memory, capacity_share=0.9)
    fewer = replace(how, choices=(Choices(tp=(8,)),), memory=share)
    same = predict(replace(dense.job, assumptions=fewer))
    assert same.interval_s == dense.interval_s
    assert not any("is changed" in n for n in (*same.notes, *dense.notes))


@pytest.mark.parametrize("name", SETS)
def test_no_set_is_changed_by_the_file_of_its_plan(name: str) -> None:
    job = Job("llama3-8b", "64xh100-sxm", 64, assumptions=name)
    again = load_job(tomllib.loads(dump_job(job)))
    assert changed(job.assumptions) == changed(again.assumptions) == []


def test_the_nearest_runs_are_of_its_chip_and_software(
    dense: Prediction,
) -> None:
    """Three configurations, each once; a run that is there is the nearest to itself."""
    found = certainty.nearest_runs(dense.job)
    assert len(found) == 3 == len({run[2:11] for run in found})
    assert {run.family for run in found} == {"Hopper"}
    assert framework_family(found[0].framework) == "Megatron Core"
    run = next(
        r for r in certainty.evidence_runs() if r.source == "megatron-bridge"
    )
    again = next(
        r
        for r in certainty.nearest_runs(described(run.id))
        if r.chip == run.chip
    )
    assert again[2:11] == run[2:11]


def described(id: str) -> Job:
    """The job of a published run."""
    from meshwright_studies.validate import published
    from meshwright_studies.validate.jobs import job

    return job(next(row for row in published() if row["id"] == id))


def test_the_evidence_of_a_prediction_is_told(dense: Prediction) -> None:
    told = dense.to_dict()["evidence"]
    assert (
        told["class"] == CLASS
        and told["rows"] > 0
        and "only 2 published sources" in told["note"]
    )
    assert set(told) == {"class", "rows", "sources", "nearest", "note"}
    assert {"id", "source", "chips", "step_s", "ratio"} <= set(
        told["nearest"][0]
    )


def test_chips_of_no_published_run_have_the_interval_of_other_kinds() -> None:
    """The sentence does not call their kind that of the runs."""
    p = predict(Job("llama3-8b", "8xmi300x", 8, cut("dp8 zero3")))
    first = evidence(p)[0]
    assert first.startswith(
        "90 % interval from published runs, none of this kind"
    )
    assert "no published run used such chips" in first


@pytest.mark.parametrize(
    ("precision", "sources"),
    [
        ("bf16", ("dgxc-benchmarking", "megatron-readme-h100")),
        ("fp8", ("dgxc-benchmarking", "megatron-bridge", "nemo-summary")),
    ],
)
def test_runs_in_other_numbers_are_not_called_a_jobs_own(
    precision: str, sources: tuple[str, ...]
) -> None:
    """Megatron Core on Hopper: a job is served by the runs in its own numbers, bf16 or FP8."""
    job = Job(
        "llama3-8b",
        "64xh100-sxm",
        64,
        cut("tp8 dp8"),
        precision=precision,
    )
    p = predict(job)
    assert p.certainty and p.certainty.sources == sources
    seen = [
        r for r in certainty.evidence_runs() if r.class_ == p.certainty.kind
    ]
    assert {run.precision for run in seen} == {precision}
    assert (
        f"{len(seen)} of this kind ({p.certainty.kind}: all in"
        f" {precision})" in evidence(p)[0]
    )


def test_fp16_and_bf16_are_one_width() -> None:
    """Tensor cores take both at one rate: an fp16 job on A100 beside bf16 runs has runs of its own."""
    job = Job(
        "llama3-8b",
        "64xa100-80",
        64,
        cut("dp64 zero3"),
        precision="fp16",
        framework="llm-foundry",
    )
    p = predict(job)
    assert p.certainty and set(p.certainty.precisions) == {"bf16"}
    assert "none in" not in p.certainty.note
