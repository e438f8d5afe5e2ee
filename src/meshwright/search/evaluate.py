"""Rows of a table, bounded, placed and put on the grid; and brute force, which does that to every
row of the space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..step import clock, room
from .best import LARGEST, Best
from .degrees import among, fill, pipelines, shards
from .legal import legal_options
from .merit import weigh
from .nearest import Shapes, bound_clock, pick
from .options import Options, options
from .placement import placements
from .points import Alive, Points, Rows, points
from .space import Space
from .split import NONE
from .table import Column, Grid, Table, cross, keep, length, take

BLOCK = 4096
"""Rows that are computed at once: few enough that their columns stay in cache."""
PLACED_AT_ONCE = 32
"""Rows with the smallest bounds that are placed for a limit."""
MORE_AT_ONCE = 1024
"""Rows that are placed first once there is one."""
TRIAL = 1.25
"""Times the largest bound of some rows: what they are looked at within while no limit is known."""


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


def everything(job: Job, space: Space, relaxed: bool) -> Iterator[Table]:
    table = cross(
        shards(job, space, relaxed), **pipelines(job, space, relaxed)
    )
    if not relaxed:
        yield fill(job, table, space)
        return
    for start in range(0, length(table), BLOCK):
        part = take(table, np.arange(start, min(start + BLOCK, length(table))))
        most = largest_dp(job, part, space)
        yield _kept(
            job,
            each_dp(part, np.ones_like(most), most, np.ones_like(most)),
            space,
        )


def largest_dp(job: Job, table: Table, space: Space) -> Column:
    """The most replicas a row has chips and sequences for, whole expert groups kept; 0 if there is
    none.
    """
    most = np.floor(
        job.cluster.chips / (table["tp"] * table["cp"] * table["pp"])
    )
    most = np.minimum(most, np.floor(job.batch / table["microbatch"]))
    step = dp_step(table)
    return np.floor(most / step) * step


def dp_step(table: Table) -> Column:
    """dp comes in multiples of this: tp x cp x dp ranks make whole groups of ep x etp."""
    experts = (table["ep"] * table["etp"]).astype(np.int64)
    ranks = (table["tp"] * table["cp"]).astype(np.int64)
    return (experts // np.gcd(experts, ranks)).astype(np.float64)


def each_dp(table: Table, low: Column, high: Column, step: Column) -> Table:
    """A row for every dp from low to high, in steps."""
    counts = np.maximum(np.floor((high - low) / step) + 1, 0).astype(np.intp)
    index = np.repeat(np.arange(len(counts)), counts)
    offset = np.arange(counts.sum()) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return take(table, index) | {"dp": low[index] + offset * step[index]}


def _kept(job: Job, table: Table, space: Space) -> Table:
    """Relaxed rows whose experts have whole groups and whose dp is allowed."""
    return keep(table, valid(job, table, space))


def valid(job: Job, table: Table, space: Space) -> Any:
    fine = (table["tp"] * table["cp"] * table["dp"]) % (
        table["ep"] * table["etp"]
    ) == 0
    return fine & among(table, space, "dp")


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
            here = Rows(mine, mine, where, space.scheme)
            found = [*points(job, at, here, best.choice, alive, most)]
            if found:
                best.add(found, mine, where, capacity)
            if count:
                best.searched = best.feasible + best.too_big


def lower(
    job: Job,
    space: Space,
    best: Best,
    near: Table,
    far: Table,
    alive: Alive | None = None,
    shapes: Shapes | None = None,
) -> tuple[Grid, Ways]:
    """Bound of every row in seconds on each side of the ZeRO stages (nearest groups, the best of
    the options with which it can fit), and of every combination of options.

    near, far: the same rows with the smallest and the largest dp they stand for; collectives are
    bound by the one, sharding by the other. shapes: of the near rows, where they are known.
    """
    capacity = room.limit(job)
    at = bound_clock(job)
    choice = best.choice
    found = np.full((len(choice.sides), length(near)), np.inf)
    ways = Ways.of(choice)
    side = {z: s for s, stages in enumerate(choice.sides) for z in stages}
    whole = Rows(near, far, None, space.scheme, shapes)
    for start in range(0, length(near), BLOCK):
        rows = whole.some(np.arange(start, min(start + BLOCK, length(near))))
        parts = choice.parts(rows.near["tp"], rows.near["pp"])
        over = best.over(rows.near)
        for index, each in points(job, at, rows, choice, alive, over):
            seconds = np.where(each.bytes <= capacity, each.seconds, np.inf)
            mine = found[side[each.place[-1]], start:]
            mine[index] = np.minimum(mine[index], seconds)
            np.minimum.at(
                ways.least[(slice(None), *each.place)],
                parts[each.place[-1], index],
                seconds,
            )
    return found, ways


def least_bytes(
    job: Job, space: Space, choice: Options, rows: Table
) -> Column:
    """What no layout of each row undercuts, with every group nearest; inf: none can run."""
    found = np.full(length(rows), np.inf)
    # a bound, not a layout
    ends = Rows(rows, dict(rows), None, space.scheme)
    for index, each in points(job, bound_clock(job), ends, choice):
        found[index] = np.minimum(
            found[index], np.where(each.seconds < np.inf, each.bytes, np.inf)
        )
    return found


def tried(
    best: Best,
    table: Table,
    bounds: Grid,
    ways: Ways,
) -> Iterator[Bounded]:
    """Rows with these bounds. In a part where no limit is known yet, one a little above its bounds
    will do if that many layouts are found within it.
    """
    parts = best.split.rows(table["tp"], table["pp"])
    finite = np.isfinite(bounds)
    largest = np.zeros(best.split.parts + 1)
    np.maximum.at(largest, parts[finite], bounds[finite])
    unknown = np.isinf(best.limits) & (largest > 0)
    if unknown.any():
        best.trial = np.where(unknown, TRIAL * largest, np.inf)
        yield table, ways
        trial, best.trial = best.trial, np.inf
        left = (best.limits > trial)[parts] & finite
        table = keep(table, left.any(axis=0))
    if length(table):
        yield table, ways


def places(best: Best, table: Table, bounds: Grid) -> Column:
    """The place of each row by its bounds, the best of those that it has in some part; inf: it may
    not enter.
    """
    parts = best.split.rows(table["tp"], table["pp"])
    fine = bounds <= np.minimum(best.limits, LARGEST)[parts]
    found = np.full(bounds.shape, np.inf)
    for part in range(best.split.parts):
        mine = np.nonzero(fine & (parts == part))
        order = np.argsort(bounds[mine], kind="stable")
        found[mine[0][order], mine[1][order]] = np.arange(len(order))
    return np.asarray(found.min(axis=0))


def best_first(
    best: Best,
    table: Table,
    bounds: Grid,
    ways: Ways,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Rows in growing rounds, smallest bound first, as long as one may enter the k best."""
    place = places(best, table, bounds)
    begin = 0
    size = MORE_AT_ONCE if np.isfinite(best.common) else PLACED_AT_ONCE
    left = np.flatnonzero(place < np.inf)
    left = left[np.argsort(place[left], kind="stable")]
    while len(left):
        some = left[: np.searchsorted(place[left], begin + size)]
        if len(some):
            yield from tried(best, take(table, some), bounds[:, some], ways)
        begin = begin + size
        size = size * 4
        left = left[len(some) :]
        left = left[best.alive(take(table, left), bounds[:, left])]
        if progress:
            progress("layouts", 1.0 - len(left) / len(place))


def _blocks(job: Job, space: Space, relaxed: bool) -> Iterator[Table]:
    """The rows of a space, relaxed ones with the most replicas alone."""
    table = cross(
        shards(job, space, relaxed), **pipelines(job, space, relaxed)
    )
    if relaxed:
        table = table | {"dp": largest_dp(job, table, space)}
        table = keep(table, table["dp"] >= 1)
        table = keep(table, valid(job, table, space))
    else:
        table = fill(job, table, space)
    for start in range(0, length(table), BLOCK):
        yield pick(table, slice(start, start + BLOCK))


def any_legal(job: Job, space: Space, relaxed: bool) -> bool:
    """Some layout of the space is legal, whether it fits or not."""
    choice = options(job, space)
    for table in _blocks(job, space, relaxed):
        ways = legal_options(job, table, choice, space.scheme)
        rows, _ = placements(job, keep(table, ways > 0), False, relaxed)
        if length(rows):
            return True
    return False


def smallest(job: Job, space: Space, relaxed: bool = False) -> Best:
    """The layout of the space that needs the least memory, whether it fits or not (relaxed: of
    those with the most replicas).
    """
    best = Best(1, options(job, space))
    for table in _blocks(job, space, relaxed):
        rows, shares = placements(job, table, False, relaxed)
        if not length(rows):  # chips that do not fill the network's dimensions
            continue
        here = Rows(rows, rows, shares, space.scheme)
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
