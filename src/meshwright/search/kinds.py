"""Schedules as the grid sees them: where each can run, and how it deals layers to devices."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..num import ceil_div
from ..schedule import get as schedule_named
from ..schedule.types import Schedule
from ..step import memory
from . import framework
from .nearest import pick
from .space import Column, Options

Mask = NDArray[np.bool_]


class Kind(NamedTuple):
    """A schedule as the grid sees it."""

    schedule: Schedule
    v: float

    @property
    def chunks(self) -> float:
        """Chunks of the model on a device."""
        return float(self.schedule.chunks(self.v))

    def even(self, job: Job, p: Column) -> Any:
        """Where there are layers for all stages: as many for each, if a device has several."""
        stages = p * self.chunks
        return job.model.layers % stages == 0 if self.chunks > 1 else stages <= job.model.layers

    def runs(self, job: Job, p: Column, m: Column) -> Mask:
        """Where it can run (on one stage: `runs`)."""
        can = p * self.chunks <= job.model.layers
        rows = np.flatnonzero(can)
        p, m = p[rows], m[rows]
        can[rows] = self.even(job, p) & self.schedule.legal(p, m, self.v)
        return can


def kinds(choice: Options) -> list[Kind]:
    """The schedules of the options."""
    return [Kind(schedule_named(name), float(v)) for name, v in choice.schedules]


@cache
def by_need(schedules: tuple[tuple[str, int], ...]) -> list[int]:
    """Positions of schedules, the one first that holds the activations of the fewest microbatches
    on one stage.
    """

    def held(at: int) -> float:
        name, v = schedules[at]
        return float(memory.in_flight(1.0, 2.0, schedule_named(name), float(v), step.ENDS[0]))

    return sorted(range(len(schedules)), key=held)


def runs(job: Job, choice: Options, rows: Layout, m: Column) -> list[Mask]:
    """Where each schedule can run. On one stage all take as long: only that counts which holds
    least, of those the first.
    """
    p, every = np.asarray(rows.pp), choice.all.schedules
    found = [
        kind.runs(job, p, m) & framework.schedules(job, rows, kind.schedule.name, kind.v)
        for kind in kinds(choice)
    ]
    one = np.flatnonzero(p == 1)
    alone = pick(rows, one)
    free = np.ones(len(one), dtype=bool)
    mine = {schedule: k for k, schedule in enumerate(choice.schedules)}
    for schedule in (every[at] for at in by_need(every)):
        can = free
        if free.any():
            can = free & Kind(schedule_named(schedule[0]), float(schedule[1])).runs(
                job, p[one], m[one]
            )
            can = can & framework.schedules(job, alone, *schedule)
        free = free & ~can
        if schedule in mine:
            found[mine[schedule]][one] = can
    return found


Deal = tuple[bool, float]
"""How layers are dealt: (folded, chunks, where it matters)."""


def deals(job: Job, choice: Options) -> list[Deal]:
    """The ways in which the schedules deal layers, those that keep as many on each device once;
    chunks matter to leading layers, and to recomputation of the first of each."""
    matter = step.leading_layers(job) > 0
    matter = matter or any(recompute(text).layers for text in choice.all.recompute)
    return [
        (kind.schedule.folded, kind.chunks if matter else 1.0 + kind.schedule.folded)
        for kind in kinds(choice)
    ]


def holders_of(job: Job, layout: Layout, deal: Deal) -> step.Shares:
    """What the devices hold."""
    folded, chunks = deal
    name = "zbv" if folded else "interleaved" if chunks > 1 else "1f1b"
    return step.shares(job, layout, schedule_named(name), chunks)


def fullest(job: Job, pp: Column) -> Column:
    """At least so many typical layers are on some device."""
    return np.asarray(ceil_div(job.model.layers - step.leading_layers(job), pp))
