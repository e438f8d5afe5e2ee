"""One's own installation: a scale from a few measured steps: folders of runs, or a job file with
the seconds of its steps.

What kernels, collectives and software leave unexplained is mostly common to all runs of one
machine: of published runs one constant a source halves the error. The scale is the median of
measured over predicted, drawn towards 1 as if one more step had come out as predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .. import catalog
from ..describe.cluster import Cluster, Installation
from ..describe.frozen import FrozenDict
from ..describe.job import Job
from ..errors import BadInput
from ..formats import bridge, run_folder
from ..formats.flags import read_flags
from ..prediction.prediction import Prediction
from ..units import show
from .as_run import predict_as_run

LEAST = 3
"""Measured steps that a scale needs."""
PRIOR = 1.0
"""Steps that came out as predicted, which the scale starts from."""


def scale(ratios: Sequence[float]) -> float:
    """The scale from measured over predicted of some steps."""
    middle = median(math.log(ratio) for ratio in ratios)
    return math.exp(middle * len(ratios) / (len(ratios) + PRIOR))


def demand_enough(ratios: Sequence[float]) -> None:
    """BadInput for fewer steps than a scale needs."""
    if len(ratios) < LEAST:
        raise BadInput(
            f"a scale needs at least {LEAST} measured steps, not {len(ratios)}"
        )


SLOWEST = 100.0
"""Measured over predicted that no run of the same job reaches: a thousand is milliseconds taken for
seconds."""


def demand_possible(p: Prediction, step_s: float) -> None:
    """BadInput for a measured step in which the chips would execute more than their peak, as their
    maker states it, or next to nothing; the peak of a machine of one's own may be a guess, which
    the steps correct.
    """
    if not catalog.has_shipped("chips", p.job.cluster.chip.name):
        return
    times = step_s / p.step_time_s
    if times > SLOWEST:
        raise BadInput(
            f"a step of {show(step_s, 's')} would be {times:.3g} times the"
            f" {show(p.step_time_s, 's')} predicted: it is of another job (model, batch, chips),"
            " or not in seconds"
        )
    share = p.hfu * p.step_time_s / step_s
    if share > 1.0:
        raise BadInput(
            f"a step of {show(step_s, 's')} would be {share:.3g} times the peak of"
            f" {p.job.cluster.machine}: it is of another job (model,"
            " batch, chips), or not in seconds"
        )


class MeasuredStep(NamedTuple):
    """A measured step beside its job."""

    name: str
    job: Job
    seconds: float

    @property
    def ratio(self) -> float:
        """Measured over predicted, before any scale."""
        plain = replace(self.job.cluster, installation=Installation())
        p = predict_as_run(replace(self.job, cluster=plain))
        demand_possible(p, self.seconds)
        return self.seconds / p.step_time_s


def steps(
    path: str, seconds: Sequence[float] = (), on: str | None = None
) -> list[MeasuredStep]:
    """What a file or folder measured; seconds: those of the steps of a job, or of another tool's
    file on the cluster `on`.
    """
    if Path(path).is_dir():
        return list(_of_folder(path))
    if path.endswith(".toml") or bridge.foreign(path):
        if not seconds:
            raise BadInput(
                f"{path} is a job: its steps' seconds are asked, --steps 1.21,1.23,1.20, or"
                " --steps train.log"
            )
        job = read_flags(path, {"on": on} if on else {})
        return [MeasuredStep(path, job, each) for each in seconds]
    raise BadInput(
        f"{path[:80]} is neither a folder of a run nor a job; rows of runs (.json) are read with"
        " meshwright[studies]"
    )


def _of_folder(path: str) -> Iterable[MeasuredStep]:
    """Steps of a folder that `train` wrote, under its newest layout; a median does not mind the
    first ones."""
    run = run_folder.read_run(path)
    for row in run.timed:
        yield MeasuredStep(path, run.job, float(row["step_time_s"]))


def installation(of: Sequence[MeasuredStep]) -> Cluster:
    """One chip of the machines that all steps ran on, with the scale of its steps.

    Steps of one job count as one measurement each; jobs that differ weigh alike.
    """
    demand_enough([step.seconds for step in of])
    kinds = {
        (step.job.cluster.chip, step.job.cluster.network.name) for step in of
    }
    if len(kinds) > 1:
        names = sorted({step.job.cluster.chip.name for step in of})
        raise BadInput(
            "one scale is of one installation, but the steps are of several kinds of machine:"
            f" {', '.join(names)}"
        )
    jobs: dict[Job, list[MeasuredStep]] = {}
    for step in of:
        jobs.setdefault(step.job, []).append(step)
    of_jobs = [median(step.ratio for step in each) for each in jobs.values()]
    ratios = [step.ratio for step in of] if len(jobs) == 1 else of_jobs
    factor = scale(ratios)
    named = sorted({Path(step.name).name for step in of})
    sources = {
        "scale": FrozenDict(
            {"source": f"measured steps: {', '.join(named)[:400]}"}
        )
    }
    known = Installation(round(factor, 4), len(of), FrozenDict(sources))
    return replace(of[0].job.cluster, chips=1, installation=known)
