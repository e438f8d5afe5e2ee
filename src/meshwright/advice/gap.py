"""A measured time beside the predicted one: what could explain the gap, as far as that can be told.

A run says how long its steps took and not why. What its description leaves open is tried the other
way: a setting that brings the prediction near to what was measured may be the one that runs. And
each cause is asked how many times its seconds it would have to take to explain the gap alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..describe.recompute import recompute
from ..prediction.prediction import Prediction
from .changes import Change, singles, software_changes, value_in_effect
from .judged import Judge
from .spoken import Tongue

CLOSER = 0.5
"""An assumption explains a gap that it makes smaller than this share of it."""
NAMED = 3
"""Assumptions, and causes, that are named."""
TIMES = 3.0
"""A cause that would have to take more times its seconds, or less than the inverse, does not
explain the gap alone."""


@dataclass(frozen=True)
class Gap:
    """Seconds of a step as they were measured, and as they were predicted."""

    measured_s: float
    predicted_s: float
    interval_s: tuple[float, float] | None
    steps: int
    assumptions: tuple[tuple[str, Any, Any, float], ...]
    """(field that nobody said, what is assumed, what it may be, seconds predicted so), nearest to
    the measured time first."""
    causes: tuple[tuple[str, float], ...]
    """(cause, times its predicted seconds with which it alone explains the gap)."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    @property
    def inside(self) -> bool:
        """The measured time lies in the 90 % interval."""
        within = self.interval_s
        return bool(within and within[0] <= self.measured_s <= within[1])

    def to_dict(self) -> dict[str, Any]:
        """Its fields for `--json`."""
        return {
            "step_time_s": self.measured_s,
            "predicted_s": self.predicted_s,
            "interval_s": self.interval_s,
            "inside": self.inside,
            "steps": self.steps,
            "assumptions": [
                {"field": f, "assumed": a, "may_be": b, "step_time_s": s}
                for f, a, b, s in self.assumptions
            ],
            "causes": dict(self.causes),
        }


def gap(
    run: Prediction,
    steps: Sequence[float],
    words: Tongue,
    taken: Iterable[str] = (),
) -> Gap:
    """What could explain that the steps of a run took as long as they did; taken: fields of the
    layout that nobody said; words: of the run's format, which has the other values.
    """
    measured = median(steps)
    return Gap(
        measured,
        run.step_time_s,
        run.interval_s,
        steps=len(steps),
        assumptions=tuple(_assumed(run, measured, words, {*taken})),
        causes=tuple(_causes(run, measured)),
    )


def _assumed(
    run: Prediction, measured: float, words: Tongue, taken: set[str]
) -> list[tuple[str, Any, Any, float]]:
    """Fields that nobody said, whose other value brings the prediction near."""
    judge, off = Judge(run), abs(math.log(measured / run.step_time_s))
    near: list[tuple[float, tuple[str, Any, Any, float]]] = []
    if off < math.log1p(judge.tie):
        return []
    for change in dict.fromkeys(
        (*singles(run.job), *software_changes(run.job))
    ):
        option = judge.option(change) if _open(run, change, taken) else None
        if option is None or not words.words(change):
            continue
        seconds = option.prediction.step_time_s
        left = abs(math.log(measured / seconds))
        if left < CLOSER * off:
            path, new = next(iter(change.fields.items()))
            near.append(
                (left, (path, value_in_effect(run.job, path), new, seconds))
            )
    return [found for _, found in sorted(near, key=lambda x: x[0])][:NAMED]


def _open(run: Prediction, change: Change, taken: set[str]) -> bool:
    """Nobody said the field that a change sets; some of the layers computed again, which nobody has
    by default, would explain any gap.
    """
    path, value = next(iter(change.fields.items()))
    table, _, name = path.partition(".")
    if name == "recompute" and recompute(value).layers:
        return False
    if table == "software":
        return getattr(run.job.software, name) is None
    return table == "layout" and name in taken


def _causes(run: Prediction, measured: float) -> list[tuple[str, float]]:
    """How many times its seconds each large cause would have to take."""
    more = measured - run.step_time_s
    times = [
        (cause, 1.0 + more / s)
        for cause, s in run.time_s.items()
        if s > 0 and 1.0 / TIMES < 1.0 + more / s < TIMES
    ]
    return sorted(times, key=lambda each: abs(each[1] - 1.0))[:NAMED]
