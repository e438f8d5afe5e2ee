"""Rows as the grid looks at them: placed, or the ends of intervals that a bound holds for, under
each setting of sequence parallelism.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches
from . import framework, times
from .legal import split
from .nearest import Shapes, bodies, each_way, pick, stacked
from .options import Options
from .pieces import Index
from .placement import Shares
from .table import Column, Table, length


class Rows(NamedTuple):
    """Rows of a table, and where they lie."""

    near: Table
    """Its dp counts in time."""
    far: Table
    """The same with the dp that counts in sharding."""
    shares: Shares | None
    """Their placements; None: every group lies nearest."""
    scheme: str
    shapes: Shapes | None = None
    """What their layers cost, where that is known."""

    @property
    def exact(self) -> bool:
        """They are rows, not intervals of dp."""
        return self.far is self.near

    @property
    def number(self) -> int:
        """How many there are."""
        return length(self.near)


class Block(NamedTuple):
    """A table under one setting of sequence parallelism."""

    near: Layout
    """Its dp counts in time."""
    far: Layout
    """Its dp counts in sharding (another one only for bounds on an interval of dp)."""
    costs: step.Body
    """Of distinct rows."""
    distinct: int
    which: Index
    """Which of them a row has."""
    m: Column
    fine: NDArray[np.bool_]
    """Where this setting can run."""
    exact: bool
    """`near` and `far` are one layout, not the ends of an interval."""

    def rows(self, at: Index) -> Block:
        """Some of the rows, in order."""
        if len(at) == len(self.m):
            return self
        return self._replace(
            **{
                k: pick(getattr(self, k), at)
                for k in ("near", "far", "which", "m", "fine")
            }
        )

    @property
    def parts(self) -> step.Body:
        """What a microbatch costs in every row."""
        parts: step.Body = pick(self.costs, self.which)
        return parts


def blocks(job: Job, at: Clock, rows: Rows, choice: Options) -> list[Block]:
    """The rows under each setting of sequence parallelism."""
    sizes = job.cluster.sizes
    ways = choice.sequence_parallel
    near = each_way(rows.near, rows.shares, sizes, rows.scheme, ways)
    wide = near
    if not rows.exact:
        wide = each_way(rows.far, rows.shares, sizes, rows.scheme, ways)
    costs, which = rows.shapes or bodies(job, near, at, choice.recompute)
    m = np.asarray(microbatches(job, near[0]))
    placed = rows.shares is not None
    fine = [
        split(job, rows.near, way.sequence_parallel, choice, rows.scheme)
        & framework.rows(job, way, rows.exact, placed)
        for way in near
    ]
    distinct = int(which.max(initial=-1)) + 1
    return [
        Block(
            n,
            w,
            c,
            distinct,
            which,
            m,
            f,
            rows.exact,
        )
        for n, w, c, f in zip(near, wide, costs, fine, strict=True)
    ]


def chosen(blocks: list[Block], choice: Options) -> step.Body:
    """Costs of the distinct rows of all blocks under each recomputation, one behind the other."""
    some = any(times.left_to_say(text) != "none" for text in choice.recompute)
    costs = [
        times.chosen(block.costs, text, some)
        for text in choice.recompute
        for block in blocks
    ]
    every: step.Body = stacked(costs, [blocks[0].distinct] * len(costs))
    return every
