"""The k fastest layouts of a space, exactly, without evaluating all of them.

Partly decided layouts are expanded best bound first, and dropped when they are slower than the k-th best layout found so far or cannot fit.
Bounds are the step formulas themselves with optimistic arguments (collectives at their `floor`, each term at its best option), so they hold
whatever the formulas say, on every network. Ranking is by (seconds, bytes, degrees, options, placement), as in brute force.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..describe.job import Job
from .best import Best
from .evaluate import LARGEST, Progress, best_first, evaluate, lower
from .grid import legal_options
from .placement import count
from .relaxed import covered, relaxed_rounds
from .space import Space, Table, cross, fill, keep, length, options, pipelines, shards, take

FIRST = 64
"""Rows with the smallest bounds, evaluated before all others are bounded with their synchronisation."""


def search(
    job: Job, space: Space, k: int = 10, relaxed: bool = False, progress: Progress | None = None, within: float = np.inf
) -> Best:
    """The k best layouts of the space (that take at most `within` seconds), exactly, without evaluating all of them."""
    best = Best(k, options(job, space), within)
    for table in _rounds(job, space, best, relaxed, progress):
        evaluate(job, space, best, table, relaxed)
    return best


def _rounds(job: Job, space: Space, best: Best, relaxed: bool, progress: Progress | None) -> Iterator[Table]:
    """Rows worth placing, best bound first."""
    table = shards(job, space, relaxed)
    degrees = pipelines(job, space, relaxed)
    if not length(table) or not len(degrees):
        return
    if relaxed:
        best.searched = covered(job, table, degrees) * best.choice.count
        yield from relaxed_rounds(job, space, best, table, progress)
        return
    table = fill(job, cross(table, pp=degrees), space)
    best.searched = int(
        (legal_options(job, table, best.choice, space.scheme) * (count(job, table) if space.placements else 1.0)).sum()
    )
    quick = lower(job, space, best, table, table, quick=True)[0]
    yield take(table, np.argsort(quick, kind="stable")[:FIRST])  # they set the first limit
    table = keep(table, quick <= min(best.limit, LARGEST))
    yield from best_first(best, table, lower(job, space, best, table, table)[0], progress)
