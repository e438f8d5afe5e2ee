"""The time of one training step: layers make stages, stages make a pipeline; synchronisation and the optimizer follow.

Every function takes a job and a layout whose numbers may be arrays, so one layout and a table of a million are the same code. `Body`
holds what a layer costs; schedule, ZeRO stage and recomputation are applied to it afterwards, which lets the search evaluate every
such choice without counting a layer again.
"""

from __future__ import annotations

from typing import NamedTuple

from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches
from ..num import Num
from ..schedule import get as schedule_named
from .microbatch import Body, backward, body, boundary, clock, stage_message, total
from .pipeline import Pipeline, Share, Shares, Stages, barrier, hop, ordered, pick, shares, slowest, stages
from .sync import ENDS, Collectives, Held, collectives, held, synchronise, update


class Step(NamedTuple):
    """Seconds of one step."""

    pipeline: Pipeline
    sync: Num
    update: Num

    @property
    def total(self) -> Num:
        return self.pipeline.total + (self.sync + self.update)


def step(job: Job, layout: Layout, parts: Body, at: Clock | None = None) -> Step:
    """One step of the job; the layout's numbers may be arrays (categorical fields may not)."""
    at, schedule, v = at or clock(job), schedule_named(layout.schedule), layout.interleave
    by = shares(job, layout, schedule, v)
    sync = synchronise(
        job, layout, parts, collectives(job, layout, parts, at), layout.recompute, layout.zero, by["middle"].typical
    )
    ends = [held(job, layout, parts, by, end) for end in ENDS]
    s, send = stages(layout, parts, layout.recompute, by), hop(layout, parts, at).seconds
    pipe = ordered(job, layout.pp, microbatches(job, layout), s, send, schedule, v)
    return Step(pipe, sync, update(job, layout, ends, layout.zero, at))


def step_time(job: Job, layout: Layout) -> Num:
    """Seconds of one step."""
    at = clock(job)
    return step(job, layout, body(job, layout, at), at).total


__all__ = [
    "ENDS", "Body", "Collectives", "Held", "Pipeline", "Share", "Shares", "Stages", "Step", "backward", "barrier", "body", "boundary", "clock", "collectives",
    "held", "hop", "ordered", "pick", "shares", "slowest", "stage_message", "stages", "step", "step_time", "synchronise",
    "total", "update",
]  # fmt: skip
