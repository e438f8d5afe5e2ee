"""Sequences are as long as what cuts them asks: 2 cp chunks, of whole parts for each rank of tp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layouts import cut
from meshwright import Job, Layout, Space, plan, predict
from meshwright.layout.rules import broken
from meshwright.layout.sequence import length

JOB = Job("gpt2", "16xh100-sxm", 16, seq=1000)


@pytest.mark.parametrize(
    ("layout", "tokens"),
    [
        (Layout(), 1000),
        (cut("tp16"), 1000),
        (Layout(cp=2), 1000),
        (Layout(cp=4), 1000),
        (Layout(cp=4, tp=2), 1008),
        (Layout(cp=4, tp=2, sequence_parallel=False), 1000),
        (Layout(cp=3), 1002),
        (Layout(cp=16), 1024),
        (Layout(cp=16, scheme="mlp2d"), 1000),
    ],
)
def test_the_least_multiple_that_holds_the_sequence(
    layout: Layout, tokens: int
) -> None:
    """Of 2 cp, and of tp too where it cuts tokens; a paper's sequence is as it says."""
    assert length(JOB, layout) == tokens
    assert length(replace(JOB, assumptions="lbl-2024"), layout) == 1000


def test_a_table_of_sequences() -> None:
    cp, tp = np.array([1.0, 2.0, 4.0, 3.0]), np.array([2.0, 1.0, 2.0, 1.0])
    assert np.asarray(length(JOB, Layout(cp=cp, tp=tp))).tolist() == [
        1000,
        1000,
        1008,
        1002,
    ]


@pytest.mark.parametrize("model", ["gpt2", "mixtral-8x7b", "gemma3-27b"])
def test_padding_takes_what_tokens_take(model: str) -> None:
    """The step and the memory of the padded sequence; what is trained a second is what was asked
    for.
    """
    layout = cut("tp2 cp4 dp2 zero3 full")
    short, long = (
        predict(Job(model, "16xh100-sxm", 16, seq=seq), layout)
        for seq in (8010, 8016)
    )
    assert short.step_time_s == pytest.approx(long.step_time_s, rel=1e-12)
    assert short.memory_bytes["allocated"] == pytest.approx(
        long.memory_bytes["allocated"], rel=1e-12
    )
    assert short.tokens_per_s == pytest.approx(
        long.tokens_per_s * 8010 / 8016, rel=1e-9
    )
    assert short.mfu < long.mfu
    said = "sequences of 8,010 tokens are padded to 8,016, a multiple of 16"
    assert any(note.startswith(said) for note in short.notes)
    assert not any("padded to" in note for note in long.notes)


def test_papers_demand_that_a_sequence_divides() -> None:
    at = replace(JOB, assumptions="lbl-2024")
    assert broken(at, cut("cp16"))
    assert not broken(JOB, cut("cp16"))


def test_ten_million_tokens_are_nearly_as_quick_as_the_next_power_of_two() -> (
    None
):
    """5 % fewer tokens are not slower than all of them, nor by more than the padding."""
    two, ten = (
        plan(
            Job("llama3-70b", "4096xh100-sxm", 64, seq=seq),
            Space(zero=3),
            families=False,
        )
        for seq in (10 * 2**20, 10**7)
    )
    assert two.best and ten.best
    assert ten.best.layout.cp >= 512 and two.best.layout.cp >= 512
    share = (10**7 / (10 * 2**20)) ** 2
    times = ten.fastest.step_time_s / two.fastest.step_time_s
    assert share * 0.99 < times < 1
