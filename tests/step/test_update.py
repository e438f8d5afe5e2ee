"""The optimizer's pass and what a run consumes, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import CHIP, MODEL, SET, WEIGHTS, WIDTH, by_hand
from layouts import cut
from meshwright import Job, Layout, MoE
from meshwright.count.optimizer import update
from meshwright.describe.assumptions import ChipTime
from meshwright.describe.job import OPTIMIZERS, PRECISIONS
from meshwright.step import clock_of
from meshwright.step.optimizer import update as step_update
from meshwright.step.parameters import Parameters

ADAMW = 2 * 4 + 2 * 12 + 2
"""Bytes that AdamW moves for a parameter: its fp32 gradient is read for the norm and again for the
update, 12 bytes of state (master weight and two moments) are read and written, the 16-bit weight is
written."""
STREAM: dict[str, Any] = {
    "count": replace(SET.count, optimizer_step=True),
    "chip": ChipTime(
        matrix_efficiency=1.0, memory_efficiency=1.0, launch_s=0.0
    ),
    "hardware": replace(
        CHIP, matrix_flops={"bf16": 1e30}, vector_flops=1e30, hbm_bandwidth=1e6
    ),
}
"""A chip that streams 1 MB/s and computes at once."""


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_"),
    [
        ("bf16", "adamw", ADAMW),
        (
            "bf16-pure",
            "adamw",
            ADAMW - 2 * 2,
        ),  # gradients in 2 bytes, read twice
        ("bf16", "sgd", ADAMW - 2 * 4),  # one moment less
        (
            "fp32",
            "adamw",
            2 * 4 + 2 * 8 + 4,
        ),  # no master weight beside the fp32 weight
    ],
)
def test_bytes_of_an_update(
    precision: str, optimizer: str, bytes_: float
) -> None:
    job = replace(
        by_hand(Layout(dp=1)).job,
        precision=PRECISIONS[precision],
        optimizer=OPTIMIZERS[optimizer],
    )
    assert update(job, 1000.0).memory == 1000 * bytes_


DENSE, EXPERTS = 2 * (4 * WIDTH**2 + 8 * WIDTH), 2 * 8 * 2 * WIDTH * 128
"""Of two layers: attention and router; eight experts."""


@pytest.mark.parametrize(
    ("layout", "fields", "parameters"),
    [
        (Layout(dp=1), {}, 2 * WEIGHTS),
        (cut("dp4 zero0"), {}, 2 * WEIGHTS),  # every replica updates all
        (cut("dp4 zero1"), {}, 2 * WEIGHTS / 4),
        # sharded over cp as well
        (cut("cp2 dp2 zero3"), {}, 2 * WEIGHTS / 4),
        (cut("tp2 dp2 zero1"), {}, WEIGHTS / 2),
        (cut("pp2"), {}, WEIGHTS),
        # the first stage holds two
        (cut("pp2"), {"layers": 3}, 2 * WEIGHTS),
        # of experts two replicas share half
        (cut("dp4 ep2"), {"moe": MoE(8, 2, 128)}, DENSE + EXPERTS / 2),
        (
            cut("dp4 ep2 zero1"),
            {"moe": MoE(8, 2, 128)},
            DENSE / 4 + EXPERTS / 2 / 2,
        ),
    ],
)
def test_seconds_of_an_update(
    layout: Layout, fields: dict[str, Any], parameters: float
) -> None:
    model = replace(MODEL, **fields)
    found = by_hand(layout, 1, model=model, **STREAM)
    expected = ADAMW * parameters / 1e6
    assert found.time_s["optimizer"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("zero", "experts", "parameters"),
    [(0, 20, 100), (1, 20, 100 / 4), (0, 60, 110), (1, 60, 50 / 4 + 60 / 2)],
)
def test_the_device_with_most_parameters_ends_the_update(
    zero: int, experts: float, parameters: float
) -> None:
    """One has 100, another 50 and 20 or 60 of experts, over four replicas and over two."""
    model = replace(MODEL, moe=MoE(8, 2, 128))
    job = by_hand(Layout(dp=1), 1, model=model, **STREAM).job
    owned = [Parameters(100.0, 0.0), Parameters(50.0, experts)]
    found = step_update(job, cut("dp4 ep2"), owned, zero, clock_of(job))
    assert found == pytest.approx(ADAMW * parameters / 1e6)
    silent = replace(job, assumptions=SET)
    assert step_update(silent, Layout(dp=1), [], 0, clock_of(job)) == 0.0


@pytest.mark.parametrize("price", [0.0, 3.0])
def test_energy_is_seconds_times_chips_times_watts(price: float) -> None:
    """Four chips of 250 W; 1,000 steps of 4 x 128 tokens, 6 s each; rent by the hour."""
    p = by_hand(Layout(dp=4), 1, hardware=replace(CHIP, usd_per_hour=price))
    run = replace(p, job=replace(p.job, tokens=1000.0 * 4 * 128))
    assert run.train_time_s == pytest.approx(6000.0)
    assert run.energy_j == pytest.approx(6000 * 4 * 250)
    assert run.chip_hours == pytest.approx(6000 * 4 / 3600)
    # no price is not a price of nothing
    rent = pytest.approx(6000 * 4 / 3600 * price) if price else None
    assert run.cost_usd == rent


def test_of_a_pipeline_each_host_steps_the_layers_of_its_stage() -> None:
    """Sixteen layers take the host as long as half of thirty-two."""
    job = Job("llama3-8b", "8xh100-sxm", 8)
    half = replace(job, model=replace(job.model, layers=16))
    clock, none = clock_of(job), [Parameters(0.0, 0.0)]
    whole, cut = (
        step_update(job, Layout(pp=pp), none, 0, clock) for pp in (1, 2)
    )
    assert cut == step_update(half, Layout(), none, 0, clock)
    assert 0 < cut < whole
