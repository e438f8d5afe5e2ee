"""The book's thresholds, splits and curves as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..report import PaperTable
from .ideal import Ideal, on_axes, ratios
from .training import F30K
from .world import (
    H100,
    V4P,
    V5E,
    V5P,
    alpha,
    alpha_dcn,
    alpha_node,
    book_setting,
    pod,
)

STEPS = tuple(2**i for i in range(12, -1, -1))
"""Data-parallel degrees of the explorer, 4096 to 1."""
STATIC = (
    (4096, 1, 3.0, 1.0),
    (1024, 4, 2.0, 1.0),
    (512, 8, 2.0, 1.0),
    (256, 16, 2.0, 1.0),
    (1, 4096, 1.0, 3.0),
)
"""X, Y, M_X, M_Y of the lines in the plot of times against batch on 16 x 16 x 16."""
BATCHES = np.geomspace(10, 1e8, 64)
"""Tokens, as the explorer spaces them."""
PER_CHIP = np.linspace(20, 2000, 100)


def explorer() -> Iterator[tuple[object, ...]]:
    """One row a step: the crossover with axes as the explorer counts them, and as a torus of 3 has
    them.
    """
    s, m = book_setting(), pod(4096)
    for x in STEPS:
        y = 4096 // x
        book = on_axes(x, y, 16)
        real = on_axes(x, y, 16, most=3)
        batches = (
            book.threshold(s, m, "max"),
            real.threshold(s, m, "max"),
            real.threshold(s, m, "sum"),
        )
        yield (
            x,
            y,
            int(book.m_x),
            int(book.m_y),
            int(real.m_x),
            *("never" if b is None else b for b in batches),
        )


def times_table() -> Iterator[tuple[object, ...]]:
    """Compute and communication time of each split at each batch."""
    s, m = book_setting(), pod(4096)
    for x, y, m_x, m_y in STATIC:
        t = Ideal(x, y, m_x, m_y).times(s, m, BATCHES)
        compute, sums, larger = (
            np.broadcast_to(v, BATCHES.shape)
            for v in (t.compute, t.comm("sum"), t.comm("max"))
        )
        for row in zip(BATCHES, compute, sums, larger, strict=True):
            yield (x, y, *(float(v) for v in row))


def ratio_curves() -> Any:
    """Scheme -> T_math/T_comms at each of `PER_CHIP` tokens, on 4 x 4 x 4 for F = 30,000."""
    return ratios(
        book_setting(F30K),
        mesh=pod(64),
        tokens_per_chip=PER_CHIP,
        m_x=2,
        m_y=1,
        axes=3,
    )


def ratio_table() -> Iterator[tuple[object, ...]]:
    """T_math/T_comms on 4 x 4 x 4 for F = 30,000."""
    curves = ratio_curves()
    for i, tokens in enumerate(PER_CHIP):
        yield (float(tokens), *(float(curve[i]) for curve in curves.values()))


def intensities() -> Iterator[tuple[object, ...]]:
    """C/W of the chips the book compares."""
    for name in (V4P, V5E, V5P):
        yield (name, "one torus axis", alpha(name))
    yield (V5P, "data-centre network", alpha_dcn())
    yield (H100, "NVLink in a node", alpha(H100))
    yield (H100, "out of a node", alpha_node(H100))


def book_tables() -> tuple[PaperTable, ...]:
    """The book's tables."""
    where = "TPU v5p 16x16x16, D = 8192, F = 32768, one layer forward"
    splits = ("fsdp", "tp", "axes_fsdp_book", "axes_tp", "axes_fsdp_real")
    crossings = (
        "compute_bound_from_max_book",
        "compute_bound_from_max_real",
        "compute_bound_from_sum_real",
    )
    seconds = (
        "fsdp",
        "tp",
        "batch_tokens",
        "compute_s",
        "comm_sum_s",
        "comm_max_s",
    )
    lines = ("tokens_per_chip", "fsdp", "tp", "fsdp_tp_sum", "fsdp_tp_max")
    link = ("chip", "link", "flops_per_byte")
    return (
        _table(
            "explorer",
            f"Tokens from which a split is compute-bound, {where}",
            splits + crossings,
            explorer(),
        ),
        _table("times", f"Seconds, {where}", seconds, times_table()),
        _table(
            "ratio",
            "T_math/T_comms, TPU v5p 4x4x4, F = 30,000",
            lines,
            ratio_table(),
        ),
        _table(
            "intensity",
            "FLOPs a chip does for each byte it receives",
            link,
            intensities(),
        ),
    )


def _table(
    name: str,
    title: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[object, ...]],
) -> PaperTable:
    return PaperTable(f"scaling-book-{name}", title, columns, tuple(rows))
