"""Tables of layouts as one layout of columns, placed or with every group nearest, and what a layer
costs in each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..count.linear import accumulates
from ..describe.frozen import FrozenDict, changed
from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num
from .placement import Shares, partial
from .space import DEGREES
from .table import Table, distinct


@dataclass(frozen=True)
class Nearest(Layout):
    """A layout whose groups each lie as near together as if they had the network to themselves: a
    bound on every placement.

    Axes that `placement` names already have their place, and leave less room to the others.
    """

    sizes: tuple[int, ...] = ()

    def conflict(self) -> str:
        """None: some axes may be placed, and others not."""
        return ""

    def _ranks(self, axis: str) -> tuple[Num, ...]:
        if axis in self.placement:
            return self.placement[axis]
        degrees: dict[str, Num] = {
            "replicas": self.replicas,
            "edp": self.expert_replicas,
            "shards": self.shards,
            "copies": self.dp_replicate,
            "edp shards": self.expert_shards,
            "edp copies": self.dp_replicate,
            "ep": self.ep,
            "etp": self.etp,
        }
        left = degrees[axis] if axis in degrees else getattr(self, axis)
        others = [
            other
            for other in OUTSIDE.get(axis, ("pp",))
            if other in self.placement
            # copies of a stage lie on other ranks of the pipeline
            and not (self.copies > 1 and other == "pp" and axis in MIRRORED)
        ]
        shares: list[Num] = []
        for i, size in enumerate(self.sizes[:-1]):
            room: Num = float(size)
            for other in others:
                room = room / self.placement[other][i]
            here = np.minimum(left, room)
            shares.append(here)
            left = left / here
        return (*shares, left)


MIRRORED = ("replicas", "shards", "edp", "edp shards")
"""Groups that hold the copies of a stage, where it has several."""
OUTSIDE = {
    "dp": ("tp", "cp", "pp"),
    "replicas": ("tp", "pp"),
    "shards": ("tp", "pp"),
    "cp": ("tp", "pp"),
    "pp": ("tp", "cp"),
}
"""Axes whose ranks are never in a group of this one; expert groups mix tp, cp and dp."""


def layouts(
    table: Table,
    shares: Shares | None,
    sizes: tuple[int, ...],
    fixed: Mapping[str, Any],
    sp: bool,
) -> Layout:
    """A layout of columns: placed by `shares`, or every group nearest."""
    degrees: dict[str, Any] = {k: table[k] for k in DEGREES}
    if shares is None:
        return Nearest(
            **degrees,
            **fixed,
            sequence_parallel=sp,
            sizes=sizes,
            placement=partial(table, len(sizes)),
        )
    return Layout(
        **degrees,
        **fixed,
        sequence_parallel=sp,
        placement=shares,
    )


def each_way(
    table: Table,
    shares: Shares | None,
    sizes: tuple[int, ...],
    fixed: Mapping[str, Any],
    sequence_parallel: Sequence[bool],
) -> list[Layout]:
    """The same rows under each setting of sequence parallelism, which changes no group."""
    first = layouts(
        table,
        shares,
        sizes,
        fixed,
        sequence_parallel[0],
    )
    return [first, *(first.under(sp) for sp in sequence_parallel[1:])]


def bodies(
    job: Job,
    ways: Sequence[Layout],
    at: Clock,
    again: Sequence[str] = ("none",),
) -> tuple[list[step.Body], NDArray[np.intp]]:
    """(what a layer costs in each distinct row under each of these ways, which of them a row has).

    ways: the same table, sequence parallel or not;  again: ways to recompute that will be asked
    for.
    """
    first = ways[0]
    axes = ("tp", "cp", "ep", "etp") if job.model.moe else ("tp", "cp")
    several = np.asarray(accumulates(job, first), dtype=np.float64)
    groups = [share for axis in axes for share in first.group(axis)]
    index, number = distinct(
        [first.microbatch, first.panels, several, *groups]
    )
    one: Layout = pick(first, index)
    every = [one.under(way.sequence_parallel) for way in ways]
    costs = [step.body(job, layout, at, again=again) for layout in every]
    return costs, number


def bound_clock(job: Job) -> Clock:
    """The job's clock for layouts whose groups are not placed yet, or are at least so large: never
    slower than any.
    """
    at = step.clock(job)
    return at._replace(fabric=at.fabric.bound)


SINGLE = frozenset((float, int, bool, str, type(None)))
"""Types of what is one number or word for all rows; most of what a layer costs is."""


def pick(of: Any, index: Any) -> Any:
    """The rows at `index` of columns, of tuples of them or of a layout; what is one number for all
    rows stays.
    """
    if isinstance(of, np.ndarray):
        return of[index]
    if isinstance(of, tuple):
        values = [x if type(x) in SINGLE else pick(x, index) for x in of]
        if all(map(is_, values, of)):
            return of
        cls: Any = type(of)
        return cls._make(values) if hasattr(of, "_fields") else cls(values)
    if isinstance(of, dict):
        return type(of)({k: pick(x, index) for k, x in of.items()})
    if isinstance(of, Layout):
        columns: dict[str, Any] = {
            k: pick(getattr(of, k), index) for k in (*DEGREES, "dp_replicate")
        }
        placement = FrozenDict(
            {a: pick(shares, index) for a, shares in of.placement.items()}
        )
        return changed(of, **columns, placement=placement)
    return of
