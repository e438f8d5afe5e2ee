"""Rows of a table, placed and evaluated; and brute force, which does that to every row of the
space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..step import clock, room
from .best import LARGEST, Best
from .degrees import BLOCK, everything, most_replicas
from .legal import legal_options
from .merit import weigh
from .options import Options, options
from .placement import placements
from .points import Alive, Points, Rows, points
from .space import Space
from .split import NONE
from .table import Column, Table, keep, length, pick


class Ways(NamedTuple):
    """What no layout of some rows undercuts under each combination of options: (part, sequence
    parallel, recomputation, schedule, ZeRO stage), in seconds.
    """

    least: NDArray[np.float64]

    @classmethod
    def of(cls, choice: Options) -> Ways:
        """None of them looked at."""
        return cls(np.full((choice.split.parts, *choice.shape), np.inf))

    def within(self, limits: Column) -> Alive:
        """Those that may stay within the limit of some part."""
        most = np.minimum(limits, LARGEST)[:NONE]
        fine = self.least <= most.reshape(-1, 1, 1, 1, 1)
        return np.asarray(fine.any(axis=0))

    def beside(self, other: Ways) -> Ways:
        """Of the rows of both."""
        return Ways(np.minimum(self.least, other.least))


Bounded = tuple[Table, Ways | None]
"""Rows, and their options where some of them are ruled out."""
Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done."""


def brute(
    job: Job,
    space: Space,
    k: int = 10,
    relaxed: bool = False,
    **limits: Any,
) -> Best:
    """Every grid point of the space, evaluated: the oracle of the cascade, exact counts, heat
    maps.
    """
    best = Best(k, options(job, space), **{"weigh": weigh(job), **limits})
    for table in everything(job, space, relaxed):
        evaluate(
            job,
            space,
            best,
            table,
            relaxed,
            count=True,
        )
    return best


def evaluate(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    relaxed: bool,
    ways: Ways | None = None,
    count: bool = False,
) -> None:
    """Place the rows and ask for their seconds and bytes; unless everything is counted, only under
    options whose bound allows it. ways: what bounds say of these.
    """
    capacity = room.limit(job)
    at = clock(job)
    for start in range(0, length(table), BLOCK):
        rows = pick(table, slice(start, start + BLOCK))
        placed, shares = placements(job, rows, space.placements, relaxed)
        for begin in range(0, length(placed), BLOCK):
            some = slice(begin, begin + BLOCK)
            alive = ways.within(best.limits) if ways else None
            mine = pick(placed, some)
            where = pick(shares, some)
            most = np.inf if count else best.over(mine)
            here = Rows(mine, mine, where)
            found = [*points(job, at, here, best.choice, alive, most)]
            if found:
                best.add(found, mine, where, capacity)
            if count:
                best.searched = best.feasible + best.too_big


def any_legal(job: Job, space: Space, relaxed: bool) -> bool:
    """Some layout of the space is legal, whether it fits or not."""
    choice = options(job, space)
    for table in most_replicas(job, space, relaxed):
        ways = legal_options(job, table, choice)
        rows, _ = placements(job, keep(table, ways > 0), False, relaxed)
        if length(rows):
            return True
    return False


def smallest(job: Job, space: Space, relaxed: bool = False) -> Best:
    """The layout of the space that needs the least memory, whether it fits or not (relaxed: of
    those with the most replicas).
    """
    best = Best(1, options(job, space))
    for table in most_replicas(job, space, relaxed):
        rows, shares = placements(job, table, False, relaxed)
        if not length(rows):  # chips that do not fill the network's dimensions
            continue
        here = Rows(rows, rows, shares)
        found = [
            (index, Points(each.place, _or_never(each), each.bytes))
            for index, each in points(job, clock(job), here, best.choice)
        ]
        if found:
            best.add(found, rows, shares, np.inf)
    return best


def _or_never(each: Points) -> Column:
    """Bytes as what ranks, of what can run."""
    return np.where(each.seconds < np.inf, each.bytes, np.inf)
