"""A table as one layout of columns, placed or with every group nearest, and what a layer costs in
each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..count.linear import accumulates
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.placement import Nearest, Shares
from .placement import partial
from .space import DEGREES
from .table import Table, distinct, pick


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
) -> tuple[list[step.ModelCost], NDArray[np.intp]]:
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
    costs = [step.model_cost(job, layout, at, again=again) for layout in every]
    return costs, number


def bound_clock(job: Job) -> Clock:
    """The job's clock for layouts whose groups are not placed yet, or are at least so large: never
    slower than any.
    """
    at = step.clock(job)
    return at._replace(fabric=at.fabric.bound)
