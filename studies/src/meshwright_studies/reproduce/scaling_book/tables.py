"""The book's thresholds, splits and curves as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meshwright.roofline.times import Times

from ..report import PaperTable, table_of
from .ideal import Ideal, on_axes, ratios
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


def explorer() -> Iterator[dict[str, object]]:
    """One row a step: the crossover with axes as the explorer counts them, and as a torus of 3 has
    them.
    """
    s, m = book_setting(), pod(4096)
    for x in STEPS:
        y = 4096 // x
        book = on_axes(x, y, 16)
        real = on_axes(x, y, 16, most=3)
        from_ = {
            "compute_bound_from_max_book": book.threshold(s, m, "max"),
            "compute_bound_from_max_real": real.threshold(s, m, "max"),
            "compute_bound_from_sum_real": real.threshold(s, m, "sum"),
        }
        yield {
            "fsdp": x,
            "tp": y,
            "axes_fsdp_book": int(book.m_x),
            "axes_tp": int(book.m_y),
            "axes_fsdp_real": int(real.m_x),
            **{k: "never" if b is None else b for k, b in from_.items()},
        }


def static_times(batch: Any) -> dict[tuple[int, int], Times]:
    """(FSDP, TP) -> times of the splits that the book draws, on 16 x 16 x 16."""
    s, m = book_setting(), pod(4096)
    return {
        (x, y): Ideal(x, y, m_x, m_y).times(s, m, batch)
        for x, y, m_x, m_y in STATIC
    }


def times_table() -> Iterator[dict[str, object]]:
    """Compute and communication time of each split at each batch."""
    for (x, y), t in static_times(BATCHES).items():
        columns = {
            "batch_tokens": BATCHES,
            "compute_s": t.compute,
            "comm_sum_s": t.comm("sum"),
            "comm_max_s": t.comm("max"),
        }
        whole = np.broadcast_arrays(*columns.values())
        for row in zip(*whole, strict=True):
            values = dict(zip(columns, map(float, row), strict=True))
            yield {"fsdp": x, "tp": y, **values}


def ratio_curves() -> Any:
    """Scheme -> T_math/T_comms at each of `PER_CHIP` tokens, on 4 x 4 x 4 for F = 30,000."""
    return ratios(
        book_setting(30000),
        mesh=pod(64),
        tokens_per_chip=PER_CHIP,
        m_x=2,
        m_y=1,
        axes=3,
    )


def ratio_table() -> Iterator[dict[str, object]]:
    """T_math/T_comms on 4 x 4 x 4 for F = 30,000."""
    names = ("fsdp", "tp", "fsdp_tp_sum", "fsdp_tp_max")
    curves = dict(zip(names, ratio_curves().values(), strict=True))
    for i, tokens in enumerate(PER_CHIP):
        yield {
            "tokens_per_chip": float(tokens),
            **{name: float(curve[i]) for name, curve in curves.items()},
        }


def intensities() -> Iterator[dict[str, object]]:
    """C/W of the chips the book compares."""
    for chip, link, value in (
        *((name, "one torus axis", alpha(name)) for name in (V4P, V5E, V5P)),
        (V5P, "data-centre network", alpha_dcn()),
        (H100, "NVLink in a node", alpha(H100)),
        (H100, "out of a node", alpha_node(H100)),
    ):
        yield {"chip": chip, "link": link, "flops_per_byte": value}


def book_tables() -> tuple[PaperTable, ...]:
    """The book's tables."""
    where = "TPU v5p 16x16x16, D = 8192, F = 32768, one layer forward"
    every = {
        "explorer": (
            f"Tokens from which a split is compute-bound, {where}",
            explorer(),
        ),
        "times": (f"Seconds, {where}", times_table()),
        "ratio": ("T_math/T_comms, TPU v5p 4x4x4, F = 30,000", ratio_table()),
        "intensity": (
            "FLOPs a chip does for each byte it receives",
            intensities(),
        ),
    }
    return tuple(
        table_of(f"scaling-book-{name}", title, rows)
        for name, (title, rows) in every.items()
    )
