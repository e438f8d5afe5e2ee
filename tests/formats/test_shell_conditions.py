"""Conditions of launch scripts, as bash decides them: what stands under one that is false is no
argument of the program, and what only a run can decide is asked for.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from meshwright.formats import bridge
from meshwright.formats.bridge.shell import read_script

CONDITIONS = [
    "[ $PP -gt 1 ]",
    "[ $PP = 4 ] && [ $TP = 2 ]",
    "[ $PP = 8 ] && [ $TP = 2 ]",
    "[ $PP = 4 ] || [ $TP = 3 ]",
    "[ ! $PP = 4 ]",
    "! [ $PP = 8 ]",
    "[[ $PP == 8 && $FP8 == true ]]",
    "[[ $PP == 4 || $FP8 == true ]]",
    "[[ ! $SIZE == 70b ]]",
    "[[ $SIZE == *8b ]]",
    '[[ $SIZE == "*8b" ]]',
    "[[ $SIZE != *8b ]]",
    "test $PP = 8",
    "(( PP > 1 ))",
    "(($PP > 1 && TP > 4))",
    "(( PP % 2 == 0 ))",
    "$FP8",
    "! $FP8",
    '[ "$FP8" ]',
    '[ "$NONE" ]',
    "true",
    "false",
]
SETS = "PP=8\nTP=2\nFP8=false\nSIZE=llama-8b\nARGS=--all\n"
FORMS = [
    'if {}; then ARGS="$ARGS --yes"; else ARGS="$ARGS --no"; fi',
    'if [ $PP = 9 ]; then ARGS=--never; elif {}; then ARGS+=" --yes"; fi',
    '{} && ARGS="$ARGS --yes"',
    '{} || ARGS="$ARGS --no"',
    '{} && {{ TP=3; ARGS+=" --yes"; }}; ARGS+=" --$TP"',
    'if {}\nthen\n  if [ $PP = 8 ]; then ARGS+=" --deep"; fi\nfi',
]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash decides")
def test_conditions_are_those_of_bash() -> None:
    """A switch after `&&` was taken whatever stood before it, `((A > 1))` for false, and of several
    conditions the first one counted.
    """
    texts = [form.format(c) for c in CONDITIONS for form in FORMS]
    script = "\n".join(f"{SETS}{text}\necho $ARGS" for text in texts)
    run = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True
    )
    for text, line in zip(texts, run.stdout.splitlines(), strict=True):
        read = read_script(f"{SETS}{text}\necho $ARGS\n")
        last = read.commands[-1]
        assert (last, read.doubtful) == (["echo", *line.split()], set()), text


@pytest.mark.parametrize(
    "condition",
    [
        "[ -f there ]",
        "nvidia-smi",
        "[ $(hostname) = a ]",
        '[[ $PP == 8 && "$1" == x ]]',
        "((PP > $2))",
        "[ 0.5 -gt 0 ]",
        "[ $PP = 8 -a $PP = 8 ]",
        "[ $PP = 4 -o $PP = 8 ]",
        "[[ $PP =~ 8 ]]",
    ],
)
@pytest.mark.parametrize(
    "form", ["if {}; then {}; fi", "{} || {}", "{} && {{ {}; }}"]
)
def test_what_only_a_run_can_decide_is_asked_for(
    condition: str, form: str
) -> None:
    if condition == "nvidia-smi" and "&&" in form:
        return  # a command is taken to succeed
    start = "PP=8\nRUN=torchrun\nA='--num-layers 8 --hidden-size 64'\n"
    under = 'A="$A --tensor-model-parallel-size 4"'
    text = f"{start}{form.format(condition, under)}\n$RUN --nproc_per_node 8 pretrain_gpt.py"
    more = " --num-attention-heads 4 --seq-length 8 --micro-batch-size 1 $A\n"
    file = bridge.read_file("run.sh", text + more)
    assert "layout.tp" in file.unread


def test_a_command_that_succeeds_goes_on() -> None:
    text = "cd there && TP=4\nmkdir -p a || exit 1\ngo $TP"
    assert read_script(text).commands[-1] == ["go", "4"]


@pytest.mark.parametrize("text", ["[[", "[[ &&\n]]", "[", "test", "! ! ["])
def test_a_condition_of_nothing_is_no_error(text: str) -> None:
    assert read_script(f"if {text}\nthen A=1; fi; go").commands


def test_a_condition_of_many_parts_is_not_followed() -> None:
    text = f"if [ {'! ' * 5000} a = a ]; then A=--yes; fi; go $A"
    assert read_script(text).doubtful == {"yes"}
