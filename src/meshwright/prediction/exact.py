"""Steps with their pipelines replayed: what the longest path takes, for many layouts at once.

A search ranks by what no order undercuts (`step.pipeline.least_idle`). So layouts in the order of
their bounds can be replayed until the next bound is above the best replay: then no other is faster
(`search.ranked`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import in_chunks, microbatches, schedule_of, schedule_with
from ..schedule.schedule import Schedule
from ..step import (
    StepCosts,
    barrier,
    kept_clock,
    model_cost,
    uses_schedule_order,
)

if (
    TYPE_CHECKING
):  # it loads slowly, and a step without a pipeline does without
    import numpy as np
    from numpy.typing import NDArray

MOST_ACTIONS = 1_000_000
"""Actions of a timeline: more take too long and too much memory to replay."""


def actions_of(schedule: Schedule, p: int, m: int, v: int) -> int:
    """Actions of a step."""
    return int(schedule.stage_count(p, v) * m) * (
        3 if schedule.split_backward else 2
    )


def passes_of_stages(costs: StepCosts) -> NDArray[np.float64]:
    """F, I and W of one microbatch through each stage: (stages, 3); recomputation belongs to I."""
    from ..schedule.replays import stage_seconds

    job, layout = costs.job, costs.layout
    schedule = schedule_of(layout)
    p, v = float(layout.pp), float(layout.interleave)
    # in its chunks on a device that is alone too, as the timeline shows them
    chunks = in_chunks(job, p, schedule, schedule.chunks(v))
    d = replace(costs.microbatch.stages, partition=chunks, send=0.0)
    return stage_seconds(schedule, (int(p), 0, int(v)), d)


def replays(job: Job, layout: Layout) -> bool:
    """A step of the layout is replayed: its pipeline has an order, and not too many actions."""
    m = int(microbatches(job, layout))
    p, v = int(layout.pp), int(layout.interleave)
    return uses_schedule_order(job) and (
        actions_of(schedule_of(layout), p, m, v) <= MOST_ACTIONS
    )


def replayed_seconds(
    job: Job, layouts: Sequence[Layout]
) -> list[float | None]:
    """Seconds of a step of each (placed) layout with its pipeline replayed, all of one order at
    once.

    None if there are too many actions, or if the assumption set is a paper's: there the closed form
    is the answer.
    """
    import numpy as np

    from ..schedule.longest import longest

    at = kept_clock(job)
    seconds: list[float | None] = [None] * len(layouts)
    alike = defaultdict[Order, list[tuple[int, StepCosts]]](list)
    for k, layout in enumerate(layouts):
        if not replays(job, layout):
            continue
        costs = StepCosts(job, layout, model_cost(job, layout, at), at)
        if layout.pp == 1:  # nothing waits for anything
            seconds[k] = float(costs.step.total)
        else:
            alike[_order(costs)].append((k, costs))
    for (schedule, p, m, v), group in alike.items():
        passes = np.array([passes_of_stages(costs) for _, costs in group])
        sends = np.array([float(c.microbatch.stages.send) for _, c in group])
        paths = longest(
            schedule,
            p,
            m,
            v=v,
            passes=passes,
            send=sends,
            barrier=barrier(job),
        )
        for (k, costs), path in zip(group, paths, strict=True):
            seconds[k] = float(costs.step.with_pipeline(float(path)).total)
    return seconds


Order: TypeAlias = tuple[Schedule, int, int, int]
"""(schedule, p, m, v): layouts of one order are replayed at once."""


def _order(costs: StepCosts) -> Order:
    """The order of a pipeline, of any stages."""
    job, layout = costs.job, costs.layout
    schedule = schedule_with(layout.schedule, "even", layout.microbatch_group)
    m = int(microbatches(job, layout))
    return schedule, int(layout.pp), m, int(layout.interleave)
