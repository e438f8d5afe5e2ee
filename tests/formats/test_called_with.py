"""Scripts that are called with arguments: what `$1`, `${2:-4}` and `shift` make of them, held
against bash itself, and what stays unknown.
"""

from __future__ import annotations

from pathlib import Path

from meshwright.formats import bridge
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
