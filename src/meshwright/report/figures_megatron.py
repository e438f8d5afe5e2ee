"""Plots like the figures of Narayanan et al. 2021: a line for each batch or machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from .figures_lbl import COLOURS, LINES, MARKERS


def lines(
    curves: Mapping[str, Sequence[tuple[float, float]]], title: str, x: str, y: str
) -> Figure:
    """Lines with markers over a doubling (or evenly spaced) x axis."""
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(curves.items()):
        xs, ys = [a for a, _ in points], [b for _, b in points]
        axes.plot(
            xs, ys, label=name, color=COLOURS[i % 6], marker=MARKERS[i % 10], linestyle=LINES[i % 4]
        )
    every = sorted({a for points in curves.values() for a, _ in points})
    if all(b in (a, 2 * a) for a, b in zip(every, every[1:], strict=False)):
        axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{a:g}" for a in every])
    axes.minorticks_off()
    axes.set_ylim(0, 1.08 * max(b for points in curves.values() for _, b in points))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure
