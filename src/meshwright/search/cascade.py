"""The k fastest layouts of a space, exactly, without evaluating all of them.

Partly decided layouts are expanded best bound first, and dropped when they are slower than the k-th
best layout found so far or cannot fit. Bounds are the step formulas themselves with optimistic
arguments (collectives at their `floor`, each term at its best option), so they hold whatever the
formulas say, on every network. Ranking is by (seconds, bytes, degrees, options, placement), as in
brute force.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..describe.job import Job
from . import laws
from .best import Best
from .evaluate import (
    LARGEST,
    PLACED_AT_ONCE,
    Progress,
    best_first,
    evaluate,
    lower,
    tried,
)
from .grid import legal_options, possible
from .merit import weigh
from .nearest import Shapes, nearest
from .placement import count
from .relaxed import covered, relaxed_rounds
from .space import (
    Column,
    Space,
    Table,
    chunked,
    cross,
    fill,
    keep,
    length,
    options,
    pipelines,
    shards,
    take,
)

FIRST = 512
"""Rows of the first round."""
FEW = 64
"""Rows that are not worth a bound."""
GROWTH = 8
"""How many times as many rows each round has as the one before."""


def search(
    job: Job,
    space: Space,
    k: int = 10,
    relaxed: bool = False,
    progress: Progress | None = None,
    **limits: Any,
) -> Best:
    """The k best layouts of the space, exactly, without evaluating all of them.

    limits: `within`, `slack` and `sure` of `Best`.
    """
    best = Best(k, options(job, space), **{"weigh": weigh(job), **limits})
    for table in _rounds(
        job,
        space,
        best,
        relaxed,
        progress,
    ):
        evaluate(job, space, best, table, relaxed)
    return best


def fits(job: Job, space: Space, relaxed: bool = False) -> bool:
    """Whether some layout of the space fits."""
    best = Best(1, options(job, space), weigh=weigh(job))
    for table in _rounds(job, space, best, relaxed, None):
        evaluate(job, space, best, table, relaxed)
        if best.rows:
            return True
    return False


def _rounds(
    job: Job,
    space: Space,
    best: Best,
    relaxed: bool,
    progress: Progress | None,
) -> Iterator[Table]:
    """Rows worth placing, best bound first."""
    table = shards(job, space, relaxed)
    degrees = pipelines(job, space, relaxed)
    if not length(table) or not length(degrees):
        return
    if relaxed:
        best.searched = covered(job, table, degrees) * best.choice.count
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
    best.searched = int(
        (
            legal_options(job, table, best.choice, space.scheme)
            * (count(job, rows)[whose] if space.placements else 1.0)
        ).sum()
    )
    # few rows are all placed: a bound would cost as much
    if length(table) <= FEW:
        yield table
        return
    again = best.choice.recompute
    shapes = nearest(job, rows, best.choice, space.scheme, again)
    shapes = shapes._replace(which=shapes.which[whose])
    yield from _strict(job, space, best, table, shapes, progress)


def _strict(
    job: Job,
    space: Space,
    best: Best,
    table: Table,
    shapes: Shapes,
    progress: Progress | None,
) -> Iterator[Table]:
    """Rows in growing rounds, shortest step by law first, bounded; of each round the best are
    placed at once, for a better limit, and what is left of all in the end. The first round takes
    the smallest microbatches, which fit soonest."""
    law = laws.law(job, table, best.choice, laws.layers(job, shapes))
    order = np.argsort(law, kind="stable")
    begin = 0
    size = FIRST
    small = table["microbatch"][order] == table["microbatch"].min()
    lead = np.flatnonzero(small)[:FIRST]
    order = np.concatenate([order[lead], np.delete(order, lead)])
    found: list[tuple[Table, Column]] = []
    while begin < len(order):
        if progress:
            progress("bounds", 0.0)
        some = order[begin : begin + size]
        some = some[law[some] <= min(best.limit, LARGEST)]
        rows = take(table, some)
        seconds = law[some]
        if len(some):
            seconds, _ = lower(
                job, space, best, rows, rows, shapes=shapes.rows(some)
            )
        first = np.argsort(seconds, kind="stable")[:PLACED_AT_ONCE]
        yield from tried(best, take(rows, first), seconds[first])
        rest = np.ones(len(some), dtype=bool)
        rest[first] = False
        found.append((keep(rows, rest), seconds[rest]))
        begin = begin + size
        size = size * GROWTH
    left = {k: np.concatenate([rows[k] for rows, _ in found]) for k in table}
    yield from best_first(
        best, left, np.concatenate([seconds for _, seconds in found]), progress
    )
