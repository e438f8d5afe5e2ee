"""Scripts that are called with arguments: what `$1`, `${2:-4}` and `shift` make of them, held
against bash itself, and what stays unknown.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from meshwright.formats import bridge
from meshwright.formats.bridge import shell
from meshwright.formats.flags import read_flags
from refusals import refusal
from shell import Shell

# in the manner of Pai-Megatron-Patch: ENV, size and degrees by position
SCRIPT = """\
#!/bin/bash
ENV=$1
MODEL_SIZE=$2
TP=${3}
PP=${4:-4}
shift 2
MBS=${4:?micro batch}
if [ $MODEL_SIZE = 8B ]; then
  ARGS="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
elif [ $MODEL_SIZE = 70B ]; then
  ARGS="--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64"
fi
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size $PP --micro-batch-size $MBS --global-batch-size 128 \\
  --seq-length 4096 --vocab-size 128256 $ARGS
"""


def test_a_call_says_model_and_degrees() -> None:
    words = ["dsw", "70B", "8", "2", "bf16", "3"]
    file = bridge.read_file("run.sh", SCRIPT, arguments=words)
    assert file.tables["layout"]["tp"] == "8"
    assert file.tables["layout"]["pp"] == "2"
    assert file.tables["layout"]["microbatch"] == "3"
    assert file.tables["model"]["layers"] == "80"
    assert not file.missing and not any(
        "--" in n and "$1" in n for n in file.notes
    )


def test_without_a_call_they_are_asked_for() -> None:
    file = bridge.read_file("run.sh", SCRIPT)
    assert {"layout.tp", "layout.microbatch", "model.layers"} <= {*file.unread}
    assert file.tables["layout"]["pp"] == "4"  # its own default
    assert any("read train.sh -- 8B 1 8" in note for note in file.notes)


ONE_LINES = {
    "default": ("echo ${2:-4} ${3-5} ${4:+set}", ["8B", ""]),
    "several digits": ("echo ${11} $11", list("abcdefghijkl")),
    "all": ('echo "$@" $#', ["a b", "c"]),
    "all by another": ("echo $* ${@}", ["a", "b c"]),
    "none": ('echo "$@" x $#', []),
    "shift": ("shift; echo $1 $#; shift 2; echo $1", ["a", "b", "c", "d"]),
    "set anew": ("set -- x $2; echo $1 $2 $#", ["a", "b"]),
    "condition": (
        "if [ $# -ge 2 ]; then A=$2; else A=1; fi; echo $A",
        ["a", "7"],
    ),
    "product": ("echo $(($1 * 2))", ["21"]),
    "array": ('A=("$@"); echo ${A[@]}', ["x", "y"]),
}


@pytest.mark.parametrize("name", ONE_LINES)
def test_bash_says_the_same(name: str) -> None:
    text, arguments = ONE_LINES[name]
    bash = shutil.which("bash")
    assert bash
    told = subprocess.run(
        [bash, "-c", text, "script", *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    set_to = shell.called_with(arguments) + text
    commands = shell.read_script(set_to).commands
    said = [" ".join(c[1:]) for c in commands if c[0] == "echo"]
    assert [line.split() for line in told.splitlines()] == [
        line.split() for line in said
    ]


@pytest.mark.parametrize(
    "text",
    [
        # a loop that takes flags apart
        "while [ $# -gt 0 ]; do TP=$2; shift 2; done; echo $TP",
        # arguments of a function are those of its call
        "start() {\n TP=$1\n echo $TP\n}\nstart 4",
        "function start {\n echo $1\n}\nstart 4",
        # a number of them that only a run knows
        "shift $OPTIND; echo $1",
        "if [ -e there ]; then shift; fi; if [ $(hostname) = a ]; then shift; fi; echo $1",
    ],
)
def test_what_is_not_known_is_no_value(text: str) -> None:
    commands = shell.read_script(
        shell.called_with(["--tp", "8"]) + text
    ).commands
    said = [c for c in commands if c[0] == "echo"]
    assert said and all(len(words) == 1 for words in said)


def test_the_command_takes_them_behind_two_hyphens(
    tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    words = ["read", str(path), "--on", "h100-sxm"]
    told = " ".join(shell(*words, "-- dsw 8B 4 '' bf16 2").out.split())
    assert "tp 4 · pp 4 · dp 1" in told and "microbatch 2" in told
    again = "--arguments 'dsw 8B 4 2 bf16 2'"
    told = " ".join(shell("predict", *words[1:], again).out.split())
    assert "tp 4 · pp 2 · dp 2" in told
    assert "--arguments" in told  # what a card offers to copy says them too
    assert "--arguments" in shell.refused(*words, r"--arguments \'a")
    assert "--arguments is for files of other tools" in shell.refused(
        "predict llama3-8b --on 8xh100-sxm --batch 8seq -- 4"
    )


def test_a_configuration_takes_none() -> None:
    text = "tensor_model_parallel_size: 2\nnum_layers: 2\n"
    with refusal("is not a script and takes no arguments"):
        bridge.read_file("a.yaml", text, arguments=["8B"])


def test_a_vocabulary_that_a_script_leaves_to_its_tokenizer(
    tmp_path: Path, shell: Shell
) -> None:
    """It is asked for, taken from the command line, and refused where the file says it itself."""
    own, left = tmp_path / "own.sh", tmp_path / "left.sh"
    sizes = "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512"
    run = f"torchrun --nproc_per_node 8 pretrain_gpt.py {sizes} --global-batch-size 64"
    left.write_text(f"{run} --tokenizer-type HuggingFaceTokenizer\n")
    own.write_text(f"{run} --vocab-size 50000\n")
    on = ("--on", "h100-sxm")
    assert "--vocab-size 128256" in shell.refused(f"predict {left}", *on)
    told = {"on": "h100-sxm", "vocab_size": "50000"}
    job, same = (
        read_flags(str(left), told),
        read_flags(str(own), {"on": on[1]}),
    )
    assert job.model.vocab == same.model.vocab == 50000
    for wrong, file in (("many", left), ("0", left), ("50000", own)):
        with refusal("--vocab-size"):
            read_flags(str(file), {**told, "vocab_size": wrong})
