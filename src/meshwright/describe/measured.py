"""What was measured on a machine: seconds on grids of sizes, and what an engine costs beside the
operations it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..num import product
from .fields import Amount, Checked, Prose, Seconds, Sources, origins
from .frozen import short_repr


@dataclass(frozen=True)
class MeasuredTable(Checked):
    """Seconds measured at the points of a grid of sizes (`cost/measured` reads between them)."""

    axes: tuple[Prose, ...]
    """What the sizes are, such as tokens, inner, outer."""
    points: tuple[tuple[Amount, ...], ...]
    """Measured sizes along each axis, ascending: the range of the table."""
    seconds: tuple[Seconds, ...]
    """One for each point of the grid, the last axis fastest."""
    residual: Amount | None = None
    """Median error of what is read between the points, at sizes that were measured too but are not
    points; None = not known.
    """
    fit: Prose = ""
    """A law fitted to the seconds, with its own error: for people, nothing reads it."""
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note)."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """There is a number for each point of the grid."""
        if len(self.axes) != len(self.points) or not 1 <= len(self.axes) <= 5:
            return "points must give a list of sizes for each of 1 to 5 axes"
        if not all(ascending(sizes) for sizes in self.points):
            return "the sizes of an axis must ascend"
        cells = product(len(sizes) for sizes in self.points)
        return (
            ""
            if len(self.seconds) == cells
            else f"seconds must have {cells} numbers, one for each point, not {len(self.seconds)}"
        )


@dataclass(frozen=True)
class Overhead(Checked):
    """CPU seconds that a rank spends on one feature of the engine beside its operations and
    messages, by size of the feature's group.

    A rank with l layers and m microbatches pays step + m microbatch + l layer + l m
    layer_microbatch.
    """

    ranks: tuple[float, ...]
    """Group sizes at which it was measured, ascending."""
    step: tuple[Seconds, ...]
    microbatch: tuple[Seconds, ...]
    layer: tuple[Seconds, ...]
    layer_microbatch: tuple[Seconds, ...]
    residual: Amount | None = None
    """Largest error of the four numbers on the empty runs they come from, as a share of the run;
    None = not known.
    """
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note)."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """There is a number for each group size."""
        if not ascending(self.ranks):
            return "ranks must ascend"
        every = (self.step, self.microbatch, self.layer, self.layer_microbatch)
        return (
            ""
            if {len(numbers) for numbers in every} == {len(self.ranks)}
            else "step, microbatch, layer and layer_microbatch must have a number for each of ranks"
        )


def ascending(values: Sequence[float]) -> bool:
    """At least one value, each larger than the one before."""
    return bool(values) and all(a < b for a, b in pairwise(values))
