"""Schedules as a search sees them: each with a way to deal layers to its stages, and the numbers of
chunks that it may have.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..describe.frozen import with_values
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.stages import StageChoice
from ..describe.stages import read_stages as stages_named
from ..layout.stages import schedule_with
from ..schedule import SCHEDULES
from ..schedule import get as schedule_named
from ..schedule.schedule import Schedule
from ..step.activations import in_flight
from .table import Column


class ScheduleOption(NamedTuple):
    """A schedule, how layers are dealt to its stages, and its numbers of chunks."""

    schedule: str
    stages: str = "even"
    microbatch_group: int = 0
    chunks: tuple[int, ...] = ()
    beside_even: bool = False
    """The space has even stages too, so that those of other rules count where they differ."""

    @property
    def order(self) -> Schedule:
        """The schedule as these layouts run it."""
        return schedule_with(self.schedule, self.stages, self.microbatch_group)

    @property
    def layer_deal(self) -> Schedule:
        """One schedule to stand for all that deal layers to ranks as this one does, whatever their
        order of microbatches: what devices hold, synchronise and update is computed once for it.
        """
        placed = self.order.stage_of, self.order.copies
        alike = [
            s for s in SCHEDULES.values() if (s.stage_of, s.copies) == placed
        ]
        dealer = max(alike, key=lambda s: s.chunked)
        return schedule_with(dealer.name, self.stages)

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
        return with_values(rows, **self.fields)

    @property
    def chunked(self) -> bool:
        """Its chunks are a choice."""
        return schedule_named(self.schedule).chunked

    @property
    def stage_choice(self) -> StageChoice:
        """`stages`, read: a rule, or listed layers."""
        return stages_named(self.stages)

    def allows(self, job: Job, p: Column, v: Column) -> NDArray[np.bool_]:
        """Mask of the rows in which this is tried, on p ranks with v chunks each.

        A list of layers needs as many stages as it has entries. Another rule beside "even" is tried
        where the two deal L layers to S stages differently. "slots" deals them alike in two stages,
        and where S divides L + 2: then both give the first and the last stage one layer less. More
        stages than layers are those of slots alone. "rest" deals them alike where at most one layer
        is missing, which both leave out of the last stage.
        """
        stages = np.asarray(self.order.stage_count(p, v))
        fine = np.isin(v, self.chunks)
        if self.stage_choice.layers:
            fine &= stages == len(self.stage_choice.layers)
        layers = job.model.layers
        missing = -layers % stages
        if self.stages == "slots" and self.beside_even:
            fine &= (missing != 2) & (stages > 2) | (stages > layers)
        if self.stages == "rest" and self.beside_even:
            fine &= missing > 1
        return fine


@cache
def by_activations(
    schedules: tuple[ScheduleOption, ...],
) -> list[tuple[int, ScheduleOption, int]]:
    """(its number, schedule, chunks) on one stage, that first which holds the activations of the
    fewest microbatches.
    """
    every = [
        (k, option, v)
        for k, option in enumerate(schedules)
        for v in (
            option.chunks if option.stage_choice.layers else option.chunks[:1]
        )
    ]

    def microbatches_held(each: tuple[int, ScheduleOption, int]) -> float:
        _, option, v = each
        return float(in_flight(1.0, 2.0, option.order, v=float(v), rank=0.0))

    return sorted(every, key=microbatches_held)
