"""What is known of each published run when a fit is judged: its error, and what a prediction of it
can be unsure of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from meshwright.prediction.certainty import (
    PARTS,
    PublishedRun,
    kind_of,
    part_shares,
)
from meshwright.prediction.prediction import Prediction

Column: TypeAlias = NDArray[np.float64]
LABORATORIES = {
    "vtrain-single": "vtrain",
    "vtrain-multi": "vtrain",
    "bigscience-tr11": "bigscience",
    "bigscience-tr3m": "bigscience",
    "megatron-readme-h100": "nvidia",
    "megatron-bridge": "nvidia",
    "dgxc-benchmarking": "nvidia",
    "nemo-summary": "nvidia",
    "automodel": "nvidia",
    "torchtitan-a100": "torchtitan",
}
"""Sources of one laboratory are left out together; others are their own."""


class Seen(NamedTuple):
    """A published run beside its prediction."""

    run: PublishedRun
    laboratory: str
    kind: str
    error: float
    """ln(measured / predicted)."""
    parts: dict[str, float]
    workload: tuple[object, ...] = ()

    @property
    def source(self) -> str:
        return self.run.source

    @property
    def predicted_s(self) -> float:
        """Seconds of its step as predicted."""
        return self.run.step_s / self.run.ratio


def run_seen(
    id: str,
    source: str,
    prediction: Prediction,
    measured: float,
    workload: tuple[object, ...],
) -> Seen:
    """A run beside the prediction of it."""
    job = prediction.job
    step = prediction.step_time_s
    ratio = measured / step
    run = PublishedRun.of(job, id, source, step_s=measured, ratio=ratio)
    error = math.log(ratio)
    of = part_shares(job, prediction.time_s)
    return Seen(
        run,
        laboratory(source),
        kind_of(job),
        error=error,
        parts=of,
        workload=workload,
    )


def laboratory(source: str) -> str:
    """Whose runs they are."""
    return LABORATORIES.get(source, source)


def log_errors(of: Sequence[Seen]) -> Column:
    """ln(measured / predicted)."""
    return np.array([one.error for one in of])


def rows_by_part(of: Sequence[Seen]) -> Column:
    """Rows by PARTS."""
    return np.array([[one.parts[name] for name in PARTS] for one in of])


def source_weights(of: Iterable[Seen]) -> Column:
    """Weights: every source as much as the next."""
    names = [one.source for one in of]
    count = Counter(names)
    return np.array([1 / count[name] for name in names])
