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
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from .best import LARGEST, Best, Smallest
from .bound import lower
from .candidates import Candidates, Waiting
from .degrees import (
    among,
    dp_step,
    each_dp,
    fewest,
    pipelines,
    shards,
)
from .evaluate import (
    FEW,
    Bounded,
    Progress,
    Ways,
    evaluate,
    fitting,
    most_legal,
)
from .legal import legal_options
from .options import Options, options
from .placement import count, spread
from .space import Space
from .split import NONE, WHOLE, Split
from .table import (
    Column,
    Grid,
    Table,
    distinct,
    keep,
    length,
    pick,
)

FIRST = 256
"""Rows of each kind that are bounded first, for a limit."""
ROUND = 4096
"""Rows of the first round once there is one."""
GROWTH = 8
"""How many times as many rows each round has as the one before."""
SINGLE = 32768
"""Numbers of replicas that one round may place one by one; if its intervals hold more, they are
halved."""
PLACED_FIRST = 16
"""Rows with the smallest bounds that are placed first, for a limit."""
WAITS = 0.3
"""Of what interleaved 1F1B waits: about what the schedules that are searched wait."""


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
    best = Best(k, choice, **(fitting(job) | limits))
    for _ in _found(job, space, best, relaxed, progress):
        pass
    return best


def fits(job: Job, space: Space, relaxed: bool = False) -> bool:
    """Whether some layout of the space fits."""
    return _any(
        job, space, relaxed, Best(1, options(job, space), **fitting(job))
    )


def any_legal(job: Job, space: Space, relaxed: bool = False) -> bool:
    """Whether some layout of the space is legal: it fits chips of any size. Most that has legal
    ones has some with the most replicas.
    """
    return most_legal(job, space, relaxed) or (
        relaxed and _any(job, space, relaxed, Best(1, options(job, space)))
    )


def _any(job: Job, space: Space, relaxed: bool, best: Best) -> bool:
    """Whether there is a best at all."""
    return any(best.rows for _ in _found(job, space, best, relaxed, None))


def smallest(job: Job, space: Space, relaxed: bool = False) -> Best:
    """The layout of the space that needs the least memory, whether it fits or not."""
    best = Smallest(
        1, options(job, space), weigh=lambda seconds, bytes_: bytes_
    )
    for _ in _found(job, space, best, relaxed, None):
        pass
    return best


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
    if progress:
        progress("bounds", 0.0)
    if relaxed:
        best.searched = covered(job, table, degrees, best.choice)
        # the smallest microbatches fit soonest, and give a limit for the others
        rows, law = open_.rows(best.over, small=True)
        yield from _bounded(open_, best, open_.exact(rows, law))
        if np.isinf(best.limits).any():
            table = open_.roomy(best)
            if not length(table):
                return
            open_ = Candidates.of(job, space, best.choice, table, relaxed)
        rows, law = open_.rows(best.over)
        yield from _bounded(open_, best, open_.exact(rows, law))
        if not length(rows):
            return
        table = pick(table, np.unique(rows["shard"]).astype(np.intp))
        # where tp lies decides how near all others can be
        if space.placements:
            table = spread(job, table, relaxed, ("tp",))
        open_ = Candidates.of(job, space, best.choice, table, relaxed)
        waiting = open_.intervals(best)
    else:
        rows, law = open_.rows(lambda _: np.inf)
        if not length(rows):
            return
        legal = legal_options(job, rows, best.choice)
        can = legal > 0
        rows, law = keep(rows, can), law[can]
        many = count(job, rows) if space.placements else 1.0
        best.searched = int((legal[can] * many).sum())
        # few rows are all placed: bounds would cost as much
        if length(rows) <= FEW:
            yield rows, None
            return
        waiting = Waiting(rows, rows, law)
    yield from _bounded(open_, best, waiting, progress)


def _bounded(
    open_: Candidates,
    best: Best,
    waiting: Waiting,
    progress: Progress | None = None,
) -> Iterator[Bounded]:
    """Growing rounds, those first that a plain pipeline would take least for: bounded by pipelines
    of layers, then by the step, and placed where the bound allows it, for a better limit in the
    next round. Intervals that hold many numbers of replicas are halved, and wait again.
    """
    job, space = open_.job, open_.space
    size, few = FIRST, PLACED_FIRST
    total, done = max(len(waiting.law), 1), 0.0
    while True:
        over = best.over(waiting.low)
        fine = waiting.law <= np.minimum(over, LARGEST)
        waiting, unknown = pick(waiting, fine), np.isinf(over[fine])
        if not len(unknown):
            return
        if progress:
            share = 1.0 - len(unknown) / total
            progress("layouts", done := max(done, share))
        order = _plain(job, waiting)
        if unknown.any():  # the smallest microbatches fit soonest
            micro = np.where(unknown, waiting.low["microbatch"], np.inf)
            order = np.where(micro == micro.min(), order, np.inf)
        else:
            size = max(size, ROUND)
        first = _least(best, waiting.low, order, size)
        some, waiting = pick(waiting, first), pick(waiting, ~first)
        within = open_.within(some.low, best.over(some.low))
        if not within.any():
            continue
        some = pick(some, within)
        number = some.numbers
        high = some.high if number.max() > 1 else some.low
        bounds, ways = lower(job, space, best, some.low, high)
        some = some._replace(law=bounds.min(axis=0))
        fine = best.alive(some.low, bounds)
        many = fine & (number > 1) & (number[fine].sum() > SINGLE)
        later = np.zeros_like(many)
        if unknown.any():  # a few will give a limit, which spares the others
            later = fine & ~many & (places(best, some.low, bounds) >= few)
        waiting = waiting.beside(*pick(some, many).halves, pick(some, later))
        fine &= ~(many | later)
        step = dp_step(some.low)
        index, rows = each_dp(some.low, some.high["dp"], step, fine)
        each = among(rows, space, "dp")
        rows, bounds = keep(rows, each), bounds[:, index[each]]
        yield from _best_first(best, rows, bounds, ways, few)
        size, few = size * GROWTH, few * GROWTH


def _plain(job: Job, waiting: Waiting) -> Column:
    """About the seconds of a pipeline: only which rows are bounded first rests on it."""
    rows = waiting.low
    waits = WAITS * (rows["pp"] - 1.0) / rows["interleave"]
    return waiting.law * (1.0 + waits / fewest(job, rows))


def _least(
    best: Best, table: Table, values: Column, number: int
) -> NDArray[np.bool_]:
    """Of each kind of row those with the smallest values; inf: none of them."""
    kind = best.split.kinds(table["tp"], table["pp"])
    least = np.zeros(len(values), dtype=bool)
    for one in np.flatnonzero(np.bincount(kind)):
        rows = np.flatnonzero((kind == one) & (values < np.inf))
        if len(rows) > number:
            rows = rows[np.argpartition(values[rows], number)[:number]]
        least[rows] = True
    return least


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


def _best_first(
    best: Best,
    table: Table,
    bounds: Grid,
    ways: Ways,
    end: int,
) -> Iterator[Bounded]:
    """Rows in growing rounds, smallest bound first, as long as one may enter the k best."""
    place = places(best, table, bounds)
    left = np.flatnonzero(place < np.inf)
    left = left[np.argsort(place[left], kind="stable")]
    while len(left):
        some = left[: np.searchsorted(place[left], end)]
        if len(some):
            yield pick(table, some), ways
        end = end * GROWTH
        left = left[len(some) :]
        left = left[best.alive(pick(table, left), bounds[:, left])]


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
