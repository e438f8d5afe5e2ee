"""What was measured on a machine: seconds on grids of sizes, and what an engine costs beside the
operations it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from .fields import Checked, Unit
from .frozen import FrozenDict, shown


@dataclass(frozen=True)
class Table(Checked):
    """Seconds measured at the points of a grid of sizes (`cost/measured` reads between them)."""

    axes: tuple[str, ...]
    """What the sizes are, such as tokens, inner, outer."""
    points: tuple[tuple[float, ...], ...]
    """Measured sizes along each axis, ascending: the range of the table."""
    seconds: tuple[Annotated[float, Unit("s")], ...]
    """One for each point of the grid, the last axis fastest."""
    residual: float | None = None
    """Median error of what is read between the points, at sizes that were measured too but are not
    points; None = not known.
    """
    fit: str = ""
    """A law fitted to the seconds, with its own error: for people, nothing reads it."""
    sources: Mapping[str, Any] = field(
        default_factory=FrozenDict, compare=False, repr=False
    )
    """field -> where its number comes from (source, date, note)."""

    __repr__ = shown


@dataclass(frozen=True)
class Overhead(Checked):
    """CPU seconds that a rank spends on one feature of the engine beside its operations and
    messages, by size of the feature's group.

    A rank with l layers and m microbatches pays step + m microbatch + l layer + l m
    layer_microbatch.
    """

    ranks: tuple[float, ...]
    """Group sizes at which it was measured, ascending."""
    step: tuple[Annotated[float, Unit("s")], ...]
    microbatch: tuple[Annotated[float, Unit("s")], ...]
    layer: tuple[Annotated[float, Unit("s")], ...]
    layer_microbatch: tuple[Annotated[float, Unit("s")], ...]
    residual: float | None = None
    """Largest error of the four numbers on the empty runs they come from, as a share of the run;
    None = not known.
    """
    sources: Mapping[str, Any] = field(
        default_factory=FrozenDict, compare=False, repr=False
    )
    """field -> where its number comes from (source, date, note)."""

    __repr__ = shown
