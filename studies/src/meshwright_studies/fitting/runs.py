"""Published runs as jobs with a step time: what a fit may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.compare.as_run import predict_as_run
from meshwright.describe.job import Job
from meshwright.errors import BadInput

from ..validate import out_of_scope
from ..validate.measured import quantities_judged, step_time, workload
from ..validate.rows import Row, plain, table_of_row
from ..validate.silent import described, held_out


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
    with_times = (
        measured_run(row)
        for row in rows
        if not (out_of_scope(row) or held_out(row))
    )
    return tuple(one for one in with_times if one)


def measured_run(row: Row) -> Measured | None:
    """One row; None if it has no step time, or is no job."""
    try:
        job = described(row).job
        seconds = step_time(table_of_row(row, "measured"), job)
        asked = quantities_judged(row)
        if not seconds or (asked and not asked & {"step_time", "tflops/mfu"}):
            return None
        predict_as_run(job)
    except (BadInput, ArithmeticError, ValueError):
        return None
    name = plain(row, "id")[:120]
    source = plain(row, "source")[:120]
    return Measured(
        name, source, job, step_s=seconds, workload=workload(row, job)
    )
