"""What pictures of the papers have in common: a sheet, looks of lines, a verdict below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .report import Check, sides

COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#885522", "#777777")
MARKERS = "osD^vP*X<>"
LINES = ("-", "--", ":", "-.")
CHARACTERS = 12
"""Of a verdict for each inch."""
Curves = Mapping[str, Sequence[tuple[Any, float]]]
"""Name of a line -> its points."""


def sheet(
    title: str,
    width: float = 7.0,
    height: float = 4.8,
    size: int = 10,
    **axes: Any,
) -> tuple[Figure, Axes]:
    """A figure of one pair of axes with a grid; width and height in inches, size of the title in
    points; axes: scales, labels and limits.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    on = figure.subplots()
    on.set_title(title, fontsize=size)
    on.grid(alpha=0.3)
    on.set(**axes)
    return figure, on


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


def verdict(figure: Figure, checks: Sequence[Check]) -> None:
    """Below a picture how many of the paper's statements about it ours match, and both sides of the
    others with their status; green, or red where one is NOT borne out.
    """
    others = [c for c in checks if c.status != "match"]
    wrong = any(c.status == "mismatch" for c in others)
    words = f"{len(checks) - len(others)} of {len(checks)} statements match"
    for c in others:
        published, ours = sides(c.published, c.computed, digits=3)
        status = "NOT" if c.status == "mismatch" else c.status
        what = c.id.partition("/")[2]
        words += f"; {status} {what}: ours {ours}, the paper {published}"
    inches = int(figure.get_figwidth())
    figure.supxlabel(
        fill(words, CHARACTERS * inches, break_on_hyphens=False),
        fontsize=9,
        weight="bold",
        color="firebrick" if wrong else "darkgreen",
    )
