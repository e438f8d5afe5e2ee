"""A step in a run of steps, by replaying two of them action by action."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.schedule import Order, timeline_of_order
from meshwright.schedule.timeline import Passes, StageOf


def step_in_run_s(
    order: Order,
    stage_of: StageOf,
    passes: Sequence[Passes],
    send_s: float | Sequence[float] = 0.0,
    barrier: bool = False,
) -> float:
    """Seconds that a second step adds to the completion of one. barrier: no rank begins it before
    all have ended the first; else each as soon as its own actions of the first are done."""
    one = timeline_of_order(order, stage_of, passes, send_s).makespan_s
    if barrier:
        return one
    m = len({action.microbatch for actions in order for action in actions})
    twice = [
        [*actions, *(a._replace(microbatch=a.microbatch + m) for a in actions)]
        for actions in order
    ]
    return timeline_of_order(twice, stage_of, passes, send_s).makespan_s - one
