"""Rows of a table, bounded, placed and put on the grid; and brute force, which does that to every
row of the space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..step import clock, room
from .best import LARGEST, Best
from .blocks import Rows
from .degrees import among, fill, pipelines, shards
from .grid import pieces
from .merit import weigh
from .nearest import Shapes, bound_clock, pick
from .options import Options, options
from .pieces import Bound, Grid, Pieces, bound, exact
from .placement import Shares, placements
from .space import Space
from .split import NONE
from .table import Column, Table, cross, keep, length, take

BLOCK = 24576
"""Rows whose terms are computed at once."""
POINTS = 32768
"""Grid points evaluated at once: few enough that their arrays stay in cache."""
PLACED_AT_ONCE = 32
"""Rows with the smallest bounds that are placed for a limit."""
MORE_AT_ONCE = 1024
"""Rows that are placed first once there is one."""
TRIAL = 1.25
"""Times the largest bound of some rows: what they are looked at within while no limit is known."""


class Ways(NamedTuple):
    """Options of some rows, and on each axis, in each part, the seconds that no layout with a
    choice undercuts."""

    whole: Options
    least: list[Grid]

    @classmethod
    def of(cls, whole: Options) -> Ways:
        """None of them looked at."""
        parts = whole.split.parts
        return cls(whole, [np.full((parts, n), np.inf) for n in whole.shape])

    def note(
        self,
        least: Bound,
        mine: Options,
        side: int,
        table: Table,
    ) -> None:
        """The bound of rows on one side of the ZeRO stages."""
        parts = self.whole.split.rows(table["tp"], table["pp"])[side]
        for part in range(self.whole.split.parts):
            here = parts == part
            some = least if here.all() else least.rows(np.flatnonzero(here))
            columns = zip(
                self.least,
                mine.numbers,
                some.by_option,
                strict=True,
            )
            for axis, numbers, seconds in columns:
                at = np.array(numbers, dtype=np.intp)
                axis[part, at] = np.minimum(axis[part, at], seconds)

    def within(self, limits: Column) -> Options:
        """Those that may stay within the limit of some part."""
        most = np.minimum(limits, LARGEST)[:NONE, None]
        return self.whole.part(
            [
                np.asarray((seconds <= most).any(axis=0))
                for seconds in self.least
            ]
        )

    def beside(self, other: Ways) -> Ways:
        """Of the rows of both."""
        both = zip(self.least, other.least, strict=True)
        return self._replace(least=[np.minimum(a, b) for a, b in both])


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
    """Place the rows and put them on the grid; unless everything is counted, only rows and options
    whose bound allows it. ways: their options.
    """
    for start in range(0, length(table), BLOCK):
        rows = pick(table, slice(start, start + BLOCK))
        rows["row"] = np.arange(float(length(rows)))
        placed, shares = placements(job, rows, space.placements, relaxed)
        for begin in range(0, length(placed), BLOCK):
            at = slice(begin, begin + BLOCK)
            choice = ways.within(best.limits) if ways else best.choice
            if not choice.count:
                return
            _on_grid(
                job,
                space,
                best,
                pick(placed, at),
                pick(shares, at),
                choice,
                count,
            )


def _on_grid(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    shares: Shares,
    choice: Options,
    count: bool,
) -> None:
    """Evaluate a block of placed rows under all options that may stay within the limit."""
    capacity = room.limit(job)
    rows = Rows(table, table, shares, space.scheme)
    limit = np.inf if count else best.over(table)
    p = pieces(job, clock(job), rows, choice, limit)
    if not count:
        bounds = least_seconds(p, capacity)
        p = p.rows(np.flatnonzero(best.alive(take(table, p.left), bounds)))
    table = pick(table, p.left)
    shares = pick(shares, p.left)
    for half in p.by_fold():
        size = max(POINTS // half.choice.count, 1)
        for at in (
            slice(cut, cut + size) for cut in range(0, length(table), size)
        ):
            part = half.rows(at)
            seconds, use = exact(part, capacity)
            best.evaluated += seconds.size
            best.count(part, seconds, covered=count)
            best.add(
                seconds,
                use,
                part,
                pick(table, at),
                pick(shares, at),
            )


def least_seconds(p: Pieces, capacity: float) -> Grid:
    """(side, row) bound of each row."""
    return np.array(
        [bound(p.stages(at), capacity).seconds for at in p.choice.sides]
    )


def lower(
    job: Job,
    space: Space,
    best: Best,
    near: Table,
    far: Table,
    choice: Options | None = None,
    shapes: Shapes | None = None,
) -> tuple[Grid, Ways]:
    """Bound of every row in seconds (nearest groups, best options among those that can fit) on each
    side of the ZeRO stages, and of every option.

    near, far: the same rows with the smallest and the largest dp they stand for; collectives are
    bound by the one, sharding by the other. shapes: of the near rows, where they are known.
    """
    capacity = room.limit(job)
    at = bound_clock(job)
    choice = choice or best.choice
    found = np.full((len(choice.sides), length(near)), np.inf)
    ways = Ways.of(choice.all)
    for start in range(0, length(near), BLOCK):
        some = np.arange(start, min(start + BLOCK, length(near)))
        a = take(near, some)
        b = a if far is near else take(far, some)
        known = shapes and shapes.rows(some)
        rows = Rows(a, b, None, space.scheme, known)
        p = pieces(job, at, rows, choice, best.over(a))
        for side, stages in enumerate(p.choice.sides):
            mine = p.stages(stages)
            least = bound(mine, capacity)
            found[side, start + p.left] = least.seconds
            ways.note(least, mine.choice, side, take(a, p.left))
    return found, ways


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


def smallest(job: Job, space: Space, relaxed: bool = False) -> Best:
    """The layout of the space that needs the least memory, whether it fits or not (relaxed: of
    those with the most replicas).
    """
    best = Best(1, options(job, space))
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
        rows = take(table, np.arange(start, min(start + BLOCK, length(table))))
        rows, shares = placements(job, rows, False, relaxed)
        if not length(rows):  # chips that do not fill the network's dimensions
            continue
        found = Rows(rows, rows, shares, space.scheme)
        p = pieces(job, clock(job), found, best.choice)
        seconds, use = exact(p, np.inf)
        best.add(
            np.where(np.isfinite(seconds), use[..., p.of], np.inf),
            use,
            p,
            rows,
            shares,
        )
    return best
