"""What each other value of each field of a layout would cost: the selectors of a page.

A *neighbour* is the layout with one field changed and the rest kept (replicas follow the degrees);
it costs one prediction. A *pinned* value is fixed while everything else is searched again; it costs
a plan. The two answer different questions, so nobody should show one as the other. Order and chunks
of microbatches are choices of pipelines, sequence parallelism is one of tp: where there is one
stage or rank no neighbour has others, and where they are pinned layouts with several are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from ..describe.choices import Value
from ..describe.job import Job
from ..describe.layout import CHUNKED, Layout
from ..describe.recompute import RECOMPUTE
from ..errors import BadInput
from ..layout import practice
from ..num import divisors
from ..prediction.prediction import Prediction, predict
from ..schedule import get as schedule_named
from .degrees import values_above_one
from .evaluate import Progress
from .plan import plan
from .space import USUAL, Space

NEAR = 7
"""Values of a degree that are shown, besides 1."""
FILLING = ("tp", "cp", "pp")
"""Degrees that leave room for fewer or more replicas."""
NEEDS: dict[str, tuple[str, Value]] = {
    "interleave": ("pp", 1),
    "schedule": ("pp", "1f1b"),
    "sequence_parallel": ("tp", True),
}
"""Choice -> the degree without which it changes nothing, and what it is there."""


@dataclass(frozen=True)
class FieldValue:
    """One value of one field."""

    field: str
    value: Value
    prediction: Prediction | None = None
    """None if the layout is not legal, or nothing fits."""
    why: str = ""
    """Why there is no prediction."""

    @property
    def note(self) -> str:
        """What no published run does, or the framework's released version: a value that is named
        is searched all the same.
        """
        p = self.prediction
        if p is None or not p.job.profile:
            return ""
        return "; ".join(practice.unusual(p.job, p.layout))

    def to_dict(self) -> dict[str, Any]:
        """SI units, keys that end in their unit."""
        p = self.prediction
        return {
            "field": self.field,
            "value": self.value,
            "step_time_s": p.step_time_s if p else None,
            "fits": p.fits if p else None,
            "needed_bytes": p.memory_bytes["needed"] if p else None,
            "risk_of_oom": p.risk_of_oom if p else None,
            "why": self.why,
            "note": self.note,
        }


def choices_of(job: Job, layout: Layout) -> dict[str, tuple[Value, ...]]:
    """Field -> the values to choose from, those near the layout's own among them; legal or not."""
    chips = job.cluster.chips
    experts = job.model.moe.experts if job.model.moe else 1
    wholes = {
        "tp": chips,
        "cp": chips,
        "pp": chips,
        "ep": experts,
        # more replicas than sequences still take one each
        "microbatch": max(int(job.batch // layout.dp), 1),
        "interleave": max(int(job.model.layers // layout.pp), 1),
    }
    degrees = {
        name: _near(divisors(whole), int(getattr(layout, name)))
        for name, whole in wholes.items()
        if name != "ep" or experts > 1
    }
    words = {
        "schedule": _with(USUAL["schedule"], layout.schedule),
        "zero": USUAL["zero"],
        "recompute": _with(RECOMPUTE, layout.recompute),
        "sequence_parallel": USUAL["sequence_parallel"],
    }
    return {**degrees, **words}


def _near(numbers: list[int], own: int) -> tuple[Value, ...]:
    """1, the layout's own value and those nearest to it."""
    ranked = sorted(numbers, key=lambda n: abs(log2(n / own)))
    return tuple(sorted({1, own, *ranked[:NEAR]}))


def _with(values: tuple[Value, ...], own: Value) -> tuple[Value, ...]:
    return values if own in values else (*values, own)


def neighbours(
    job: Job, layout: Layout, progress: Progress | None = None
) -> list[FieldValue]:
    """The layout with one field changed at a time; its own values are left out."""
    every = []
    for field, values in choices_of(job, layout).items():
        for value in values:
            if progress:
                progress("neighbours", 0.0)
            if value != getattr(layout, field):
                every.append(_neighbour(job, layout, field, value))
    return every


def _neighbour(
    job: Job, layout: Layout, field: str, value: Value
) -> FieldValue:
    degree = _required_degree(field, value)
    if degree and getattr(layout, degree) == 1:
        return _idle_value(field, value, degree)
    try:
        p = predict(job, with_choice(layout, field, value))
    except BadInput as error:
        return FieldValue(field, value, why=str(error))
    return FieldValue(field, value, p)


def with_choice(layout: Layout, field: str, value: Any) -> Layout:
    """The layout with one field changed: replicas take the chips that the degrees leave, and chunks
    go with the schedule.
    """
    other = layout.with_(**{field: value})
    if field in FILLING:
        other = other.refilling(int(layout.chips))
    if field == "schedule":
        chunks = (
            # an interleaved order of one chunk is 1F1B: its neighbour has two
            max(int(layout.interleave), 2)
            if schedule_named(value).chunked
            else int(schedule_named(value).chunks(1))
        )
        return replace(other, interleave=chunks)
    one = value == 1 or not schedule_named(layout.schedule).chunked
    if field == "interleave" and one:
        return replace(other, schedule=CHUNKED[value != 1])
    return other


def _required_degree(field: str, value: Value) -> str:
    """The degree that must be above 1 for the value to change anything; "": none."""
    degree, without = NEEDS.get(field, ("", value))
    return degree if value != without else ""


def _idle_value(field: str, value: Value, degree: str) -> FieldValue:
    why = f"{field} {value} changes nothing at {degree} 1"
    return FieldValue(field, value, why=why)


def pin_values(
    job: Job,
    space: Space,
    layout: Layout,
    progress: Progress | None = None,
) -> Iterator[FieldValue]:
    """The fastest layout with one field fixed at a time, the rest searched again; fields that the
    space fixes already are left out.

    layout: near which the values lie, the best of the space.
    """
    for field, values in choices_of(job, layout).items():
        if len(space.choices.get(field, (0, 0))) < 2:
            continue
        for value in values:
            if value != getattr(layout, field):
                yield _pin(
                    job,
                    space,
                    field,
                    value=value,
                    progress=progress,
                )


def _pin(
    job: Job,
    space: Space,
    field: str,
    value: Value,
    progress: Progress | None,
) -> FieldValue:
    if field in space.choices and value not in space.choices[field]:
        why = f"{field} {value} is not among those asked for"
        return FieldValue(field, value, why=why)
    within = space.but(**{field: (value,)})
    if degree := _required_degree(field, value):
        above_one = values_above_one(job, space, degree)
        if not above_one:
            return _idle_value(field, value, degree)
        within = within.but(**{degree: above_one})
    try:
        answer = plan(
            job,
            within,
            top=2,
            progress=progress,
            families=False,
        )
    except BadInput as error:
        return FieldValue(field, value, why=str(error))
    p = answer.fastest
    if p is None:
        why = (*answer.notes, "nothing fits")[0]
        return FieldValue(field, value, why=why)
    return FieldValue(field, value, p)
