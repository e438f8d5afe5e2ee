"""What pictures of the papers have in common: a sheet, looks of lines, a verdict below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#885522", "#777777")
MARKERS = "osD^vP*X<>"
LINES = ("-", "--", ":", "-.")
Curves = Mapping[str, Sequence[tuple[Any, float]]]
"""Name of a line -> its points."""


def sheet(
    title: str, width: float = 7.0, height: float = 4.8, size: int = 10
) -> tuple[Figure, Axes]:
    """A figure of one pair of axes with a grid; width and height in inches, size of the title in
    points.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=size)
    axes.grid(alpha=0.3)
    return figure, axes


def draw_lines(axes: Axes, curves: Curves, **style: Any) -> None:
    """A line with markers for each, told apart by colour, dash and marker; style: what all have
    instead.
    """
    for i, (name, points) in enumerate(curves.items()):
        look = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": LINES[i % len(LINES)],
        }
        axes.plot(*zip(*points, strict=True), label=name, **(look | style))


def verdict(figure: Figure, words: str, good: bool) -> None:
    """Below a picture what ours is, green, or red where it is NOT what the paper has.

    words: with {} where the NOT stands.
    """
    figure.supxlabel(
        words.format("" if good else "NOT "),
        fontsize=9,
        weight="bold",
        color="darkgreen" if good else "firebrick",
    )
