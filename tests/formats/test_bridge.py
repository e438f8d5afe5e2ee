"""Files of other tools: what they say is read, what a job says comes back, the rest is refused."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layouts import cut
from meshwright import BadInput, Job, Layout, model, predict
from meshwright.describe.fields import fields_of
from meshwright.describe.job import PRECISIONS
from meshwright.describe.model import Model
from meshwright.describe.software import Software
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import launch, shell, table
from meshwright.formats.bridge.megatron import pipeline_text, stages_of
from meshwright.formats.bridge.read_back import meant
from meshwright.layout import rules
from meshwright.schedule import get as schedule_named
from refusals import refusal
from shell import Shell

HERE = Path(__file__).parent
PLACE = launch.Place(1, 8)
END = {"deepspeed": ".json", "torchtitan-toml": ".toml"}
"""Format -> suffix of its files; scripts and YAML are known by what is in them."""
EXAMPLE = """#!/bin/bash
# a comment with --tensor-model-parallel-size 99
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-4}
TP=2
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096   # a comment
    --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000 --swiglu --normalization RMSNorm
    --untie-embeddings-and-output-weights --disable-bias-linear
    --attention-dropout 0.0 --hidden-dropout 0.0 --vocab-size 128256
)
if [[ "$DTYPE" == "fp8" ]]; then
    MODEL_ARGS+=("--fp8-format hybrid")
else
    MODEL_ARGS+=(--bf16)
fi
PARALLEL=" --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size $((TP * 2)) \\
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py \\
    "${MODEL_ARGS[@]}" $PARALLEL --micro-batch-size 1 --global-batch-size 128 \\
    --train-samples 1000000 --use-distributed-optimizer --recompute-activations \\
    --lr 1e-4 --distribute-saved-activations --strange-new-flag 7
"""


def job_of(tmp: Path, name: str, text: str, **given: str) -> Job:
    """The job of a text in a file of that name."""
    path = tmp / name
    path.write_text(text, "utf-8")
    return flags.read_flags(str(path), given, [])


def test_a_megatron_script_is_the_job_it_starts(tmp_path: Path) -> None:
    """Every number here was worked out by hand from the script."""
    job = job_of(tmp_path, "train.sh", EXAMPLE, on="h100-sxm")
    assert job.cluster.chips == 32  # 8 GPUs on 4 nodes
    mine = model("llama3-8b")
    for name in (
        "layers",
        "hidden",
        "heads",
        "ffn",
        "vocab",
        "K",
        "tied_embeddings",
        "gated",
    ):
        assert getattr(job.model, name) == getattr(mine, name), name
    assert job.layout == cut(
        "tp2 pp4 dp4 zero1 interleave4 interleaved selective"
    )
    assert (job.batch, job.T, job.tokens) == (128, 8192, 8192e6)
    assert job.precision == PRECISIONS["bf16"]
    assert predict(job).step_time_s > 0


def test_what_a_job_cannot_hold_is_said() -> None:
    found = bridge.read_file("train.sh", EXAMPLE)
    assert set(found.left) == {
        "distribute_saved_activations",
        "strange_new_flag",
    }
    assert "over tp" in found.left["distribute_saved_activations"]
    assert "lr" in found.harmless


@given(text=st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_no_script_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(BadInput):
        shell.read_script(text)


def test_stages_in_megatrons_words() -> None:
    """61 layers of a published recipe: one beside the embedding, then two each, none at the end."""
    assert stages_of("Et|(tt|)*30L") == [1, *[2] * 30, 0]
    assert stages_of("Et*3|(tt|)*29,m|L") == [3, *[2] * 29, 0, 0]
    assert stages_of("no layout") is None
    layers = [7, *[8] * 14, 7]
    assert stages_of(pipeline_text(layers)) == layers


# ---------------------------------------------------------------- recipes


RECIPES = json.loads((HERE / "bridge_recipes.json").read_text("utf-8"))
BEYOND = (
    "vl",
    "nemotron",
    "glm5",
    "deepseek_v4",
    "wan",
    "lora",
    "sft",
    "peft",
    "vr200",
    "r100",
)
"""Words in names of recipes of models, tasks and chips that are not described here."""


def is_described(row: dict[str, object]) -> bool:
    name = str(row["recipe"])
    return not name.startswith("_") and not any(
        word in name for word in BEYOND
    )


def test_published_recipes_are_expressed() -> None:
    """Of the recipes of models that are known here with a batch, nine of ten hold every key, and
    no rule refuses one but the two that need more ranks than they have."""
    exact, said, refused = 0, 0, []
    for row in RECIPES["rows"]:
        if not is_described(row) or "global_batch_size" not in row:
            continue
        keys = {k: v for k, v in row.items() if k != "file"}
        found = bridge.understood_as(
            "megatron-bridge",
            bridge.tool_named("megatron-bridge").of_tree(keys, ""),
        )
        job = job_from(found)
        if rules.broken(job, job.layout):
            refused.append(row["recipe"])
        elif found.left:
            said += 1
        else:
            exact += 1
    assert exact + said >= 80
    assert exact >= 0.93 * (exact + said), (exact, said)
    assert len(refused) == 2 and all(
        "qwen3_235b_a22b_pretrain_64gpu" in r for r in refused
    )


def test_states_of_the_optimizer_in_the_words_of_torch() -> None:
    """Moments in 16 bits beside an fp32 master, 8 bytes a weight: torch.bfloat16 is bf16."""
    (row,) = (
        r
        for r in RECIPES["rows"]
        if r.get("exp_avg_dtype") and "128gpu_b200" in r["recipe"]
    )
    tool = bridge.tool_named("megatron-bridge")
    for name in ("torch.bfloat16", "bfloat16", "bf16"):
        keys = {**row, "exp_avg_dtype": name, "exp_avg_sq_dtype": name}
        found = bridge.understood_as("megatron-bridge", tool.of_tree(keys, ""))
        states = job_from(found).optimizer
        assert (states.state_bytes, states.master_bytes) == (8.0, 4.0), name


def job_from(found: bridge.ForeignFile) -> Job:
    """The job of a recipe, on the machine in its name."""
    from meshwright import load_job

    tables = {**found.tables, "cluster": {"on": f"{found.chips}x{found.on}"}}
    job = load_job(tables)
    return flags._filled(job, [])


# ---------------------------------------------------------------- there and back


def degrees() -> st.SearchStrategy[int]:
    return st.sampled_from([1, 2, 4])


LAYOUTS = st.builds(
    Layout,
    tp=degrees(),
    pp=st.sampled_from([1, 1, 1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2]),
    microbatch=degrees(),
    interleave=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1, 2, 3, 3]),
    schedule=st.sampled_from(["1f1b", "interleaved", "gpipe", "zbv"]),
    recompute=st.sampled_from(
        [
            *["none", "full"] * 5,
            "selective",
            "full:2",
            "layernorm+mlp",
            "op",
            "minimal",
        ]
    ),
    sequence_parallel=st.booleans(),
    dp_replicate=st.sampled_from([1, 1, 2]),
    offload=st.sampled_from(
        [
            *["none"] * 9,
            "activations",
            "activations:3",
            "optimizer",
            "optimizer:0.5",
            "optimizer+weights",
        ]
    ),
)
EXAMPLES = {bool: (True, False), int: (1_000, 40_000_000)}
SETTINGS = [
    (name, value)
    for name, field in fields_of(Software).items()
    for value in field.kind.words or EXAMPLES[field.kind.type]
]
"""Each value of each setting of the software, of a number two."""
JOBS = st.builds(
    lambda layout, name, precision, seq, batch, software, framework: Job(
        name,
        "64xh100-sxm",
        batch,
        replace(layout, dp=64 // (layout.tp * layout.pp * layout.cp)),
        seq=seq,
        precision=precision,
        software=software,
        framework=framework,
    ),
    LAYOUTS,
    st.sampled_from(
        ["llama3-8b", "mixtral-8x7b", "qwen3-8b", "deepseek-v3", "gpt3-13b"]
    ),
    st.sampled_from(
        ["bf16", "bf16", "bf16", "fp8", "bf16-pure", "fp16", "fp32"]
    ),
    st.sampled_from([2048, 8192]),
    st.sampled_from([256, 512]),
    st.lists(st.sampled_from(SETTINGS), max_size=2).map(
        lambda some: Software(**dict(some))
    ),
    st.none(),
)


def simplest(job: Job) -> Job:
    """The job without what changes nothing: options of degrees that are 1."""
    l = job.layout
    if l.tp == 1:
        l = replace(l, sequence_parallel=True)
    if l.pp == 1:
        l = replace(l, schedule="1f1b", interleave=1)
    chunks = schedule_named(l.schedule).chunks
    if chunks(1) == chunks(2):
        l = replace(l, interleave=1)
    if l.zero == 0:
        l = replace(l, dp_replicate=1)
    if job.model.moe is None:
        l = replace(l, etp=1)
    told = job.software
    if job.precision.compute != "fp8":
        told = replace(told, float8=None)
    return replace(job, layout=l, software=told)


def sayable(job: Job, name: str) -> Job:
    """The job with the values that a format cannot say put back, one field at a time."""
    cells = table.get(name).cells
    l, told = job.layout, job.software
    told_always = cells.get("layout.sequence_parallel", table.Cell()).always
    if told_always is not table.UNSAID:
        l = replace(l, sequence_parallel=told_always)
    for f in fields(Layout):
        if f"layout.{f.name}" not in cells and f.name not in (
            "placement",
            "dp",
        ):
            l = replace(l, **{f.name: f.default})
    if name == "axolotl":  # experts inside one node, packed sequences by one
        l = replace(l, ep=1, microbatch=1 if l.cp > 1 else l.microbatch)
        norm = None if told.compiled else "torch"  # of transformers' models
        told = replace(told, dispatcher=None, norm=norm)
    if name == "maxtext" and l.recompute == "none":
        l = replace(l, recompute="full")
    for g in fields(Software):
        if f"software.{g.name}" not in cells:
            told = replace(told, **{g.name: None})
    by = table.get(name).frameworks[0]
    l = replace(l, dp=64 // (l.tp * l.pp * l.cp))
    return replace(job, layout=l, software=told, framework=by)


@pytest.mark.parametrize("name", [*table.written()])
def test_what_is_written_reads_back(name: str, tmp_path: Path) -> None:
    """write, then read, is the same job, for all that the format can say; the rest is refused."""
    done = [0]

    @given(job=JOBS)
    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=[HealthCheck.filter_too_much],
    )
    def check(job: Job) -> None:
        job = simplest(sayable(job, name))
        try:
            text, script = bridge.write(job, name, launch.Place(8, 8))
        except BadInput:
            return
        done[0] += 1
        told = {"on": "64xh100-sxm", **flags_for(job, name)}
        back = job_of(tmp_path, "file" + suffix_of(name), text, **told)
        assert described(back, job) == described(job, job), text

    check()
    assert done[0] >= 3


def suffix_of(name: str) -> str:
    """Of a file in that format."""
    scripts = ("megatron", "megatron-bridge", "torchtitan")
    return ".sh" if name in scripts else END.get(name, ".yaml")


def flags_for(job: Job, name: str) -> dict[str, str]:
    """What the file leaves to the training script, as flags."""
    cells, told = table.get(name).cells, {}
    values = {
        "job.seq": job.T,
        "job.batch": f"{job.batch}seq",
        "layout.microbatch": job.layout.microbatch,
        "layout.recompute": job.layout.recompute,
    }
    for path, value in values.items():
        if cells[path].script:
            told[path.partition(".")[2]] = str(value)
    given = "model" in cells and cells["model"].script
    if given or name == "gpt-neox":  # its vocabulary is the tokenizer's
        told["model_"] = job.model.name
    return told


def described(job: Job, other: Job) -> dict[str, object]:
    """What a run of the job is made of, on the other's program; a model by its numbers."""
    model = job.model
    shape = {f.name: getattr(model, f.name) for f in fields(type(model))}
    for name in ("name", "notes", "sources", "seq", "rope_scaling"):
        shape.pop(name)
    same = {"kv_heads": model.K, "head_dim": model.h, "activation": model.act}
    said = meant(simplest(job), other.profile)
    del said["software.gradients"]  # which are in job.precision
    return {**said, **shape, **same}


# ---------------------------------------------------------------- what is refused


BASE = Job("llama3-8b", "8xh100-sxm", 64, Layout(dp=8), framework=None)


@pytest.mark.parametrize("name", ["nanotron", "gpt-neox"])
def test_a_width_of_heads_that_says_nothing_new_is_left_out(name: str) -> None:
    """Both refused head_dim 128 of 16 heads in 2,048; they have no key for another one."""
    shape = {"layers": 8, "hidden": 2048, "heads": 16, "ffn": 8192}
    model = Model(name="m", vocab=50257, seq=2048, **shape)
    plain = replace(BASE, model=model)
    said = replace(plain, model=replace(model, head_dim=128))
    assert bridge.write(said, name, PLACE) == bridge.write(plain, name, PLACE)
    with refusal("model.head_dim = 64"):
        other = replace(plain, model=replace(model, head_dim=64))
        bridge.write(other, name, PLACE)


@pytest.mark.parametrize("name", [*table.written()])
def test_another_placement_is_refused(name: str) -> None:
    job = replace(BASE, cluster="16xh100-sxm", layout=cut("tp2 dp8"))
    other = replace(
        job.layout,
        placement={"tp": (1, 2), "cp": (1, 1), "dp": (4, 2), "pp": (1, 1)},
    )
    with refusal(
        "fills each slice of 8" if name == "maxtext" else "tp nearest"
    ):
        bridge.write(replace(job, layout=other), name, PLACE)


NODES = {"model": "qwen3-14b", "on": "24xh100-sxm", "batch": "96seq"}
CUT = NODES | {"cp": "2", "tp": "2"}
"""Three nodes, of which a layout may lie anywhere unless its launcher is named."""
PODS = {"batch": "512seq", "framework": "maxtext"}


@pytest.mark.parametrize(
    ("format", "given"),
    [
        ("megatron", CUT | {"framework": "megatron-core"}),
        ("megatron-bridge", CUT | {"framework": "megatron-bridge"}),
        ("torchtitan", CUT | {"framework": "torchtitan"}),
        ("maxtext", CUT | {"framework": "maxtext"}),
        ("deepspeed", NODES | {"framework": "deepspeed"}),
        ("maxtext", PODS | {"model": "llama3-8b", "on": "64xtpu-v5p"}),
        ("maxtext", PODS | {"model": "mixtral-8x7b", "on": "128xtpu-v5p"}),
        (
            "maxtext",
            PODS | {"model": "llama3-70b", "on": "256xtpu-v5e", "pp": "2"},
        ),
    ],
)
def test_what_is_planned_for_a_framework_is_written_in_its_format(
    format: str, given: dict[str, str]
) -> None:
    """Every best layout: its launcher numbers the ranks, and its format has all keys."""
    from meshwright import search

    rest, space = flags.job_and_space(given)
    job = flags.read_flags(rest.pop("model"), rest, fill=False)
    found = search.plan(job, space, families=False, top=8)
    assert found.best
    for one in (found.best, *found.alternatives):
        bridge.write(replace(job, layout=one.layout), format, PLACE)


def test_ranks_lie_as_the_launcher_numbers_them() -> None:
    """16 ranks in nodes of 8: Megatron numbers tp, cp, dp, pp, or pp before dp; cp across nodes
    while dp lies inside them is no order of these, and is refused where Megatron is named.
    """
    place = {"tp": (2, 1), "cp": (1, 2), "dp": (4, 1), "pp": (1, 1)}
    layout = Layout(tp=2, cp=2, dp=4, placement=place)
    job = replace(BASE, cluster="16xh100-sxm")
    assert not rules.broken(job, layout)
    named = replace(job, framework="megatron-core")
    (why,) = rules.broken(named, layout)
    assert "tp-cp-dp-pp or tp-cp-pp-dp" in why
    nearer = {"tp": (2, 1), "cp": (1, 1), "dp": (1, 2), "pp": (4, 1)}
    swapped = Layout(tp=2, pp=4, dp=2, placement=nearer)
    assert not rules.broken(named, swapped)
    titan = replace(job, framework="torchtitan")
    assert "in the order tp-cp-dp-pp," in rules.broken(titan, swapped)[0]


@pytest.mark.parametrize("name", ["megatron", "megatron-bridge"])
def test_stages_nearer_than_replicas_are_megatrons_other_order(
    name: str, tmp_path: Path
) -> None:
    """--use-tp-pp-dp-mapping: the two stages of 4 x 2 x 2 ranks lie in one node of 8, replicas in
    two; written, read back, and predicted as given by hand.
    """
    job = replace(BASE, cluster="16xh100-sxm", layout=cut("tp4 pp2 dp2"))
    nearer = {"tp": (4, 1), "cp": (1, 1), "pp": (2, 1), "dp": (1, 2)}
    usual = bridge.write(job, name, PLACE)[0]
    job = replace(job, layout=replace(job.layout, placement=nearer))
    text = bridge.write(job, name, PLACE)[0]
    assert "tp_pp_dp" in text.replace("-", "_") and "pp_dp" not in usual
    back = job_of(
        tmp_path, "a.sh", text, on="16xh100-sxm", **flags_for(job, name)
    )
    assert dict(back.layout.placement) == nearer
    told = flags.read_flags(
        "llama3-8b",
        {"on": "16xh100-sxm", "batch": "64seq", "tp": "4", "pp": "2"}
        | {"placement": "tp-cp-pp-dp"},
    )
    assert dict(told.layout.placement) == nearer
    assert predict(told).step_time_s > 0


def test_megatrons_own_checks_are_met() -> None:
    """What validate_args of Megatron-LM demands: one queue for tp and cp up to Hopper, its own
    checkpoints under Megatron-FSDP, and stages that divide, or a list of them.
    """
    queue = "export CUDA_DEVICE_MAX_CONNECTIONS=1"
    base = replace(BASE, cluster="64xh100-sxm")

    def text(**layout: object) -> str:
        job = replace(base, layout=Layout(**layout))  # type: ignore[arg-type]
        return bridge.write(job, "megatron", PLACE)[0]

    assert queue in text(tp=2, dp=32) and queue in text(cp=2, dp=32)
    assert queue not in text(dp=64)
    fsdp = text(tp=2, dp=32, zero=3)
    assert queue not in fsdp and "--ckpt-format fsdp_dtensor" in fsdp
    # 32 layers and two ends over 2 stages, and over 8
    even = text(pp=2, dp=32, stages="slots")
    assert "--account-for-loss-in-pipeline-split" in even
    odd = text(pp=8, dp=8, stages="slots")
    assert "account-for" not in odd
    listed = re.search(r"--pipeline-model-parallel-layout '([^']+)'", odd)
    assert listed and stages_of(listed[1]) == [3, 5, 5, 4, 4, 4, 4, 3]


def test_overrides_of_a_recipe_are_hydras() -> None:
    """Brackets in a bare text are a call in Hydra's grammar (OverrideLexer.g4 of hydra 1.3), so
    such texts stand in quotes; and a recipe has a layout of its own (llama3_70b_pretrain_config:
    tp 4, pp 4, vp 5), so what a plan leaves at its default is written too.
    """
    job = replace(BASE, cluster="64xh100-sxm", layout=cut("pp8 dp8"))
    odd = replace(job, layout=replace(job.layout, stages="slots"))
    text = bridge.write(odd, "megatron-bridge", PLACE)[0]
    assert re.search(r"""pipeline_model_parallel_layout="Et.*L"'""", text)
    for plain in (
        "model.virtual_pipeline_model_parallel_size=null",
        "model.recompute_granularity=null",
        "ddp.use_megatron_fsdp=false",
    ):
        assert plain in text
    assert "expert_model_parallel_size" not in text
    with refusal("no recipe of the sizes of mixtral-8x7b"):
        mixtral = replace(job, model=model("mixtral-8x7b"))
        bridge.write(mixtral, "megatron-bridge", PLACE)


def test_torchtitans_command_line() -> None:
    """torchtitan 0.3.0: a switch has two names, stages are blanks and commas, the policy of
    recomputation is a subcommand behind the flags (tyro), CUDA graphs refuse pipelines
    (`_validate_cuda_graphs`), and the head is called lm_head.
    """
    job = replace(BASE, cluster="64xh100-sxm", framework="torchtitan")
    layout = Layout(pp=8, dp=8, zero=1, stages="slots", recompute="full")
    text = bridge.write(replace(job, layout=layout), "torchtitan", PLACE)[0]
    assert "--module llama3" in text and "--config llama3_8b" in text
    assert re.search(r"part tok_embeddings,layers\.0,.* \S+lm_head ", text)
    assert "--compile.enable \\" in text
    assert "--compile.no-enable_async_tensor_parallel" in text
    assert "--training.disable_cuda_graphs" in text
    assert text.rstrip().endswith("activation-checkpoint:full")
    long = replace(job, layout=cut("cp8 dp8 zero3"))
    assert "balancer ptrr" in bridge.write(long, "torchtitan", PLACE)[0]


def test_torchtitans_eight_bits_are_configurations() -> None:
    """No flag says FP8: three models have a configuration that does; the file of 0.2 says it."""
    wide = replace(PRECISIONS["fp8"], gather_bytes=2.0)
    job = replace(
        BASE,
        layout=cut("dp8 zero3"),
        precision=wide,
        framework="torchtitan",
    )
    big = replace(job, model=model("llama3-405b"))
    with refusal("tensorwise.*means rowwise"):
        bridge.write(big, "torchtitan", PLACE)
    by_row = replace(big, software=Software(float8="rowwise"))
    text = bridge.write(by_row, "torchtitan", PLACE)[0]
    assert "--config llama3_405b" in text
    back = bridge.read_file("a.sh", text)
    assert back.tables["job"]["precision"] == {
        "name": "fp8",
        "gather_bytes": 2,
    }
    assert back.tables["software"]["float8"] == "rowwise"
    with refusal("do not say FP8.*torchtitan-toml"):
        bridge.write(
            replace(job, model=model("llama3-70b")), "torchtitan", PLACE
        )
    assert "float8" in bridge.write(job, "torchtitan-toml", PLACE)[0]


def test_axolotls_schema_has_what_it_demands() -> None:
    """`learning_rate` has no default and one of two kinds of data must be there
    (AxolotlInputConfig, axolotl 0.19.0): both stand there to be filled in."""
    job = replace(BASE, layout=cut("dp8 zero3"))
    text = bridge.write(job, "axolotl", PLACE)[0]
    keys = bridge.read_file("a.yaml", text)
    assert "\ndatasets: [{" in text and "\nlearning_rate: " in text
    assert "your own datasets and learning_rate" in text and not keys.left


def test_an_order_of_axes_names_each_once() -> None:
    with refusal("must hold each of"):
        flags.read_flags(
            "llama3-8b",
            {"on": "16xh100-sxm", "batch": "64seq", "placement": "tp-pp-dp"},
        )


def test_what_the_table_does_not_say_a_tool_reads_and_writes() -> None:
    """Several keys of one field are alternatives (kind), or are said for each value, or by code."""
    for name, format in table.formats().items():
        for path, cell in format.cells.items():
            if len(cell.keys) < 2 or cell.always is not table.UNSAID:
                continue
            tabled = cell.kind or cell.says or cell.once or cell.lengths
            tabled = tabled or cell.formula or cell.product or cell.left
            assert tabled or cell.reader, (name, path)
            tabled = tabled or cell.beside or cell.write or cell.put
            tabled = tabled or cell.refuse
            tabled = tabled or not format.written
            assert tabled or cell.writer, (name, path)


def test_every_key_of_the_table_is_asked_for_once() -> None:
    """No key stands for two fields unless one of them is computed from it."""
    for name, format in table.formats().items():
        seen: dict[str, str] = {}
        for path, cell in format.cells.items():
            for key in cell.keys:
                first = seen.setdefault(key, path)
                rows = format.cells[first], cell
                computed = any(
                    r.reader or r.formula or r.product for r in rows
                )
                assert first == path or computed, (name, key, path, first)


YAML_BOMB = "a: &a [x]\n" + "".join(
    f"b{i}: &b{i} [{', '.join(['*b' + str(i - 1)] * 9)}]\n"
    for i in range(1, 9)
).replace("*b0", "*a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("[" * 5000, "nested too deeply|not valid"),
        ("- 1\n- 2", "keys and values"),
        ("a: " + "x" * 2**20, "larger than"),
        (YAML_BOMB, "read here"),
    ],
)
def test_yaml_is_data_and_bounded(text: str, words: str) -> None:
    pytest.importorskip("yaml")
    with refusal(words):
        bridge.read_file("x.yaml", text)


# ---------------------------------------------------------------- the command


def test_read_says_what_is_missing_and_what_next(
    tmp_path: Path, shell: Shell
) -> None:

    script = tmp_path / "train.sh"
    script.write_text(EXAMPLE, "utf-8")
    told = " ".join(shell(f"read {script}").out.split())
    assert "--on h100-sxm" in told and "strange_new_flag" in told
    assert "--on h100-sxm -o job.toml" in told
    assert "tokens 8,192,000,000," in told
    job = tmp_path / "job.toml"
    data = shell.json(f"read {script} --on h100-sxm -o {job}")
    assert (
        data["format"] == "megatron"
        and data["chips"] == 32
        and not data["missing"]
    )
    assert flags.read_flags(str(job), {}).layout.interleave == 4
    assert "which chips" in shell.refused(f"predict {script}")


def test_what_is_left_to_the_training_script_is_said(
    tmp_path: Path, shell: Shell
) -> None:
    """accelerate's file has no microbatch: a prediction takes one of its own, and says whose it
    is until the flag does."""

    layout = cut("dp64 zero3 microbatch2 full")
    job = replace(BASE, cluster="64xh100-sxm", layout=layout, framework="fsdp")
    config = tmp_path / "accelerate.yaml"
    config.write_text(bridge.write(job, "accelerate", PLACE)[0], "utf-8")
    left = "the batch size of a process (--microbatch)"
    rest = ["--model", "llama3-8b", "--on", "h100-sxm", "--batch", "256seq"]
    for verb in ("read", "predict"):
        assert left in " ".join(
            shell(f"{verb} {config}", *rest, "--all").out.split()
        )
        one = [*rest, "--all", "--microbatch", "2"]
        told = shell(f"{verb} {config}", *one).out
        assert "--microbatch)" not in told and "(--seq)" in told


def test_a_batch_script_starts_their_program_on_gpus(
    tmp_path: Path, shell: Shell
) -> None:

    from meshwright.formats.toml import dump_job

    path = tmp_path / "plan.toml"
    layout = cut("dp64 zero3")
    job = replace(BASE, cluster="64xh100-sxm", batch=512, layout=layout)
    path.write_text(dump_job(job), "utf-8")
    for name in ("torchtitan", "accelerate", "megatron"):
        text = shell(
            f"export {path} --to sbatch --starts {name} --time 10"
        ).out
        assert (
            "#SBATCH --gpus-per-node=8" in text and "#SBATCH --nodes=8" in text
        )
        assert "meshwright train" not in text and "#SBATCH --time=10" in text
    assert "sbatch" in shell.refused(
        f"export {path} --to megatron --partition gpu"
    )


def test_what_lies_between_matrices_is_cut_over_one_axis_or_the_other(
    tmp_path: Path,
) -> None:
    """MaxText's base.yml: activation_embed and norm over `tensor`, activation_norm_length over
    `tensor_sequence`; matrices over both."""
    layout = cut("tp4 dp64 zero3 full")
    along = Job("llama3-8b", "256xtpu-v5p", 256, layout)
    across = replace(along, layout=replace(layout, scheme="gspmd"))
    for job, used, idle in (
        (along, "tensor_sequence", "tensor"),
        (across, "tensor", "tensor_sequence"),
    ):
        text = bridge.write(job, "maxtext", PLACE)[0]
        assert f"ici_{used}_parallelism: 4\n" in text
        assert f"ici_{idle}_parallelism" not in text
        back = job_of(tmp_path, "a.yml", text, on="256xtpu-v5p")
        assert back.layout == job.layout
    with refusal("schemes megatron, gspmd, not context|gspmd, megatron"):
        other = replace(along, layout=replace(layout, scheme="context"))
        bridge.write(other, "maxtext", PLACE)
    for name in ("megatron", "torchtitan"):
        gpus = replace(across, cluster="256xh100-sxm")
        with refusal("scheme"):
            bridge.write(gpus, name, PLACE)


@pytest.mark.parametrize(
    ("on", "inside", "across"),
    [("64xtpu-v6e", 64, 1), ("256xtpu-v6e", 256, 1), ("512xtpu-v6e", 256, 2)],
)
def test_chips_of_one_torus_are_one_slice_of_maxtext(
    on: str, inside: int, across: int
) -> None:
    """Whether its axes close to rings or not (a v6e of 8 x 8 has none)."""
    chips = inside * across
    layout = cut(f"dp{chips} zero3 full")
    text = bridge.write(Job("llama3-8b", on, chips, layout), "maxtext", PLACE)[
        0
    ]
    assert f"ici_fsdp_parallelism: {inside}\n" in text
    assert f"dcn_fsdp_parallelism: {across}\n" in text


QKV = ("query_proj", "key_proj", "value_proj")


@pytest.mark.parametrize(
    ("recompute", "offload", "said"),
    [
        ("full", "none", {"remat_policy": "full"}),
        ("full", "activations", {"decoder_layer_input": "offload"}),
        (
            "save_qkv_proj",
            "activations",
            {"decoder_layer_input": "offload", **dict.fromkeys(QKV, "offload")},
        ),
        (
            "save_qkv_proj",
            "results+optimizer",
            {
                "decoder_layer_input": "device",
                "optimizer_memory_host_offload": "true",
                **dict.fromkeys(QKV, "offload"),
            },
        ),
        (
            "save_context+save_qkv_proj",
            "inputs",
            {
                "decoder_layer_input": "offload",
                **dict.fromkeys((*QKV, "context"), "device"),
            },
        ),
        (
            "save_dot_except_mlp",
            "activations",
            {"decoder_layer_input": "offload", "out_proj": "offload"},
        ),
        ("save_mlpwo", "none", {"mlpwo": "device"}),
    ],
)  # fmt: skip
def test_policies_of_maxtext_keep_and_offload_by_tensor(
    tmp_path: Path, recompute: str, offload: str, said: dict[str, str]
) -> None:
    """configs/base.yml: custom keeps each tensor on the device or on the host, or makes it again;
    what is written is read back."""
    layout = replace(cut("dp64 zero3"), recompute=recompute, offload=offload)
    job = Job("llama3-8b", "64xtpu-v5p", 64, layout)
    text = bridge.write(job, "maxtext", PLACE)[0]
    lines = text.splitlines()
    assert {f"{key}: {value}" for key, value in said.items()} <= {*lines}
    assert ("remat_policy: custom" in lines) is ("remat_policy" not in said)
    assert (
        job_of(tmp_path, "a.yml", text, on="64xtpu-v5p").layout == job.layout
    )


def test_what_a_policy_of_maxtext_keeps_in_part_is_said() -> None:
    def read(**tensors: str) -> bridge.ForeignFile:
        lines = [
            "model_name: llama3.1-8b\nper_device_batch_size: 1",
            "remat_policy: custom",
            *(f"{name}: {place}" for name, place in tensors.items()),
        ]
        return bridge.read_file("a.yml", "\n".join(lines))

    found = read(key_proj="device", out_proj="device")
    assert found.tables["layout"]["recompute"] == "save_out_proj"
    assert "makes it again" in found.left["key_proj"]
    found = read(out_proj="offload", mlpwo="device")
    assert found.tables["layout"]["offload"] == "results"
    assert "stays on the device" in found.left["mlpwo"]
    named = bridge.read_file(
        "a.yml",
        "model_name: llama3.1-8b\nper_device_batch_size: 1\n"
        "remat_policy: qkv_proj_offloaded",
    )
    assert named.tables["layout"]["recompute"] == "save_qkv_proj"
    assert named.tables["layout"]["offload"] == "results" and not named.left


def test_what_no_scheme_counts_is_read_with_a_note(tmp_path: Path) -> None:
    """A mixture of experts over MaxText's axis tensor: counted along the sequence, and said so."""
    file = tmp_path / "a.yml"
    text = "model_name: mixtral-8x7b\nici_tensor_parallelism: 4\n"
    file.write_text(text, "utf-8")
    found = bridge.read_file(file)
    assert found.tables["layout"]["tp"] == found.tables["layout"]["etp"] == 4
    assert "scheme" not in found.tables["layout"]
    assert any("along the sequence" in note for note in found.notes)


def test_experts_of_maxtext_are_cut_as_its_matrices() -> None:
    """base.yml lays the width of an expert (mlp_moe) on the axes of tp; a dense model has none."""
    layout = cut("tp4 dp32 etp4 zero3 full")
    experts = Job("mixtral-8x7b", "128xtpu-v5p", 512, layout)
    out, _ = bridge.write(experts, "maxtext", PLACE)
    assert "ici_tensor_sequence_parallelism: 4" in out
    whole = replace(layout, etp=1)
    assert "etp 1 must be tp 4" in " ".join(
        rules.framework_refusals(experts, whole)
    )
    assert not rules.framework_refusals(
        replace(experts, model=model("llama3-8b")), whole
    )
    with refusal("etp"):
        bridge.write(replace(experts, layout=whole), "maxtext", PLACE)


def test_a_plan_of_one_framework_is_not_written_for_another(
    tmp_path: Path,
) -> None:
    job = replace(BASE, layout=cut("dp8 zero3"), framework="torchtitan")
    with refusal("this plan is for torchtitan"):
        bridge.write(job, "maxtext", PLACE)
    with refusal("runs on GPUs"):
        tpus = Job("llama3-8b", "64xtpu-v5p", 64, cut("dp64 zero3"))
        bridge.write(tpus, "megatron", PLACE)


def documented(cell: table.Cell | None) -> str:
    """What the table of the documentation says of a field in a format."""
    if cell is None:
        return "-"
    if cell.script:
        return f"script: {cell.script}"
    if cell.always is not table.UNSAID:
        return f"always {str(cell.always).lower()}"
    return ", ".join(f"`{key}`" for key in cell.keys) or "computed"


def test_the_documentation_shows_the_table() -> None:
    """One row a field, one column a format; what is wanted goes into docs/bridges.md."""
    formats = table.written()
    rows = [("field", *formats), ("---",) * (len(formats) + 1)]
    rows += [
        (
            f"`{path}`",
            *(documented(f.cells.get(path)) for f in formats.values()),
        )
        for path in table._data()["fields"]
    ]
    text = (HERE.parents[1] / "docs" / "bridges.md").read_text("utf-8")
    told = [
        [c.strip() for c in line.split("|")[1:-1]]
        for line in text.splitlines()
    ]
    for row in rows:
        assert [*row] in told, " | ".join(row)


def lines(text: str) -> Iterator[str]:
    """Those that are no comments."""
    return (line for line in text.splitlines() if not line.startswith("#"))


def test_a_model_of_ones_own_folder_is_the_one_that_its_numbers_say() -> None:
    """A config.json is called after its folder; torchtitan calls these sizes llama3 8B."""
    ours = replace(model("llama3-8b"), name="config", sources={})
    layout = cut("dp8 zero3")
    job = Job(ours, "8xh100-sxm", 64, layout, framework="torchtitan")
    written, _ = bridge.write(job, "torchtitan", PLACE)
    named = replace(job, model=model("llama3-8b"))
    theirs = bridge.write(named, "torchtitan", PLACE)[0]
    assert [*lines(written)] == [*lines(theirs)]
    other = replace(job, model=replace(ours, ffn=14080))
    with refusal("no model of the sizes of config"):
        bridge.write(other, "torchtitan", PLACE)


def test_bridge_sizes_buckets_where_its_overlap_would_reset_them() -> None:
    """CommOverlapConfig sets bucket_size, 128 Mi unless it names one, over that of ddp
    (NVIDIA-NeMo/Megatron-Bridge@0685ff5d, training/comm_overlap.py), and no model has any.
    """
    job = Job(
        "llama3-8b",
        "8xh100",
        8,
        Layout(dp=8, zero=1),
        framework="megatron-bridge",
        software=Software(bucket_size=200_000_000),
    )
    text, _ = bridge.write(job, "megatron-bridge", PLACE)
    assert "bucket_size:200000000}" in text
    assert "model.bucket_size" not in text
