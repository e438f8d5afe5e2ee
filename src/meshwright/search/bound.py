"""What no layout of a row undercuts, before its ranks have their place: by its layers alone, cheap
enough for every combination of degrees, and by the step itself with optimistic arguments.

By layers: a device computes its layers for every microbatch, and waits as its schedule does where
there is nothing but layers. That is a path of the order with shorter passes, so no step takes less.
By the step: every group as near as if it had the network to itself; of an interval of dp the fewest
ranks in collectives, the most in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..describe.job import Job
from ..describe.layers import totals
from ..layout.stages import partition
from ..num import ceil_div
from ..schedule.stage_costs import Pass, StageCosts
from ..step import room
from .best import Best
from .columns import bodies, bound_clock, each_way, layouts
from .degrees import BLOCK, chunked, dp_step, fewest, pipelines, replicas
from .evaluate import Ways
from .legal import possible, some_order
from .options import Options
from .points import Rows, points
from .space import Space
from .table import Column, Grid, Table, keep, length, pick, stack
from .ways import Way

CROSSED = 2048
"""Shards that are crossed with all pipeline degrees at once."""
ROUNDED = 1.0 - 1e-12
"""A sum in another order is no longer than what it bounds."""
Limits = Callable[[Table], Any]
"""Seconds that each row of a table must not exceed."""


def least_layers(costs: list[step.ModelCost]) -> Grid:
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


def busy(job: Job, copies: int, pp: Column, layers: Grid) -> Column:
    """Seconds of one microbatch on a device that does nothing but its share of the layers.

    layers: `least_layers`, which broadcast against pp;  copies: ranks that hold each stage, which
    share its microbatches out among them. However layers are dealt, some device holds ceil(L / p)
    of them, as many of each kind, and the mean of all kinds.
    """
    *each, every = (
        np.asarray(ceil_div(float(n), pp / copies)) / copies
        for n in (*totals(job.model), job.model.layers)
    )
    mean = (n * ROUNDED / pp for n in totals(job.model))
    passes, wholes = layers[:3].sum(axis=0), layers[3:]
    long = [n * one for n, one in zip(each, wholes, strict=True)]
    mixed = sum(n * one for n, one in zip(mean, wholes, strict=True))
    return np.asarray(reduce(np.maximum, [*long, mixed, every * passes]))


def piped(job: Job, way: Way, rows: Table, m: Column, layers: Grid) -> Any:
    """Seconds of m microbatches through pipelines of nothing but layers, in the order of a
    schedule: `step.least_idle` of them, whose paths only grow with embedding, head and messages.
    """
    schedule, pp, chunks = way.bound, rows["pp"], rows["interleave"]
    f, i, w = layers[:3]
    none = Pass(0.0, 0.0, 0.0)  # of embedding and head
    cut = partition(job, pp, schedule, chunks)
    stages = StageCosts(cut, Pass(f, i, w), none, none, (), send=0.0)
    fullest = np.asarray(
        ceil_div(float(job.model.layers), pp / schedule.copies)
    )
    work = schedule.rounds(m) * fullest * (f + i + w)
    return work + step.least_idle(job, schedule, (pp, m, chunks), stages, work)


class Waiting(NamedTuple):
    """Rows, or intervals of dp, that have no place yet."""

    low: Table
    """With the smallest dp."""
    high: Table
    """With the largest dp."""
    law: Column
    """Seconds that none of their layouts undercuts, as far as is known."""

    @property
    def numbers(self) -> Column:
        """Numbers of replicas that each stands for."""
        span = self.high["dp"] - self.low["dp"]
        return np.asarray(np.floor(span / dp_step(self.low)) + 1)

    @property
    def halves(self) -> tuple[Waiting, Waiting]:
        """The lower and the upper half of each interval."""
        step = dp_step(self.low)
        middle = self.low["dp"] + np.floor((self.numbers - 1) / 2) * step
        return (
            self._replace(high=self.high | {"dp": middle}),
            self._replace(low=self.low | {"dp": middle + step}),
        )

    def beside(self, *others: Waiting) -> Waiting:
        """Together with others."""
        low, high, law = zip(self, *others, strict=True)
        return Waiting(stack(*low), stack(*high), np.concatenate(law))


@dataclass(frozen=True)
class Candidates:
    """Shards and pipelines of a space, with what their layers take."""

    job: Job
    space: Space
    relaxed: bool
    choice: Options
    shards: Table
    layers: Grid
    """`least_layers` of the shards."""
    degrees: Table
    """Pipelines, with their numbers of chunks."""

    @classmethod
    def of(
        cls,
        job: Job,
        space: Space,
        choice: Options,
        shards: Table,
        relaxed: bool,
    ) -> Candidates:
        """These shards with all pipelines of the space. Nothing makes a microbatch cheaper than no
        pipeline, the most replicas (the fewest add up gradients), every group nearest and nothing
        computed again.
        """
        one = np.ones(length(shards))
        shards = shards | {"shard": np.arange(float(len(one)))}
        alone = shards | {"pp": one, "interleave": one}
        most = np.maximum(replicas(job, alone, space, relaxed=True), 1.0)
        ways = each_way(
            alone | {"dp": most},
            None,
            job.cluster.sizes,
            choice.fixed,
            choice.sequence_parallel,
        )
        costs, which = bodies(job, ways, bound_clock(job))
        layers = least_layers(costs)[:, which]
        degrees = pipelines(job, space, relaxed)
        return cls(job, space, relaxed, choice, shards, layers, degrees)

    def rows(self, over: Limits, small: bool = False) -> tuple[Table, Column]:
        """(rows with their most replicas, seconds that their layers take), within limits; small:
        only the smallest microbatches.
        """
        tables, seconds = zip(*self._crossed(over, small), strict=True)
        return stack(*tables), np.concatenate(seconds)

    def _crossed(
        self, over: Limits, small: bool = False
    ) -> Iterator[tuple[Table, Column]]:
        """`rows` in blocks: what layers take does not depend on chunks, which come last."""
        job, degrees = self.job, self.degrees
        pp = np.unique(degrees["pp"])
        micro = self.shards["microbatch"]
        which = np.flatnonzero((micro == micro.min()) | (not small))
        for start in range(0, len(which), CROSSED):
            at = which[start : start + CROSSED]
            part, layers = pick(self.shards, at), self.layers[:, at, None]
            grid = {k: c[:, None] for k, c in part.items()} | {"pp": pp}
            dp = replicas(job, grid, self.space, self.relaxed)
            m = fewest(job, grid | {"dp": dp})
            seconds = m * busy(job, self.choice.copies, pp, layers)
            row, deep = np.nonzero((dp >= 1) & (seconds <= over(grid)))
            again, pipe = chunked(pp[deep], degrees)
            row, deep = row[again], deep[again]
            rows = pick(part, row) | {"dp": dp[row, deep]}
            rows |= pick(degrees, pipe)
            fine: Any = slice(None)
            if self.relaxed:
                fine = possible(job, rows, self.choice)
            yield pick(rows, fine), seconds[row, deep][fine]

    def exact(self, rows: Table, law: Column) -> Waiting:
        """Of rows with their most replicas those that some schedule runs with so many."""
        sizes, choice = self.job.cluster.sizes, self.choice
        sequence_parallel = choice.sequence_parallel[0]
        layout = layouts(rows, None, sizes, choice.fixed, sequence_parallel)
        runs = some_order(self.job, layout, choice, exact=True)
        fine = (rows["pp"] == 1) | runs
        rows = keep(rows, fine)
        return Waiting(rows, rows, law[fine])

    def within(self, rows: Table, limit: Column) -> NDArray[np.bool_]:
        """Where pipelines of layers alone are within the limit in the order of some schedule."""
        fine: NDArray[np.bool_] = rows["pp"] == 1
        # papers' bubbles are no paths of an order
        fine = fine | np.isinf(limit) | (not step.by_order(self.job))
        for way in self.choice.schedules:
            open_ = ~fine & way.filled(
                self.job, rows["pp"], rows["interleave"]
            )
            at = np.flatnonzero(open_)
            some = pick(rows, at)
            layers = self.layers[:, some["shard"].astype(np.intp)]
            m = fewest(self.job, some)
            fine[at] = piped(self.job, way, some, m, layers) <= limit[at]
        return fine

    def intervals(self, best: Best) -> Waiting:
        """The intervals of dp that give one number of microbatches m, for every m within the
        limits: (smallest, largest, seconds that layers take).
        """
        found = [
            self._intervals(best, *each) for each in self._crossed(best.over)
        ]
        low, high, seconds = zip(*found, strict=True)
        return Waiting(stack(*low), stack(*high), np.concatenate(seconds))

    def _intervals(
        self, best: Best, table: Table, seconds: Column
    ) -> tuple[Table, Table, Column]:
        job, B = self.job, float(self.job.batch)
        if np.isinf(best.limits).any():
            fine = may_fit(job, self.space, best, table)
            table, seconds = keep(table, fine), seconds[fine]
        micro, step = table["microbatch"], dp_step(table)
        few = fewest(job, table)
        one = seconds / few
        most = np.minimum(np.floor(best.over(table) / one), -(-B // micro))
        counts = np.maximum(most - few + 1, 0).astype(np.intp)
        index = np.repeat(np.arange(len(counts)), counts)
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        m = few[index] + (np.arange(len(index)) - skipped)
        rows, micro, step = pick(table, index), micro[index], step[index]
        # from the first dp that needs no more to the last that still needs m microbatches
        low = -(-B // (m * micro))
        below = -(-B // (np.maximum(m - 1, 1) * micro)) - 1
        high = np.minimum(np.where(m > 1, below, rows["dp"]), rows["dp"])
        low, high = -(-low // step) * step, high // step * step
        fine = low <= high
        if (only := self.space.values("dp")) is not None:
            only = np.sort(only)
            fine &= np.searchsorted(only, low) < np.searchsorted(
                only, high, side="right"
            )
        return (
            keep(rows | {"dp": low}, fine),
            keep(rows | {"dp": high}, fine),
            (m * one[index])[fine],
        )


def lower(
    job: Job,
    space: Space,
    best: Best,
    near: Table,
    far: Table,
    any_number: bool = False,
) -> tuple[Grid, Ways]:
    """Bound of every row in seconds on each side of the ZeRO stages (nearest groups, the best of
    the options with which it can fit), and of every combination of options.

    near, far: the same rows with the smallest and the largest dp they stand for; collectives are
    bound by the one, sharding by the other. any_number: as in `Rows`.
    """
    capacity = room.limit(job)
    at = bound_clock(job)
    choice = best.choice
    found = np.full((len(choice.sides), length(near)), np.inf)
    ways = Ways.of(choice)
    side = {z: s for s, stages in enumerate(choice.sides) for z in stages}
    whole = Rows(near, far, None, any_number)
    for start in range(0, length(near), BLOCK):
        rows = whole.some(slice(start, start + BLOCK))
        parts = choice.parts(rows.near["tp"], rows.near["pp"])
        over = best.over(rows.near)
        for index, each in points(job, at, rows, choice, most=over):
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
    """Where some number of replicas up to these may fit, or another row has set a limit: where one
    microbatch does, with the most replicas, which cut states finest, or with the fewest, since what
    has one replica is not gathered or scattered. No order holds less than one microbatch; how much
    more does not fall with their number (7 of interleaved 1F1B on 4 ranks are one group, 8 are two
    of 4), nor do schedules run with each.
    """
    fine = np.isfinite(best.over(table))
    one = replace(job, batch=1)
    for ends in (table, table | {"dp": dp_step(table)}):
        left = np.flatnonzero(~fine)
        # intervals, whose groups of replicas need not divide these
        near, far = pick(ends, left), pick(ends, left)
        least, _ = lower(one, space, best, near, far, any_number=True)
        fine[left] = np.isfinite(least).any(0)
    return fine
