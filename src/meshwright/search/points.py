"""Rows of layouts under every option: seconds and bytes, by the same functions as one layout's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..cost.layer import Clock
from ..describe.frozen import with_values
from ..describe.job import Job
from ..layout.placement import Shares
from ..layout.stages import schedule_of
from ..program.least import least_bytes
from ..program.resident import whole_program
from ..step import StepCosts
from .columns import layouts, model_costs
from .legal import legal
from .state import Points, SearchState
from .table import Column, Grid, Mask, Table, pick


class Rows(NamedTuple):
    """Rows of a table, each a layout or an interval of dp, and where their ranks lie."""

    low: Table
    """With the fewest replicas of each interval of dp, over which collectives take least."""
    high: Table | None = None
    """With the most replicas, whose shards are smallest; None: rows are layouts, not intervals."""
    shares: Shares | None = None
    """Their placements; None: every group lies nearest."""
    any_number: bool = False
    """A schedule need not run with their number of microbatches: they stand for larger ones."""


def points(
    state: SearchState,
    rows: Rows,
    job: Job,
    clock: Clock,
    bounds: Grid | None = None,
) -> Iterator[Points]:
    """Seconds and bytes of the rows under each combination of options that is legal in some row,
    as long as they are within the limit: a combination that leaves all rows out is skipped.

    Rows that are not placed (`Rows.shares` None) have lower bounds instead of seconds. job, clock:
    the search's, or those of a bound;  bounds: seconds that no row undercuts under each combination
    of options (axes of `Options.shape`), in whose order these are asked, so that what the first add
    to the search limits the others (None: 0).
    """
    options = state.options
    variants, high = layouts(job, options, rows.low, rows.shares), None
    if rows.high is not None:
        high = layouts(job, options, rows.high, rows.shares)[0]
    runs = legal(job, options, variants, high, rows.any_number)
    if bounds is None:
        bounds = np.zeros(options.shape)
    distinct_costs, which = model_costs(
        job, variants, clock, options.recompute
    )
    costs = [pick(cost, which) for cost in distinct_costs]
    cache: dict[Any, Any] = {}
    places = np.argwhere(runs.any(axis=-1))
    order = np.argsort(bounds[tuple(places.T)], kind="stable")
    for i, r, k, z in places[order].tolist():
        combination = i, r, k, z
        if bounds[combination] > state.highest:
            return
        layout = options.layout(variants[i], combination)
        if high is not None:
            layout = with_values(
                layout, high=options.layout(high, combination)
            )
        step_costs = StepCosts(
            job,
            layout,
            costs[i],
            clock,
            dealer=options.schedules[k].layer_deal,
            mask=runs[i, r, k].any(axis=0),
            cache=cache,
            bound=rows.shares is None,
        )
        quick = runs[i, r, k, z] & (step_costs.pipeline.total <= state.highest)
        # a pipeline alone is above the limit: the rest of the step is not asked for
        if not quick.any():
            continue
        seconds = np.where(quick, step_costs.step.total, np.inf)
        if (seconds <= state.highest).any():
            bytes_ = (
                _program_bytes(step_costs, quick)
                if whole_program(job)
                else step_costs.bytes
            )
            bytes_ = np.broadcast_to(bytes_, quick.shape)
            yield Points(combination, seconds, bytes_)


def _program_bytes(step_costs: StepCosts, where: Mask) -> Column:
    """What the trainer's program holds at least (`program.least`), of rows of as many chunks; the
    most replicas hold the smallest shards.
    """
    rows = step_costs.layout.most_replicas
    size, chunks = np.full(len(where), np.inf), np.asarray(rows.interleave)
    for v in np.unique(chunks[where]):
        at = np.flatnonzero(where & (chunks == v))
        some = with_values(pick(rows, at), interleave=float(v))
        size[at] = least_bytes(
            step_costs.job, some, pick(step_costs.cost, at), schedule_of(rows)
        )
    return size
