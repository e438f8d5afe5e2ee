"""Plots like the figures of Narayanan et al. 2021: a line for each batch or machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from types import MappingProxyType

from matplotlib.figure import Figure

from .lines import Curves, draw_lines, sheet, verdict

WIDE = 16
"""Ratio of the largest to the smallest x from which the axis is logarithmic."""
GAP, SLANTED = 0.035, 0.075
"""Least share of the axis between two ticks, and between two that need not be slanted."""
RING = 11
"""Points across of an open marker: seen around a filled one too."""
MOST_INSIDE = 6
"""Entries of a legend that has room inside the axes."""
LINE = 12
"""Characters of a verdict for each inch."""
NONE: Curves = MappingProxyType({})
NO_NAMES: Mapping[float, str] = MappingProxyType({})


def line_figure(
    curves: Curves,
    title: str,
    x: str,
    y: str,
    printed: Curves,
    said: tuple[float | None, str],
    ours: str,
    names: Mapping[float, str],
) -> Figure:
    """Lines with markers over a doubling (or evenly spaced) x axis.

    printed: points of the paper, as open markers;  said: what its text says of the figure, and the
    x that it is about;  ours: what ours says of that, red where it is another;  names: of x.
    """
    # the legend stands beside the axes where it would cover points
    many = len(curves) + len(printed) > MOST_INSIDE
    width = 8.0 if many else 6.0
    at, words = said
    figure, axes = sheet(
        f"{title}\nthe paper: {words}" if words else title,
        width=width,
        height=4.0,
        size=9,
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
    axes.set_xticks(ticks, [names.get(a, f"{a:g}") for a in ticks])
    if len(ticks) > len(apart(every, log=wide, gap=SLANTED)):
        axes.tick_params(axis="x", labelrotation=45)
    if names:
        axes.margins(x=0.3)
    axes.minorticks_off()
    axes.set_ylim(0, 1.08 * max(b for points in shown for _, b in points))
    axes.set_ylabel(y)
    if at is not None:
        axes.axvline(
            at,
            color="black",
            linestyle=(0, (1, 2)),
            linewidth=1.2,
            label=f"the paper's {x.split(' (')[0]}",
        )
    axes.set_xlabel(x)
    if ours:
        words = fill(ours, int(LINE * width), break_on_hyphens=False)
        verdict(figure, words, "NOT" not in words)
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
