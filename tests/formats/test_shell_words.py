"""Words of command lines and scripts, in time that grows with the text."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import BadInput
from meshwright.formats import bridge
from meshwright.formats.bridge import launch, shell
from meshwright.formats.words import words
from refusals import refusal

START = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2"


@settings(deadline=None, max_examples=300)
@given(st.text("ab= \t\n\"'\\-", max_size=12))
def test_words_are_those_of_a_shell(text: str) -> None:
    """`shlex` is slow, but right."""
    try:
        known = shlex.split(text)
    except ValueError:
        with pytest.raises(ValueError):
            words(text)
        return
    assert words(text) == known


def test_a_comment_begins_at_a_word() -> None:
    """As in a shell; shlex takes it inside a word too."""
    assert words("a#b # c 'd\ne '#f'") == ["a#b", "e", "#f"]


GROWING = {
    "long words": lambda n: "--" + "a" * n + " " + "-" * n,
    "a text of flags": lambda n: f"{START} '--x {'y' * n}'",
    "values of a flag": lambda n: f"{START} " + "2 " * (n // 2),
    "plain letters": lambda n: f"{START}\n" + "a" * n,
    "comments": lambda n: f"{START}\n" + "#\n" * (n // 2),
    "braces": lambda n: f"{START}\n" + "{ " * (n // 2),
    "assignments": lambda n: f"{START}\n" + "A=x " * (n // 4),
}


@pytest.mark.parametrize("made", GROWING.values(), ids=GROWING)
def test_four_times_the_text_takes_some_four_times_as_long(made) -> None:
    """With the square it would be sixteen times."""

    def seconds(letters: int) -> float:
        text = made(letters)
        start = time.process_time()
        try:
            words(text)
            bridge.read_file("dropped.sh", text)
        except BadInput:
            pass
        return time.process_time() - start

    seconds(1000)
    short = min(seconds(60_000) for _ in range(3))
    assert min(seconds(240_000) for _ in range(2)) < 8 * short + 0.05


def test_flags_that_nobody_knows_are_asked_for_by_name() -> None:
    """Half a second of CPU; 16 where each was held against every pattern of every format."""
    flags = "".join(f" --f{k} {k}" for k in range(33_000))
    start = time.process_time()
    with refusal("33000 of its 33002 keys are not known"):
        bridge.read_file("dropped.sh", f"{START} --num-layers 4{flags}")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaa\n" + "A=$A$A\n" * 40,
        "A=(a b)\n" + "A=(${A[@]} ${A[@]})\n" * 40,
        "A=aaaa\n" + "A=" + "$A$A" * 9 + "\n" + "A=$A$A$A$A$A$A$A$A\n" * 9,
        "A+=xxxxxxxx\n" * 20_000,
        "A+=(x)\n" * 20_000,
    ],
    ids=["texts", "arrays", "one word", "appended", "appended words"],
)
def test_names_that_stand_for_more_and_more_are_refused(text: str) -> None:
    """344 letters of them filled all memory."""
    with refusal("stand for more than 4,194,304"):
        shell.read_script(f"{text}{START} $A\n")


def test_conditions_without_end_are_refused() -> None:
    with refusal("more than 100 conditions"):
        shell.read_script("if [ a == a ]; then\n" * 200)
    usual = "if [ a == a ]; then\n" * 50 + f"{START}\n" + "fi\n" * 50
    assert shell.read_script(usual).commands == [START.split()]


def test_two_values_of_a_degree_are_a_sentence() -> None:
    """It was a traceback."""
    with refusal("layout.tp must be a whole number, not '2 x'"):
        bridge.read_file("train.sh", f"{START} x\n")


@pytest.mark.parametrize(
    "text",
    [
        "echo $²",
        "set -- a\nshift ²\necho $1",
        "if [ ² -gt 1 ]; then echo a; fi",
        "torchrun --nproc_per_node ² pretrain_gpt.py --num-layers 2",
    ],
)
def test_raised_digits_are_no_numbers(text: str) -> None:
    """They are digits to Python, which reads no number from them."""
    script = shell.read_script(text)
    for command in script.commands:
        assert launch.ranks_started(command, script) is None
