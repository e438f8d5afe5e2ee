"""What no layout of a row undercuts, before its ranks have their place: by its layers alone, cheap
enough for every combination of degrees, and by the step itself with optimistic arguments.

By layers: a device computes its layers for every microbatch, and waits as its schedule does where
there is nothing but layers. That is a path of the order with shorter passes, so no step takes less.
By the step: every group as near as if it had the network to itself; of an interval of dp the fewest
ranks in collectives, the most in shards.

What this rests on: each formula only grows with each of these arguments. It would break if some
collective took less over more ranks or farther away, if a device saved time by sharing a link, or
if more replicas made anything but shards smaller. A formula that falls with one of them must be
asked for both ends of the interval (as `may_fit` asks for memory).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from .. import step
from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layers import totals
from ..layout.clean import unfilled
from ..layout.stages import partition
from ..num import ceil_div, product
from ..schedule.sends import NO_SENDS
from ..schedule.stage_costs import PassSeconds, StageCosts
from .degrees import dp_step
from .points import Rows, points
from .schedule_options import ScheduleOption
from .state import SearchState
from .table import BLOCK, Column, Grid, Table, length, pick

ROUND_DOWN = 1.0 - 1e-12
"""Times the mean of the layers, which is added up in another order than the step adds them: so that
rounding cannot lift it above what it bounds."""


def optimistic_clock(job: Job, relaxed: bool | None) -> Clock:
    """The job's clock for layouts whose groups are not placed yet, or are at least so large: never
    slower than any. relaxed: chips may be idle, also some of a node.
    """
    clock = step.clock_of(job)
    fabric = clock.fabric
    # a rank that runs alone in its node has an adapter for itself
    partly = relaxed or unfilled(job)
    ranks = 1 if partly else product(job.cluster.sizes[: fabric.behind])
    return clock._replace(fabric=fabric.with_ranks(ranks).bound)


def least_layers(costs: list[step.ModelCost]) -> Grid:
    """[3 + kinds of layers, row] seconds that one microbatch takes in a layer at least, under the
    setting of sequence parallelism that takes least.

    The first three are F (forward), I (gradient of the input) and W (gradient of the weights), each
    of the kind that takes least; then forward and backward of each kind. costs: of the same rows,
    one for each setting of sequence parallelism.
    """
    # least F, I and W may be of different settings and kinds: a lower bound all the same
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


def layer_seconds(job: Job, copies: int, pp: Column, layers: Grid) -> Column:
    """Seconds of one microbatch on a device that does nothing but its share of the layers.

    layers: `least_layers`, which broadcast against pp;  copies: ranks that hold each stage, which
    share its microbatches out among them. However layers are dealt, some device holds ceil(L / p)
    of them, as many of each kind, and the mean of all kinds.
    """
    *each, every = (
        np.asarray(ceil_div(float(n), pp / copies)) / copies
        for n in (*totals(job.model), job.model.layers)
    )
    mean = (n * ROUND_DOWN / pp for n in totals(job.model))
    passes, wholes = layers[:3].sum(axis=0), layers[3:]
    long = [n * one for n, one in zip(each, wholes, strict=True)]
    mixed = sum(n * one for n, one in zip(mean, wholes, strict=True))
    return np.asarray(reduce(np.maximum, [*long, mixed, every * passes]))


def pipeline_seconds(
    job: Job, option: ScheduleOption, rows: Table, m: Column, layers: Grid
) -> Any:
    """Seconds of m microbatches through pipelines of nothing but layers, in the order of a
    schedule: `step.least_idle` of them, whose paths only grow with embedding, head and messages.
    """
    schedule, pp, chunks = option.order, rows["pp"], rows["interleave"]
    f, i, w = layers[:3]
    none = PassSeconds(0.0, 0.0, 0.0)  # of embedding and head
    cut = partition(job.model, pp, schedule, chunks)
    kinds = (PassSeconds(f, i, w),) * len(layers[3:])
    stages = StageCosts(cut, (*kinds, none, none), NO_SENDS)
    fullest = np.asarray(
        ceil_div(float(job.model.layers), pp / schedule.copies)
    )
    work = schedule.rounds(m) * fullest * (f + i + w)
    return work + step.least_idle(
        schedule, m, stages, busy=work, barrier=job.how.overlap.has_barrier
    )


def lower_bounds(
    state: SearchState,
    rows: Rows,
    job: Job,
) -> tuple[Column, Grid]:
    """(seconds that no layout of each row undercuts [rows], the least of them under each
    combination of options [`Options.shape`]).

    Every group lies nearest, and only options count under which the least bytes of the row fit; inf
    where there are none. job: that of the search, or the same with a batch of one sequence.
    """
    clock = optimistic_clock(job, state.space.relaxed)
    bounds = np.full(length(rows.low), np.inf)
    least_of_option = np.full(state.options.shape, np.inf)
    for start in range(0, length(rows.low), BLOCK):
        index = slice(start, start + BLOCK)
        # a view, so that what is written there is written into `bounds`
        block, least = pick(rows, index), bounds[index]
        for each in points(state, block, job, clock):
            seconds = np.where(
                each.bytes <= state.capacity, each.seconds, np.inf
            )
            np.minimum(least, seconds, out=least)
            least_of_option[each.combination] = min(
                least_of_option[each.combination], seconds.min(initial=np.inf)
            )
    return bounds, least_of_option


def may_fit(state: SearchState, table: Table) -> Any:
    """Where some number of replicas up to these may fit: where one microbatch does, with the most
    replicas, which cut states finest, or with the fewest, since what has one replica is not
    gathered or scattered. No order holds less than one microbatch; how much more does not fall with
    their number (7 of interleaved 1F1B on 4 ranks are one group, 8 are two of 4), nor do schedules
    run with each.
    """
    fine = np.zeros(length(table), bool)
    one = replace(state.job, batch=1)
    for ends in (table, table | {"dp": dp_step(table)}):
        left = np.flatnonzero(~fine)
        # intervals, whose groups of replicas need not divide these
        low, high = pick(ends, left), pick(ends, left)
        bounds, _ = lower_bounds(state, Rows(low, high, any_number=True), one)
        fine[left] = np.isfinite(bounds)
    return fine
