"""Published runs as jobs with a step time: what a fit may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.describe.job import Job

from ..validate import validate
from ..validate.rows import Row


@dataclass(frozen=True)
class Measured:
    """A run's job and its step time."""

    id: str
    source: str
    job: Job
    step_s: float
    workload: tuple[object, ...]


def runs(rows: Sequence[Row]) -> tuple[Measured, ...]:
    """The rows that a fit may use: complete runs with a step time, in scope."""
    return tuple(
        Measured(c.id, c.source, c.job, c.measured, c.workload)
        for c in validate(rows).having("step_time")
        if c.job and c.measured
    )
