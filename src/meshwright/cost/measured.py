"""Seconds read from measured tables: exact at the points, straight lines between them.

A table of n axes is read as a multilinear function. Launch + FLOPs / rate + bytes / bandwidth, with
FLOPs m n k and bytes m k + k n + m n, is one in m, n and k, so such a law is reproduced exactly,
between the points and beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..describe.measured import MeasuredTable, Overhead
from ..num import Num, at, cell, maximum

SLACK = 1.01
"""Sizes up to 1 % outside the range of a table count as inside: rounding."""


def table_seconds(table: MeasuredTable, sizes: Sequence[Num]) -> Num:
    """Seconds at these sizes, one per axis. Beyond the last point the last cell goes on; below the
    first the first point holds.
    """
    cells = [
        cell(size, points)
        for size, points in zip(sizes, table.points, strict=True)
    ]
    total: Num = 0.0
    for corner in range(2 ** len(cells)):
        index: Num = 0
        weight: Num = 1.0
        for axis, ((i, w), points) in enumerate(
            zip(cells, table.points, strict=True)
        ):
            upper = corner >> axis & 1
            index = index * len(points) + (i + upper if len(points) > 1 else i)
            weight = weight * (w if upper else 1.0 - w)
        total = total + weight * at(table.seconds, index)
    # beyond its points a table goes on straight, and a falling edge would end below 0
    return maximum(total, 0.0)


def axes_outside(table: MeasuredTable, sizes: Sequence[float]) -> str:
    """Which axes leave the measured range, as a phrase; "" if none does."""
    return ", ".join(
        f"{axis} {size:g} (measured {points[0]:g} to {points[-1]:g})"
        for axis, size, points in zip(
            table.axes, sizes, table.points, strict=True
        )
        if not points[0] / SLACK <= size <= points[-1] * SLACK
    )


def overhead(
    table: Overhead, ranks: Num, layers: Num, microbatches: Num
) -> Num:
    """CPU seconds of one rank: step + m microbatch + l layer + l m layer_microbatch, between
    measured group sizes by straight lines.
    """
    i, w = cell(ranks, table.ranks)
    j = i + 1 if len(table.ranks) > 1 else i
    step, each, layer, both = (
        at(values, i) * (1.0 - w) + at(values, j) * w
        for values in (
            table.step,
            table.microbatch,
            table.layer,
            table.layer_microbatch,
        )
    )
    return (
        step
        + microbatches * each
        + layers * layer
        + layers * microbatches * both
    )
