"""The book's three kinds of plot: ratio against batch per chip, times against batch, the split
explorer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..report import PaperFigure
from .ideal import Ideal, on_axes
from .tables import BATCHES, PER_CHIP, STATIC, ratio_curves
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

    s, m = book_setting(), pod(4096)
    schemes = {
        f"FSDP {x} x TP {y}": Ideal(x, y, m_x, m_y).times(s, m, BATCHES)
        for x, y, m_x, m_y in STATIC
    }
    figure = times_plot(
        BATCHES,
        next(iter(schemes.values())).compute,
        {name: t.comm("sum") for name, t in schemes.items()},
        "TPU v5p 16x16x16, D = 8192, F = 32,768, one layer, forward\n"
        "lines: edition sum; bands: down to edition max",
    )
    (axes,) = figure.axes
    for line, t in zip(axes.lines[1:], schemes.values(), strict=True):
        axes.fill_between(
            BATCHES,
            t.comm("max"),
            t.comm("sum"),
            color=line.get_color(),
            alpha=0.35,
            linewidth=0,
        )
    return figure


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


def _splits() -> Any:
    """Communication over the split of X and Y, with its minimum, at three batches."""
    from matplotlib.figure import Figure

    from ...report.figures_lbl import COLOURS, MARKERS

    s, m = book_setting(), pod(4096)
    degrees = [4096 >> i for i in range(13)]
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    for i, batch in enumerate(SPLIT_AT):
        times = [
            on_axes(x, 4096 // x, 16, most=3).times(s, m, np.array([batch]))
            for x in degrees
        ]
        compute = float(np.max(times[0].compute))
        axes.axhline(compute, color="black", linewidth=0.8)
        # where every line is far above
        axes.annotate(
            f"compute, {batch / 1e6:g}M tokens", (12, compute), fontsize=8,
            ha="right", va="bottom",
        )  # fmt: skip
        for edition, line in (("sum", "-"), ("max", ":")):
            y = [float(np.max(t.comm(edition))) for t in times]
            least = y.index(min(y))
            name = f"{batch / 1e6:g}M tokens, {edition}"
            axes.plot(
                range(13), y, line, color=COLOURS[i], marker=MARKERS[i],
                markersize=4, label=name,
            )  # fmt: skip
            axes.plot(least, y[least], "o", ms=13, mfc="none", mec=COLOURS[i])
    axes.set_yscale("log")
    axes.set_xticks(
        range(13), [f"{x}\n{4096 // x}" for x in degrees], fontsize=8
    )
    axes.set_xlabel(
        "X (FSDP) over Y (tensor parallel), at three batches of tokens"
    )
    axes.set_ylabel("time of a layer's communication, forward [s]")
    axes.set_title(
        "The split: TPU v5p 16x16x16, the book's layer, D = 8192, F = 32,768; rings: the minimum",
        fontsize=9,
    )
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return figure


def figures() -> tuple[PaperFigure, ...]:
    """The book's figures, drawn when written."""
    every = {
        "ratio": ratio_figure,
        "times": times_figure,
        "explorer": explorer,
        "split": _splits,
    }
    return tuple(
        PaperFigure(f"scaling-book-{name}", draw)
        for name, draw in every.items()
    )
