"""A plan in a file that is there: it says the plan, and everything else of it stays."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from test_bridge import (
    EXAMPLE,
    JOBS,
    described,
    flags_for,
    job_of,
    sayable,
    simplest,
    suffix_of,
)

from meshwright import BadInput, Job, Layout
from meshwright.formats import bridge, parse_toml
from meshwright.formats.bridge import launch, megatron_args, onto, shell
from meshwright.formats.bridge.edit import edit_yaml
from meshwright.formats.bridge.tree import parse_yaml, scalar_text
from refusals import refusal
from shell import Shell

PLACE = launch.Place(8, 8)
COMMENT = "# mine: keep this line"
OWN = {"my_own_key": 7, "my_list": [1, "two"], "my_table": {"a": "b # c"}}
"""Keys that no table knows."""


def with_own(text: str, name: str) -> str:
    """The file with keys, arguments and a comment that nobody here knows."""
    if name == "megatron":
        more = " \\\n    --my-own-flag 7 --my-words a b\n"
        return f"#!/bin/bash\n{COMMENT}\n" + text.rstrip("\n") + more
    if name == "deepspeed":
        return json.dumps({**json.loads(text), **OWN}, indent=4) + "\n"
    if name == "torchtitan-toml":
        own = 'my_own_key = 7\nmy_list = [1, "two"]\n'
        mine = f"\n{COMMENT}\n[my_table]  # too\na = 'b # c'\n"
        return own + text + mine
    own = "my_own_key: 7\nmy_list: [1, two]\nmy_table:\n  a: 'b # c'\n"
    return f"{COMMENT}\n{own}{text}{COMMENT}\n"


def own_of(text: str, name: str) -> dict[str, object]:
    """What a file says of keys that nobody here knows."""
    if name == "megatron":
        keys = megatron_args.TOOL.said(text, "").keys
    elif name == "deepspeed":
        keys = json.loads(text)
    elif name == "torchtitan-toml":
        keys = parse_toml(text, "")
    else:
        keys = parse_yaml(text, "")
    return {k: v for k, v in keys.items() if k.startswith("my_")}


SHARDED = Layout(dp=64, zero=3, recompute="full")
PIPED = Layout(tp=4, pp=2, dp=8, zero=1, sequence_parallel=True)
STAGED = Layout(pp=4, dp=16, zero=1, recompute="full", stages="slots")
WHOLE = Layout(dp=64)


def plan(layout: Layout, model: str = "llama3-8b") -> Job:
    return Job(model, "64xh100-sxm", 256, layout, seq=4096)


@pytest.mark.parametrize(
    ("name", "before", "after", "key"),
    [
        # Megatron gathers parameters beside compute for a sharded optimizer alone
        (
            "megatron",
            plan(PIPED),
            plan(Layout(tp=2, dp=32)),
            "overlap-param-gather",
        ),
        # torchtitan's pipeline runs the microbatches of one local batch: 256 / 8 of them
        (
            "torchtitan-toml",
            plan(SHARDED),
            plan(PIPED),
            "local_batch_size = 32",
        ),
        # lists of layers stand in a list of one line
        (
            "torchtitan-toml",
            plan(STAGED),
            plan(SHARDED),
            "module_fqns_per_model_part = [[",
        ),
        # groups of experts are two keys, of which a file may not have the second alone
        *(
            (
                "megatron",
                plan(WHOLE, one),
                plan(WHOLE, other),
                f"--moe-router-{key}",
            )
            for one, other in pairwise(
                ("mixtral-8x7b", "deepseek-v3", "mixtral-8x7b")
            )
            for key in ("num-groups 8", "group-topk 4")
        ),
    ],
)
def test_what_a_plan_needs_comes_and_goes_with_it(
    name: str, before: Job, after: Job, key: str, tmp_path: Path
) -> None:
    """Such keys are in the file of another plan as in one that is written anew."""
    path = tmp_path / ("base" + suffix_of(name))
    path.write_text(bridge.write(before, name, PLACE)[0], "utf-8")
    anew = bridge.write(after, name, PLACE)[0]
    made = bridge.write_onto(after, name, PLACE, str(path)).text
    assert (key in made) is (key in anew) is (key not in path.read_text())


@pytest.mark.parametrize("name", [*onto.EDITS])
def test_a_plan_in_the_file_of_another_job(name: str, tmp_path: Path) -> None:
    """Of any two jobs: the file of one, with the plan of the other in it, reads as the other, keeps
    what nobody knows, and does not change when the plan that it says is written into it."""
    done = [0]

    @given(first=JOBS, second=JOBS)
    @settings(
        max_examples=15,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    def check(first: Job, second: Job) -> None:
        first, second = (simplest(sayable(j, name)) for j in (first, second))
        try:
            text, _ = bridge.write(first, name, PLACE)
            bridge.write(second, name, PLACE)
        except BadInput:
            assume(False)
        done[0] += 1
        base = with_own(text, name)
        path = tmp_path / ("base" + suffix_of(name))
        path.write_text(base, "utf-8")
        assert bridge.write_onto(first, name, PLACE, str(path)).text == base
        made = bridge.write_onto(second, name, PLACE, str(path))
        told = {"on": "64xh100-sxm", **flags_for(second, name)}
        back = job_of(tmp_path, "made" + suffix_of(name), made.text, **told)
        read, plan = described(back, second), described(second, second)
        software = {f for f in plan if f.startswith("software.")}
        for field in {*software, "job.attention_kernel"}:
            del read[field], plan[field]
        assert read == plan, made.text
        assert own_of(made.text, name) == own_of(base, name) != {}
        assert made.text.count(COMMENT) == base.count(COMMENT)
        path.write_text(made.text, "utf-8")
        again = bridge.write_onto(second, name, PLACE, str(path))
        assert again.text == made.text, again.changed

    check()
    assert done[0] >= 3


# ---------------------------------------------------------------- by hand


def put(tmp_path: Path, name: str, text: str) -> str:
    """The path of a file with that text."""
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return str(path)


def test_a_script_keeps_its_words(tmp_path: Path) -> None:
    """Every change here was worked out by hand: numbers in place of names, flags that stand in
    arrays and texts, what is added behind the program, and ranks of the launcher."""
    mine = job_of(tmp_path, "train.sh", EXAMPLE, on="h100-sxm")
    at = launch.Place(4, 8)
    path = str(tmp_path / "train.sh")
    same = bridge.write_onto(mine, "megatron", at, path)
    assert {
        *same.changed
    } == {  # Megatron's defaults, or what a plan counts on
        "norm_epsilon",
        "CUDA_DEVICE_MAX_CONNECTIONS",
    }
    assert {*EXAMPLE.splitlines()} <= {*same.text.splitlines()}
    plan = replace(
        mine,
        cluster="64xh100-sxm",
        batch=256,
        layout=Layout(
            tp=4,
            pp=2,
            dp=8,
            zero=1,
            microbatch=2,
            sequence_parallel=True,
            recompute="full",
        ),
    )
    made = bridge.write_onto(plan, "megatron", PLACE, path)
    before, after = EXAMPLE.splitlines(), made.text.splitlines()
    after.remove("export CUDA_DEVICE_MAX_CONNECTIONS=1")  # Megatron demands it
    # and of Megatron-FSDP that it is not so; its checkpoints go with it
    path = put(tmp_path, "made.sh", made.text)
    whole = replace(plan, layout=Layout(dp=64, zero=3), batch=128)
    sharded = bridge.write_onto(whole, "megatron", PLACE, path).text
    assert "CONNECTIONS" not in sharded
    assert "--ckpt-format fsdp_dtensor" in sharded
    path = put(tmp_path, "sharded.sh", sharded)
    plain = replace(plan, layout=Layout(dp=64), batch=128)
    last = bridge.write_onto(plain, "megatron", PLACE, path).text
    assert "--ckpt-format" not in last and "param-gather" not in last
    assert after[: before.index("fi") + 1] == before[: before.index("fi") + 1]
    assert after[before.index("fi") + 1 :] == [
        'PARALLEL=" --tensor-model-parallel-size 4 \\',
        "    --pipeline-model-parallel-size 2 \\",
        '    --sequence-parallel"',
        "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \\",
        "    --norm-epsilon 1e-05 \\",
        "    --recompute-granularity full \\",
        "    --recompute-method uniform \\",
        "    --recompute-num-layers 1 \\",
        '    "${MODEL_ARGS[@]}" $PARALLEL --micro-batch-size 2 --global-batch-size 256 \\',
        "    --train-samples 1000000 --use-distributed-optimizer \\",
        "    --lr 1e-4 --distribute-saved-activations --strange-new-flag 7",
    ]
    assert {*made.against} == {
        "distribute_saved_activations",
        "strange_new_flag",
    }


AXOLOTL = """# my run
base_model: meta-llama/Llama-3.1-8B   # the base
datasets:
  - path: me/data
sequence_len: 8192
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch
bf16: auto
gradient_checkpointing: true
flash_attention: true
fsdp_version: 2
fsdp_config:
  # wrapped
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  reshard_after_forward: true   # ZeRO-3
  offload_params: true
tensor_parallel_size: 1
dp_shard_size: 8
max_steps: 500
"""


def fsdp(**given: object) -> Job:
    """A plan of PyTorch's FSDP on 64 GPUs."""
    l = Layout(dp=64, zero=2, recompute="full", **given)  # type: ignore[arg-type]
    return Job("llama3-8b", "64xh100-sxm", 256, l, seq=8192, framework="fsdp")


def test_yaml_keeps_comments_and_words(tmp_path: Path) -> None:
    """adamw_torch, bf16: auto and the model's other name say what the plan says already."""
    path = put(tmp_path, "a.yaml", AXOLOTL)
    made = bridge.write_onto(fsdp(), "axolotl", PLACE, path)
    wanted = (
        AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 1")
        .replace("forward: true   #", "forward: false   #")
        .replace("  offload_params: true\n", "")
        .replace("dp_shard_size: 8", "dp_shard_size: 64")
    )
    assert made.text == wanted
    assert made.kept == {"flash_attention": True, "max_steps": 500}


def test_braces_are_edited_entry_by_entry(tmp_path: Path) -> None:
    """YAML in braces, as GPT-NeoX has it: a line is taken away with its comma, a new key stands in
    front, quoted as its neighbour; tables in braces within a line too.
    """
    text = (
        '# mine\n{\n  # degrees\n  "pipe": 1,  # one\n  "tp": 2,\n'
        '  "zero": {"stage": 0, "x": 1},\n  "gone": true, # away\n  "last": 3\n}\n'
    )
    changes = {
        "tp": (2, 4),
        "gone": (True, "(none)"),
        "zero.x": (1, "(none)"),
        "zero.more": ("(none)", False),
        "new": ("(none)", 8),
    }
    keys = {"pipe": 1, "tp": 4, "zero.stage": 0, "zero.more": False}
    keys |= {"last": 3, "new": 8}
    assert edit_yaml(text, changes, keys, "a.yml") == (
        '# mine\n{\n  # degrees\n  "new": 8,\n  "pipe": 1,  # one\n  "tp": 4,\n'
        '  "zero": {"stage": 0, "more": false},\n  "last": 3\n}\n'
    )


def test_indentation_in_braces_says_nothing() -> None:
    """Tables of GPT-NeoX's files begin and end with their braces, wherever their keys stand."""
    text = (
        '{\n "a": {\n     "x": 1,\n   "b": {\n "y": 2,\n      "z": [1, 2]\n },\n'
        '  "w": 3\n     },\n   "e": 4\n}\n'
    )
    changes = {
        "a.b.z": ([1, 2], "(none)"),
        "a.w": (3, 30),
        "e": (4, 40),
        "a.n": ("(none)", 5),
    }
    keys = {"a.x": 1, "a.b.y": 2, "a.w": 30, "e": 40, "a.n": 5}
    made = edit_yaml(text, changes, keys, "a.yml")
    assert parse_yaml(made, "") == {
        "a": {"n": 5, "x": 1, "b": {"y": 2}, "w": 30},
        "e": 40,
    }


def test_a_model_that_is_not_known_stays(tmp_path: Path) -> None:
    path = put(tmp_path, "a.yaml", AXOLOTL.replace("meta-llama/", "me/my-"))
    made = bridge.write_onto(fsdp(), "axolotl", PLACE, path)
    assert "base_model: me/my-Llama-3.1-8B   # the base" in made.text
    assert "not known" in made.against["base_model"]


def test_json_says_numbers_in_place_of_auto(tmp_path: Path) -> None:
    path = put(
        tmp_path,
        "ds.json",
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "overlap_comm": true,'
        ' "offload_optimizer": {"device": "cpu"}}, "train_batch_size": "auto", "mine": [1, 2]}',
    )
    job = replace(fsdp(), framework="deepspeed")
    job = replace(job, layout=replace(job.layout, zero=3))
    made = bridge.write_onto(job, "deepspeed", PLACE, path)
    assert json.loads(made.text) == {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 1,
        "data_types": {"grad_accum_dtype": "fp32"},
        "mine": [1, 2],
    }


@pytest.mark.parametrize(
    ("name", "to", "text", "words"),
    [
        ("a.yaml", "megatron-bridge", AXOLOTL, "is written anew"),
        ("a.yaml", "accelerate", AXOLOTL, "is a file of axolotl, not of"),
        (
            "a.yaml",
            "axolotl",
            "{micro_batch_size: 7, base_model: meta-llama/Llama-3.1-8B}\n",
            "cannot be edited in place",
        ),
        ("a.yaml", "axolotl", "a: &a {b: *a}\nbase_model: x\n", "nested"),
        ("a.yaml", "axolotl", "base_model: x\n---\nbase_model: y\n", "YAML"),
        (
            "a.sh",
            "megatron",
            "--num-layers $(cat x)" + "\n" * 1_100_000,
            "larger",
        ),
    ],
)
def test_what_is_not_edited_is_refused(
    name: str, to: str, text: str, words: str, tmp_path: Path
) -> None:
    path = put(tmp_path, name, text)
    with refusal(words):
        bridge.write_onto(fsdp(), to, PLACE, path)


def test_ranks_that_no_number_starts_are_said(tmp_path: Path) -> None:
    """WORLD_SIZE is set, and no launcher stands in the script."""
    text = EXAMPLE.replace(
        "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES",
        "WORLD_SIZE=16\npython",
    )
    job = job_of(tmp_path, "x.sh", EXAMPLE, on="64xh100-sxm")
    path = put(tmp_path, "train.sh", text)
    made = bridge.write_onto(job, "megatron", PLACE, path)
    assert (
        made.against["ranks"]
        == "the script starts 16 ranks, and the plan has 64"
    )


@given(text=st.text(alphabet="ab #'\"\\\n$({)}<EOF`-", max_size=60))
@settings(max_examples=100, deadline=None)
def test_comments_are_blank_and_nothing_moves(text: str) -> None:
    try:
        live, quoted = shell.live(text)
    except BadInput:
        return
    assert len(live) == len(quoted) == len(text)
    assert all(a in (b, " ") for a, b in zip(live, text, strict=True))


def test_the_command_says_what_it_changed(
    tmp_path: Path, shell: Shell
) -> None:
    from meshwright.formats.toml import dump_job

    plan = put(tmp_path, "plan.toml", dump_job(fsdp()))
    base = put(tmp_path, "a.yaml", AXOLOTL)
    words = f"export {plan} --to axolotl --base {base}"
    out, told = shell(words)
    assert out.startswith("# my run\nbase_model: meta-llama/Llama-3.1-8B ")
    assert f"{base}: dp_shard_size: 8 -> 64" in told.splitlines()
    assert "holds more than the plan; these stay: flash_attention" in told
    data = shell.json(words)
    assert data["changed"]["dp_shard_size"] == [8, 64]
    shell(f"export {plan} --to sbatch --base {base}", ends=2)


def test_packing_stays_unless_the_exchange_of_keys_forbids_it(
    tmp_path: Path,
) -> None:
    """axolotl pads each document without `sample_packing`: a plan, which counts full sequences,
    does not take it out; a ring of batches would look across packed documents."""
    text = (
        "base_model: NousResearch/Meta-Llama-3.1-8B\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 1\nsequence_len: 8192\nbf16: true\n"
        "fsdp_version: 2\nsample_packing: true\nattn_implementation: flash_attention_2\n"
    )
    told = {"on": "64xh100-sxm", "batch": "64seq"}
    job = job_of(tmp_path, "base.yaml", text, **told)
    path = str(tmp_path / "base.yaml")

    def packed(layout: Layout) -> bool:
        plan = replace(job, layout=layout)
        made = bridge.write_onto(plan, "axolotl", PLACE, path).text
        return "sample_packing: true\n" in made

    assert packed(Layout(dp=64, zero=3))
    assert packed(Layout(cp=2, dp=32, zero=3, cp_exchange="gather"))
    assert not packed(Layout(cp=2, dp=32, zero=3, cp_exchange="ring"))


def test_an_older_word_of_a_layout_stays(tmp_path: Path) -> None:
    """ROCm's MaxText has minimal_flash, and not the name that it has today."""
    job = simplest(sayable(Job("llama3-8b", "64xh100-sxm", 256), "maxtext"))
    layout = replace(job.layout, recompute="minimal_with_context")
    job = replace(job, layout=layout)
    text = bridge.write(job, "maxtext", PLACE)[0]
    older = re.sub("remat_policy: .*", "remat_policy: minimal_flash", text)
    assert older != text
    path = put(tmp_path, "base.yaml", older)
    assert bridge.write_onto(job, "maxtext", PLACE, path).text == older


@pytest.mark.parametrize("value", [1e-5, -2.5e-7, 1e-8, 3e300, 0.001, 4.0])
def test_numbers_of_yaml_are_numbers_to_pyyaml(value: float) -> None:
    """PyYAML takes 1e-05 for a text, and GPT-NeoX and nanotron refuse a text for a float: a number
    with an exponent is written with a point, in braces too.
    """
    assert parse_yaml(f"a: {scalar_text(value)}", "") == {"a": value}
    keys = {"a": value, "b": 1}
    changes = {"a": ("(none)", value)}
    made = edit_yaml('{\n  "b": 1,\n}\n', changes, keys, "a.yml")
    assert parse_yaml(made, "") == keys
