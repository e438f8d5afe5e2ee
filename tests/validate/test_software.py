"""The words of a row on its software: one row of a table for each policy and each word that is
read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from validate_rows import row

from meshwright import catalog
from meshwright.describe.fields import fields_of
from meshwright.describe.framework import frameworks
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.software import Software
from meshwright.layout.beside import broken_settings
from meshwright.prediction.classes import FAMILIES, chip_family, class_named
from meshwright_studies.validate import published, validate
from meshwright_studies.validate.jobs import job, job_and_notes
from meshwright_studies.validate.software import software_of
from meshwright_studies.validate.words import texts_of_row, word_table


@pytest.mark.parametrize(
    ("software", "year", "name"),
    [
        (
            "Megatron-Bridge v0.4.2 (NeMo container 26.04.01)",
            2026,
            "megatron-bridge",
        ),
        ("NeMo 2.0", 2025, "megatron-bridge"),
        ("Megatron-Core r0.8", 2024, "megatron-core"),
        ("Megatron-LM (TE 2.11)", 2026, "megatron-core"),
        ("Megatron-LM with Transformer Engine", 2023, "megatron-core"),
        ("Megatron-LM", 2025, "megatron-core"),
        ("Megatron-LM", None, "megatron-core"),
        ("Megatron-LM (2021, SC21 paper)", 2021, "megatron-2021"),
        (
            "Megatron-LM Jan 2021 (before interleaving/scatter-gather)",
            2021,
            "megatron-2021",
        ),
        ("Megatron-LM 2022", 2022, "megatron-2021"),
        ("Megatron-LM + zero-bubble", 2024, "megatron-2021"),
        # ZeRO-1 as DeepSpeed has it
        (
            "AA-Scaling (Megatron-LM based), kernel=torch",
            2023,
            "megatron-deepspeed",
        ),
        ("Megatron-DeepSpeed (BigScience)", 2022, "megatron-deepspeed"),
        ("GPT-NeoX", 2023, "megatron-deepspeed"),
        ("DeepSpeed ZeRO-3 (2021)", 2021, "deepspeed-zero3"),
        (
            "DeepSpeed ZeRO-3",
            2024,
            "unknown",
        ),  # later versions gather ahead of use
        ("torchtitan + torch.compile", 2025, "torchtitan"),
        (
            "llm-foundry (Composer + PyTorch FSDP, FlashAttention-2)",
            2023,
            "llm-foundry",
        ),
        ("PyTorch FSDP2", 2025, "fsdp"),
        ("MaxText (JAX)", 2024, "maxtext"),
        ("Colossal-AI", 2023, "unknown"),
        ("", 2023, "unknown"),
    ],
)
def test_a_program_is_its_framework(
    software: str, year: int | None, name: str
) -> None:
    found = software_of(row(software=software, year=year))
    assert found.framework == name
    assert bool(found.notes) == (name == "unknown"), found.notes
    assert (
        job(row(software=software, year=year)).framework == frameworks()[name]
    )


@pytest.mark.parametrize(
    ("notes", "setting", "value"),
    [
        ("cuda_graph None None", "cuda_graphs", "off"),
        ("cuda_graph None []", "cuda_graphs", "off"),
        # a scope without an implementation
        ("cuda_graph none full_iteration", "cuda_graphs", "off"),
        ("no CUDA graphs", "cuda_graphs", "off"),
        ("cuda_graph full_iteration []", "cuda_graphs", "full"),
        ("cuda_graph local full_iteration", "cuda_graphs", "full"),
        ("full-iteration CUDA graph", "cuda_graphs", "full"),
        (
            "cuda_graph transformer_engine ['attn', 'moe_router', 'moe_preprocess']",
            "cuda_graphs",
            "parts",
        ),
        ("cuda_graph_impl=local", "cuda_graphs", "parts"),
        ("moe_flex_dispatcher_backend=hybridep", "dispatcher", "hybridep"),
        ("moe_flex_dispatcher_backend=deepep", "dispatcher", "deepep"),
        ("DeepEP", "dispatcher", "deepep"),
        ("dispatcher alltoall", "dispatcher", "alltoall"),
        ("moe_a2a_overlap=True", "ep_overlap", True),
        ("moe_a2a_overlap=False", "ep_overlap", False),
        ("overlap_moe_expert_parallel_comm=True", "ep_overlap", True),
        ("AsyncTP. seq 8192 default of the config.", "tp_overlap", "all"),
        ("async TP", "tp_overlap", "all"),
        ("tp_comm_overlap=True", "tp_overlap", "all"),
        ("userbuffers", "tp_overlap", "all"),
        ("tp_comm_overlap=False", "tp_overlap", "off"),
        ("vanilla TP", "tp_overlap", "off"),
        ("no TP/PP comm overlap", "tp_overlap", "off"),
        ("no AsyncTP", "tp_overlap", "off"),
        ("torch.compile", "compiled", True),
        ("compiled blocks", "compiled", True),
        ("without torch.compile", "compiled", False),
        ("compile off: eager", "compiled", False),
        ("gathered logits", "logits_gathered", True),
        ("fp8_output_proj=True", "logits_quantised", True),
        ("fp8_output_proj=False", "logits_quantised", False),
        ("cutedsl_fused_grouped_mlp=True", "experts_fused", True),
        ("use_transformer_engine_op_fuser=False", "experts_fused", False),
        ("layers cut; CE fusion; no overlap", "loss", "in place"),
        ("cross_entropy_fusion_impl=te", "loss", "in place"),
        ("cross_entropy_fusion_impl=native", "loss", "fused"),
        ("cross_entropy_loss_fusion=False", "loss", "passes"),
    ],
)
def test_words_of_a_setting(notes: str, setting: str, value: object) -> None:
    found = software_of(row(notes=notes))
    assert getattr(found.settings, setting) == value
    assert not found.notes


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


@pytest.mark.parametrize(
    ("precision", "recipe"),
    [
        ("mxfp8", "mxfp8"),
        ("FP8 MX", "mxfp8"),
        ("fp8 current-scaling (per-tensor)", "tensorwise"),
        ("float8 tensorwise", "tensorwise"),
        ("fp8 linear (torchao) + bf16", "tensorwise"),
        ("float8 rowwise", "rowwise"),
        ("fp8, block-scaled 128x128", "blockwise"),
        ("fp8 delayed scaling", "delayed"),
        ("fp8 (TE linear) + bf16", "delayed"),
        ("bf16", None),
        ("nvfp4", None),
    ],
)
def test_recipes_of_fp8(precision: str, recipe: str | None) -> None:
    found = software_of(row(precision=precision))
    assert found.settings.float8 == recipe
    assert not found.notes


def test_fp8_without_a_recipe_is_noted() -> None:
    assert (
        "float8 is the framework's own"
        in software_of(row(precision="fp8")).notes[0]
    )


@pytest.mark.parametrize(
    ("precision", "software", "gradient_bytes"),
    [
        (
            "bf16, BF16Optimizer",
            "Megatron-DeepSpeed",
            4,
        ),  # accumulates in fp32
        (
            "bf16, BF16Optimizer with fp32 grad accumulation (unsharded grads)",
            "Megatron-DeepSpeed",
            4,
        ),
        ("fp16/bf16 mixed (pre-BF16Optimizer)", "Megatron-DeepSpeed", 2),
        ("bf16 (before BF16Optimizer)", "Megatron-DeepSpeed", 2),
        ("bf16, no BF16Optimizer", "Megatron-DeepSpeed", 2),
        ("bf16, BF16_Optimizer disabled", "Megatron-DeepSpeed", 2),
        ("bf16", "Megatron-DeepSpeed", 2),
        ("bf16 with fp32 grad accumulation", "Megatron-DeepSpeed", 4),
        (
            "bf16 with fp32 master weights",
            "Megatron-DeepSpeed",
            2,
        ),  # of weights, not of gradients
        ("bf16 (FSDP PURE: bf16 params+grads comm)", "llm-foundry", 2),
        (
            "amp_bf16 (FSDP DEFAULT: fp32 master shard, bf16 compute, fp32 grad reduce)",
            "llm-foundry",
            4,
        ),
    ],
)
def test_gradients_as_the_row_says_or_else_as_the_framework_has_them(
    precision: str, software: str, gradient_bytes: float
) -> None:
    assert (
        job(
            row(precision=precision, software=software, year=2022)
        ).precision.gradient_bytes
        == gradient_bytes
    )


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [
        ({"attention_kernel": "flash_attention2 + RMS kernel"}, "fa2"),
        ({"attention_kernel": "flash_attentionv1.0.8"}, "fa1"),
        ({"attention_kernel": "torch"}, "torch"),
        (
            {"software": "AA-Scaling (Megatron-LM based), kernel=torch"},
            "torch",
        ),
        ({"software": "llm-foundry (FlashAttention-2)"}, "fa2"),
        ({"notes": "FlashAttention-3"}, "fa3"),
        ({"notes": "cuDNN attention"}, "cudnn"),
        (
            {
                "model": {
                    "attention": "full causal (ALiBi), fused softmax, no FlashAttention"
                }
            },
            "fused-softmax",
        ),
        ({"notes": "no FlashAttention"}, "unfused"),
        ({"notes": "flash attention"}, "flash"),
        ({"notes": "FlashAttention unstated."}, "framework"),
        ({}, "framework"),
        (
            {"software": "x", "year": 2022},
            "unfused",
        ),  # before frameworks fused it
        ({"software": "x", "year": 2024}, "framework"),
    ],
)
def test_the_attention_kernel_is_the_one_named_or_the_frameworks(
    changes: dict[str, Any], kernel: str
) -> None:
    assert job(row(**changes)).attention_kernel == kernel


@pytest.mark.parametrize(
    ("kernels", "norm"),
    [
        ("flash_attention2", "torch"),
        ("torch", "torch"),
        ("flash_attention2 + RMS kernel", "fused"),
        ("", None),
    ],
)
def test_a_row_that_lists_its_kernels_has_no_other(
    kernels: str, norm: str | None
) -> None:
    assert software_of(row(attention_kernel=kernels)).settings.norm == norm


@pytest.mark.parametrize(
    ("software", "year", "overlap"),
    [
        ("Megatron-LM (2021)", 2021, None),
        ("Megatron-LM 2022", 2022, "backward"),
        ("Megatron-DeepSpeed (BigScience)", 2023, None),
        ("Megatron-DeepSpeed", 2022, None),
        ("Megatron-DeepSpeed", 2024, "backward"),
        ("Megatron-LM 2022, no TP comm overlap", 2022, "off"),
    ],
)
def test_the_asynchronous_all_reduce_of_megatron_by_year(
    software: str, year: int, overlap: str | None
) -> None:
    assert (
        software_of(row(software=software, year=year)).settings.tp_overlap
        == overlap
    )


@pytest.mark.parametrize(
    ("software", "year", "precision", "how"),
    [
        ("Megatron-LM (2021)", 2021, "fp16 mixed", None),
        ("Megatron-LM (2021)", 2021, "fp16, fp32 gradients", None),
        ("Megatron-LM 2022", 2022, "fp16 mixed", None),
        ("Megatron-LM 2022", 2022, "fp16, fp32 gradients", "apart"),
        ("Megatron-LM + zero-bubble", 2024, "fp16 mixed", "apart"),
        ("Megatron-DeepSpeed", 2024, "fp16 mixed", None),
    ],
)
def test_gradients_are_added_up_by_their_product_from_a_year_on(
    software: str, year: int, precision: str, how: str | None
) -> None:
    run = row(software=software, year=year, precision=precision)
    assert software_of(run).settings.weight_gradient == how


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


def test_torchtitan_compiles_on_request() -> None:
    alone, compiled = (
        software_of(row(software="torchtitan")),
        software_of(row(software="torchtitan + torch.compile")),
    )
    assert (alone.settings.compiled, compiled.settings.compiled) == (
        False,
        True,
    )
    assert alone.notes and not compiled.notes


@pytest.mark.parametrize(
    ("software", "year", "source", "precision", "full"),
    [
        ("llm-foundry (Composer + PyTorch FSDP)", 2023, "", "bf16", "whole"),
        ("llm-foundry (Composer + PyTorch FSDP)", 2024, "", "bf16", None),
        # layers of Transformer Engine take the other way
        ("llm-foundry", 2024, "", "fp8 (TE linear)", "whole"),
        ("torchtitan", 2024, "docs (2024-07)", "bf16", "prefix"),
        ("torchtitan", 2025, "docs (2025-09)", "bf16", None),
        ("MaxText (JAX)", 2023, "", "bf16", None),
    ],
)
def test_how_far_full_recomputation_ran_by_then(
    software: str, year: int, source: str, precision: str, full: str | None
) -> None:
    """PyTorch stops early since 2.1, torchtitan no more since 2025-08."""
    of = row(
        software=software, year=year, source_ref=source, precision=precision
    )
    assert software_of(of).settings.full == full


def test_aleph_alphas_stack_gathers_its_logits_and_waits_for_its_all_reduces() -> (
    None
):
    found = software_of(
        row(software="AA-Scaling (Megatron-LM based)", year=2023)
    ).settings
    assert (found.logits_gathered, found.tp_overlap) == (True, "off")
    assert found.gathered_inputs == "kept"
    assert (found.input_gradients, found.stage_message) == ("apart", "whole")


def test_sources_whose_runs_waited_for_each_kernel() -> None:
    path = "bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md"
    said = software_of(row(source_ref=f"{path} line 607")).settings
    assert said.launches == "blocking"
    best = software_of(row(source_ref=f"{path} (Best TFLOPs section)"))
    assert best.settings.launches is None


def test_the_words_give_only_values_that_a_job_takes() -> None:
    words = word_table()
    for setting in words.settings:
        allowed = fields_of(Software)[setting.field].kind.words
        values = {value for value, _ in setting.values}
        assert values <= set(allowed or (True, False))
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


def test_classes_are_families_of_frameworks() -> None:
    a100 = catalog.chip("a100-80")
    of = [
        class_named(chip_family(a100), name, "dense", "bf16")
        for name in ("torchtitan", "llm-foundry")
    ]
    assert of == ["Ampere, FSDP, dense, 16 bits"] * 2
    assert (
        class_named(chip_family(a100), "megatron-bridge", "experts", "fp8")
        == "Ampere, Megatron Core, experts, FP8"
    )
    assert class_named(chip_family(a100), "meshwright", "dense", "fp32") == (
        "Ampere, meshwright, dense, fp32"
    )
    assert class_named(
        chip_family(catalog.chip("gb300")), "", "dense", "fp4"
    ) == ("Blackwell, dense, FP4")


@pytest.mark.parametrize(
    ("software", "source", "loss"),
    [
        (
            "torchtitan + torch.compile",
            "benchmarks/llama3_h100_202412_torchtitan.md",
            "eager",
        ),  # before the loss was compiled
        (
            "torchtitan + torch.compile",
            "benchmarks/llama3-8b_h200_202506.md",
            None,
        ),
        ("torchtitan + torch.compile", "", None),
        ("torchtitan", "benchmarks/llama3-8b_h200_202506.md", "eager"),
        ("megatron-lm", "benchmarks/202412.md", None),
    ],
)
def test_torchtitans_loss_is_that_of_its_time(
    software: str, source: str, loss: str | None
) -> None:
    assert (
        software_of(
            {**row(), "software": software, "source_ref": source}
        ).settings.loss
        == loss
    )


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        ("asyncTP_llama3_h100_2025-06_torchtitan.md", "root"),
        ("benchmarks/llama3_h100_202609.md", "apart"),
        ("", "apart"),
    ],
)
def test_torchtitans_ends_were_the_roots(source: str, ends: str) -> None:
    """Since 2025-07 its embedding is a unit, and its norm and head are one."""
    found = job(row(software="torchtitan", source_ref=source))
    assert found.profile is not None and found.profile.ends == ends


@pytest.mark.parametrize(
    ("precision", "overlap"),
    [("mxfp8", "all"), ("bf16", "all"), ("nvfp4", "backward")],
)
def test_bridge_overlaps_tensor_parallelism_but_in_fp4(
    precision: str, overlap: str
) -> None:
    """Its recipes: tp_comm_overlap where tp > 1, and False with nvfp4."""
    found = job(
        row(software="Megatron-Bridge v0.4.2", year=2026, precision=precision)
    )
    assert found.profile is not None and found.profile.tp_overlap == overlap


def test_ibms_programs_reduce_in_16_bits_and_norm_in_plain_torch() -> None:
    """fms-fsdp: bfSixteen for all of its runs; norms are one kernel where they are compiled."""
    eager = software_of(row(software="fms-fsdp (PyTorch FSDP, SDPA)")).settings
    assert (eager.gradients, eager.norm, eager.compiled) == (
        "half",
        "torch",
        None,
    )
    said = "fms-fsdp (PyTorch FSDP, SDPA, torch.compile)"
    compiled = software_of(row(software=said)).settings
    assert (compiled.gradients, compiled.norm) == ("half", None)
    assert job(row(software="fms-fsdp (PyTorch FSDP)")).gradient_bytes == 2


def test_automodel_has_a_profile_and_states_in_16_bits() -> None:
    said = (
        "NeMo AutoModel (PyTorch FSDP2), DeepEP dispatcher, fake_balanced_gate"
    )
    found = software_of(row(software=said))
    assert (found.framework, found.settings.routing) == (
        "automodel",
        "neighbours",
    )
    assert not found.notes
    of = job(row(software=said, optimizer_sharding="FSDP"))
    assert (of.optimizer.state_bytes, of.optimizer.master_bytes) == (4, 0)
    strange = software_of(row(software="NeMo AutoModel, balanced gate"))
    assert any("balanced gate" in note for note in strange.notes)
