"""What a file says in a way that cannot be read is asked for; nothing is taken in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cli.main import main as meshwright
from meshwright.describe.framework import framework
from meshwright.errors import BadInput
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import shell, table
from meshwright.formats.bridge.reading import ASKED
from refusals import refusal

SCRIPT = """#!/bin/bash
TP=$1
PP=${2}
MODE=$3
if [ $4 = fp16 ]; then
    NUMBERS="--fp16"
elif [ $4 = bf16 ]; then
    NUMBERS="--bf16"
fi
SIZE=7
case $5 in
    8B) SIZE=8;;
    *) SIZE=9;;
esac
if [ $MODE = full ]; then
    MORE=(--recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 \\
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size=$PP --micro-batch-size 1 \\
  --global-batch-size 64 $NUMBERS ${MORE[@]} --save $SIZE 2>&1 | tee log
"""
"""In the shape of Pai-Megatron-Patch: everything is a positional argument."""
PLAIN = (
    SCRIPT.split("torchrun")[1]
    .partition("\\\n  --tensor")[0]
    .replace("\\\n", " ")
)


def script(tmp: Path, text: str) -> str:
    path = tmp / "run.sh"
    path.write_text(text, "utf-8")
    return str(path)


def test_positional_arguments_are_asked_for(tmp_path: Path) -> None:
    path = script(tmp_path, SCRIPT)
    found = bridge.read_file(path)
    assert {*found.unread} == {
        "layout.tp",
        "layout.pp",
        "layout.recompute",
        "job.precision",
    }
    assert not {"tp", "pp", "recompute"} & {*found.tables["layout"]}
    assert "precision" not in found.tables["job"]
    given = {"on": "8xh100-sxm"}
    with refusal() as error:
        flags.read_flags(path, given)
    such = "--tp 1 --pp 1 --recompute full --precision bf16"
    assert str(error.value).endswith(f"such as {such}")
    given |= {"tp": "2", "pp": "4", "precision": "fp16", "recompute": "none"}
    job = flags.read_flags(path, given)
    assert (job.layout.tp, job.layout.pp, job.layout.dp) == (2, 4, 1)
    assert (job.precision.name, job.layout.recompute) == ("fp16", "none")


def test_a_degree_of_a_name_that_is_set_elsewhere(tmp_path: Path) -> None:
    text = f"torchrun {PLAIN} --bf16 --global-batch-size 8 --micro-batch-size"
    path = script(tmp_path, f"{text} 1 --tensor-model-parallel-size $TP")
    with refusal("leaves tp to how it is called"):
        flags.read_flags(path, {"on": "8xh100-sxm"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "go $(rm -rf /) `rm -rf /` end",
            ["go", *2 * [shell.ELSEWHERE], "end"],
        ),
        ("cat <<EOF\n--not read\nEOF\ngo on", ["cat"]),
        ("A=$1; go ${A}", ["go"]),
        ("A=$(nproc); B=$((A * 2)); go --n=$B x", ["go", "--n", "x"]),
        ('A=1; if [ "$1" = x ]; then A=2; fi; go $A', ["go"]),
        ("A=1; if [ -n $1 ]; then A=$1; fi; go $A", ["go", "1"]),
        ("A=1; if [ $# -gt 0 ]; then A=2; fi; go $A", ["go", "1"]),
        ("D=$(dirname $0)/..; go $D/train.py", ["go", "/../train.py"]),
        ("go --n 8 2>&1", ["go", "--n", "8"]),
        ("go --n 8 > log.txt --m 9", ["go", "--n", "8", "--m", "9"]),
    ],
)
def test_what_only_a_run_knows_is_no_value(
    text: str, words: list[str]
) -> None:
    assert shell.read_script(text).commands[0] == words


def test_what_is_taken_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No key of the file names them; tp is named, and so not among them."""
    text = (
        f"torchrun --nproc_per_node 8 {PLAIN} --tensor-model-parallel-size 2"
    )
    path = script(tmp_path, f"{text} --micro-batch-size 1 --swiglu")
    words = "assumed pp 1, cp 1, zero 0, precision fp32, batch 4seq (not in the file)"
    on = ["--on", "8xh100-sxm"]
    meshwright(["read", path, *on])
    assert words in _start(capsys.readouterr().out, 3)
    meshwright(["predict", path, *on])
    assert words in _start(capsys.readouterr().out, 4)
    more = [*on, "--precision", "bf16", "--pp", "2"]
    meshwright(["predict", path, *more])
    words = "assumed cp 1, zero 0, batch 4seq (not in the file)"
    assert words in _start(capsys.readouterr().out, 4)


def _start(told: str, lines: int) -> str:
    """The first lines, as one."""
    return " ".join(" ".join(told.splitlines()[:lines]).split())


def test_a_long_key_stays_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "strange-new-switch-of-more-than-forty-letters"
    text = f"torchrun {PLAIN} --bf16 --micro-batch-size 1 --{key} 7"
    meshwright(["read", script(tmp_path, text)])
    assert key.replace("-", "_") in capsys.readouterr().out


AXOLOTL = """
base_model: meta-llama/Meta-Llama-3-8B
context_parallel_size: 2
bf16: auto
tf32: true
gradient_checkpointing: offload_disk
ring_attn_func: striped
xformers_attention: true
"""


def test_a_word_that_is_not_known_is_named_with_those_that_are() -> None:
    """What is taken in its place is said with it."""
    file = bridge.read_file("config.yaml", AXOLOTL)
    assert file.tables["layout"]["cp_exchange"] == "ring"
    assert file.left["ring_attn_func"] == (
        "'striped' is not known (varlen_llama3, batch_ring): ring is taken"
    )


def test_a_row_says_what_the_prediction_has_otherwise() -> None:
    """A key may be understood and still not be predicted; tf32 beside bf16 means nothing."""
    file = bridge.read_file("config.yaml", AXOLOTL)
    assert file.tables["layout"]["recompute"] == "full"
    assert "the prediction keeps them" in file.left["gradient_checkpointing"]
    assert file.left["xformers_attention"] == (
        "its kernel is not known: PyTorch's is taken"
    )
    assert "attention_kernel" not in file.tables["job"]
    assert file.tables["job"]["precision"] == "bf16-pure"
    assert "tf32" in file.used


PARSER = json.loads(
    Path(__file__).with_name("megatron_arguments.json").read_text("utf-8")
)
"""Argument of Megatron-LM -> its words, or its type."""


IDLE = (
    "tokenizer_",
    "kv_lora",
    "q_lora",
    "qk_",
    "v_head",
    "rope_scaling",
    "padded_",
)
"""What this script does not use: its vocabulary is given, its attention plain."""


@pytest.mark.parametrize("quote", ["", '"'])
def test_no_word_that_decides_is_taken_for_a_name_that_is_set_elsewhere(
    quote: str,
) -> None:
    """Bash passes `"$WORD"` of a name that nobody set as an empty word, which switched FP8,
    recomputation and windows off. Types and words are those of Megatron's own parser.
    """
    decisive = {
        key
        for path, cell in table.formats()["megatron"].cells.items()
        for key in cell.keys
        if path.startswith(ASKED)
        and not key.startswith(IDLE)
        and PARSER.get(key.replace("_", "-"), "nothing") != "nothing"
    }
    silent = []
    for key in decisive:
        flag = f"--{key.replace('_', '-')} {quote}$WORD{quote}"
        line = f"torchrun{PLAIN} --group-query-attention --bf16 {flag}\n"
        try:
            file = bridge.read_file("run.sh", line)
        except BadInput:
            continue
        if not (file.unread or file.missing or key in file.left):
            silent.append(key)
    assert not silent


def test_the_stage_of_a_script_in_quotes_is_asked_for() -> None:
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf"
    line += " --per_device_train_batch_size 4 --bf16 True --deepspeed {}\n"
    assert bridge.read_file("run.sh", line.format('"$STAGE"')).unread
    none = bridge.read_file("run.sh", 'STAGE=""\n' + line.format('"$STAGE"'))
    assert none.tables["layout"]["zero"] == 0 and not none.unread


def test_what_a_checkpoint_says_of_the_model_is_asked_for() -> None:
    """--use-checkpoint-args overrides groups of queries too (checkpointing.py, _set_arg)."""
    line = f"torchrun{PLAIN} --use-checkpoint-args"
    file = bridge.read_file("run.sh", line + "\n")
    assert "model.kv_heads" in file.unread
    assert file.left["use_checkpoint_args"].endswith("is in the checkpoint")
    said = " --group-query-attention --num-query-groups 8\n"
    assert not bridge.read_file("run.sh", line + said).unread


def test_megatrons_profile_offers_what_its_parser_takes() -> None:
    """One dispatcher for each word, and for flex each of its backends but those that are told as
    unknown.
    """
    profile = framework("megatron-core")
    offered = {o.value for o in profile.offers if o.setting == "dispatcher"}
    words = {*PARSER["moe-token-dispatcher-type"]} - {"flex"}
    assert words == (offered | {profile.dispatcher}) - {"deepep", "hybridep"}
