"""The k fastest layouts of a space, exactly, without evaluating all of them.

Candidates -> rows, or in a relaxed space intervals of dp with one number of microbatches -> bounds
-> placed layouts, best bound first. Rows that are slower than the k-th best layout found so far, or
cannot fit, are dropped on the way. Bounds are the step formulas themselves with optimistic
arguments (`bound`), so they hold whatever the formulas say, on every network. Ranking is by
(seconds, bytes, degrees, options, placement), as in brute force.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from ..describe.job import Job
from .best import LARGEST, Best
from .bound import Candidates, lower
from .degrees import among, dp_step, each_dp, pipelines, shards
from .evaluate import Bounded, Progress, Ways, evaluate
from .legal import legal_options
from .merit import weigh
from .options import Options, options
from .placement import count, spread
from .space import Space
from .split import NONE, WHOLE, Split
from .table import (
    Column,
    Grid,
    Index,
    Table,
    distinct,
    keep,
    length,
    stack,
    take,
)

FIRST = 256
"""Rows of each kind that are bounded first, for a limit."""
ROUND = 4096
"""Rows of the first round once there is one."""
GROWTH = 4
"""How many times as many rows each round has as the one before."""
FEW = 64
"""Rows that are not worth a bound."""
SINGLE = 32768
"""So many numbers of replicas are placed one by one: intervals of more are halved."""
PLACED_AT_ONCE = 32
"""Rows with the smallest bounds that are placed for a limit."""
MORE_AT_ONCE = 1024
"""Rows that are placed first once there is one."""
TRIAL = 1.25
"""Times the largest bound of some rows: what they are looked at within while no limit is known."""


def search(
    job: Job,
    space: Space,
    k: int = 10,
    relaxed: bool = False,
    progress: Progress | None = None,
    split: Split = WHOLE,
    **limits: Any,
) -> Best:
    """The k best layouts of the space, exactly, without evaluating all of them.

    limits: `within`, `slack` and `sure` of `Best`; split: each of these parts has its own first.
    """
    choice = replace(options(job, space), split=split)
    best = Best(k, choice, **{"weigh": weigh(job), **limits})
    for _ in _found(job, space, best, relaxed, progress):
        pass
    return best


def fits(job: Job, space: Space, relaxed: bool = False) -> bool:
    """Whether some layout of the space fits."""
    best = Best(1, options(job, space), weigh=weigh(job))
    return any(best.rows for _ in _found(job, space, best, relaxed, None))


def _found(
    job: Job,
    space: Space,
    best: Best,
    relaxed: bool,
    progress: Progress | None,
) -> Iterator[None]:
    """Layouts enter the best, round by round."""
    for table, ways in _rounds(job, space, best, relaxed, progress):
        evaluate(job, space, best, table, relaxed, ways)
        yield


def _rounds(
    job: Job,
    space: Space,
    best: Best,
    relaxed: bool,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Rows worth placing, with the options whose bounds allow it, best bound first."""
    table = shards(job, space, relaxed)
    degrees = pipelines(job, space, relaxed)
    if not length(table) or not length(degrees):
        return
    open_ = Candidates.of(job, space, best.choice, table, relaxed)
    if relaxed:
        best.searched = covered(job, table, degrees, best.choice)
        rows, law = open_.rows(best.over, small=True)
    else:
        rows, law = open_.rows(lambda _: np.inf)
        if not length(rows):
            return
        legal = legal_options(job, rows, best.choice, space.scheme)
        can = legal > 0
        rows, law = keep(rows, can), law[can]
        many = count(job, rows) if space.placements else 1.0
        best.searched = int((legal[can] * many).sum())
        # few rows are all placed: bounds would cost as much
        if length(rows) <= FEW:
            yield rows, None
            return
    low = high = rows
    if relaxed:
        yield from _bounded(
            job, space, best, rows, rows, law, progress, only_limits=True
        )
        rows, _ = open_.rows(best.over)
        if not length(rows):
            return
        table = take(table, np.unique(rows["shard"]).astype(np.intp))
        # where tp lies decides how near all others can be
        if space.placements:
            table = spread(job, table, relaxed, ("tp",))
        open_ = Candidates.of(job, space, best.choice, table, relaxed)
        low, high, law = open_.intervals(best)
    yield from _bounded(job, space, best, low, high, law, progress)


def _bounded(
    job: Job,
    space: Space,
    best: Best,
    low: Table,
    high: Table,
    law: Column,
    progress: Progress | None,
    only_limits: bool = False,
) -> Iterator[Bounded]:
    """Rows, or intervals of dp, in growing rounds, shortest step by law first, bounded; of each
    round the best are placed at once, for a better limit, and what is left of all in the end.
    Where there is no limit yet the smallest microbatches come first, which fit soonest. Intervals
    that hold many numbers of replicas are halved, and bounded again.

    only_limits: end when there is a limit for all.
    """
    ready: list[tuple[Table, Grid, Ways]] = []
    size = FIRST
    while True:
        fine = law <= np.minimum(best.over(low), LARGEST)
        low, high, law = keep(low, fine), keep(high, fine), law[fine]
        unknown = np.isinf(best.over(low))
        if not len(law) or (only_limits and not unknown.any()):
            break
        if progress:
            progress("bounds", 0.0)
        first = np.arange(len(law))
        if unknown.any():
            micro = np.where(unknown, low["microbatch"], np.inf)
            first = np.flatnonzero(micro == micro.min())
        else:
            size = max(size, ROUND)
        some = _least(best, low, law, first, size)
        rest = np.isin(np.arange(len(law)), some, invert=True)
        near, far = take(low, some), take(high, some)
        low, high, law = keep(low, rest), keep(high, rest), law[rest]
        step = dp_step(near)
        number = np.floor((far["dp"] - near["dp"]) / step) + 1
        if number.max() == 1:
            far = near
        bounds, ways = lower(job, space, best, near, far)
        place = places(best, near, bounds)
        if len(law) or number.max() > 1:
            now = (place < PLACED_AT_ONCE) & among(near, space, "dp")
            yield from tried(best, keep(near, now), bounds[:, now], ways)
        fine = best.alive(near, bounds)
        many = fine & (number > (number[fine].sum() <= SINGLE) * SINGLE + 1)
        index, rows = each_dp(near, far["dp"], step, fine & ~many)
        each = among(rows, space, "dp")
        ready.append((keep(rows, each), bounds[:, index[each]], ways))
        middle = near["dp"] + np.floor((number - 1) / 2) * step
        below, above = far | {"dp": middle}, near | {"dp": middle + step}
        low = stack(low, keep(near, many), keep(above, many))
        high = stack(high, keep(below, many), keep(far, many))
        least = bounds.min(axis=0)[many]
        law = np.concatenate([law, least, least])
        size = size * GROWTH
    if ready and not only_limits:
        yield from best_first(
            best,
            stack(*(rows for rows, *_ in ready)),
            np.concatenate([bounds for _, bounds, _ in ready], axis=1),
            reduce(Ways.beside, [ways for *_, ways in ready]),
            progress,
        )


def _least(
    best: Best, table: Table, values: Column, rows: Index, number: int
) -> Index:
    """Of each kind of some rows of a table those with the smallest values."""
    kind = best.split.kinds(table["tp"][rows], table["pp"][rows])
    each = (rows[kind == one] for one in np.flatnonzero(np.bincount(kind)))
    return np.concatenate(
        [
            mine[np.argpartition(values[mine], number)[:number]]
            if len(mine) > number
            else mine
            for mine in each
        ]
    )


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
