"""What lives on a device, by the count the job's framework asks for: what its layers save
(`step.memory`), or its whole program (`closed`).

Both answer the same questions, of one layout and of a table. A device has one or more moments that
may be its fullest; at each lives what belongs to weights, which depends on the ZeRO stage
(`standing`), and what microbatches hold, which depends on recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import schedule_of
from ..num import Num, naming
from ..schedule.types import Schedule
from ..step import ENDS, Body, labels, memory, shares
from ..step.memory import Use, fuller
from ..units import show
from . import closed
from .memory import peak
from .messages import carried_out
from .standing import standing

NAMED = 3
"""Largest terms of memory that a sentence names."""


def whole_program(job: Job) -> bool:
    """Every tensor of the trainer's program is counted."""
    return job.how.memory.resident == "program"


def of_devices(
    job: Job, layout: Layout, parts: Body, schedule: Schedule
) -> dict[str, Use]:
    """Bytes by kind on the first, the second (any in the middle; those before the last, where
    weight gradients are held back) and the last device of the pipeline, at its fullest moment.
    """
    if not whole_program(job):
        return memory.of_devices(job, layout, parts, schedule)
    by = shares(job, layout, schedule, layout.interleave)
    of = closed.units(job, layout, layout.recompute)
    if called := naming(parts.boundary):
        of = closed.explained(of, labels(job.model), called)
    found = {}
    for end in by.called(*ENDS):
        at = closed.device(job, layout, schedule, layout.interleave, by, end)
        flying = closed.flying(job, layout, of, at, schedule, layout.recompute)
        states = standing(job, layout, layout, of, at, layout.zero)
        moments = [
            Use(s.weights, s.gradients, s.optimizer, held, s.buffers)
            for s, held in zip(states, flying, strict=True)
        ]
        found[end] = reduce(fuller, moments)
    return found


def use(job: Job, layout: Layout, parts: Body, schedule: Schedule) -> Use:
    """Bytes by kind on the fullest device."""
    return reduce(fuller, of_devices(job, layout, parts, schedule).values())


def new_block(
    job: Job, layout: Layout, parts: Body, schedule: Schedule
) -> Num:
    """Bytes of a block that the allocator takes beside all it holds."""
    return (
        0.0
        if whole_program(job)
        else memory.new_block(job, layout, parts, schedule)
    )


def walked(job: Job, layout: Layout) -> dict[str, float] | None:
    """Bytes by term of the fullest rank at its peak, by a walk through the program; None of other
    frameworks.

    layout: one that is placed. Of a pipeline those ranks are walked of which one is the fullest,
    as `of_devices` asks them.
    """
    if not whole_program(job):
        return None
    wanted = carried_out(replace(job, layout=layout))
    by = shares(wanted, layout, schedule_of(layout), layout.interleave)
    ranks = {int(by[end].rank) for end in by.called(*ENDS)}
    found = [peak(wanted, rank) for rank in sorted(ranks)]
    fullest = max(found, key=lambda ledger: ledger.highest)
    return {term: float(size) for term, size in fullest.peak.items() if size}


def named(terms: Mapping[str, float]) -> str:
    """The largest terms of a peak, for people."""
    largest = sorted(terms.items(), key=lambda term: -term[1])[:NAMED]
    return ", ".join(f"{show(size, 'GiB')} {name}" for name, size in largest)
