"""Pictures like those of Narayanan et al. 2021: a line for each batch or machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from ..drawing import draw_lines, sheet, verdict
from .plots import Shown

WIDE = 16
"""Ratio of the largest to the smallest x from which the axis is logarithmic."""
GAP, SLANTED = 0.035, 0.075
"""Least share of the axis between two ticks, and between two that need not be slanted."""
RING = 11
"""Points across of an open marker: seen around a filled one too."""
MOST_INSIDE = 6
"""Entries of a legend that has room inside the axes."""


def lines_over_x(of: Shown) -> Figure:
    """Lines with markers over a doubling (or evenly spaced) x axis; open markers: points of the
    paper, whose words stand in the title and are judged below.
    """
    paper, curves, printed = of.paper, of.curves(), of.printed()
    # the legend stands beside the axes where it would cover points
    many = len(curves) + len(printed) > MOST_INSIDE
    said = f"\nthe paper: {paper.said}" if paper.said else ""
    figure, axes = sheet(
        paper.title + said,
        width=8.0 if many else 6.0,
        height=4.0,
        size=9,
        xlabel=paper.x,
        ylabel=paper.y,
    )
    draw_lines(axes, curves)
    draw_lines(
        axes,
        printed,
        linestyle="none",
        markerfacecolor="none",
        markersize=RING,
    )
    shown = [*curves.values(), *printed.values()]
    every = sorted({a for points in shown for a, _ in points})
    wide = every[-1] >= WIDE * every[0]
    if wide or all(
        b in (a, 2 * a) for a, b in zip(every, every[1:], strict=False)
    ):
        axes.set_xscale("log", base=2)
    ticks = apart(every, log=wide)
    names: dict[float, str] = dict(enumerate(paper.names, 1))
    axes.set_xticks(ticks, [names.get(a, f"{a:g}") for a in ticks])
    if len(ticks) > len(apart(every, log=wide, gap=SLANTED)):
        axes.tick_params(axis="x", labelrotation=45)
    if names:
        axes.margins(x=0.3)
    axes.minorticks_off()
    axes.set_ylim(0, 1.08 * max(b for points in shown for _, b in points))
    if paper.at is not None:
        axes.axvline(
            paper.at,
            color="black",
            linestyle=(0, (1, 2)),
            linewidth=1.2,
            label=f"the paper's {paper.x.split(' (')[0]}",
        )
    verdict(figure, of.checks)
    (figure if many else axes).legend(
        loc="outside right center" if many else "best",
        frameon=False,
        fontsize=8,
        markerscale=0.7,
        labelspacing=0.7,
    )
    return figure


def apart(every: Sequence[float], log: bool, gap: float = GAP) -> list[float]:
    """Those of the ascending x that are far enough from the tick before."""
    at = [math.log(x) if log else x for x in every]
    kept = [0]
    for i in range(1, len(every)):
        if at[i] - at[kept[-1]] >= gap * (at[-1] - at[0]):
            kept.append(i)
    return [every[i] for i in kept]
