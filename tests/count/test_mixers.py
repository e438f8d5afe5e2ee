"""Degrees that no framework cuts linear attention, state spaces and convolutions by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model
from meshwright.describe.mixers import Convolution, Linear, StateSpace
from meshwright.layout.placement import placed
from meshwright.layout.rules import demand_legal
from refusals import refusal

D, T = 64, 128
PLAIN = Model("m", 1, D, 4, 256, 0, T)
MODELS = {
    "delta": replace(
        PLAIN,
        pattern=("linear+none",),
        linear=Linear(8, 16, 32, key_heads=4, conv=4, vectors=16),
    ),
    "lightning": replace(
        PLAIN,
        pattern=("linear+none",),
        linear=Linear(
            4,
            16,
            16,
            "lightning",
            decay="fixed",
            write_gate=False,
            norm="whole",
        ),
    ),
    "mamba": replace(
        PLAIN,
        pattern=("ssm+none",),
        ssm=StateSpace(128, 16, "mamba", dt_rank=4),
    ),
    "conv": replace(PLAIN, pattern=("conv+none",), conv=Convolution(3)),
}


@pytest.mark.parametrize(
    ("name", "degrees", "reason"),
    [
        (
            "mamba",
            {"tp": 2},
            "no framework trains Mamba layers of the first kind with tp 2 or cp 1",
        ),
        (
            "conv",
            {"cp": 2},
            "no framework trains convolution layers with tp 1 or cp 2",
        ),
        ("lightning", {"tp": 2}, "no framework trains lightning attention"),
        (
            "delta",
            {"tp": 8},
            "linear.key_heads 4 cannot be split 8 ways: tp may be 1, 2, 4",
        ),
        ("delta", {"tp": 2, "cp": 4}, "tp x cp may be 1, 2, 4"),
    ],
)
def test_layouts_that_nothing_runs_are_refused_by_name(
    name: str, degrees: dict[str, int], reason: str
) -> None:
    job = Job(replace(MODELS[name], vocab=1000), "8xh100-sxm", 8)
    with refusal(reason):
        demand_legal(
            job, placed(Layout(**{"dp": 1, **degrees}), job.cluster.sizes)
        )
