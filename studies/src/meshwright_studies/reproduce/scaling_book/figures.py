"""The book's three kinds of plot: ratio against batch per chip, times against batch, the split
explorer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..report import PaperFigure
from .ideal import on_axes
from .tables import BATCHES, PER_CHIP, STEPS, ratio_curves, static_times
from .world import book_setting, pod

SPLIT_AT = (1e6, 3e6, 1e7)
"""Tokens of the lines of the figure of the split."""
PANELS = (4096, 1024, 512, 256, 64, 1)
"""Data-parallel degrees shown of the explorer's thirteen."""


def ratio_figure() -> Any:
    """T_math/T_comms against tokens a chip on 4 x 4 x 4."""
    from ...report.figures_book import ratio_plot

    curves = ratio_curves()
    return ratio_plot(
        PER_CHIP, curves, "TPU v5p 4x4x4, one layer with F = 30,000, forward"
    )


def times_figure() -> Any:
    """Compute and communication time against batch on 16 x 16 x 16: lines for the edition sum,
    bands down to the edition max.
    """
    from ...report.figures_book import times_plot

    times = static_times(BATCHES)
    return times_plot(
        BATCHES,
        next(iter(times.values())).compute,
        {
            f"FSDP {x} x TP {y}": (t.comm("max"), t.comm("sum"))
            for (x, y), t in times.items()
        },
        "TPU v5p 16x16x16, D = 8192, F = 32,768, one layer, forward\n"
        "lines: edition sum; bands: down to edition max",
    )


def explorer() -> Any:
    """Small multiples of the explorer, axes counted as a torus of three has them."""
    from meshwright.report.roofline_plots import panels

    s, m = book_setting(), pod(4096)
    shown = []
    for x in PANELS:
        split = on_axes(x, 4096 // x, 16, most=3)
        t = split.times(s, m, BATCHES)
        shown.append(
            (
                f"FSDP {x}, TP {4096 // x}",
                t.compute,
                {e: t.comm(e) for e in ("sum", "max")},
                split.threshold(s, m, "max"),
                "max",
            )
        )
    return panels(
        BATCHES,
        shown,
        "Split explorer: TPU v5p 16x16x16, D = 8192, F = 32,768, one layer, forward",
    )


def split_figure() -> Any:
    """Communication over the split of X and Y, with its minimum, at three batches."""
    from ...report.figures_book import split_plot

    s, m = book_setting(), pod(4096)
    degrees = [(x, 4096 // x) for x in STEPS]
    shown = {}
    for batch in SPLIT_AT:
        times = [
            on_axes(x, y, 16, most=3).times(s, m, np.array([batch]))
            for x, y in degrees
        ]
        editions = {
            e: [float(np.max(t.comm(e))) for t in times]
            for e in ("sum", "max")
        }
        compute = float(np.max(times[0].compute))
        shown[f"{batch / 1e6:g}M tokens"] = compute, editions
    return split_plot(
        degrees,
        shown,
        "The split: TPU v5p 16x16x16, the book's layer, D = 8192, F = 32,768; rings: the minimum",
    )


def figures() -> tuple[PaperFigure, ...]:
    """The book's figures, drawn when written."""
    every = {
        "ratio": ratio_figure,
        "times": times_figure,
        "explorer": explorer,
        "split": split_figure,
    }
    return tuple(
        PaperFigure(f"scaling-book-{name}", draw)
        for name, draw in every.items()
    )
