"""The book's pictures: ratio against batch per chip, times against batch, the split explorer, the
zoomed times, and what each ZeRO stage leaves on a chip.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from meshwright import catalog
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.prediction import predict
from meshwright.report.plots import layouts
from meshwright.report.roofline_plots import (
    BATCH,
    compute_line,
    line,
    logarithmic,
    panels,
)

from ..drawing import COLOURS, MARKERS, draw_lines, sheet
from .ideal import on_axes
from .tables import BATCHES, PER_CHIP, STEPS, ratio_curves, static_times
from .world import book_setting, pod

WHERE = "TPU v5p 16x16x16, D = 8192, F = 32,768, one layer, forward"
SPLIT_AT = (1e6, 3e6, 1e7)
"""Tokens of the lines of the picture of the split."""
PANELS = (4096, 1024, 512, 256, 64, 1)
"""Data-parallel degrees shown of the explorer's thirteen."""
ZOOM = np.geomspace(0.25e6, 2e8, 96)
"""Tokens of the zoomed picture."""
HIGHEST = 6.5
"""Communication over compute at its upper edge."""
MIXED = (512, 8)
BOOK_SAYS = {MIXED: (1e6, 6e6), (4096, 1): (6e6, 1e8)}
"""(FSDP, TP) -> tokens between which the book has that split send least of those it names."""
BESIDE = ((256, 16), (4096, 1))
"""The splits that FSDP 512 x TP 8 hands over from and to."""
RED = "#cc3311"


def bound_by_compute() -> Figure:
    """T_math/T_comms against tokens a chip on 4 x 4 x 4; above 1 a scheme is compute-bound."""
    figure, axes = sheet(
        "TPU v5p 4x4x4, one layer with F = 30,000, forward",
        height=4.6,
        size=11,
        yscale="log",
        xlabel="batch per chip [tokens]",
        ylabel=r"$T_{math}\,/\,T_{comms}$",
    )
    for i, (name, values) in enumerate(ratio_curves().items()):
        line(axes, x=PER_CHIP, y=values, name=name, i=i)
    axes.axhline(1.0, color="black", linewidth=1, label="compute-bound above")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize=9)
    return figure


def times() -> Figure:
    """Compute and communication time against batch: lines for the edition sum, bands down to the
    edition max.
    """
    figure, axes = sheet(
        f"{WHERE}\nlines: edition sum; bands: down to edition max", size=11
    )
    splits = static_times(BATCHES)
    compute_line(axes, BATCHES, next(iter(splits.values())).compute)
    for i, ((x, y), t) in enumerate(splits.items()):
        most = t.comm("sum")
        line(axes, x=BATCHES, y=most, name=f"FSDP {x} x TP {y}", i=i)
        colour = axes.lines[-1].get_color()
        axes.fill_between(
            BATCHES, t.comm("max"), most, color=colour, alpha=0.35, lw=0
        )
    logarithmic(axes)
    axes.set(xlabel=BATCH, ylabel="time of one layer")
    axes.legend(fontsize=9)
    return figure


def explorer() -> Figure:
    """Small multiples of the explorer, axes counted as a torus of three has them."""
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
    return panels(BATCHES, shown, f"Split explorer: {WHERE}")


def split() -> Figure:
    """Communication over the split of X and Y, its minimum in a ring, at three batches."""
    s, m = book_setting(), pod(4096)
    every = range(len(STEPS))
    figure, axes = sheet(
        "The split: TPU v5p 16x16x16, the book's layer, D = 8192, F = 32,768; rings: the minimum",
        width=7.5,
        size=9,
        yscale="log",
        xlabel="X (FSDP) over Y (tensor parallel), at three batches of tokens",
        ylabel="time of a layer's communication, forward [s]",
    )
    for i, batch in enumerate(SPLIT_AT):
        name = f"{batch / 1e6:g}M tokens"
        splits = [
            on_axes(x, 4096 // x, 16, most=3).times(s, m, batch) for x in STEPS
        ]
        compute = float(splits[0].compute)
        axes.axhline(compute, color="black", linewidth=0.8)
        # where every line is far above
        axes.annotate(
            f"compute, {name}", (every[-1], compute), fontsize=8, ha="right",
            va="bottom",
        )  # fmt: skip
        for edition, dash in (("sum", "-"), ("max", ":")):
            y = [float(t.comm(edition)) for t in splits]
            least = y.index(min(y))
            axes.plot(
                every, y, dash, color=COLOURS[i], marker=MARKERS[i],
                markersize=4, label=f"{name}, {edition}",
            )  # fmt: skip
            axes.plot(least, y[least], "o", ms=13, mfc="none", mec=COLOURS[i])
    axes.set_xticks(every, [f"{x}\n{4096 // x}" for x in STEPS], fontsize=8)
    axes.legend(fontsize=8)
    return figure


def zoomed(edition: str) -> Figure:
    """Communication over compute between 0.25M and 200M tokens, with what the book reads off its
    figure.
    """
    lines = {
        split: t.comm(edition) / t.compute + 0 * ZOOM
        for split, t in static_times(ZOOM).items()
    }
    figure, axes = sheet(
        f"Zoomed: TPU v5p 16x16x16, edition {edition}; rings: where 512 x 8 crosses 256 x 16 and"
        " 4096 x 1",
        width=7.5,
        xscale="log",
        yscale="log",
        xlabel="batch [tokens]",
        ylabel="communication over compute",
        ylim=(0.03, HIGHEST),
    )
    curves = {}
    for (x, y), over in lines.items():
        above = " (above the frame)" if over.min() > HIGHEST else ""
        curves[f"FSDP {x} x TP {y}{above}"] = [*zip(ZOOM, over, strict=True)]
    draw_lines(axes, curves, markevery=12, markersize=5)
    axes.axhline(1.0, color="black", linewidth=1.2, label="compute")
    for (x, y), ends in BOOK_SAYS.items():
        colour = COLOURS[[*lines].index((x, y))]
        axes.hlines(HIGHEST / 1.5, *ends, color=colour, linewidth=5)
        axes.annotate(
            f"the book: {x} x {y}\n{ends[0] / 1e6:g}M to {ends[1] / 1e6:g}M",
            ((ends[0] * ends[1]) ** 0.5, HIGHEST / 1.7), ha="center", va="top",
            fontsize=8,
        )  # fmt: skip
    for other in BESIDE:
        at, level = crossing_point(ZOOM, lines[MIXED], lines[other])
        axes.plot(at, level, "o", ms=14, mfc="none", mec=RED, mew=2)
        axes.annotate(
            f"{at / 1e6:.2g}M", (at, level), (10, 8), color=RED,
            textcoords="offset points", fontsize=9, fontweight="bold",
        )  # fmt: skip
    axes.legend(fontsize=8)
    return figure


def crossing_point(x: Any, a: Any, b: Any) -> tuple[float, float]:
    """Where two lines over x cross first, on logarithmic axes."""
    gap = np.log(a / b)
    i = int(np.flatnonzero(np.diff(np.sign(gap)))[0])
    at = x[i] * (x[i + 1] / x[i]) ** (gap[i] / (gap[i] - gap[i + 1]))
    return at, float(np.interp(np.log(at), np.log(x), a))


def zero_stages() -> Figure:
    """Appendix A: weights, gradients and optimizer state on a chip under ZeRO-0 to 3."""
    model, chips = "llama2-13b", 16
    job = Job(model, catalog.cluster(f"{chips}xtpu-v5p"), chips)
    return layouts(
        [predict(job, Layout(dp=chips, zero=z)) for z in range(4)],
        [f"ZeRO-{z}" for z in range(4)],
        f"Appendix A: {model} on {chips} TPU v5p, one sequence a chip (realistic)",
    )


PICTURES = {
    "ratio": bound_by_compute,
    "times": times,
    "explorer": explorer,
    "split": split,
    "zoom-sum": partial(zoomed, "sum"),
    "zoom-max": partial(zoomed, "max"),
    "zero": zero_stages,
}
