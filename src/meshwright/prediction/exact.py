"""Steps with their pipelines replayed: what the longest path takes.

A search ranks by what no order undercuts (`step.idle_bound.least_idle`). So layouts in the order of
their bounds can be replayed until the next bound is above the best replay: then no other is faster
(`search.ranked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import in_chunks, microbatches, schedule_of
from ..schedule.schedule import Schedule
from ..step import (
    StepCosts,
    clock_of,
    model_cost,
    whole_step,
)

# it loads slowly, and a step without a pipeline does without
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_ACTIONS = 1_000_000
"""Actions of a timeline: more take too long and too much memory to write down."""


def actions_of(schedule: Schedule, p: int, m: int, v: int) -> int:
    """Actions of a step."""
    return int(schedule.stage_count(p, v) * m) * (
        3 if schedule.split_backward else 2
    )


def passes_of_stages(costs: StepCosts) -> NDArray[np.float64]:
    """F, I and W of one microbatch through each stage: (stages, 3); recomputation belongs to I."""
    job, layout = costs.job, costs.layout
    schedule = schedule_of(layout)
    p, v = float(layout.pp), float(layout.interleave)
    # in its chunks on a device that is alone too, as the timeline shows them
    chunks = in_chunks(job.model, p, schedule, schedule.chunks(v))
    return replace(costs.microbatch.stages, partition=chunks).every_stage


def replays(job: Job, layout: Layout) -> bool:
    """A step of the layout is replayed: its pipeline has an order, and not too many actions, or
    repeats after a few of them."""
    if not job.how.overlap.follows_schedule:
        return False
    m, schedule = int(microbatches(job, layout)), schedule_of(layout)
    p, v = int(layout.pp), int(layout.interleave)
    actions = actions_of(schedule, p, m, v)
    if actions <= MOST_ACTIONS:
        return True
    from ..schedule.replay_program import repeats, short_order

    *_, few = short_order(schedule, p, m)
    short = actions_of(schedule, p, few, v) <= MOST_ACTIONS
    # 20 million actions took .4 s at most, of 535 drawn pipelines whose order repeats
    return short and repeats(schedule, p, m, v)


def replayed_seconds(
    job: Job, layouts: Sequence[Layout]
) -> list[float | None]:
    """Seconds of a step of each (placed) layout with its pipeline replayed.

    None if there are too many actions, or if the assumption set is a paper's: there the closed form
    is the answer.
    """
    clock = clock_of(job, shared=True)
    return [
        float(
            whole_step(
                job, layout, model_cost(job, layout, clock), clock, replay=True
            ).total
        )
        if replays(job, layout)
        else None
        for layout in layouts
    ]
