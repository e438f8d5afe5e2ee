"""Steps with their pipelines replayed: what the longest path takes, for many layouts at once.

A search ranks by what no order undercuts (`step.pipeline.least_idle`). So layouts in the order of
their bounds can be replayed until the next bound is above the best replay: then no other is faster
(`search.ranked`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import in_chunks, microbatches, schedule_of, schedule_with
from ..schedule.gpipe import GPIPE
from ..schedule.schedule import Schedule
from ..step import (
    ModelCost,
    Step,
    StepCosts,
    barrier,
    by_order,
    kept_clock,
    model_cost,
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
    return by_order(job) and (
        actions_of(schedule_of(layout), p, m, v) <= MOST_ACTIONS
    )


Order: TypeAlias = tuple[Schedule, int, int, int]
"""(schedule, p, m, v): layouts of one order are replayed at once."""


class Replayed(NamedTuple):
    """A layout's pipeline, ready to be replayed."""

    order: Order
    passes: NDArray[np.float64]
    send: float
    step: Step
    """With a pipeline that takes the least."""


def replayed(
    job: Job, layouts: Sequence[Layout], bodies: Sequence[ModelCost] = ()
) -> list[float | None]:
    """Seconds of a step of each (placed) layout with its pipeline replayed, all of one order at
    once.

    bodies: what is known of each already.

    None if there are too many actions, or if the assumption set is a paper's: there the closed form
    is the answer.
    """
    import numpy as np

    from ..schedule.longest import longest

    at = kept_clock(job)
    steps: list[float | None] = [None] * len(layouts)
    alike: defaultdict[Order, list[tuple[int, Replayed]]] = defaultdict(list)
    for k, layout in enumerate(layouts):
        parts = bodies[k] if bodies else None
        if one := _prepared(job, layout, at, parts):
            alike[one.order].append((k, one))
    for (schedule, p, m, v), group in alike.items():
        passes, send = (
            np.array([getattr(one, field) for _, one in group])
            for field in ("passes", "send")
        )
        seconds = longest(schedule, p, m, v, passes, send, barrier(job))
        for (k, one), pipeline in zip(group, seconds, strict=True):
            steps[k] = float(one.step.with_pipeline(float(pipeline)).total)
    return steps


def _prepared(
    job: Job, layout: Layout, at: Clock, parts: ModelCost | None
) -> Replayed | None:
    if not replays(job, layout):
        return None
    m = int(microbatches(job, layout))
    p = int(layout.pp)
    v = int(layout.interleave)
    costs = StepCosts(job, layout, parts or model_cost(job, layout, at), at)
    if p == 1:  # nothing waits for anything: one order stands for all
        import numpy as np

        alone = np.array([[float(costs.pipeline.total), 0.0, 0.0]])
        return Replayed((GPIPE, 1, 1, 1), alone, 0.0, costs.step)
    # of any stages
    order = schedule_with(layout.schedule, "even", layout.microbatch_group)
    return Replayed(
        (order, p, m, v),
        passes_of_stages(costs),
        float(costs.microbatch.stages.send),
        costs.step,
    )
