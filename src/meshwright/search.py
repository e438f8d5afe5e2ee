"""The fastest layouts of a space, exactly: brute force, and a cascade of bounds that skips what cannot win.

Both rank by (seconds, bytes, degrees), so ties are broken the same way. The cascade expands partly decided layouts, best bound first:

    shards (tp, cp, ep, microbatch) -> pipelines -> dp (relaxed: intervals of dp with one number of microbatches, halved) -> placements -> options

and drops at each level what is slower than the k-th best layout found so far, or cannot fit. Bounds are the step formulas themselves with
optimistic arguments (nearest groups, each term at its best option), so they hold whatever the formulas say, as long as a nearer group is never slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from . import memory
from .cost.network import Fabric
from .cost.layer import LayerCost
from .grid import Grid, Pieces, bodies, bound, exact, layouts, pieces
from .num import ceil_div
from .placement import Shares, finish, placements, spread
from .schedule import get as schedule_named
from .space import DEGREES, Column, Options, Space, Table, cross, fill, keep, length, options, pipelines, shards, take
from .spec.job import Job
from .spec.layout import AXES, Layout
from .step import Body, stages
from .step import shares as shares_of

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

    def count(self, p: Pieces, seconds: Grid) -> None:
        """Count the legal and the fitting points of a grid."""
        legal = int((np.isfinite(p.pipe) * np.isfinite(p.after).sum(axis=3, keepdims=True)[:, :, p.spread]).sum())
        fit = int(np.count_nonzero(seconds < np.inf))
        self.searched, self.feasible, self.too_big = self.searched + legal, self.feasible + fit, self.too_big + legal - fit

    def add(self, seconds: Grid, use: Grid, choice: Options, table: Table, shares: Shares) -> None:
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
        numbers = [np.array(n)[p] for n, p in zip(choice.numbers, place[:-1], strict=True)]
        values = [flat[good], use.ravel()[good], *columns, *numbers, *where]
        fresh = list(zip(*(x.tolist() for x in values), strict=True))
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
    return keep(table, _valid_mask(job, table, space))


def _valid_mask(job: Job, table: Table, space: Space) -> Any:
    fine = (table["tp"] * table["cp"] * table["dp"]) % (table["ep"] * table["etp"]) == 0
    return fine if space.dp is None else fine & np.isin(table["dp"], space.dp)


def _evaluate(job: Job, space: Space, best: Best, table: Table, relaxed: bool, count: bool = False) -> None:
    """Place the rows and put them on the grid; unless everything is counted, only rows and options whose bound allows it."""
    for start in range(0, length(table), BLOCK):
        rows, choice = take(table, np.arange(start, min(start + BLOCK, length(table)))), best.choice
        if not count:
            near = bound(pieces(optimist(job), rows, rows, None, choice, space.scheme), memory.capacity(job))
            rows, choice = keep(rows, near.seconds <= best.limit), choice.part(near.used(min(best.limit, np.finfo(float).max)))
            if not choice.count:
                continue
        placed, shares = finish(job, rows, relaxed) if "tp 0" in rows else placements(job, rows, space.placements, relaxed)
        for begin in range(0, length(placed), BLOCK):
            at = slice(begin, begin + BLOCK)
            _on_grid(job, space, best, choice, {k: c[at] for k, c in placed.items()}, {a: tuple(s[at] for s in shares[a]) for a in AXES}, count)


def _on_grid(job: Job, space: Space, best: Best, choice: Options, table: Table, shares: Shares, count: bool) -> None:
    """Evaluate a block of placed rows under the given options."""
    capacity, p = memory.capacity(job), pieces(job, table, table, shares, choice, space.scheme)
    if not count:
        alive = np.flatnonzero(bound(p, capacity).seconds <= best.limit)
        table, shares, p = take(table, alive), {a: tuple(s[alive] for s in shares[a]) for a in AXES}, p.rows(alive)
    for cut in range(0, length(table), SLICE):
        at = slice(cut, cut + SLICE)
        part = p.rows(at)
        seconds, use = exact(part, capacity)
        best.evaluated += seconds.size
        if count:
            best.count(part, seconds)
        best.add(seconds, use, choice, {k: c[at] for k, c in table.items()}, {a: tuple(s[at] for s in shares[a]) for a in AXES})


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
    """Rows worth placing, best bound first."""
    table = shards(job, space, relaxed)
    if relaxed:
        yield from _relaxed(job, space, best, table, progress)
        return
    table = fill(job, cross(table, pp=pipelines(job, space, relaxed)), space)
    best.searched = length(table) * best.choice.count
    yield from _best_first(best, table, lower(job, space, best, table, table)[0], progress)


def _best_first(best: Best, table: Table, seconds: Column, progress: Progress | None) -> Iterator[Table]:
    """Rows in growing rounds, smallest bound first, as long as one may enter the k best."""
    order = np.argsort(seconds, kind="stable")
    begin, size = 0, 32
    while begin < len(order):
        chosen = order[begin : begin + size]
        chosen = chosen[seconds[chosen] <= min(best.limit, np.finfo(float).max)]
        if not len(chosen):
            best.slower += (len(order) - begin) * best.choice.count
            return
        yield take(table, chosen)
        begin, size = begin + size, size * 4
        if progress:
            progress("layouts", min(begin / len(order), 1.0))


def optimist(job: Job) -> Job:
    """The job on a network where a nearer group is never slower."""
    network = replace(job.assumptions.network, tree_chains=False)
    return replace(job, assumptions=replace(job.assumptions, network=network))


def lower(job: Job, space: Space, best: Best, near: Table, far: Table, choice: Options | None = None) -> tuple[Column, Options]:
    """Bound of every row in seconds (nearest groups, best options among those that can fit), and the options that may stay within the limit.

    near, far: the same rows with the smallest and the largest dp they stand for; collectives are bound by the one, sharding by the other.
    """
    capacity, found, job = memory.capacity(job), np.empty(length(near)), optimist(job)
    choice = choice or best.choice
    used = [np.zeros(n, dtype=bool) for n in choice.shape]
    for start in range(0, length(near), BLOCK):
        at = np.arange(start, min(start + BLOCK, length(near)))
        a = take(near, at)
        b = bound(pieces(job, a, a if far is near else take(far, at), None, choice, space.scheme), capacity)
        found[at] = b.seconds
        used = [u | new for u, new in zip(used, b.used(min(best.limit, np.finfo(float).max)), strict=True)]
    return found, choice.part(used)


class Partly(NamedTuple):
    """Shards with a pipeline degree that may still win; dp is the largest possible."""

    table: Table
    each: Column
    """Bound of one microbatch on the slowest device, in seconds."""
    bubble: Column
    """Bound of the bubble of any schedule, in seconds."""


def pipelined(job: Job, space: Space, best: Best, table: Table, degrees: Column) -> Partly:
    """Every shard with every pipeline degree whose fewest microbatches, and smallest bubble, stay within the limit.

    Nearest groups, nothing recomputed, no memory limit.
    """
    easy, found = optimist(job), []
    folds = {k.folded: (k, float(k.chunks(1))) for k in (schedule_named(name) for name, _ in best.choice.schedules)}
    size = max(1, 8192 // len(degrees))
    for start in range(0, length(table), size):
        part = take(table, np.arange(start, min(start + size, length(table))))
        grid = {k: c[:, None] for k, c in part.items()} | {"pp": degrees[None, :]}
        dp = largest_dp(job, grid, space)
        pipes = Layout(pp=grid["pp"])
        staged = []
        for sp in best.choice.sequence_parallel:
            alone = part | {"pp": np.ones(length(part)), "dp": np.ones(length(part))}
            costs = _upright(bodies(easy, layouts(alone, None, job.cluster.sizes, space.scheme, sp)))
            staged += [(fold, stages(pipes, costs, "none", shares_of(easy, pipes, *folds[fold]))) for fold in folds]
        each = reduce(np.minimum, [s.forward + s.backward for _, s in staged])
        fewest = ceil_div(float(job.batch), np.maximum(dp, 1) * grid["microbatch"])
        rows, columns = np.nonzero((dp >= 1) & (fewest * each <= best.limit))
        here = take(part, rows) | {"pp": degrees[columns], "dp": dp[rows, columns]}
        bubble = _least_bubble(job, best.choice, here["pp"], [(fold, [x[rows, columns] for x in s[2:]]) for fold, s in staged])
        fine = fewest[rows, columns] * each[rows, columns] + bubble <= best.limit
        found.append((keep(here, fine), each[rows, columns][fine], bubble[fine]))
    tables, eaches, bubbles = zip(*found, strict=True)
    return Partly({k: np.concatenate([t[k] for t in tables]) for k in tables[0]}, np.concatenate(eaches), np.concatenate(bubbles))


def _least_bubble(job: Job, choice: Options, pp: Column, staged: list[tuple[bool, list[Column]]]) -> Column:
    """The smallest bubble of a schedule with enough layers; staged: (folded, [forward, backward, weight seconds of the other devices])."""
    least = np.full(len(pp), np.inf)
    for name, v in choice.schedules:
        kind = schedule_named(name)
        fits = kind.chunks(v) * pp <= job.model.layers
        for folded, (f, b, w) in staged:
            if folded == kind.folded:
                least = np.minimum(least, np.where(fits, kind.least_bubble(pp, float(v), f, b - w, w), np.inf))
    return least


def _upright(parts: Body) -> Body:
    """Columns as (rows, 1), to meet pipeline degrees as (1, degrees)."""

    def upright(x: Any) -> Any:
        if isinstance(x, LayerCost):
            return LayerCost(*(upright(y) for y in x))
        return x[:, None] if isinstance(x, np.ndarray) else x

    return Body(*(upright(part) for part in parts))


def _relaxed(job: Job, space: Space, best: Best, table: Table, progress: Progress | None) -> Iterator[Table]:
    """Any dp and pp: shards with pipelines, then intervals of dp with one number of microbatches, halved down to single values."""
    N, B = job.cluster.chips, float(job.batch)
    degrees = pipelines(job, space, True)
    best.searched = covered(job, table, degrees) * best.choice.count
    # all chips busy, nothing padded, no bubble: B/b microbatches through the whole model on tp cp of N chips each
    work = _whole_model(job, space, best, table) * B / table["microbatch"] * table["tp"] * table["cp"] / N
    yield from _first_guess(job, space, best, table, degrees, work)
    partly = pipelined(job, space, best, keep(table, work <= best.limit), degrees)
    if progress:
        progress("pipelines", 0.1)
    yield from _halve(job, space, best, *_intervals(job, partly, best.limit), progress)


def _whole_model(job: Job, space: Space, best: Best, table: Table) -> Column:
    """Bound of one microbatch through the whole model on one device of each shard, in seconds."""
    easy, found = optimist(job), np.full(length(table), np.inf)
    for start in range(0, length(table), BLOCK):
        at = slice(start, start + BLOCK)
        part = {k: c[at] for k, c in table.items()}
        part |= {"pp": np.ones(length(part)), "dp": np.ones(length(part))}
        for sp in best.choice.sequence_parallel:
            costs = bodies(easy, layouts(part, None, job.cluster.sizes, space.scheme, sp))
            whole = shares_of(easy, Layout(), schedule_named("1f1b"), 1.0)["whole"]
            found[at] = np.minimum(found[at], whole.of(costs, lambda c: c.forward + c.backward))
    return found


def _first_guess(job: Job, space: Space, best: Best, table: Table, degrees: Column, work: Column) -> Iterator[Table]:
    """Plain layouts with promise: microbatch and pp powers of two or divisors of the layers, the most replicas. They set the first limit."""
    plain = np.log2(table["microbatch"]) % 1 == 0
    promising = np.flatnonzero(plain)[np.argsort(work[plain], kind="stable")[:512]]
    rows = cross(take(table, promising), pp=degrees[(np.log2(degrees) % 1 == 0) | (job.model.layers % degrees == 0)])
    rows["dp"] = largest_dp(job, rows, space)
    rows["dp"] = rows["dp"] - (rows["tp"] * rows["cp"] * rows["dp"]) % (rows["ep"] * rows["etp"]) / (rows["tp"] * rows["cp"])
    rows = keep(rows, (rows["dp"] >= 1) & (rows["dp"] % 1 == 0))
    rows = _valid(job, rows, space)
    if length(rows):
        yield from _best_first(best, rows, lower(job, space, best, rows, rows)[0], None)


def covered(job: Job, table: Table, degrees: Column) -> int:
    """How many (degrees, dp) rows a relaxed table stands for."""
    total = 0.0
    for model_parallel, times in zip(*np.unique(table["tp"] * table["cp"] * 2.0**20 + table["microbatch"], return_counts=True), strict=True):
        ranks, micro = divmod(model_parallel, 2.0**20)
        total += times * np.minimum(np.floor(job.cluster.chips / (ranks * degrees)), job.batch // micro).sum()
    return int(total)


def _intervals(job: Job, partly: Partly, limit: float) -> tuple[Table, Table]:
    """The intervals of dp that give one number of microbatches m, for every m that stays within the limit: (smallest, largest)."""
    table, B = partly.table, float(job.batch)
    b = table["microbatch"]
    fewest = ceil_div(B, table["dp"] * b)
    most = np.minimum(np.floor((limit - partly.bubble) / partly.each), ceil_div(B, b))
    counts = np.maximum(most - fewest + 1, 0).astype(np.int64)
    index = np.repeat(np.arange(len(counts)), counts)
    m = fewest[index] + (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    rows = take(table, index)
    low = ceil_div(B, m * rows["microbatch"])
    below = ceil_div(B, np.maximum(m - 1, 1) * rows["microbatch"]) - 1  # the last dp that still needs m microbatches
    high = np.minimum(np.where(m > 1, below, rows["dp"]), rows["dp"])
    fine = low <= high
    return keep(rows | {"dp": low}, fine), keep(rows | {"dp": high}, fine)


def _halve(job: Job, space: Space, best: Best, low: Table, high: Table, progress: Progress | None) -> Iterator[Table]:
    """Bound intervals of dp, place what is left of them, halve them; single values wait until the limit has settled."""
    waiting, bounds, placed, choice = None, np.zeros(0), not space.placements, best.choice
    while length(low) and choice.count:
        if space.dp is not None:
            allowed = np.sort(space.dp)
            fine = np.searchsorted(allowed, low["dp"]) < np.searchsorted(allowed, high["dp"], side="right")
            low, high = keep(low, fine), keep(high, fine)
        seconds, choice = lower(job, space, best, low, high, choice)
        single, valid = low["dp"] == high["dp"], _valid_mask(job, low, space)
        if length(low) > 1000:
            promising = np.argsort(seconds, kind="stable")[:64]
            yield take(low, promising[valid[promising]])  # their smallest dp, for a better limit
        alive = seconds <= best.limit
        if not placed:
            low, high = spread(job, keep(low, alive), True), spread(job, keep(high, alive), True)
            placed = True
            continue
        ready = single & valid & alive
        waiting = keep(low, ready) if waiting is None else _stack(waiting, keep(low, ready))
        bounds = np.concatenate([bounds, seconds[ready]])
        low, high = keep(low, alive & ~single), keep(high, alive & ~single)
        middle = np.floor((low["dp"] + high["dp"]) / 2)
        low, high = _stack(low, low | {"dp": middle + 1}), _stack(high | {"dp": middle}, high)
    if waiting is not None:
        yield from _best_first(best, waiting, bounds, progress)


def _stack(a: Table, b: Table) -> Table:
    """The rows of both."""
    return {k: np.concatenate([a[k], b[k]]) for k in a}


__all__ = ["Best", "brute", "search"]
