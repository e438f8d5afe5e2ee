"""The pipeline of a predicted step, action by action, with when each runs.

A paper's closed form (`step.closed_form.paper_pipeline`) takes m times the slowest device, the
sends it waits for, and the schedule's bubble; other predictions are replays already. The replay
gives every stage the seconds of the layers it really holds, orders the actions as the schedule
does, and takes the longest path. Sends occupy neither device in it.
Both take a step in a run of steps: where the assumption set has no barrier between them, what a
second step adds to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..describe.display import Displayed
from ..describe.frozen import short_repr
from ..describe.job import Job
from ..describe.layout import Layout
from ..errors import BadInput
from ..schedule.longest import costs_of, longest
from ..schedule.timeline import Passes, Timeline
from ..schedule.timeline import timeline_of_order as by_action
from ..units import show
from .exact import MOST_ACTIONS, actions_of, passes_of_stages
from .prediction import Prediction, predict

NEGLIGIBLE = 1e-9
"""Of the makespan: rounding."""


@dataclass(frozen=True)
class Replay(Displayed):
    """The exact timeline of a prediction's pipeline, beside what the prediction says.
    Synchronisation and optimizer come after both.

    >>> from meshwright import Job, Replay, timeline
    >>> replay = timeline(Job("gpt3-175b", "64xa100-80", batch=32), tp=8, pp=8)
    >>> isinstance(replay, Replay), len(replay.stages)
    (True, 8)
    """

    prediction: Prediction
    timeline: Timeline
    stages: tuple[Passes, ...]
    """Seconds of F, I and W of one microbatch, by stage."""
    sends_s: tuple[float, ...]
    """One send over each boundary between stages."""
    closed_s: float
    """Microbatches, sends and bubble of the prediction: a paper's closed form, or the same path."""
    exact_s: float
    """The longest path: of a step by itself or, where the next may begin rank by rank, what one
    more step takes.
    """

    __repr__ = short_repr

    @property
    def difference(self) -> float:
        """Closed form over exact timeline, minus 1."""
        return self.closed_s / self.exact_s - 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What the comparison leaves out, and whether a step in a run takes less than a single
        step.
        """
        sentences = []
        if self.exact_s < self.timeline.makespan_s * (1 - NEGLIGIBLE):
            alone = show(self.timeline.makespan_s, "s")
            sentences.append(
                "ranks begin the next step as soon as they are done: a step by itself takes"
                f" {alone}"
            )
        if (
            self.prediction.job.how.overlap.pp == "none"
            and self.prediction.time_s["pp_comm"]
        ):
            exposed = show(self.prediction.time_s["pp_comm"], "s")
            sentences.append(
                f"the closed form charges {exposed} of sends that the timeline hides behind compute"
                " where it can"
            )
        return tuple(sentences)

    @property
    def bubble_fraction(self) -> float:
        """Idle share of all device time in a run of steps."""
        busy = sum(self.timeline.busy_s)
        total = self.exact_s * len(self.timeline.order)
        return max(1 - busy / total, 0.0)  # sums of many actions round

    @property
    def bubble(self) -> float:
        """Idle over useful time, as in papers: relative to a step without idle time."""
        useful = sum(self.timeline.busy_s)
        total = self.exact_s * len(self.timeline.order)
        # one stage alone is never idle, but for rounding
        return max(total / useful - 1, 0.0) if useful else 0.0

    @property
    def bubble_of_equal_stages(self) -> float | None:
        """The bubble if all stages took equally long and sends were free, (p - 1) / m for 1F1B;
        None if several ranks hold a stage.
        """
        p, schedule = self.prediction, self.prediction.schedule
        if schedule.copies > 1:
            return None
        ranks, v = int(p.layout.pp), int(p.layout.interleave)
        f, i, w = (sum(e) / ranks for e in zip(*self.stages, strict=True))
        idle = schedule.bubble(
            ranks,
            p.microbatches,
            v,
            f=f,
            i=i,
            w=w,
            barrier=p.job.how.overlap.has_barrier,
        )
        return float(idle / (p.microbatches * (f + i + w)))

    def to_dict(self) -> dict[str, Any]:
        """The fields of `timeline --json`, without the actions."""
        t = self.timeline
        return {
            "schedule": self.prediction.layout.schedule,
            "ranks": len(t.order),
            "microbatches": self.prediction.microbatches,
            "stage_s": [
                {"forward_s": f, "input_gradient_s": i, "weight_gradient_s": w}
                for f, i, w in self.stages
            ],
            # of those over all boundaries the longest
            "send_s": max(self.sends_s, default=0.0),
            "exact_s": self.exact_s,
            "closed_form_s": self.closed_s,
            "difference": self.difference,
            "makespan_s": t.makespan_s,
            "bubble_fraction": self.bubble_fraction,
            "bubble_over_useful": self.bubble,
            "bubble_of_equal_stages": self.bubble_of_equal_stages,
            "busy_s": t.busy_s,
            "idle_s": t.idle_s,
            "in_flight_microbatches": t.in_flight,
            "notes": [*self.notes, *self.prediction.notes],
        }


def timeline(job: Job, layout: Layout | None = None, **fields: Any) -> Replay:
    """The pipeline of a step, action by action. Takes the arguments of `predict`.

    >>> from meshwright import Job, timeline
    >>> job = Job("gpt3-175b", "64xa100-80", batch=32)
    >>> replay = timeline(job, tp=8, pp=8, interleave=2)
    >>> len(replay.timeline.order), 0 < replay.bubble_fraction < 0.25
    (8, True)
    """
    return replay(predict(job, layout, **fields))


def replay(prediction: Prediction) -> Replay:
    """The exact timeline of a prediction's pipeline.  Raises BadInput if it has more than
    MOST_ACTIONS actions.
    """
    job = prediction.job
    layout = prediction.layout
    m = prediction.microbatches
    schedule = prediction.schedule
    p = int(layout.pp)
    v = int(layout.interleave)
    if (actions := actions_of(schedule, p, m, v)) > MOST_ACTIONS:
        raise BadInput(
            f"the timeline has {actions:,} actions, more than {MOST_ACTIONS:,}: raise dp or"
            " microbatch, or lower pp"
        )
    stages = passes_of_stages(prediction.costs)
    sends = prediction.costs.microbatch.stages.sends.each(len(stages) - 1)
    costs = costs_of(stages, sends)
    schedule = schedule.timed(costs)
    place = schedule.placement(p, v)
    one = by_action(schedule.order(p, m, v), place, costs.passes, costs.sends)
    exact = one.makespan_s
    if schedule.split_backward and not job.how.overlap.has_barrier:
        # with whole backward passes the rank that begins first ends last: nothing is gained
        in_run = longest(
            schedule,
            p,
            m,
            v=v,
            passes=stages[None],
            sends=sends[None],
            barrier=False,
        )
        exact = float(in_run[0])
    closed = prediction.pipeline_s
    return Replay(
        prediction,
        timeline=one,
        stages=costs.passes,
        sends_s=costs.sends,
        closed_s=closed,
        exact_s=exact,
    )
