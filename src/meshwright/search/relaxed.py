"""Relaxed spaces: any dp and pp, a padded last microbatch, idle chips. Too many layouts to list, so partly decided ones are bounded first:

shards (tp, cp, ep, microbatch) -> pipelines -> intervals of dp with one number of microbatches -> placements -> halves of the intervals
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import cut
from ..num import ceil_div
from ..schedule import get as schedule_named
from ..step import Body, Stages, barrier, leading_layers, least_idle, room, stages
from .best import Best
from .evaluate import BLOCK, LARGEST, Progress, best_first, bound_clock, dp_step, largest_dp, lower, valid
from .grid import Deal, Kind, deals, fullest, holders_of, kinds, pieces
from .nearest import bodies, layouts, pick
from .pieces import bound
from .placement import spread
from .space import PLACED, Column, Options, Space, Table, cross, keep, length, pipelines, take

FIRST = 2048
"""Shards that set the first limit."""
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
    bubbles: dict[str, Column]
    """Bound of the bubble of each schedule, in seconds, whatever the number of microbatches."""


def _alone(job: Job, table: Table, space: Space) -> Table:
    """Shards without pipeline, with the most replicas: nothing makes a microbatch cheaper (fewest add up gradients)."""
    alone = table | {"pp": np.ones(length(table))}
    return alone | {"dp": np.maximum(largest_dp(job, alone, space), 1.0)}


def pipelined(job: Job, space: Space, best: Best, table: Table, degrees: Column) -> Partly:
    """Every shard with every pipeline degree whose fewest microbatches, and smallest bubble, stay within the limit.

    Nearest groups, nothing recomputed, no memory limit.
    """
    at, found = bound_clock(job), []
    every_deal = sorted({*deals(job, best.choice)})
    for start in range(0, length(table), CROSSED):
        part = take(table, np.arange(start, min(start + CROSSED, length(table))))
        alone = _alone(job, part, space)
        ways = [layouts(alone, None, job.cluster.sizes, space.scheme, sp) for sp in best.choice.sequence_parallel]
        costs, which = bodies(job, ways, at)
        costs = [pick(c, which) for c in costs]
        rows, here, fewest = _worth_it(job, space, best, part, degrees, costs)
        pipes = Layout(pp=here["pp"])
        staged = [
            (deal, stages(pipes, pick(c, rows), "none", holders_of(job, pipes, deal)))
            for c in costs
            for deal in every_deal
        ]
        each = reduce(np.minimum, [s.forward + s.backward for _, s in staged])
        bubbles = _least_bubbles(job, best.choice, here["pp"], staged)
        fine = fewest * each + reduce(np.minimum, bubbles.values()) <= min(best.limit, LARGEST)
        found.append((keep(here, fine), each[fine], keep(bubbles, fine)))
    tables, eaches, bubbled = zip(*found, strict=True)
    return Partly(reduce(_stack, tables), np.concatenate(eaches), reduce(_stack, bubbled))


def _worth_it(
    job: Job, space: Space, best: Best, part: Table, degrees: Column, costs: list[Body]
) -> tuple[NDArray[np.intp], Table, Column]:
    """Shards x pipelines that no simple law rules out: (shard of each row, rows, fewest microbatches).

    A device has ceil(L/pp) layers to do m times; and the last that has so many waits until a microbatch has come through
    the stages before. (Not if the next step may begin meanwhile.)
    """
    typical = [c.typical for c in costs]
    forward = np.reshape(reduce(np.minimum, [t.forward for t in typical]), (-1, 1))
    both = np.reshape(reduce(np.minimum, [t.forward + t.backward for t in typical]), (-1, 1))
    before = reduce(np.minimum, [_before(job, kind, degrees) for kind in kinds(best.choice)])
    grid = {k: c[:, None] for k, c in part.items()} | {"pp": degrees[None, :]}
    dp = largest_dp(job, grid, space)
    m = _ceil_div(float(job.batch), np.maximum(dp, 1) * grid["microbatch"])
    once = both * fullest(job, degrees)
    rows, columns = np.nonzero((dp >= 1) & (m * once + forward * before <= best.limit))
    return rows, take(part, rows) | {"pp": degrees[columns], "dp": dp[rows, columns]}, m[rows, columns]


def _before(job: Job, kind: Kind, pp: Column) -> Column:
    """Typical layers that a microbatch passes, at least, before it reaches the fullest device."""
    if leading_layers(job) or (not barrier(job) and kind.schedule.bubble_in_run is not None):
        return np.zeros(len(pp))
    layers = cut(job, pp, kind.schedule, kind.v)
    return np.where(kind.even(job, pp), layers.layers(0.0, layers.fuller), np.inf)


def _least_bubbles(job: Job, choice: Options, pp: Column, staged: list[tuple[Deal, Stages]]) -> dict[str, Column]:
    """What each schedule takes beyond the slowest device's work at least, with any of its numbers of chunks.

    staged: (how layers are dealt, one microbatch).
    """
    every = kinds(choice)
    least = {kind.schedule.name: np.full(len(pp), np.inf) for kind in every}
    for kind, deal in zip(every, deals(job, choice), strict=True):
        rows, name = np.flatnonzero(kind.even(job, pp)), kind.schedule.name
        for other, s in staged:
            if other == deal:
                idle = least_idle(job, pp[rows], pick(s, rows), kind.schedule, kind.v)
                least[name][rows] = np.minimum(least[name][rows], idle)
    return least


def relaxed_rounds(job: Job, space: Space, best: Best, table: Table, progress: Progress | None) -> Iterator[Table]:
    """Any dp and pp: shards with pipelines, then intervals of dp with one number of microbatches, halved down to single values."""
    N, B = job.cluster.chips, float(job.batch)
    degrees = pipelines(job, space, True)
    # all chips busy, nothing padded, no bubble: B/b microbatches through the whole model on tp cp of N chips each
    work = _whole_model(job, space, best, table) * B / table["microbatch"] * table["tp"] * table["cp"] / N
    yield from _first_guess(job, space, best, table, degrees, work)
    partly = pipelined(job, space, best, keep(table, work <= best.limit), degrees)
    if not best.rows:  # no limit yet: at least leave out what cannot fit even with the most replicas
        partly = _fitting(job, space, best, partly)
    if progress:
        progress("pipelines", 0.1)
    yield from _halve(job, space, best, *_intervals(job, space, best, partly), progress)


def _fitting(job: Job, space: Space, best: Best, partly: Partly) -> Partly:
    """Rows that may fit. More replicas need less memory: states are cut finer, and fewer microbatches are in flight; only the fewest
    may need less, because what has one replica is not gathered or scattered."""
    capacity, alive = room.limit(job), np.zeros(length(partly.table), dtype=bool)
    for start in range(0, len(alive), BLOCK):
        part = take(partly.table, np.arange(start, min(start + BLOCK, len(alive))))
        for some in (part, part | {"dp": dp_step(part)}):
            p = pieces(
                job, bound_clock(job), some, dict(some), None, best.choice, space.scheme
            )  # a bound, not a layout
            alive[start : start + BLOCK] |= bound(p, capacity).bytes <= capacity
    return Partly(keep(partly.table, alive), partly.each[alive], keep(partly.bubbles, alive))


def _whole_model(job: Job, space: Space, best: Best, table: Table) -> Column:
    """Bound of one microbatch through the whole model on one device of each shard, in seconds."""
    at, found = bound_clock(job), np.full(length(table), np.inf)
    whole = holders_of(job, Layout(), (False, 1.0))["whole"]
    for start in range(0, length(table), BLOCK):
        rows = slice(start, start + BLOCK)
        part = _alone(job, {k: c[rows] for k, c in table.items()}, space)
        ways = [layouts(part, None, job.cluster.sizes, space.scheme, sp) for sp in best.choice.sequence_parallel]
        costs, which = bodies(job, ways, at)
        for cost in costs:
            found[rows] = np.minimum(found[rows], whole.of(cost, lambda c: c.forward + c.backward)[which])
    return found


def _first_guess(job: Job, space: Space, best: Best, table: Table, degrees: Column, work: Column) -> Iterator[Table]:
    """Plain layouts with promise: microbatch and pp powers of two or divisors of the layers, the most replicas. They set the first limit."""
    plain = np.log2(table["microbatch"]) % 1 == 0
    promising = np.flatnonzero(plain)[np.argsort(work[plain], kind="stable")[:FIRST]]
    rows = cross(take(table, promising), pp=degrees[(np.log2(degrees) % 1 == 0) | (job.model.layers % degrees == 0)])
    rows["dp"] = largest_dp(job, rows, space)
    rows = keep(rows, rows["dp"] >= 1)
    rows = keep(rows, valid(job, rows, space))
    if length(rows):
        yield from best_first(best, rows, lower(job, space, best, rows, rows)[0], None)


def covered(job: Job, table: Table, degrees: Column) -> int:
    """How many (degrees, dp) rows a relaxed table stands for."""
    total = 0.0
    for model_parallel, times in zip(
        *np.unique(table["tp"] * table["cp"] * 2.0**20 + table["microbatch"], return_counts=True), strict=True
    ):
        ranks, micro = divmod(model_parallel, 2.0**20)
        total += times * np.minimum(np.floor(job.cluster.chips / (ranks * degrees)), job.batch // micro).sum()
    return int(total)


def _intervals(job: Job, space: Space, best: Best, partly: Partly) -> tuple[Table, Table]:
    """The intervals of dp that give one number of microbatches m, for every m that stays within the limit: (smallest, largest)."""
    table, each, B, limit = partly.table, partly.each, float(job.batch), best.limit
    fewest = _ceil_div(B, table["dp"] * table["microbatch"])
    most = np.floor((limit - reduce(np.minimum, partly.bubbles.values())) / each)
    most = np.minimum(most, _ceil_div(B, table["microbatch"]))
    counts = np.maximum(most - fewest + 1, 0).astype(np.int64)
    index = np.repeat(np.arange(len(counts)), counts)
    m = fewest[index] + (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    fine, pp, busy = np.zeros(len(m), dtype=bool), table["pp"][index], m * each[index]
    for name, v in {k.schedule.name: k.v for k in kinds(best.choice)}.items():
        fine |= (busy + partly.bubbles[name][index] <= limit) & schedule_named(name).legal(pp, m, v)
    rows, m = take(table, index[fine]), m[fine]
    low = _ceil_div(B, m * rows["microbatch"])
    below = _ceil_div(B, np.maximum(m - 1, 1) * rows["microbatch"]) - 1  # the last dp that still needs m microbatches
    high = np.minimum(np.where(m > 1, below, rows["dp"]), rows["dp"])
    step = dp_step(rows)
    low, high = _ceil_div(low, step) * step, np.floor(high / step) * step
    fine = low <= high
    return keep(rows | {"dp": low}, fine), keep(rows | {"dp": high}, fine)


def _halve(job: Job, space: Space, best: Best, low: Table, high: Table, progress: Progress | None) -> Iterator[Table]:
    """Bound intervals of dp, place what is left of them, halve them; single values wait until the limit has settled."""
    waiting, bounds, choice = None, np.zeros(0), best.choice
    unplaced = list(PLACED) if space.placements and len(job.cluster.sizes) > 1 else []
    while length(low) and choice.count:
        if (only := space.values("dp")) is not None:
            allowed = np.sort(only)
            fine = np.searchsorted(allowed, low["dp"]) < np.searchsorted(allowed, high["dp"], side="right")
            low, high = keep(low, fine), keep(high, fine)
        seconds, choice = lower(job, space, best, low, high, choice)
        single, runs = low["dp"] == high["dp"], valid(job, low, space)
        if length(low) > 1000:
            promising = np.argsort(seconds, kind="stable")[:64]
            yield take(low, promising[runs[promising]])  # their smallest dp, for a better limit
        alive = seconds <= best.limit
        if unplaced:
            axis = unplaced.pop(0)
            low, high = (spread(job, keep(rows, alive), True, [axis]) for rows in (low, high))
            continue
        ready = single & runs & alive
        waiting = keep(low, ready) if waiting is None else _stack(waiting, keep(low, ready))
        bounds = np.concatenate([bounds, seconds[ready]])
        low, high = keep(low, alive & ~single), keep(high, alive & ~single)
        step = dp_step(low)
        middle = low["dp"] + np.floor((high["dp"] - low["dp"]) / (2 * step)) * step
        low, high = _stack(low, low | {"dp": middle + step}), _stack(high | {"dp": middle}, high)
    if waiting is not None:
        yield from best_first(best, waiting, bounds, progress)


def _stack(a: Table, b: Table) -> Table:
    """The rows of both."""
    return {k: np.concatenate([a[k], b[k]]) for k in a}
