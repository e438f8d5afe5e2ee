"""Traffic of the trillion-parameter run across the bisection of the machine, and its time at the
measured speeds.
"""

from __future__ import annotations

from ... import catalog
from ..report import Table
from . import formulas as f

PP, TP, DP, BATCH, GPUS = 64, 8, 6, 3072, 3072
RATE = 502.0e15
"""FLOP/s of the run, table 1."""
SENDS, REDUCES = 892e9, 12.9e12
"""Effective bisection bandwidth measured, bytes per second. Section 5.9."""
HALF, FULL = 2.0, 4.0
"""Bytes of an activation, and of a gradient while it is reduced."""


def traffic() -> Table:
    """Bytes a step across a cut through the middle of the pipelines, and through all gradient
    rings.
    """
    m = catalog.model("megatron-1008b")
    step = f.flops(m, BATCH) / RATE
    boundary = 2 * BATCH * m.seq * m.hidden * HALF
    rings = (
        2 * PP * TP * 2 * (DP - 1) / DP * FULL * f.parameters(m) / (PP * TP)
    )
    rows = tuple(
        (what, size, speed, size / speed, size / speed / step)
        for what, size, speed in (
            (
                "stage sends, forward and backward, scattered, one chunk a device",
                boundary,
                SENDS,
            ),
            (
                "gradient all-reduce in fp32, every ring cut twice",
                rings,
                REDUCES,
            ),
        )
    )
    columns = (
        "traffic across the bisection",
        "bytes a step",
        "measured B/s",
        "seconds a step",
        "share of the step",
    )
    return Table(
        "megatron-traffic",
        f"1T on {GPUS} GPUs, {step:.4g} s a step",
        columns,
        rows,
    )
