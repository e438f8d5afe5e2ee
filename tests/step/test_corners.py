"""Corners that a search finds and nobody trains in are named beside the answer."""

from dataclasses import replace

import pytest

from by_hand import FREE
from meshwright import Job, Layout, predict
from meshwright.describe.assumptions import REALISTIC, Assumptions, ChipTime

ROOFLINE = replace(REALISTIC, chip=ChipTime("roofline"))


@pytest.mark.parametrize(
    ("cp", "microbatch", "seq", "how", "said"),
    [
        (32, 1, 8192, ROOFLINE, True),
        (16, 1, 8192, ROOFLINE, False),
        (16, 1, 4096, ROOFLINE, True),
        (4, 1, 2048, ROOFLINE, False),
        (32, 2, 8192, ROOFLINE, False),
        # kernels by shape have no such corner, nor has a set without kernels
        (32, 1, 8192, REALISTIC, False),
        (32, 1, 8192, FREE, False),
    ],
)
def test_products_of_few_tokens_are_named(
    cp: int, microbatch: int, seq: int, how: Assumptions, said: bool
) -> None:
    """microbatch x sequence / cp: 256, 512, 256, 512, 512, and twice 256 tokens."""
    layout = Layout(cp=cp, dp=64 // cp, microbatch=microbatch, zero=3)
    job = Job("llama3-70b", "64xh100-sxm", 64, seq=seq, assumptions=how)
    notes = "; ".join(predict(job, layout).notes)
    assert ("matrix products of 256 tokens" in notes) == said
