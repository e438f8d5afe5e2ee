"""The k fastest layouts of a space, exactly, without evaluating all of them.

Candidates -> rows, or in a relaxed space intervals of dp with one number of microbatches -> bounds
-> placed layouts, best bound first; the first rows are placed at once. Rows that are slower than
the k-th best layout found so far, or cannot fit, are dropped on the way. Bounds are the step
formulas themselves with optimistic arguments (`bound`), so they hold whatever the formulas say, on
every network. Ranking is by (merit, bytes, degrees, options, placement), as in brute force.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..describe.job import Job
from .bound import lower_bounds, may_fit
from .candidates import Candidates, Intervals
from .degrees import most_replicas, pipelines, replicas, splits
from .evaluate import (
    ROWS_WITHOUT_BOUND,
    Progress,
    criteria,
    evaluate,
    has_legal_row,
)
from .legal import legal_options
from .placement import placement_count
from .points import Rows
from .space import Space
from .state import SearchState, Smallest
from .table import (
    Column,
    Grid,
    Table,
    distinct,
    keep,
    length,
    pick,
)

FIRST = 128
"""Rows that are placed first, for a limit: no bound cuts anything before one layout fits, and a
call for a hundred rows takes about as long as one for a single row."""
ROUND = 4096
"""Rows of the first round once there is one: a block (`table.BLOCK`), which stays in cache."""
GROWTH = 8
"""How many times as many rows each round has as the one before. The limit hardly falls after the
first rounds, so later ones are long: what they cost is calls, not rows."""
PLACED_FIRST = 128
"""Layouts with the smallest bounds that are placed first, for a limit: a call for so many takes
about as long as one for a few."""
PLACED = 32768
"""Layouts that are placed at once at most, so that long intervals fill no memory."""


def search(
    job: Job,
    space: Space,
    k: int = 10,
    progress: Progress | None = None,
    **limits: Any,
) -> SearchState:
    """The k best layouts of the space, exactly, without evaluating all of them.

    limits: `within`, `slack` and `keep_first` of `SearchState`.
    """
    state = SearchState(job, space, k, **(criteria(job) | limits))
    for _ in _fill(state, progress):
        pass
    return state


def fits(job: Job, space: Space) -> bool:
    """Whether some layout of the space fits."""
    return _has_layout(SearchState(job, space, 1, **criteria(job)))


def any_legal(job: Job, space: Space) -> bool:
    """Whether some layout of the space is legal, however much memory it needs. Where one is, one
    with the most replicas nearly always is too, and that is quick to see; else all are looked at.
    """
    if has_legal_row(job, space):
        return True
    return bool(space.relaxed) and _has_layout(SearchState(job, space, 1))


def _has_layout(state: SearchState) -> bool:
    """Whether a layout enters at all."""
    return any(state.rows for _ in _fill(state))


def smallest(job: Job, space: Space) -> SearchState:
    """The layout of the space that needs the least memory, whether it fits or not."""
    state = Smallest(job, space, 1, weigh=lambda seconds, bytes_: bytes_)
    for _ in _fill(state):
        pass
    return state


def _fill(
    state: SearchState, progress: Progress | None = None
) -> Iterator[None]:
    """Layouts enter, round by round: rows worth placing, best bound first."""
    job, space = state.job, state.space
    table = splits(job, space)
    degrees = pipelines(job, space)
    # what a layer takes is asked only where some pipeline leaves room for replicas; in a relaxed
    # space that is the shortest, and a table of all would be as long as the rest of the search
    pp = np.unique(degrees["pp"])[: 1 if space.relaxed else None]
    grid = {k: column[:, None] for k, column in table.items()} | {"pp": pp}
    some = (replicas(job, grid, space) >= 1).any(axis=1)
    table = keep(table, np.asarray(some))
    if not length(table):
        return
    if progress:
        progress("bounds", 0.0)
    table["split"] = np.arange(float(length(table)))
    if not space.relaxed:
        rows = most_replicas(job, space, table, degrees)
        legal = legal_options(job, rows, state.options)
        many = placement_count(job, rows, space) if space.placements else 1.0
        state.searched = int((legal * many).sum())
        rows = keep(rows, legal > 0)
        if length(rows) <= ROWS_WITHOUT_BOUND:
            evaluate(state, rows)
            yield
            return
        candidates = Candidates.from_splits(state, table, degrees)
        every = candidates.bounded(rows)
        yield from _bound_and_place(candidates, every, progress)
        return
    candidates = Candidates.from_splits(state, table, degrees)
    state.searched = state.options.count * row_count(job, table, degrees["pp"])
    # the smallest microbatches fit soonest, and give a limit for the others
    group, first = candidates.smallest_microbatches()
    small, others = candidates.rows(state.limit, first), ~first
    yield from _bound_and_place(candidates, small)
    if state.limit == np.inf:
        # what a microbatch holds only grows with its sequences
        small = pick(small, may_fit(state, small.low))
        others &= np.isin(group, group[small.low["split"].astype(np.intp)])
    large = candidates.rows(state.limit, others)
    fewer = candidates.fewer_replicas(small.join(large))
    # with a limit from the first, small rounds are worth no call
    yield from _bound_and_place(
        candidates, large.join(fewer), progress, ROUND * GROWTH
    )


def _bound_and_place(
    candidates: Candidates,
    waiting: Intervals,
    progress: Progress | None = None,
    size: int = FIRST,
) -> Iterator[None]:
    """Growing rounds, those rows first whose layers take least: bounded by pipelines of layers,
    then by the step, and placed where the bound allows it, for a better limit in the next round.
    size: rows of the first round.
    """
    state = candidates.state
    # a share of no rows is shown as 0 of 1
    total, done = max(len(waiting.bound), 1), 0.0
    left = np.arange(len(waiting.bound))
    while True:
        left = left[waiting.bound[left] <= state.highest]
        if progress:
            share = 1.0 - len(left) / total
            progress("layouts", done := max(done, share))
        if not len(left):
            return
        priority = waiting.bound[left]
        opening = size == FIRST and state.limit == np.inf
        # the smallest microbatches fit soonest; where none does, all others are asked at once
        if opening:
            micro = waiting.low["microbatch"][left]
            priority = np.where(micro == micro.min(), priority, np.inf)
        else:
            size = max(size, ROUND)
        first = priority <= _nth(priority, size)
        some, left = pick(waiting, left[first]), left[~first]
        size *= GROWTH
        some = pick(some, candidates.pipelines_within(some.low, state.limit))
        if not len(some.bound):
            continue
        if opening:
            evaluate(state, some.each_dp(state.space))
            yield
            continue
        number = some.replica_counts
        high = some.high if number.max() > 1 else None
        bounds, option_bounds = lower_bounds(
            state, Rows(some.low, high), state.job
        )
        some = some._replace(bound=bounds)
        yield from _best_first(state, some, option_bounds)


def _nth(values: Column, number: int) -> float:
    """The largest of the so many smallest values, below infinity."""
    below = values[values < np.inf]
    if len(below) > number:
        return float(np.partition(below, number - 1)[number - 1])
    return float(below.max(initial=-np.inf))


def _best_first(
    state: SearchState, some: Intervals, option_bounds: Grid
) -> Iterator[None]:
    """Rows of intervals are placed in growing rounds, smallest bound first, as long as one may
    enter the k best. option_bounds: what none of them undercuts under each combination of options.
    """
    some = pick(some, np.argsort(some.bound, kind="stable"))
    # layouts up to and with each interval
    total = np.cumsum(some.replica_counts)
    start, size = 0, PLACED_FIRST
    while start < len(total):
        done = total[start - 1] if start else 0.0
        end = max(np.searchsorted(total, done + size, "right"), start + 1)
        piece = pick(some, slice(start, end))
        piece = pick(piece, piece.bound <= state.highest)
        if not len(piece.bound):
            return
        evaluate(state, piece.each_dp(state.space), option_bounds)
        yield
        start, size = int(end), min(size * GROWTH, PLACED)


def row_count(job: Job, table: Table, pp: Column) -> int:
    """How many rows a relaxed table stands for: with each of these pipelines and any dp."""
    ranks, micro = table["tp"] * table["cp"], table["microbatch"]
    index, number = distinct([ranks, micro])
    chips = np.floor(job.cluster.chips / (ranks[index, None] * pp))
    sequences = job.batch // micro[index, None]
    each = np.minimum(chips, sequences).sum(axis=1)
    return int((np.bincount(number) * each).sum())
