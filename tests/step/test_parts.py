"""What stages hand on, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.describe.assumptions import (
    LBL,
    PYTORCH,
    REALISTIC,
    Assumptions,
    Counting,
)
from meshwright.describe.read import read
from refusals import refusal

GPT = Model("gpt", 8, 1024, 16, 4096, 51200, 2048)
WHOLE = 2 * 2048 * 1024 * 2.0
"""b T D activations of 2 bytes, microbatch 2."""


def described(sequence: bool, of: Assumptions, cp: int = 1) -> Job:
    layout = Layout(
        tp=4, cp=cp, pp=2, dp=1, microbatch=2, sequence_parallel=sequence
    )
    return Job(GPT, "16xa100-80", 16, layout, assumptions=of)


@pytest.mark.parametrize(
    ("of", "sequence", "sent"),
    [
        (REALISTIC, True, WHOLE / 4),
        (REALISTIC, False, WHOLE),
        (PYTORCH, True, WHOLE / 4),
        (PYTORCH, False, WHOLE),
        (LBL, False, WHOLE),
    ],
)
def test_what_a_rank_sends_to_the_next_stage(
    of: Assumptions, sequence: bool, sent: float
) -> None:
    j = described(sequence, of)
    assert DeviceMicrobatch.from_layout(j, j.layout).stage_message == sent
    half = described(sequence, of, cp=2)
    assert (
        DeviceMicrobatch.from_layout(half, half.layout).stage_message
        == sent / 2
    )


def test_ranks_of_2021_scatter_what_they_send() -> None:
    """Scatter/gather of Megatron-LM, which Megatron Core has no more."""
    j = replace(described(False, REALISTIC), framework="megatron-2021")
    assert DeviceMicrobatch.from_layout(j, j.layout).stage_message == WHOLE / 4
    sharded = replace(j, layout=replace(j.layout, sequence_parallel=True))
    assert (
        DeviceMicrobatch.from_layout(sharded, sharded.layout).stage_message
        == WHOLE / 4
    )


def test_another_word_is_refused() -> None:
    with refusal("stage_message"):
        read(Counting, {"stage_message": "halved"})
