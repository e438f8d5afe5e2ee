"""Statements of launch scripts that set a name in another way than NAME=TEXT: what bash makes of
them, or nothing.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from meshwright.errors import BadInput
from meshwright.formats import bridge
from meshwright.formats.bridge.shell import called_with, read_script

CALLED = ["--tp", "8 B"]
"""What a script is called with."""
AS_BASH = [
    'declare -a A=(\n  --tp 2 # two\n  --pp 4\n)\nA+=( --cp 1 )\necho "${A[@]}"',
    "A=()\nif [ 1 = 1 ]; then A+=(--fp8); else A+=(--bf16); fi\necho ${A[@]}",
    "[ 1 = 2 ] && declare -a A=(--fp8)\necho --no ${A[@]}",
    "{ A=(--fp8); }\necho ${A[@]}",
    ': "${N:=4}"\n: ${M:=$((N * 2))} ${N:=5}\necho --n $N --m $M',
    "N=1\nfor i in 1 2 3; do T=8; T=$((T * 2)); done\necho --n $N --t $T",
    "echo a 'b c' \"d $e\"",
    "E=1; echo $E${E}2",
    "L=(x 'y z'); echo ${L[@]}",
    "L=(x 'y z'); echo \"${L[@]}\"",
    "echo $((2 * (3 + 4)))",
    'if [ "a" = "b" ]; then echo one; elif [ 2 -gt 1 ]; then echo two; else echo 3; fi',
    # "$@" of a script without arguments, and an empty array, are no word
    'set --\necho --s "$@"; echo --s $@ $#; echo "" x ' + "''",
    'E=(); echo --s "${E[@]}"',
    # a line that goes on is one, with or without eval; another line is another command
    'A="echo 1 \\\n 2"\neval "$A"',
    'A="echo 1\n echo 2"\neval "$A"',
    'eval "echo 1; echo 2"',
    'A="1 \\\n 2"\necho "$A"',
    # `--tensor-model-parallel-size ${CUT%%x*}` was the whole text
    "N=3_000_000; S=a-b; echo ${N//_} ${N/_/} ${S/-/.}",
    "E=; echo ${E:-4} ${E-5} ${X-6} ${E+set} ${X:+set} ${1:-eight} ${3-7} ${2:+set}",
    "set -- a b c d e f g h i j k l; echo ${11} $11",
    'echo "$@" $#; echo $* ${@}',
    "shift; echo $1 $#; set -- a b c; shift 2; echo $1",
    "set -- x $2; echo $1 $2 $#",
    "if [ $# -ge 2 ]; then A=$2; else A=1; fi; echo $A",
    "set -- 21; echo $(($1 * 2))",
    'A=("$@"); echo "${A[@]}"',
]
"""Followed to the last word."""
ECHO = 'echo() { for w in "$@"; do printf "<%s>" "$w"; done; printf "\\n"; }\n'
"""Each word by itself."""
UNKNOWN = [
    "N=0\nfor i in 1 2 3; do N=$((N + 1)); done",
    "N=1\nfor N in 2 4; do true; done",
    "N=1\nfor i in 1 2; do N=$((N * 2)); M=$N; done",
    "N=2\n((N *= 4))",
    "N=2\n((N++))",
    "N=2\nlet N=8",
    "N=2\nread -r N M <<< '8 9'",
    "N=2\nprintf -v N %d 8",
    "N=(2)\nN[0]=8",
    "N=$(echo 8)\nN=${N:-2}",
    "N=$((NOBODY_SET_IT * 2))",
    "[ -f / ] || N=2\n[ -z $N ] && N=1",
    "if [ -f / ]; then : ${N:=2}; fi",
    "S=a-b\nN=${S%%-*}",
    "S=a-b\nN=${S:0:2}",
    "S=a-b\nN=${#S}",
    "L=(a b)\nN=${L[1]}",
    # a loop that takes flags apart, and arguments of a function, which are those of its call
    "while [ $# -gt 0 ]; do N=$2; shift 2; done",
    "start() {\n N=$1\n}\nstart 4",
    "function start {\n N=$1\n}\nstart 4",
    # a number of them that only a run knows
    "shift $OPTIND; N=$1",
    "if [ -e there ]; then shift; fi; if [ $(hostname) = a ]; then shift; fi; N=$1",
]
"""Loops, sums and commands that set N: not followed."""


@pytest.mark.skipif(not shutil.which("bash"), reason="bash decides")
@pytest.mark.parametrize("text", AS_BASH)
def test_words_are_those_of_bash(text: str) -> None:
    run = subprocess.run(
        ["bash", "-c", ECHO + text, "script", *CALLED],
        capture_output=True,
        text=True,
        check=True,
    )
    script = read_script(called_with(CALLED) + text)
    assert run.stdout.splitlines() == [
        "".join(f"<{word}>" for word in words)
        for name, *words in script.commands
        if name == "echo"
    ]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_followed_has_no_value(text: str) -> None:
    script = read_script(f"{called_with(CALLED)}{text}\nx --n $N")
    assert script.commands[-1] == ["x", "--n"]


TRAINS = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    " --micro-batch-size 1 --global-batch-size 64 --tokenizer-type NullTokenizer"
    " --vocab-size 32000"
)
LEFT_OPEN = [
    "A=$(cat args.txt)\n{} --bf16 --seed 1 $A",
    "source run.conf\n{} --bf16 ${{A[@]}}",
    'source "$(dirname $0)/run.conf"\n{} --seed 1 $A',
    "A[0]=--bf16\n{} ${{A[@]}}",
    "{} --$(cat dtype)",
    "if [ -f x ]; then T=bf16; fi\n{} --$T",
]


@pytest.mark.parametrize("text", LEFT_OPEN)
def test_arguments_that_are_not_known_may_be_any(text: str) -> None:
    """What a command prints, or another script sets, may hold the degrees: none is taken as 1."""
    read = bridge.read_file("run.sh", text.format(TRAINS))
    assert {"layout.tp", "layout.pp", "layout.zero"} <= {*read.unread}
    assert "layout.microbatch" not in read.unread
    assert "tp" not in read.tables["layout"] and "tp" not in read.taken


def test_scripts_that_set_up_a_machine_set_no_arguments() -> None:
    """`$EXTRA` that nobody sets is empty, as a call without it has it."""
    text = f"source /opt/venv/bin/activate\n. ~/.bashrc\n{TRAINS} $EXTRA"
    assert bridge.read_file("run.sh", text).taken["tp"] == 1


def test_slurm_tells_a_script_what_its_directives_ask_for() -> None:
    text = (
        "#SBATCH --nodes=4\n#SBATCH --gres=gpu:a100:8\n"
        f"{TRAINS} --tensor-model-parallel-size ${{SLURM_GPUS_ON_NODE:-1}}"
        " --train-iters $((SLURM_JOB_NUM_NODES * SLURM_NNODES))"
    )
    read = bridge.read_file("run.sh", text)
    assert read.tables["layout"]["tp"] == "8"
    assert read_script(text).text("SLURM_NNODES") == "4"


def test_the_command_that_trains_is_read() -> None:
    """A script that converts a checkpoint or trains, by its argument, is read as it trains."""
    text = (
        'if [ "$1" = convert ]; then\n'
        f"  {TRAINS.replace('pretrain_gpt', 'convert')} --bf16 --save x\n"
        f"else\n  {TRAINS} --bf16\nfi"
    )
    assert bridge.read_file("run.sh", text).tables["job"]["batch"] == "64seq"
    with pytest.raises(BadInput, match="converts checkpoints"):
        bridge.read_file("run.sh", TRAINS.replace("pretrain_gpt", "convert"))
