"""Relaxed spaces: any dp and pp, a padded last microbatch, idle chips. Too many layouts to list, so
partly decided ones are bounded first:

shards (tp, cp, ep, microbatch), tp placed -> pipelines -> intervals of dp with one number of
microbatches -> placements -> halves of the intervals
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import ceil_div
from ..step import Body, Stages, least_idle, room, stages, sum_of
from .best import LARGEST, Best
from .degrees import chunked, pipelines
from .evaluate import (
    BLOCK,
    Bounded,
    Progress,
    Ways,
    best_first,
    dp_step,
    each_dp,
    largest_dp,
    least_bytes,
    lower,
    places,
    tried,
    valid,
)
from .kinds import Deal, Mask, deals, holders_of, kinds
from .laws import NEVER, Laws, law, layers, least_of
from .legal import possible
from .nearest import Shapes, nearest, pick, stacked
from .options import Options
from .placement import spread
from .points import Alive
from .space import PLACED, Space
from .split import NONE
from .table import (
    Column,
    Grid,
    Table,
    cross,
    distinct,
    keep,
    length,
    take,
)

FIRST = 2048
"""Shards that set the first limit."""
GUESSES = 512
"""Rows of them that are bounded with their synchronisation at first."""
GROWTH = 4
"""How many times as many follow as long as too few of them fit."""
FIRST_INTERVALS = 4096
"""Intervals of dp, of the shortest steps by law, that set a limit before the others are bounded."""
PROMISING = 128
"""Intervals whose smallest dp is evaluated for a better limit."""
AT_ONCE = 1024
"""So many single values of dp are placed without another bound."""
MANY = 1000
"""Intervals of which some are placed for a better limit."""
FEW = 8192
"""So many single values of dp are bounded one by one: halving their intervals would take longer."""
SHARDS = 65536
"""Shards whose layers are counted at once: many have products in common."""
CROSSED = 2048
"""Shards that are crossed with all pipeline degrees at once."""


def _ceil_div(a: float | Column, b: Column) -> Column:
    """`num.ceil_div` of columns."""
    return np.asarray(ceil_div(a, b))


class Partly(NamedTuple):
    """Shards with a pipeline degree that may still win; dp is the largest possible."""

    table: Table
    each: Column
    """Bound of one microbatch on the slowest device, in seconds."""
    waits: dict[str, Column]
    """Bound of what each schedule waits besides."""

    def some(self, at: Any) -> Partly:
        """Some of the rows."""
        return Partly(*(pick(of, at) for of in self))


def _alone(job: Job, table: Table, space: Space) -> Table:
    """Shards without pipeline, with the most replicas: nothing makes a microbatch cheaper (fewest
    add up gradients).
    """
    alone = table | dict.fromkeys(("pp", "interleave"), np.ones(length(table)))
    return alone | {"dp": np.maximum(largest_dp(job, alone, space), 1.0)}


class Shards(NamedTuple):
    """Shards with what their layers cost without pipeline, with the most replicas."""

    table: Table
    """With the column "shape": which of the costs a row has."""
    costs: list[Body]
    """Under each setting of sequence parallelism."""

    @classmethod
    def of(cls, job: Job, space: Space, best: Best, table: Table) -> Shards:
        """Of these rows, every group nearest."""
        found = []
        counts = [0]
        for start in range(0, length(table), SHARDS):
            at = slice(start, start + SHARDS)
            part = _alone(job, pick(table, at), space)
            found.append(nearest(job, part, best.choice, space.scheme))
            counts.append(int(found[-1].which.max()) + 1)
        which = [
            one.which + before
            for one, before in zip(found, np.cumsum(counts), strict=False)
        ]
        ways = zip(*(one.costs for one in found), strict=True)
        costs = [stacked(way, counts[1:]) for way in ways]
        return cls(table | {"shape": np.concatenate(which)}, costs)

    def within(self, fine: Mask) -> Shards:
        """Those that a mask leaves."""
        return Shards(keep(self.table, fine), self.costs)

    def shapes(self, table: Table) -> Shapes:
        """Of rows made of these."""
        return Shapes(self.costs, table["shape"].astype(np.intp)).rows(
            slice(None)
        )


def pipelined(job: Job, best: Best, shards: Shards, rows: Table) -> Partly:
    """Those of `by_law` whose fewest microbatches, and what they wait for, stay within the limit.

    Nearest groups, nothing recomputed, no memory limit.
    """
    found = []
    every_deal = sorted({*deals(best.choice)})
    for start in range(0, length(rows), BLOCK):
        part = pick(rows, slice(start, start + BLOCK))
        pipes = Layout(
            pp=part["pp"],
            interleave=part["interleave"],
            schedule=best.choice.schedules[0].schedule,
        )
        shapes = shards.shapes(part)
        staged = [
            (
                deal,
                stages(
                    pipes,
                    pick(cost, shapes.which),
                    holders_of(job, pipes, deal),
                ),
            )
            for cost in shapes.costs
            for deal in every_deal
        ]
        every = [np.asarray(s.forward + s.backward) for _, s in staged]
        each = reduce(np.minimum, every) / best.choice.copies
        partly = Partly(
            part, each, _least_waits(job, best.choice, pipes, staged)
        )
        fine = _fewest(job, part) * each + reduce(
            np.minimum, partly.waits.values()
        ) <= np.minimum(best.over(part), LARGEST)
        found.append(partly.some(fine))
    every_one: Partly = stacked(found, [len(some.each) for some in found])
    return every_one


def _fewest(job: Job, table: Table) -> Column:
    """Microbatches with dp."""
    return _ceil_div(
        float(job.batch), np.maximum(table["dp"], 1) * table["microbatch"]
    )


def by_law(
    job: Job,
    space: Space,
    best: Best,
    shards: Shards,
    degrees: Table,
) -> Table:
    """Shards x pipelines, with their largest dp, that no law of layers alone rules out."""
    every = layers(shards.shapes(shards.table))
    laws = Laws.of(job, best.choice, degrees, least_of(every))
    plain = laws.unchunked(degrees["pp"])
    pp = np.unique(degrees["pp"])
    found = []
    for start in range(0, length(shards.table), CROSSED):
        at = slice(start, start + CROSSED)
        part = pick(shards.table, at)
        layer = pick(every, at)
        grid = {k: c[:, None] for k, c in part.items()} | {"pp": pp[None, :]}
        dp = largest_dp(job, grid, space)
        m = _fewest(job, grid | {"dp": dp})
        once = plain.fullest.seconds(
            [np.reshape(kind, (-1, 1)) for kind in layer.kinds]
        )
        limit = best.over(grid)
        row, of = np.nonzero((dp >= 1) & (m * once <= limit))
        m = m[row, of]
        fine = plain.seconds(pick(layer, row), of, m) <= limit[row, of]
        row = row[fine]
        of = of[fine]
        m = m[fine]
        left = pick(part, row) | {"pp": pp[of], "dp": dp[row, of]}
        again, of = chunked(left["pp"], degrees)
        left = take(left, again) | {"interleave": degrees["interleave"][of]}
        seconds = laws.seconds(pick(layer, row[again]), of, m[again])
        left = keep(left, seconds <= best.over(left))
        runs = possible(
            job,
            left,
            best.choice,
            space.scheme,
            exact=False,
        )
        found.append(keep(left, runs))
    return reduce(_stack, found)


def _least_waits(
    job: Job,
    choice: Options,
    pipes: Layout,
    staged: list[tuple[Deal, Stages]],
) -> dict[str, Column]:
    """What each schedule waits at least beyond the slowest device's work, with any of its numbers
    of chunks.

    staged: (how layers are dealt, one microbatch).
    """
    pp, v = np.asarray(pipes.pp), np.asarray(pipes.interleave)
    least: dict[str, Column] = {}
    for kind, deal in zip(kinds(choice), deals(choice), strict=True):
        rows = np.flatnonzero(kind.filled(job, pp, v))
        known = least.setdefault(kind.schedule.name, np.full(len(pp), NEVER))
        for s in (s for other, s in staged if other == deal):
            mine = least_idle(
                job, pp[rows], pick(s, rows), kind.schedule, v[rows]
            )
            known[rows] = np.minimum(known[rows], mine)
    return least


def relaxed_rounds(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Any dp and pp: shards with pipelines, then intervals of dp with one number of microbatches,
    halved down to single values.
    """
    degrees = pipelines(job, space, True)
    shards = Shards.of(job, space, best, table)
    work = _whole_model(job, shards)
    yield from _first_guess(
        job,
        space,
        best,
        table,
        degrees,
        work,
    )
    shards = shards.within(work <= _over(best, shards))
    # most shards are slow unless tp is near
    if (
        space.placements
        and len(job.cluster.sizes) > 1
        and length(shards.table)
    ):
        shards = Shards.of(
            job,
            space,
            best,
            spread(job, shards.table, True, PLACED[:1]),
        )
        work = _whole_model(job, shards)
        shards = shards.within(work <= _over(best, shards))
    if not length(shards.table) or not length(
        rows := by_law(job, space, best, shards, degrees)
    ):
        return
    partly = pipelined(job, best, shards, rows)
    partly = _fitting(job, space, best, partly)
    if progress:
        progress("pipelines", 0.1)
    low, high, seconds = _intervals(job, space, best, partly)
    if len(seconds) > 2 * FIRST_INTERVALS:
        some = np.argsort(seconds, kind="stable")[:FIRST_INTERVALS]
        a = take(low, some)
        b = take(high, some)
        yield _promising(job, space, best, a, *lower(job, space, best, a, b))
        fine = seconds <= best.over(low)
        low = keep(low, fine)
        high = keep(high, fine)
    yield from _halve(
        job,
        space,
        best,
        low,
        high,
        progress,
    )


def _fitting(job: Job, space: Space, best: Best, partly: Partly) -> Partly:
    """Rows that may fit, where no limit is known: at least what cannot fit even with the most
    replicas is left out. More replicas need less memory: states are cut finer, and fewer
    microbatches are in flight; only the fewest may need less, because what has one replica is not
    gathered or scattered."""
    capacity = room.limit(job)
    table = partly.table
    parts = best.split.rows(table["tp"], table["pp"])
    alive = np.asarray(np.isfinite(best.firsts)[parts].all(axis=0))
    unknown = np.flatnonzero(~alive)
    for start in range(0, len(unknown), BLOCK):
        at = unknown[start : start + BLOCK]
        part = take(table, at)
        for some in (part, part | {"dp": dp_step(part)}):
            bytes_ = least_bytes(job, space, best.choice, some)
            alive[at] |= bytes_ <= capacity
    return partly.some(alive)


def _over(best: Best, shards: Shards) -> Column:
    """What shards must not exceed, with pipelines or without."""
    either = [
        best.over(shards.table | {"pp": n}) for n in np.array([1.0, 2.0])
    ]
    return np.maximum(*either)


def _whole_model(job: Job, shards: Shards) -> Column:
    """Seconds with all chips busy, nothing padded and no bubble: B/b microbatches through the whole
    model on tp cp of N chips each.
    """
    table = shards.table
    whole = holders_of(job, Layout(), Deal())["whole"]
    each = [
        sum_of((n, c.forward + c.backward) for n, c in whole.passed(cost))
        for cost in shards.costs
    ]
    found = reduce(np.minimum, each)[table["shape"]]
    return np.asarray(
        found
        * job.batch
        / table["microbatch"]
        * table["tp"]
        * table["cp"]
        / job.cluster.chips
    )


def _first_guess(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    degrees: Table,
    work: Column,
) -> Iterator[Bounded]:
    """Layouts with promise: the smallest microbatches, which fit soonest, the most replicas. They
    set the first limit.
    """
    small = np.flatnonzero(table["microbatch"] == table["microbatch"].min())
    promising = small[np.argsort(work[small], kind="stable")[:FIRST]]
    rows = cross(take(table, promising), **degrees)
    rows["dp"] = largest_dp(job, rows, space)
    rows = keep(rows, (rows["dp"] >= 1) & valid(job, rows, space))
    rows = keep(
        rows,
        possible(
            job,
            rows,
            best.choice,
            space.scheme,
            exact=False,
        ),
    )
    if not length(rows):
        return
    shapes = nearest(
        job,
        rows,
        best.choice,
        space.scheme,
        best.choice.recompute,
    )
    seconds = law(job, rows, best.choice, layers(shapes))
    left = np.argsort(seconds, kind="stable")
    size = GUESSES
    while len(left := left[np.isinf(best.over(take(rows, left)))]):
        some = left[:size]
        guesses = take(rows, some)
        bounds, ways = lower(
            job,
            space,
            best,
            guesses,
            guesses,
            shapes=shapes.rows(some),
        )
        first = np.flatnonzero(places(best, guesses, bounds) < PROMISING)
        yield from tried(best, take(guesses, first), bounds[:, first], ways)
        left = left[size:]
        size = size * GROWTH


def covered(job: Job, table: Table, degrees: Table, choice: Options) -> int:
    """How many (degrees, dp, options) a relaxed table stands for."""
    total = 0
    by_tp = [table["tp"] == 1, table["tp"] > 1]
    by_pp = [degrees["pp"] == 1, degrees["pp"] > 1]
    for (tp, some), (pp, deep) in product(enumerate(by_tp), enumerate(by_pp)):
        held = choice.parts(np.array([tp + 1.0]), np.array([pp + 1.0])) != NONE
        options = choice.count // len(choice.zero) * int(held.sum())
        rows = _every_dp(job, keep(table, some), degrees["pp"][deep])
        total += rows * options
    return total


def _every_dp(job: Job, table: Table, pp: Column) -> int:
    """How many rows these shards have with any dp."""
    ranks, micro = table["tp"] * table["cp"], table["microbatch"]
    index, number = distinct([ranks, micro])
    chips = np.floor(job.cluster.chips / (ranks[index, None] * pp))
    sequences = job.batch // micro[index, None]
    each = np.minimum(chips, sequences).sum(axis=1)
    return int((np.bincount(number) * each).sum())


def _intervals(
    job: Job,
    space: Space,
    best: Best,
    partly: Partly,
) -> tuple[Table, Table, Column]:
    """The intervals of dp that give one number of microbatches m, for every m that stays within the
    limit: (smallest, largest, seconds that the step takes at least)."""
    table = partly.table
    each = partly.each
    B = float(job.batch)
    limit = best.over(table)
    fewest = _ceil_div(B, table["dp"] * table["microbatch"])
    most = np.minimum(
        np.floor(limit / each), _ceil_div(B, table["microbatch"])
    )
    counts = np.maximum(most - fewest + 1, 0).astype(np.intp)
    index = np.repeat(np.arange(len(counts)), counts)
    m = fewest[index] + (
        np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    )
    seconds = np.full(len(m), np.inf)
    busy = m * each[index]
    pp = table["pp"][index]
    v = table["interleave"][index]
    idle = pick(partly.waits, index)
    for schedule in {kind.schedule for kind in kinds(best.choice)}:
        can = schedule.legal(pp, m, v)
        seconds = np.where(
            can, np.minimum(seconds, busy + idle[schedule.name]), seconds
        )
    fine = seconds <= limit[index]
    seconds = seconds[fine]
    rows = take(table, index[fine])
    m = m[fine]
    low = _ceil_div(B, m * rows["microbatch"])
    # the last dp that still needs m microbatches
    below = _ceil_div(B, np.maximum(m - 1, 1) * rows["microbatch"]) - 1
    high = np.minimum(np.where(m > 1, below, rows["dp"]), rows["dp"])
    step = dp_step(rows)
    low = _ceil_div(low, step) * step
    high = np.floor(high / step) * step
    fine = low <= high
    return (
        keep(rows | {"dp": low}, fine),
        keep(rows | {"dp": high}, fine),
        seconds[fine],
    )


def _halve(
    job: Job,
    space: Space,
    best: Best,
    low: Table,
    high: Table,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Bound intervals of dp, place what is left of them, halve them; single values wait until the
    limit has settled.
    """
    found: list[tuple[Table, Ways]] = []
    left: Alive | None = None
    unplaced = (
        list(PLACED[1:])
        if space.placements and len(job.cluster.sizes) > 1
        else []
    )
    while length(low) and (left is None or left.any()):
        if (only := space.values("dp")) is not None:
            allowed = np.sort(only)
            fine = np.searchsorted(allowed, low["dp"]) < np.searchsorted(
                allowed, high["dp"], side="right"
            )
            low = keep(low, fine)
            high = keep(high, fine)
        bounds, ways = lower(
            job,
            space,
            best,
            low,
            high,
            left,
        )
        alive = best.alive(low, bounds)
        # few are all placed soon
        if length(low) > MANY and np.count_nonzero(alive) > PROMISING:
            yield _promising(
                job,
                space,
                best,
                low,
                bounds,
                ways,
            )
            alive = best.alive(low, bounds)
        left = ways.within(best.limits)
        sides = {f"bound{side}": each for side, each in enumerate(bounds)}
        low = keep(low | sides, alive)
        high = keep(high, alive)
        step = dp_step(low)
        counts = np.floor((high["dp"] - low["dp"]) / step) + 1
        single = counts == 1
        if counts.sum() <= AT_ONCE:
            single = counts > 0
        if not unplaced or single.all():
            ready = each_dp(
                keep(low, single),
                low["dp"][single],
                high["dp"][single],
                step[single],
            )
            found.append((keep(ready, valid(job, ready, space)), ways))
            low = keep(low, ~single)
            high = keep(high, ~single)
        low = {k: c for k, c in low.items() if k not in sides}
        if unplaced:
            axis = unplaced.pop(0)
            low, high = (
                spread(job, rows, True, [axis]) for rows in (low, high)
            )
        elif counts.sum() <= FEW:
            low = each_dp(low, low["dp"], high["dp"], step[~single])
            high = dict(low)
        else:
            low, high = _halves(low, high)
    if found:
        table = reduce(_stack, [rows for rows, _ in found])
        ways = reduce(Ways.beside, [each for _, each in found])
        bounds = np.array([table.pop(side) for side in sides])
        yield from best_first(best, table, bounds, ways, progress)


def _halves(low: Table, high: Table) -> tuple[Table, Table]:
    """Each interval of dp as two."""
    step = dp_step(low)
    middle = low["dp"] + np.floor((high["dp"] - low["dp"]) / (2 * step)) * step
    below = high | {"dp": middle}
    above = low | {"dp": middle + step}
    return _stack(low, above), _stack(below, high)


def _promising(
    job: Job,
    space: Space,
    best: Best,
    low: Table,
    bounds: Grid,
    ways: Ways,
) -> Bounded:
    """Of intervals with these bounds the best with their smallest dp, for a better limit."""
    some = keep(low, places(best, low, bounds) < PROMISING)
    return keep(some, valid(job, some, space)), ways


def _stack(a: Table, b: Table) -> Table:
    """The rows of both."""
    return {k: np.concatenate([a[k], b[k]]) for k in a}
