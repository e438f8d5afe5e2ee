"""The fastest layouts of a space, exactly: brute force, and a cascade of bounds that skips what cannot win.

Both rank by (seconds, bytes, degrees), so ties are broken the same way. The cascade expands partly decided layouts, best bound first:

    shards (tp, cp, ep, microbatch) -> pipelines -> dp (relaxed: intervals of dp with one number of microbatches, halved) -> placements -> options

and drops at each level what is slower than the k-th best layout found so far, or cannot fit. Bounds are the step formulas themselves with
optimistic arguments (nearest groups, each term at its best option), so they hold whatever the formulas say, as long as a nearer group is never slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import memory
from .cost.network import Fabric
from .grid import Grid, Pieces, bound, exact, pieces
from .num import ceil_div
from .placement import Shares, placements
from .space import DEGREES, Column, Options, Space, Table, cross, fill, keep, length, options, pipelines, shards, take
from .spec.job import Job
from .spec.layout import AXES, Layout

BLOCK = 4096
"""Rows whose terms are computed at once."""
SLICE = 256
"""Rows put on the full grid at once: few enough that its arrays stay in cache."""
Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done."""


@dataclass
class Best:
    """The best k layouts so far, and counts of what was looked at."""

    k: int
    choice: Options
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """(seconds, bytes, degrees..., option numbers..., placement...), sorted."""
    searched: int = 0
    feasible: int = 0
    evaluated: int = 0
    slower: int = 0
    too_big: int = 0

    @property
    def limit(self) -> float:
        """Seconds that a newcomer must not exceed."""
        return float(self.rows[-1][0]) if len(self.rows) >= self.k else np.inf

    def add(self, seconds: Grid, use: Grid, table: Table, shares: dict[str, tuple[Column, ...]]) -> None:
        """Merge a grid of layouts; only those within the limit are touched."""
        flat = seconds.ravel()
        good = np.flatnonzero(flat <= min(self.limit, np.finfo(float).max))
        if len(good) > 4 * self.k:
            cut = np.partition(flat[good], self.k - 1)[self.k - 1]
            good = good[flat[good] <= cut]
        if not len(good):
            return
        place = np.unravel_index(good, seconds.shape)
        row = place[-1]
        columns = [table[d][row] for d in DEGREES]
        where = [share[row] for axis in AXES for share in shares[axis]]
        fresh = list(zip(flat[good].tolist(), use.ravel()[good].tolist(), *(c.tolist() for c in columns), *(p.tolist() for p in place[:-1]), *(w.tolist() for w in where), strict=True))  # fmt: skip
        self.rows = sorted({*self.rows, *fresh})[: self.k]

    def layouts(self, scheme: str, dims: int) -> list[Layout]:
        """The layouts found, best first."""
        found = []
        for row in self.rows:
            degrees = dict(zip(DEGREES, (int(x) for x in row[2 : 2 + len(DEGREES)]), strict=True))
            sp, rec, sched, zero = row[2 + len(DEGREES) : 6 + len(DEGREES)]
            where = row[6 + len(DEGREES) :]
            shares = {a: tuple(int(x) for x in where[i * dims : (i + 1) * dims]) for i, a in enumerate(AXES)}
            name, v = self.choice.schedules[sched]
            found.append(
                Layout(**degrees, interleave=v, schedule=name, zero=self.choice.zero[zero], recompute=self.choice.recompute[rec],
                       sequence_parallel=self.choice.sequence_parallel[sp], scheme=scheme, placement=shares)
            )  # fmt: skip
        return found


def brute(job: Job, space: Space, k: int = 10, relaxed: bool = False) -> Best:
    """Every grid point of the space, evaluated: the oracle of the cascade, exact counts, heat maps."""
    best = Best(k, options(job, space))
    for table in _everything(job, space, relaxed):
        _evaluate(job, space, best, table, relaxed, count=True)
    return best


def _everything(job: Job, space: Space, relaxed: bool) -> Iterator[Table]:
    table = cross(shards(job, space, relaxed), pp=pipelines(job, space, relaxed))
    if not relaxed:
        yield fill(job, table, space)
        return
    table = keep(table, table["tp"] * table["cp"] * table["pp"] <= job.cluster.chips)
    for start in range(0, length(table), BLOCK):
        part = take(table, np.arange(start, min(start + BLOCK, length(table))))
        most = largest_dp(job, part, space)
        yield _valid(job, _each_dp(part, np.ones_like(most), most), space)


def largest_dp(job: Job, table: Table, space: Space) -> Column:
    """The most replicas a row has chips and sequences for."""
    most = np.floor(job.cluster.chips / (table["tp"] * table["cp"] * table["pp"]))
    return np.minimum(most, np.floor(job.batch / table["microbatch"]))


def _each_dp(table: Table, low: Column, high: Column) -> Table:
    """A row for every dp from low to high."""
    counts = np.maximum(high - low + 1, 0).astype(np.int64)
    index = np.repeat(np.arange(len(counts)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return take(table, index) | {"dp": low[index] + offset}


def _valid(job: Job, table: Table, space: Space) -> Table:
    """Relaxed rows whose experts have whole groups and whose dp is allowed."""
    fine = (table["tp"] * table["cp"] * table["dp"]) % (table["ep"] * table["etp"]) == 0
    return keep(table, fine if space.dp is None else fine & np.isin(table["dp"], space.dp))


def _evaluate(job: Job, space: Space, best: Best, table: Table, relaxed: bool, count: bool = False) -> None:
    """Place the rows, bound them where that can help, evaluate what is left on the whole grid."""
    capacity = memory.capacity(job)
    for start in range(0, length(table), 4 * BLOCK):
        part, shares = placements(job, take(table, np.arange(start, min(start + 4 * BLOCK, length(table)))), space.placements, relaxed)
        for begin in range(0, length(part), BLOCK):
            at = np.arange(begin, min(begin + BLOCK, length(part)))
            here, there = take(part, at), {a: tuple(s[at] for s in shares[a]) for a in AXES}
            p = pieces(job, here, here, there, best.choice, space.scheme)
            if not count:
                seconds, _ = bound(p, capacity)
                alive = np.flatnonzero(seconds <= best.limit)
                best.slower += (len(at) - len(alive)) * best.choice.count
                if not len(alive):
                    continue
                here, there, p = take(here, alive), {a: tuple(s[alive] for s in there[a]) for a in AXES}, p.rows(alive)
            for cut in range(0, length(here), SLICE):
                rows = slice(cut, cut + SLICE)
                _score(p.rows(rows), capacity, best, {k: c[rows] for k, c in here.items()}, {a: tuple(s[rows] for s in there[a]) for a in AXES}, count)


def _score(p: Pieces, capacity: float, best: Best, table: Table, shares: Shares, count: bool) -> None:
    """Evaluate a slice of rows on the whole grid and keep the best of it."""
    seconds, use = exact(p, capacity)
    best.evaluated += seconds.size
    if count:
        legal = int((np.isfinite(p.pipe) * np.isfinite(p.after).sum(axis=3, keepdims=True)[:, :, p.spread]).sum())
        fit = int(np.count_nonzero(seconds < np.inf))
        best.searched, best.feasible, best.too_big = best.searched + legal, best.feasible + fit, best.too_big + legal - fit
    best.add(seconds, use, table, shares)


def search(job: Job, space: Space, k: int = 10, relaxed: bool = False, progress: Progress | None = None) -> Best:
    """The k best layouts of the space, exactly, without evaluating all of them.

    Falls back on brute force for networks on which a nearer group may be slower (their bounds would not hold).
    """
    if not Fabric.of(job.cluster.network, job.assumptions.network).nearer_is_faster:
        return brute(job, space, k, relaxed)
    best = Best(k, options(job, space))
    for table in _rounds(job, space, best, relaxed, progress):
        _evaluate(job, space, best, table, relaxed)
    return best


def _rounds(job: Job, space: Space, best: Best, relaxed: bool, progress: Progress | None) -> Iterator[Table]:
    """Rows worth placing, best bound first, in growing rounds."""
    table = cross(shards(job, space, relaxed), pp=pipelines(job, space, relaxed))
    if relaxed:
        yield from _relaxed_rounds(job, space, best, table, progress)
        return
    table = fill(job, table, space)
    best.searched = length(table) * best.choice.count
    if not length(table):
        return
    seconds = lower(job, space, best, table, table)
    order = np.argsort(seconds, kind="stable")
    begin, size = 0, 16
    while begin < len(order):
        chosen = order[begin : begin + size]
        chosen = chosen[seconds[chosen] <= min(best.limit, np.finfo(float).max)]
        if not len(chosen):
            best.slower += (len(order) - begin) * best.choice.count
            return
        yield take(table, chosen)
        begin, size = begin + size, size * 2
        if progress:
            progress("layouts", begin / len(order))


def lower(job: Job, space: Space, best: Best, near: Table, far: Table) -> Column:
    """Bound of every row in seconds: nearest groups, best options that can fit."""
    capacity, found = memory.capacity(job), np.empty(length(near))
    for start in range(0, length(near), 4 * BLOCK):
        at = np.arange(start, min(start + 4 * BLOCK, length(near)))
        a = take(near, at)
        p = pieces(job, a, a if far is near else take(far, at), None, best.choice, space.scheme)
        found[at] = bound(p, capacity)[0]
    return found


def _relaxed_rounds(job: Job, space: Space, best: Best, table: Table, progress: Progress | None) -> Iterator[Table]:
    raise NotImplementedError


__all__ = ["Best", "brute", "search", "ceil_div"]
