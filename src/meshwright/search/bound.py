"""What no layout of a row undercuts, before its ranks have their place: by its layers alone, cheap
enough for every combination of degrees, and by the step itself with optimistic arguments.

By layers: a device computes its layers for every microbatch, and waits as its schedule does where
there is nothing but layers. That is a path of the order with shorter passes, so no step takes less.
By the step: every group as near as if it had the network to itself; of an interval of dp the fewest
ranks in collectives, the most in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .. import step
from ..describe.job import Job
from ..describe.layers import totals
from ..layout.stages import partition
from ..num import ceil_div
from ..schedule.schedule import Schedule
from ..schedule.stage_costs import Pass, StageCosts
from ..step import room
from ..step.pipeline import MANY
from .best import Best
from .degrees import BLOCK, chunked, dp_step, fewest, pipelines, replicas
from .evaluate import Ways
from .kinds import kinds
from .legal import possible
from .nearest import bodies, bound_clock, each_way
from .options import Options
from .points import Alive, Rows, points
from .space import Space
from .table import Column, Grid, Index, Table, keep, length, stack, take

CROSSED = 2048
"""Shards that are crossed with all pipeline degrees at once."""
NEVER = 1e100
"""Seconds longer than any step: of a schedule that cannot run."""
NEAR = 1e-3
"""Of a share of F, I or W: the step over which a slope is taken."""
NEARLY_NONE = 1e-9
"""Of a slope: more than a difference over a short step loses to rounding."""
ROUNDED = 1.0 - 1e-12
"""A sum in another order is no longer than what it bounds."""
Limits = Callable[[Table], Any]
"""Seconds that each row of a table must not exceed."""


def least_layers(costs: list[step.Body]) -> Grid:
    """(F, I, W, the whole of every kind; row) seconds of a layer at least, under the setting of
    sequence parallelism that takes least; F, I and W are of the kinds that take least.
    """
    passes = zip(
        *(
            (c.forward, c.backward - c.weight_pass, c.weight_pass)
            for cost in costs
            for c in cost.layers
        ),
        strict=True,
    )
    wholes = zip(
        *([c.forward + c.backward for c in cost.layers] for cost in costs),
        strict=True,
    )
    least = [reduce(np.minimum, each) for each in (*passes, *wholes)]
    return np.array(np.broadcast_arrays(*least))


def least_wait(
    job: Job, pp: Column, chunks: Column, schedule: Schedule, share: Column
) -> Column:
    """Seconds that pipelines wait at least (`step.least_idle`) where a layer takes one second, of
    which F, I and W have at least `share` each (3 numbers, not above 1 in sum) and nobody says who
    has the rest.

    A wait is a maximum of sums of passes, some of them subtracted: convex, and twice as long where
    all passes are. So no wait is below a tangent, c . (F, I, W), and no tangent has a coefficient
    below the slope towards less of one pass. A sum of waits of F, I and W alone would be above.
    """
    middle = 0.9 * share / share.sum() + 0.1 / 3  # none of them nothing
    at = np.stack([middle, *(middle - NEAR * np.diag(middle))], axis=1)
    each = Pass(*at)
    p, v = pp[:, None], chunks[:, None]
    full = np.asarray(ceil_div(float(job.model.layers), p))
    none = Pass(0.0, 0.0, 0.0)  # of embedding and head
    cut = partition(job, p, schedule, v)
    stages = StageCosts(cut, each, none, none, (), send=0.0)
    busy = schedule.rounds(MANY) * (full * each.f + full * each.b)
    waits = np.broadcast_to(
        step.least_idle(job, schedule, (p, MANY, v), stages, busy),
        (len(pp), 4),
    )
    slopes = (waits[:, :1] - waits[:, 1:]) / (NEAR * middle)
    rest = max(1.0 - share.sum(), 0.0)
    least = (slopes * share).sum(axis=1) + rest * slopes.min(axis=1)
    inexact = NEARLY_NONE * np.abs(slopes).max(axis=1)
    return np.asarray(np.maximum(least - inexact, 0.0))


class Law(NamedTuple):
    """What pipelines take at least by layers alone."""

    kinds: Grid
    """(kind, pipeline) layers of each kind that some device holds at least, however dealt."""
    mean: Grid
    """(kind, pipeline) layers of each kind on a device on average."""
    every: Column
    """All layers on some device at least."""
    waits: Column
    """Of the schedule that waits least, in seconds of a layer."""

    @classmethod
    def of(cls, job: Job, choice: Options, degrees: Table, least: Grid) -> Law:
        """degrees: pipelines with so many chunks;  least: `least_layers`. Waits are counted once
        for each pipeline: what they are at least, whatever share F, I and W have in a row.
        """
        pp, chunks = degrees["pp"], degrees["interleave"]
        share = (least[:3] / least[:3].sum(axis=0)).min(axis=1)
        waits = np.full(len(pp), NEVER)
        for kind in kinds(choice):
            rows = np.flatnonzero(kind.filled(job, pp, chunks))
            idle = np.zeros(len(rows))
            # papers' bubbles are no paths of the order
            if step.by_order(job):
                idle = least_wait(
                    job, pp[rows], chunks[rows], kind.schedule, share
                )
            waits[rows] = np.minimum(waits[rows], idle)
        count = np.array([*totals(job.model), job.model.layers], dtype=float)
        # copies of a stage share its microbatches out among them
        stages = pp / choice.copies
        fullest = np.asarray(ceil_div(count[:, None], stages)) / choice.copies
        mean = count[:-1, None] * ROUNDED / pp
        return cls(fullest[:-1], mean, fullest[-1], waits)

    def rows(self, index: Index) -> Law:
        """Of some pipelines, or of that of each row."""
        return Law(*(each[..., index] for each in self))

    def seconds(self, layers: Grid, m: Column) -> Column:
        """A step of m microbatches takes at least."""
        one = layers[3:]
        busy = np.maximum(
            (self.kinds * one).max(axis=0), (self.mean * one).sum(axis=0)
        )
        every = (m * self.every + self.waits) * layers[:3].sum(axis=0)
        return np.asarray(np.maximum(m * busy, every))


@dataclass(frozen=True)
class Candidates:
    """Shards and pipelines of a space, with what layers alone say of both."""

    job: Job
    space: Space
    relaxed: bool
    choice: Options
    shards: Table
    layers: Grid
    """`least_layers` of the shards."""
    degrees: Table
    law: Law
    """Of these pipelines."""

    @classmethod
    def of(
        cls,
        job: Job,
        space: Space,
        choice: Options,
        shards: Table,
        relaxed: bool,
    ) -> Candidates:
        """Of these shards with all pipelines of the space. Nothing makes a microbatch cheaper than
        no pipeline, the most replicas (the fewest add up gradients), every group nearest and
        nothing computed again.
        """
        one = np.ones(length(shards))
        shards = shards | {"shard": np.arange(float(len(one)))}
        alone = shards | {"pp": one, "interleave": one}
        most = np.maximum(replicas(job, alone, space, relaxed=True), 1.0)
        ways = each_way(
            alone | {"dp": most},
            None,
            job.cluster.sizes,
            space.scheme,
            choice.sequence_parallel,
        )
        costs, which = bodies(job, ways, bound_clock(job))
        layers = least_layers(costs)[:, which]
        degrees = pipelines(job, space, relaxed)
        law = Law.of(job, choice, degrees, layers)
        return cls(job, space, relaxed, choice, shards, layers, degrees, law)

    def crossed(
        self, over: Limits, small: bool
    ) -> Iterator[tuple[Table, Column]]:
        """(rows with their most replicas, seconds that they take at least), within limits;
        small: only the smallest microbatches.
        """
        job, degrees = self.job, self.degrees
        pp, first = np.unique(degrees["pp"], return_index=True)
        plain = Law(
            self.law.kinds[:, None, first],
            self.law.mean[:, None, first],
            self.law.every[first],
            np.minimum.reduceat(self.law.waits, first),
        )
        micro = self.shards["microbatch"]
        which = np.flatnonzero((micro == micro.min()) | (not small))
        for start in range(0, len(which), CROSSED):
            at = which[start : start + CROSSED]
            part, layers = take(self.shards, at), self.layers[:, at]
            grid = {k: c[:, None] for k, c in part.items()} | {"pp": pp}
            dp = replicas(job, grid, self.space, self.relaxed)
            m = fewest(job, grid | {"dp": dp})
            seconds = plain.seconds(layers[..., None], m)
            row, of = np.nonzero((dp >= 1) & (seconds <= over(grid)))
            again, pipe = chunked(pp[of], degrees)
            row, of = row[again], of[again]
            rows = take(part, row) | {"dp": dp[row, of]}
            rows |= {k: c[pipe] for k, c in degrees.items()}
            rows["pipe"] = pipe.astype(np.float64)
            law = self.law.rows(pipe)
            seconds = law.seconds(layers[:, row], m[row, of])
            fine = seconds <= over(rows)
            if self.relaxed:
                scheme = self.space.scheme
                fine &= possible(job, rows, self.choice, scheme)
            yield keep(rows, fine), seconds[fine]

    def rows(self, over: Limits, small: bool = False) -> tuple[Table, Column]:
        """(rows with their most replicas, seconds that they take at least), within limits."""
        tables, seconds = zip(*self.crossed(over, small), strict=True)
        return stack(*tables), np.concatenate(seconds)

    def intervals(self, best: Best) -> tuple[Table, Table, Column]:
        """The intervals of dp that give one number of microbatches m, for every m within the
        limits: (smallest, largest, seconds that a step takes at least).
        """
        found = [
            self._intervals(best, rows)
            for rows, _ in self.crossed(best.over, False)
        ]
        low, high, seconds = zip(*found, strict=True)
        return stack(*low), stack(*high), np.concatenate(seconds)

    def _intervals(
        self, best: Best, table: Table
    ) -> tuple[Table, Table, Column]:
        job, B = self.job, float(self.job.batch)
        if np.isinf(best.limit):
            fine = may_fit(job, self.space, best, table)
            table = keep(table, fine)
        limit = best.over(table)
        micro, step = table["microbatch"], dp_step(table)
        layers = self.layers[:, table["shard"].astype(np.intp)]
        law = self.law.rows(table["pipe"].astype(np.intp))
        one = law._replace(waits=np.zeros(len(limit))).seconds(
            layers, np.ones(len(limit))
        )
        few = fewest(job, table)
        most = np.minimum(np.floor(limit / one), -(-B // micro))
        counts = np.maximum(most - few + 1, 0).astype(np.intp)
        index = np.repeat(np.arange(len(counts)), counts)
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        m = few[index] + (np.arange(len(index)) - skipped)
        rows, micro, step = take(table, index), micro[index], step[index]
        seconds = law.rows(index).seconds(layers[:, index], m)
        # from the first dp that needs no more to the last that still needs m microbatches
        low = -(-B // (m * micro))
        below = -(-B // (np.maximum(m - 1, 1) * micro)) - 1
        high = np.minimum(np.where(m > 1, below, rows["dp"]), rows["dp"])
        low, high = -(-low // step) * step, high // step * step
        fine = (low <= high) & (seconds <= limit[index])
        if (only := self.space.values("dp")) is not None:
            only = np.sort(only)
            fine &= np.searchsorted(only, low) < np.searchsorted(
                only, high, side="right"
            )
        return (
            keep(rows | {"dp": low}, fine),
            keep(rows | {"dp": high}, fine),
            seconds[fine],
        )


def lower(
    job: Job,
    space: Space,
    best: Best,
    near: Table,
    far: Table,
    alive: Alive | None = None,
) -> tuple[Grid, Ways]:
    """Bound of every row in seconds on each side of the ZeRO stages (nearest groups, the best of
    the options with which it can fit), and of every combination of options.

    near, far: the same rows with the smallest and the largest dp they stand for; collectives are
    bound by the one, sharding by the other.
    """
    capacity = room.limit(job)
    at = bound_clock(job)
    choice = best.choice
    found = np.full((len(choice.sides), length(near)), np.inf)
    ways = Ways.of(choice)
    side = {z: s for s, stages in enumerate(choice.sides) for z in stages}
    whole = Rows(near, far, None, space.scheme)
    for start in range(0, length(near), BLOCK):
        rows = whole.some(slice(start, start + BLOCK))
        parts = choice.parts(rows.near["tp"], rows.near["pp"])
        over = best.over(rows.near)
        for index, each in points(job, at, rows, choice, alive, over):
            seconds = np.where(each.bytes <= capacity, each.seconds, np.inf)
            mine = found[side[each.place[-1]], start:]
            mine[index] = np.minimum(mine[index], seconds)
            np.minimum.at(
                ways.least[(slice(None), *each.place)],
                parts[each.place[-1], index],
                seconds,
            )
    return found, ways


def may_fit(job: Job, space: Space, best: Best, table: Table) -> Any:
    """Where some number of replicas up to these fits, or another row has set a limit. More need
    less memory: states are cut finer, and fewer microbatches are in flight; only the fewest may
    need less, because what has one replica is not gathered or scattered.
    """
    fine = np.isfinite(best.over(table))
    for ends in (table, table | {"dp": dp_step(table)}):
        left = np.flatnonzero(~fine)
        # intervals, whose groups of replicas need not divide these
        near, far = take(ends, left), take(ends, left)
        fine[left] = np.isfinite(lower(job, space, best, near, far)[0]).any(0)
    return fine
