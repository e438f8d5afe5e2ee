"""Seconds of one operation on one chip, by hand: rates, the slower of arithmetic and memory, which
unit computes what.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Chip
from meshwright.cost import offload
from meshwright.cost.chip import (
    compute_time,
    exposed_memory,
    pass_time,
    rates,
    wider,
)
from meshwright.count.work import Pass
from meshwright.describe.assumptions import ChipTime

PEAK, PEAK8, VECTOR, MEMORY = 100.0, 200.0, 20.0, 200.0
CHIP = Chip(
    "round",
    {"bf16": PEAK, "fp8": PEAK8},
    vector_flops=VECTOR,
    hbm_bytes=1.0,
    hbm_bandwidth=MEMORY,
    sustained=0.5,
)
HOW = ChipTime(
    matrix_efficiency=1.0,
    vector_efficiency=0.5,
    memory_efficiency=0.25,
    launch_s=0.25,
)


def test_arithmetic_is_launch_matrix_and_vector() -> None:
    """0.25 s + 300 / 100 + 20 / (20 / 2)."""
    assert compute_time(
        Pass(300.0, 20.0, 0.0), rates(CHIP, "bf16", HOW)
    ) == pytest.approx(0.25 + 3 + 2)


@pytest.mark.parametrize(
    ("bytes_", "exposed"),
    [(0.0, 0.0), (100.0, 0.0), (162.5, 0.0), (500.0, 10 - 3.25)],
)
def test_memory_shows_what_outlasts_arithmetic(
    bytes_: float, exposed: float
) -> None:
    """At a quarter of 200 B/s beside 3.25 s of arithmetic."""
    r, work = rates(CHIP, "bf16", HOW), Pass(300.0, 0.0, bytes_)
    assert exposed_memory(work, compute_time(work, r), r) == pytest.approx(
        exposed
    )
    assert pass_time([work, work], r) == pytest.approx(2 * (3.25 + exposed))


def test_peak_counts_matrices_alone() -> None:
    r = rates(
        CHIP, "bf16", ChipTime("peak", matrix_efficiency=1.0, launch_s=0.0)
    )
    work = Pass(300.0, 1e9, 1e9)
    assert compute_time(work, r) == pytest.approx(3.0)
    assert exposed_memory(work, 3.0, r) == 0


@pytest.mark.parametrize(
    ("of_set", "of_chip", "share"),
    [(0.8, 0.5, 0.8), (None, 0.5, 0.5), (None, None, 0.75)],
)
def test_the_share_of_the_peak_is_the_set_s_then_the_chip_s_then_the_default(
    of_set: float | None, of_chip: float | None, share: float
) -> None:
    r = rates(
        replace(CHIP, sustained=of_chip),
        "bf16",
        replace(
            HOW,
            matrix_efficiency=of_set,
            **({} if of_set else {"sustained": 0.75}),
        ),
    )
    assert r.matrix == pytest.approx(share * PEAK)


@pytest.mark.parametrize(
    ("sustained", "forward", "backward"),
    [(0.9, 0.73, 0.63), (0.7, 0.7, 0.63), (0.5, 0.5, 0.5)],
)
def test_fused_attention_is_no_faster_than_its_kernel_nor_than_the_chip(
    sustained: float, forward: float, backward: float
) -> None:
    """A kernel that reaches 73 and 63 % of a peak of which the chip holds 90, 70 or 50 % under
    load.
    """
    how = replace(
        HOW,
        matrix_efficiency=sustained,
        attention_forward=0.73,
        attention_backward=0.63,
        launch_s=0.0,
    )
    r = rates(CHIP, "bf16", how)
    assert compute_time(
        Pass(PEAK, engine="attention forward"), r
    ) == pytest.approx(1 / forward)
    assert compute_time(
        Pass(PEAK, engine="attention backward"), r
    ) == pytest.approx(1 / backward)


def test_in_eight_bits_only_plain_matrices_are_faster() -> None:
    """Logits and attention stay in 16 bits; all reach half of the peak."""
    half = replace(HOW, launch_s=0.0, matrix_efficiency=0.5)
    r = rates(CHIP, "fp8", half)
    times = {
        engine: compute_time(Pass(PEAK8, engine=engine), r)
        for engine in ("matrix", "wide", "attention forward")
    }
    assert times == {"matrix": 2.0, "wide": 4.0, "attention forward": 4.0}
    assert [wider(CHIP, p) for p in ("fp8", "bf16", "fp32")] == [
        "bf16",
        "bf16",
        "fp32",
    ]
    only8 = replace(CHIP, matrix_flops={"fp8": PEAK8})
    assert wider(only8, "fp8") == "fp8"


def test_copies_to_the_host_reach_a_share_of_the_link() -> None:
    link = replace(CHIP, host_bandwidth=10.0, host_reached=0.5)
    assert offload.copy_seconds(link, 20.0) == 4.0
