"""The k fastest layouts of a space, exactly, without evaluating all of them.

Partly decided layouts are expanded best bound first, and dropped when they are slower than the k-th
best layout found so far or cannot fit. Bounds are the step formulas themselves with optimistic
arguments (collectives at their `floor`, each term at its best option), so they hold whatever the
formulas say, on every network. Ranking is by (seconds, bytes, degrees, options, placement), as in
brute force.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from ..describe.job import Job
from . import laws
from .best import LARGEST, Best
from .degrees import chunked, fill, pipelines, shards
from .evaluate import (
    PLACED_AT_ONCE,
    Bounded,
    Progress,
    Ways,
    best_first,
    evaluate,
    lower,
    places,
    tried,
)
from .legal import legal_options, possible
from .merit import weigh
from .nearest import Shapes, nearest
from .options import options
from .placement import count, usual
from .relaxed import covered, relaxed_rounds
from .space import Space
from .split import WHOLE, Split
from .table import Column, Grid, Index, Table, cross, keep, length, take

GUESSES = 64
"""Rows of each kind that set the first limit."""
FIRST = 512
"""Rows of the first round while there is none."""
ROUND = 20480
"""Rows of the first round once there is one."""
FEW = 64
"""Rows that are not worth a bound."""
GROWTH = 32
"""How many times as many rows each round has as the one before."""


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
        evaluate(
            job,
            space,
            best,
            table,
            relaxed,
            ways,
        )
        yield


def _rounds(
    job: Job,
    space: Space,
    best: Best,
    relaxed: bool,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Rows worth placing, best bound first."""
    table = shards(job, space, relaxed)
    degrees = pipelines(job, space, relaxed)
    if not length(table) or not length(degrees):
        return
    if relaxed:
        best.searched = covered(job, table, degrees, best.choice)
        yield from relaxed_rounds(
            job,
            space,
            best,
            table,
            progress,
        )
        return
    index = np.flatnonzero(np.diff(degrees["pp"], prepend=0.0))
    rows = fill(job, cross(table, **take(degrees, index)), space)
    whose, which = chunked(rows["pp"], degrees)
    if not len(whose):
        return
    table = take(rows, whose) | {"interleave": degrees["interleave"][which]}
    fine = possible(job, table, best.choice, space.scheme, exact=True)
    table, whose = keep(table, fine), whose[fine]
    many = count(job, rows)[whose] if space.placements else 1.0
    legal = legal_options(job, table, best.choice, space.scheme)
    best.searched = int((legal * many).sum())
    # few rows are all placed: bounds would cost as much
    if length(table) <= FEW:
        yield table, None
        return
    again = best.choice.recompute
    shapes = nearest(job, rows, best.choice, space.scheme, again)
    shapes = shapes._replace(which=shapes.which[whose])
    yield from _strict(
        job,
        space,
        best,
        table,
        shapes,
        progress,
    )


def _strict(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    shapes: Shapes,
    progress: Progress | None,
) -> Iterator[Bounded]:
    """Rows in growing rounds, shortest step by law first, bounded; of each round the best are
    placed at once, for a better limit, and what is left of all in the end. Before there is a limit
    the smallest microbatches come first, which fit soonest: some of them where launchers put them,
    without a bound.
    """
    law = laws.law(job, table, best.choice, laws.layers(shapes))
    small = table["microbatch"] == table["microbatch"].min()
    kind = best.split.kinds(table["tp"], table["pp"])
    if np.isinf(best.limit):
        guesses = _least(law, np.flatnonzero(small), GUESSES, kind)
        yield usual(job, take(table, guesses)), None
    open_ = law <= np.minimum(best.over(table), LARGEST)
    size, first = (FIRST, small) if np.isinf(best.limit) else (ROUND, open_)
    some = _least(law, np.flatnonzero(first), size, kind)
    found: list[tuple[Table, Grid, Ways]] = []
    while len(some):
        if progress:
            progress("bounds", 0.0)
        open_[some] = False
        rows = take(table, some)
        bounds, ways = lower(
            job,
            space,
            best,
            rows,
            rows,
            shapes=shapes.rows(some),
        )
        place = places(best, rows, bounds)
        left = place < np.inf
        if open_.any():
            first = np.flatnonzero(place < PLACED_AT_ONCE)
            yield from tried(best, take(rows, first), bounds[:, first], ways)
            left &= place >= PLACED_AT_ONCE
        found.append((keep(rows, left), bounds[:, left], ways))
        open_ &= law <= np.minimum(best.over(table), LARGEST)
        size = size * GROWTH
        some = _least(law, np.flatnonzero(open_), size, kind)
    if not found:
        return
    every = {k: np.concatenate([rows[k] for rows, *_ in found]) for k in table}
    bounds = np.concatenate([bounds for _, bounds, _ in found], axis=1)
    ways = reduce(Ways.beside, [ways for *_, ways in found])
    yield from best_first(best, every, bounds, ways, progress)


def _least(values: Column, rows: Index, number: int, kind: Index) -> Index:
    """Of each kind of some rows those with the smallest values."""
    each = (
        rows[kind[rows] == one] for one in np.flatnonzero(np.bincount(kind))
    )
    return np.concatenate(
        [
            mine[np.argpartition(values[mine], number)[:number]]
            if len(mine) > number
            else mine
            for mine in each
        ]
    )
