"""Schedules as a search sees them: each with a way to deal layers to its stages, and the numbers of
chunks that it may have.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.stages import StageChoice
from ..describe.stages import stages as stages_named
from ..layout.stages import schedule_with
from ..schedule import get as schedule_named
from ..schedule.schedule import Schedule
from ..step import memory
from .table import Column


class Way(NamedTuple):
    """A schedule, how layers are dealt to its stages, and its numbers of chunks."""

    schedule: str
    stages: str = "even"
    microbatch_group: int = 0
    chunks: tuple[int, ...] = ()
    beside_even: bool = False
    """The space has even stages too, so that those of slots count where they differ."""

    @property
    def bound(self) -> Schedule:
        """The schedule as these layouts run it."""
        return schedule_with(*self.fields.values())

    @property
    def fields(self) -> dict[str, Any]:
        """What a layout says of it."""
        return {
            "schedule": self.schedule,
            "stages": self.stages,
            "microbatch_group": self.microbatch_group,
        }

    def layout(self, rows: Layout) -> Layout:
        """The same rows with this schedule."""
        return replace(rows, **self.fields)

    @property
    def chunked(self) -> bool:
        """Its chunks are a choice."""
        return bool(schedule_named(self.schedule).chunks(7) == 7)

    @property
    def dealt(self) -> StageChoice:
        """The way to deal layers."""
        return stages_named(self.stages)

    def filled(self, job: Job, p: Column, v: Column) -> Any:
        """Where it has v chunks, and there are layers for all stages."""
        stages = np.asarray(self.bound.stage_count(p, v))
        return np.isin(v, self.chunks) & self._enough(job, stages)

    def _enough(self, job: Job, stages: Column) -> Any:
        how, layers = self.dealt, job.model.layers
        chunked = self.chunks[0] > 1
        if how.layers:
            return (stages == len(how.layers)) & (sum(how.layers) == layers)
        ends = 2 if job.model.vocab and (chunked or how.slots) else 0
        fine = stages <= layers + ends
        if how.slots:
            fine = fine & (job.model.vocab > 0)
            if self.beside_even:
                # where just the ends are light, even stages are the same
                fine = fine & (-layers % stages != 2) & (stages > 2)
        # papers add up chunks that hold as many layers
        even = step.by_order(job) or not chunked
        return fine if even else fine & (layers % stages == 0)

    def runs(self, job: Job, p: Column, m: Column, v: Column) -> Any:
        """Where it can run with m microbatches (on one stage: `legal.runs`)."""
        can: NDArray[np.bool_] = np.array(self.filled(job, p, v))
        rows = np.flatnonzero(can)
        can[rows] = self.bound.legal(p[rows], m[rows], v[rows])
        return can


@cache
def by_need(ways: tuple[Way, ...]) -> list[tuple[int, Way, int]]:
    """(its number, schedule, chunks) on one stage, that first which holds the activations of the
    fewest microbatches.
    """
    every = [
        (k, way, v)
        for k, way in enumerate(ways)
        for v in (way.chunks if way.dealt.layers else way.chunks[:1])
    ]

    def held(each: tuple[int, Way, int]) -> float:
        _, way, v = each
        first = step.ENDS[0]
        return float(memory.in_flight(1.0, 2.0, way.bound, float(v), first))

    return sorted(every, key=held)
