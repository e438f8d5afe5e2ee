"""A writer refuses what it does not know: new words of choices, and every value that exists."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from layouts import cut
from meshwright import BadInput, Job, Layout, cluster, model
from meshwright.describe.assumptions import Stack
from meshwright.describe.fields import fields_of
from meshwright.describe.framework import Framework
from meshwright.describe.job import PRECISIONS
from meshwright.describe.model import RopeScaling
from meshwright.describe.software import Software
from meshwright.formats import bridge
from meshwright.formats.bridge import launch, table
from meshwright.formats.bridge.reading import FileKeys
from refusals import refusal
from shell import Shell

PLACE = launch.Place(1, 8)
NEW = "entirely-new"
WORDS = [
    name for name, field in fields_of(Software).items() if field.kind.words
]
"""Settings of the software that are words."""
DEGREES = {"cp_exchange": {"cp": 2, "dp": 4}, "scheme": {"tp": 2, "dp": 4}}
"""Word of a layout -> where it means something."""
KERNEL = "attention_kernel"
SAYS = {KERNEL: NEW, "float8": f"fp8|{NEW} scaling"}
"""Field -> what its refusal says in place of its name."""


def add_word(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more word for a field, in its annotation and nowhere else."""
    field = fields_of(owner)[name]
    kind = replace(field.kind, words=(*field.kind.words, NEW))
    monkeypatch.setitem(fields_of(owner), name, replace(field, kind=kind))


def base(name: str) -> Job:
    """A job with experts that the format's own framework runs."""
    own = table.get(name).frameworks[0]
    dense = ("deepspeed", "gpt-neox")
    trained = "llama3-8b" if name in dense else "mixtral-8x7b"
    first = (
        "megatron",
        "megatron-bridge",
        "deepspeed",
        "nanotron",
        "gpt-neox",
    )
    zero = 1 if name in first else 3
    if name in ("torchtitan", "torchtitan-toml"):
        trained = "qwen3-30b-a3b"
    if name == "megatron-bridge":
        trained = "qwen3-30b-a3b"
    chip = "tpu-v5p" if name == "maxtext" else "h100-sxm"
    redo = "full" if name == "maxtext" else "none"
    layout = Layout(dp=8, zero=zero, recompute=redo)
    return Job(trained, f"8x{chip}", 64, layout, framework=own)


def test_positions_that_megatron_has_no_arguments_for_are_refused() -> None:
    """YaRN was left out of the script, without a word."""
    own = base("megatron")
    yarn = RopeScaling("yarn", factor=4.0, original=4096)
    plain = replace(own, model=replace(own.model, rope_scaling=yarn))
    with refusal("rope_scaling yarn"):
        bridge.write(plain, "megatron", PLACE)
    latent = replace(model("deepseek-v3"), rope_scaling=yarn)
    text, _ = bridge.write(replace(own, model=latent), "megatron", PLACE)
    assert "--rope-type yarn" in text
    assert "--rotary-scaling-factor 4.0" in text
    longer = replace(latent, rope_scaling=replace(yarn, original=8192))
    with refusal("yarn of 4,096 tokens"):
        bridge.write(replace(own, model=longer), "megatron", PLACE)


def test_groups_of_experts_are_written_or_refused() -> None:
    """Megatron has arguments for them; recipes and flavors have those of their model; the experts
    of nanotron have none.
    """
    own = base("megatron")
    v3 = replace(model("deepseek-v3"), rope_scaling=None)
    text, _ = bridge.write(replace(own, model=v3), "megatron", PLACE)
    assert "--moe-router-num-groups 8" in text
    assert "--moe-router-group-topk 4" in text
    moe = bridge.read_file("a.sh", text).tables["model"]["moe"]
    assert (moe["groups"], moe["top_groups"]) == (8, 4)
    assert "router-num-groups" not in bridge.write(own, "megatron", PLACE)[0]
    anywhere = replace(v3, moe=replace(v3.moe, groups=1, top_groups=1))
    for name in ("megatron-bridge", "torchtitan"):
        with refusal("moe.groups 8, not 1; moe.top_groups 4, not 1"):
            bridge.write(replace(base(name), model=anywhere), name, PLACE)
    plain = base("nanotron")
    assert plain.model.moe
    grouped = replace(plain.model.moe, groups=4, top_groups=2)
    with refusal("plain ones in every layer"):
        bridge.write(
            replace(plain, model=replace(plain.model, moe=grouped)),
            "nanotron",
            PLACE,
        )


def test_a_layout_that_a_framework_does_not_run_is_sent_to_a_plan_of_its_own() -> (
    None
):
    """A plan for no framework by name has ZeRO-1, torchtitan none; a plan for it would not help."""
    own = replace(base("megatron"), model=model("llama3-8b"))
    free = replace(own, framework=None)
    with refusal("layout.zero = 1: .* 2; plan --framework torchtitan finds"):
        bridge.write(free, "torchtitan", PLACE)
    named = replace(free, framework=base("torchtitan").framework)
    with refusal("layout.zero = 1: .* means 2$"):
        bridge.write(named, "torchtitan", PLACE)


@pytest.mark.parametrize("name", [*table.written()])
@pytest.mark.parametrize("field", [*WORDS, *DEGREES, KERNEL])
def test_a_new_word_is_refused_or_left_to_the_script(
    name: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added where words are listed and nowhere else, as in docs/extend.md; without it the job is
    written.
    """
    job = base(name)
    assert bridge.write(job, name, PLACE)
    if field in DEGREES:
        add_word(Layout, field, monkeypatch)
        degrees = DEGREES[field]
        layout = replace(job.layout, **degrees, **{field: NEW})  # type: ignore[arg-type]
        job = replace(job, layout=layout)
    elif field == KERNEL:
        add_word(Job, field, monkeypatch)
        add_word(Framework, "attention", monkeypatch)
        add_word(Stack, "kernel", monkeypatch)
        job = replace(job, attention_kernel=NEW)
    else:
        for owner in (Software, Framework):
            add_word(owner, field, monkeypatch)
        job = replace(job, software=Software(**{field: NEW}))
    if field == "float8":  # means nothing beside other numbers
        job = replace(job, precision=PRECISIONS["fp8"])
    try:
        script = bridge.write(job, name, PLACE)[1]
    except BadInput as error:
        assert re.search(f"(?i){SAYS.get(field, field)}", str(error))
    else:
        assert f"the attention kernel = {NEW}" in script


# ---------------------------------------------------------------- what runs is what was planned


@pytest.mark.parametrize("name", [*table.written()])
def test_more_copies_than_replicas_are_refused(name: str) -> None:
    """Such a plan has no shards, which a writer must not divide by."""
    plan = Layout(dp=4, tp=2, dp_replicate=8, zero=1)
    with refusal("dp_replicate 8 must divide dp 4"):
        bridge.write(replace(base(name), layout=plan), name, PLACE)


def test_maxtext_takes_none_for_everything() -> None:
    """configs/pyconfig.py (0.2.5) makes None of the word, get_remat_policy no policy of None, and
    every layer is under jax.checkpoint(policy=None), which keeps nothing.
    """
    job = base("maxtext")
    none = replace(job, layout=replace(job.layout, recompute="none"))
    with refusal("layout.recompute = none, only full, minimal"):
        bridge.write(none, "maxtext", PLACE)
    text = bridge.write(job, "maxtext", PLACE)[0]
    other = text.replace("remat_policy: full", "remat_policy: none")
    found = bridge.read_file("a.yml", other)
    assert found.tables["layout"]["recompute"] == "full"
    assert any("recomputes whole layers" in note for note in found.notes)


def test_accelerates_fsdp_gathers_layer_by_layer() -> None:
    """accelerate 1.15.0 wraps nothing unless told (utils/dataclasses.py, auto_wrap_policy: NO_WRAP):
    its FSDP would gather the whole model at once.
    """
    text = bridge.write(base("accelerate"), "accelerate", PLACE)[0]
    assert "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP" in text
    assert not bridge.read_file("a.yaml", text).left
    for policy, what in (
        ("NO_WRAP", "all weights at once"),
        ("SIZE_BASED_WRAP", "by their size"),
        (None, "all weights at once"),
    ):
        line = f"fsdp_auto_wrap_policy: {policy}" if policy else ""
        other = text.replace(
            "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", line
        )
        (why,) = bridge.read_file("a.yaml", other).left.values()
        assert what in why and "layer by layer" in why
    plain = replace(base("accelerate"), layout=Layout(dp=8))
    assert "wrap_policy" not in bridge.write(plain, "accelerate", PLACE)[0]


def test_megatron_gets_what_validate_args_demands() -> None:
    """megatron/training/arguments.py (d98e8a6), validate_args: optimizer_cpu_offload asserts
    use_precision_aware_optimizer, full_iteration asserts no check for NaN; model_parallel_config.py
    names the group of microbatches after the virtual pipeline stage.
    """
    job = replace(
        base("megatron"),
        model=model("llama3-8b"),
        cluster="16xh100-sxm",
        batch=128,
    )

    def text(layout: Layout, **software: str) -> str:
        one = replace(job, layout=layout, software=Software(**software))
        return bridge.write(one, "megatron", PLACE)[0]

    away = text(Layout(dp=16, zero=1, offload="optimizer:0.5"))
    assert "--use-precision-aware-optimizer" in away
    graphs = text(cut("dp16 zero1"), cuda_graphs="full")
    assert "--no-check-for-nan-in-loss-and-grad" in graphs
    parts = text(cut("dp16 zero1"), cuda_graphs="parts")
    assert "--no-check-for-nan-in-loss-and-grad" not in parts
    groups = text(
        Layout(
            pp=2,
            dp=8,
            interleave=2,
            schedule="interleaved",
            microbatch_group=4,
        )
    )
    named = "--microbatch-group-size-per-virtual-pipeline-stage 4"
    assert named in groups
    back = bridge.read_file("a.sh", groups)
    assert back.tables["layout"]["microbatch_group"] == 4


AXOLOTL = Job(
    "mixtral-8x7b",
    "8xh100-sxm",
    64,
    cut("dp8 ep4 zero3"),
    framework="torchtitan",
    software=Software(compiled=False, dispatcher="deepep"),
)


def test_axolotls_experts_are_its_plugins() -> None:
    """axolotl 0.19.0: integrations/expert_parallel/plugin.py demands ep x dp_shard x cp = world, the
    mesh has ep farthest, and without the plugin the degree does nothing.
    """
    text = bridge.write(AXOLOTL, "axolotl", PLACE)[0]
    assert "expert_parallel_size: 4" in text and "dp_shard_size: 2" in text
    assert "integrations.expert_parallel.ExpertParallelPlugin" in text
    tables = bridge.read_file("a.yaml", text).tables
    assert tables["layout"]["ep"] == 4 and tables["layout"]["dp"] == 8
    alone = text.replace("integrations.expert_parallel.Expert", "x.Other")
    said = bridge.read_file("a.yaml", alone)
    assert "does nothing without plugins" in said.left["expert_parallel_size"]
    assert said.tables["layout"].get("ep", 1) == 1
    wide = replace(
        AXOLOTL, cluster="64xh100-sxm", layout=cut("dp64 ep8 zero3")
    )
    with refusal("across nodes.*ep 8 on one node"):
        bridge.write(wide, "axolotl", PLACE)
    own = replace(AXOLOTL, software=Software(compiled=False))
    with refusal("dispatcher = alltoall.*means deepep"):
        bridge.write(own, "axolotl", PLACE)
    for layout in ({"dp": 4, "cp": 2}, {"ep": 8}, {"dp_replicate": 2}):
        with refusal("combines ep only with sharding"):
            l = replace(AXOLOTL.layout, **layout)  # type: ignore[arg-type]
            bridge.write(replace(AXOLOTL, layout=l), "axolotl", PLACE)


def test_axolotls_context_parallelism_is_flash_attention() -> None:
    """utils/schemas/validation.py (0.19.0), check_context_parallel_size: FlashAttention-2 by name;
    keys are gathered (varlen_llama3) of packed sequences, else sent round (batch_ring).
    """
    job = replace(
        AXOLOTL,
        model=model("llama3-8b"),
        layout=cut("cp2 dp4 zero3"),
        software=Software(compiled=False, loss="eager"),
    )
    text = bridge.write(job, "axolotl", PLACE)[0]
    for line in (
        "context_parallel_size: 2",
        "attn_implementation: flash_attention_2",
        "ring_attn_func: varlen_llama3",
        "sample_packing: true",
    ):
        assert line in text
    ring = replace(job, layout=replace(job.layout, cp_exchange="ring"))
    other = bridge.write(ring, "axolotl", PLACE)[0]
    assert "ring_attn_func: batch_ring" in other
    assert "sample_packing" not in other
    two = replace(job, layout=replace(job.layout, microbatch=2))
    with refusal("one sequence at a time: microbatch 2"):
        bridge.write(two, "axolotl", PLACE)
    with refusal("only with the kernel fa2, not unfused"):
        bridge.write(
            replace(job, attention_kernel="unfused"), "axolotl", PLACE
        )


def test_what_comes_first_is_named(shell: Shell) -> None:
    """An export without a plan names the command that makes one; so does a plan for another tool."""

    line = "export llama3-8b --to megatron --on 64xh100"
    said = shell.refused(line)
    assert "plan llama3-8b --on 64xh100" in said and "-o plan.toml" in said
    job = replace(
        base("torchtitan"), layout=Layout(dp=8, zero=3, scheme="gspmd")
    )
    with refusal("plan --framework torchtitan"):
        bridge.write(job, "torchtitan", PLACE)


def test_a_plan_that_pads_sequences_is_no_file() -> None:
    """Megatron Core asserts that 2 cp divides the sequence; 1,002 is padded to 1,008 over cp 4."""
    job = replace(base("megatron"), model=model("llama3-8b"), seq=1002)
    padded = replace(job, layout=cut("cp4 dp2 zero1"))
    with refusal("seq 1,002 .* plan with --seq 1008"):
        bridge.write(padded, "megatron", PLACE)
    assert bridge.write(replace(padded, seq=1008), "megatron", PLACE)


@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
def test_stages_of_another_number_are_refused(name: str) -> None:
    """ZB-V has two chunks a device: eight stages, and four are dealt."""
    v = Layout(dp=2, pp=4, zero=1, schedule="zbv", stages="7,9*2,7")
    job = replace(base(name), model=model("llama3-8b"), layout=v)
    with refusal("4 stages, but there are 8"):
        bridge.write(job, name, PLACE)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("deepspeed", {"tensor_parallel.autotp_size": 0.5}),
        ("torchtitan-toml", {"parallelism.tensor_parallel_degree": 1e-5}),
        ("megatron", {"num_layers": 4, "hidden_size": "wide"}),
        ("maxtext", {"steps": 8, "max_target_length": "long"}),
    ],
)
def test_a_size_that_is_no_number_is_a_sentence(
    name: str, keys: dict[str, object]
) -> None:
    """Also where another field is made of it."""
    with refusal("must be a whole number"):
        bridge.understood_as(name, FileKeys(keys, 64))


def test_stages_that_are_no_lists_are_not_read() -> None:
    keys = {
        "parallelism.module_fqns_per_model_part": [1, 2],
        "parallelism.pipeline_parallel_degree": 2,
    }
    found = bridge.understood_as("torchtitan", FileKeys(keys, 8))
    assert "stages" not in found.tables["layout"]


@pytest.mark.parametrize("name", ["torchtitan", "torchtitan-toml"])
def test_torchtitan_shares_experts_out_over_shards(name: str) -> None:
    """ParallelDims (0.2.2, 0.3.0) makes a mesh of dp_shard x cp x tp / ep shards of experts: none
    of copies alone.
    """
    job = base(name)
    shared = replace(job, layout=cut("dp8 ep8 zero3"))
    assert bridge.write(shared, name, PLACE)
    alone = replace(job, layout=cut("dp8 ep8 zero0"))
    with refusal("dp_shard x cp x tp = 1 ranks"):
        bridge.write(alone, name, PLACE)


@pytest.mark.parametrize(
    ("layout", "software", "reason"),
    [
        (
            {"tp": 4, "dp": 4, "pp": 4, "sequence_parallel": False},
            {"tp_overlap": "all"},
            "tp_overlap all needs sequence_parallel",
        ),
        (
            {"tp": 1, "dp": 16, "pp": 4, "ep": 8},
            {"ep_overlap": True},
            "ep_overlap in a pipeline of 4 needs several chunks",
        ),
        (
            {"tp": 1, "dp": 64, "ep": 8, "recompute": "full"},
            {"ep_overlap": True},
            "recompute full sends tokens to experts again",
        ),
        (
            {"tp": 1, "dp": 64, "ep": 8},
            {"ep_overlap": True, "shared_overlap": True},
            "beside shared experts or beside another microbatch",
        ),
        (
            {"tp": 1, "dp": 64, "ep": 8},
            {"dispatcher": "allgather", "shared_overlap": True},
            "beside an all-to-all alone",
        ),
        (
            {"tp": 1, "dp": 64, "ep": 8, "recompute": "full"},
            {"cuda_graphs": "parts"},
            "cuda_graphs parts takes none or parts of a layer",
        ),
    ],
)
def test_megatron_does_not_take_some_settings_beside_each_other(
    layout: dict[str, int], software: dict[str, str | bool], reason: str
) -> None:
    """arguments.py, validate_args; transformer_config.py, __post_init__ (d98e8a6)."""
    on = cluster("64xh100-sxm")
    laid = Layout(zero=1, **layout)  # type: ignore[arg-type]
    job = Job("mixtral-8x7b", on, batch=256, layout=laid)
    assert bridge.write(job, "megatron", PLACE)
    asked = replace(job, software=Software(**software))  # type: ignore[arg-type]
    with refusal(reason):
        bridge.write(asked, "megatron", PLACE)


@pytest.mark.parametrize(
    ("recompute", "offload", "why"),
    [
        ("none", "activations", "recompute full"),
        ("full", "inputs", "what all layers keep"),
        ("full", "optimizer", "all states"),
    ],
)
def test_what_axolotl_does_not_move_to_host_memory(
    recompute: str, offload: str, why: str
) -> None:
    layout = Layout(dp=8, zero=3, recompute=recompute, offload=offload)
    job = Job("llama3-8b", "8xh100-sxm", 64, layout, framework="fsdp")
    with refusal(why):
        bridge.write(job, "axolotl", PLACE)
    both = replace(
        layout, recompute="full", offload="activations+optimizer+weights"
    )
    text = bridge.write(replace(job, layout=both), "axolotl", PLACE)[0]
    assert "activation_offloading: true" in text
    assert "offload_params: true" in text
