"""Rows of layouts under every option: seconds and bytes, by the same functions as one layout's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cost.layer import Clock
from ..describe.frozen import with_values
from ..describe.job import Job
from ..layout.placement import Shares
from ..layout.stages import schedule_of
from ..program.least import least_bytes
from ..program.resident import whole_program
from ..step import StepCosts, uses_schedule_order
from .columns import layouts, model_costs
from .legal import legal
from .options import Options
from .schedule_options import ScheduleOption
from .table import Column, Mask, Table, pick

OptionMask = NDArray[np.bool_]
"""(sequence parallel, recomputation, schedule, ZeRO stage): the options that are looked at."""
Place = tuple[int, int, int, int]
"""Of one combination of options, on the same axes."""


class Rows(NamedTuple):
    """Rows of a table, and where they lie."""

    low: Table
    """With the fewest replicas of each interval of dp, over which collectives take least."""
    high: Table | None = None
    """With the most replicas, whose shards are smallest; None: rows are layouts, not intervals."""
    shares: Shares | None = None
    """Their placements; None: every group lies nearest."""
    any_number: bool = False
    """A schedule need not run with their number of microbatches: they stand for larger ones."""


class Points(NamedTuple):
    """Rows under one combination of options."""

    place: Place
    seconds: Column
    """inf where the layout cannot run."""
    bytes: Column


def points(
    job: Job,
    clock: Clock,
    rows: Rows,
    choice: Options,
    alive: OptionMask | None = None,
    limit: float = np.inf,
) -> Iterator[Points]:
    """Seconds and bytes of the rows under each of the options that are alive.

    clock: the job's, or that of a bound;  limit: seconds that are still looked at.
    Rows that are not placed have bounds.
    """
    variants, high = layouts(job, choice, rows.low, rows.shares), None
    if rows.high is not None:
        high = layouts(job, choice, rows.high, rows.shares)[0]
    if alive is None:
        alive = np.ones(choice.shape, dtype=bool)
    runs = legal(
        job,
        choice,
        variants,
        alive=alive,
        high=high,
        any_number=rows.any_number,
    )
    distinct, which = model_costs(job, variants, clock, choice.recompute)
    costs = [pick(cost, which) for cost in distinct]
    known: dict[Any, Any] = {}
    is_bound = rows.shares is None
    for i, r, k, z in np.argwhere(runs.any(axis=-1)).tolist():
        place = i, r, k, z
        one = StepCosts(
            job,
            choice.layout(variants[i], place),
            costs[i],
            clock,
            deal=choice.schedules[k].layer_deal,
            high=high and choice.layout(high, place),
            asked=runs[i, r, k].any(axis=0),
            known=known,
        )
        unsure = _unsure(job, choice.schedules[k], one) if is_bound else 0.0
        quick = runs[i, r, k, z] & (one.pipeline.total - unsure <= limit)
        if not quick.any():
            continue
        seconds = np.where(quick, one.step.total - unsure, np.inf)
        if (seconds <= limit).any():
            bytes_ = (
                _program_bytes(one, quick) if whole_program(job) else one.bytes
            )
            bytes_ = np.broadcast_to(bytes_, quick.shape)
            yield Points(place, seconds, bytes_)


def _unsure(job: Job, option: ScheduleOption, one: StepCosts) -> Any:
    """Seconds of papers' pipelines that a bound leaves out, since they may fall where a pass takes
    longer and another rank is the slowest then: sends hide behind passes of the slowest, and the
    bubble is of the mean of the others, by f, i and w apart where backward passes are split.
    """
    if uses_schedule_order(job):
        return 0.0
    order, pipeline = option.order, one.pipeline
    sends = pipeline.sends if job.how.overlap.pp == "all" else 0.0
    apart = order.split_backward or order.replayed
    return sends + (pipeline.bubble if apart else 0.0)


def _program_bytes(one: StepCosts, where: Mask) -> Column:
    """What the trainer's program holds at least (`program.least`), of rows of as many chunks; the
    most replicas hold the smallest shards.
    """
    rows = one.high or one.layout
    size, chunks = np.full(len(where), np.inf), np.asarray(rows.interleave)
    for v in np.unique(chunks[where]):
        at = np.flatnonzero(where & (chunks == v))
        some = with_values(pick(rows, at), interleave=float(v))
        size[at] = least_bytes(
            one.job, some, pick(one.cost, at), schedule_of(rows)
        )
    return size
