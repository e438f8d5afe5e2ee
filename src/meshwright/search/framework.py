"""Which rows and options the job's framework can run: its rules on the axes of the grid, each at
its own small shape.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ..describe.choices import Choices, listed
from ..describe.frozen import changed
from ..describe.job import Job
from ..describe.layout import Layout
from ..errors import BadInput
from ..layout.rules import LayoutRule, of_framework
from .options import Options
from .table import Mask
from .ways import Way

AXES = ("sequence_parallel", "recompute", "schedule", "zero")
"""Of the grid, before its rows."""
ROWS: tuple[set[str], ...] = (set(), {"sequence_parallel"})
"""Options of the rules that speak of a row under one setting of sequence parallelism."""
SCHEDULE = {"schedule"}


def allowed(job: Job, named: Choices) -> tuple[Choices, ...]:
    """What the framework can run; BadInput for values that the user names and it cannot."""
    profile = job.profile
    found = profile.choices if profile else ()
    for name, values in named.items():
        runs = {v for choices in found for v in choices.get(name, values)}
        if (
            profile
            and found
            and (beyond := [v for v in values if v not in runs])
        ):
            can = listed(
                dict.fromkeys(
                    v for choices in found for v in choices.get(name, ())
                ),
                16,
            )
            raise BadInput(
                f"framework {profile.name} runs {name} {can}, not {listed(beyond)}"
            )
    return found


def proposed(job: Job, runs: tuple[Choices, ...]) -> tuple[Choices, ...]:
    """What a plan takes of the layouts that the framework can run."""
    return (job.profile.proposes if job.profile else ()) or runs


def holds(
    job: Job, layout: Layout, speaks: Callable[[LayoutRule], bool]
) -> Any:
    """Where the rules that one chooses hold, row by row."""
    fine: Any = True
    for rule in of_framework(job):
        if speaks(rule):
            fine = fine & np.asarray(rule.holds(job, layout), dtype=bool)
    return fine


def rows(job: Job, layout: Layout, exact: bool, placed: bool) -> Any:
    """Where a row can run under any option. exact: its dp is one, not the least of several; placed:
    its ranks have their place.
    """
    return holds(
        job,
        layout,
        lambda rule: (
            {*rule.options} in ROWS
            and (exact or not rule.replicas)
            and (placed or not rule.placed)
        ),
    )


def schedules(job: Job, layout: Layout, way: Way, exact: bool = True) -> Any:
    """Where a schedule can run. exact: dp is one, not the most of several."""
    if not of_framework(job):
        return True
    return holds(
        job,
        way.layout(layout),
        lambda rule: (
            {*rule.options} == SCHEDULE and (exact or not rule.replicas)
        ),
    )


def barred(
    job: Job, layout: Layout, choice: Options, exact: bool, placed: bool
) -> Mask | None:
    """Where combinations of options cannot run: (1, recompute, schedule, zero, row); None:
    nowhere. exact, placed: as in `rows`.
    """
    rules = [
        rule
        for rule in of_framework(job)
        if {*rule.options} not in (*ROWS, SCHEDULE)
        and (exact or not rule.replicas)
        and (placed or not rule.placed)
    ]
    if not rules:
        return None
    count = len(np.atleast_1d(np.asarray(layout.pp)))
    found = np.zeros((1, *choice.shape[1:], count), dtype=bool)
    for rule in rules:
        axes: list[list[tuple[Any, Any]]] = [
            list(enumerate(values))
            if name in rule.options
            else [(slice(None), None)]
            for name, values in zip(AXES[1:], choice.axes[1:], strict=True)
        ]
        for (r, recompute), (k, schedule), (z, zero) in product(*axes):
            given = {"recompute": recompute}
            rows = layout if zero is None else zero.layout(layout)
            if schedule is not None:
                given |= schedule.fields
            one: Any = {
                name: value
                for name, value in given.items()
                if value is not None
            }
            found[0, r, k, z] |= ~np.asarray(
                rule.holds(job, changed(rows, **one)), dtype=bool
            )
    return found
