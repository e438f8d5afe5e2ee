"""Corners that a search finds and nobody trains in are named beside the answer."""

from dataclasses import replace

import pytest

from by_hand import FREE
from meshwright import Job, Layout, predict
from meshwright.describe.assumptions import REALISTIC, ChipTime

ROOFLINE = replace(REALISTIC, chip=ChipTime("roofline"))


def notes(
    layout: Layout, batch: int = 64, chips: int = 64, **fields: object
) -> str:
    given = {"assumptions": ROOFLINE, **fields}
    job = Job("llama3-70b", f"{chips}xh100-sxm", batch, **given)
    return "; ".join(predict(job, layout).notes)


@pytest.mark.parametrize(
    ("cp", "seq", "said"),
    [(32, 8192, True), (16, 8192, False), (16, 4096, True), (4, 2048, False)],
)
def test_products_of_few_tokens_are_named(
    cp: int, seq: int, said: bool
) -> None:
    """microbatch x sequence / cp: 256, 512, 256 and 512 tokens."""
    assert (
        "matrix products of 256 tokens"
        in notes(Layout(cp=cp, dp=64 // cp, zero=3), seq=seq)
    ) == said


def test_a_larger_microbatch_makes_larger_products() -> None:
    assert "matrix products" not in notes(
        Layout(cp=32, dp=2, microbatch=2, zero=3)
    )


def test_kernels_by_shape_have_no_such_corner() -> None:
    assert "matrix products" not in notes(
        Layout(cp=32, dp=2, zero=3), assumptions=REALISTIC
    )


def test_a_set_without_kernels_has_no_such_corner() -> None:
    assert "matrix products" not in notes(
        Layout(cp=32, dp=2, zero=3), assumptions=FREE
    )
