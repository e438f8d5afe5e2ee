"""How long an order takes, and what it holds, in every row of a table of layouts.

Rows with as many ranks, microbatches and chunks run one order, which is replayed for all of them
together (`longest`). In an explanation a step is a sum: of each pass and of a send as many as lie
on the longest path, by how much longer the step is when one of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..num import Num
from .longest import costs_of, longest
from .stage_costs import Pass, StageCosts
from .types import Schedule

Floats: TypeAlias = NDArray[np.float64]
LONGER = 1e-6
"""Share by which a pass is made longer, to see how often it lies on the longest path."""


def each(
    what: Callable[[int, int, int], float], p: Num, m: Num, v: Num
) -> Num:
    """Of every row."""
    columns = np.broadcast_arrays(p, m, v)
    if not columns[0].shape:
        return what(int(p), int(m), int(v))
    found = np.empty(columns[0].shape)
    for at, rows in _alike(columns):
        found[rows] = what(*at)
    return found


def _alike(columns: Any) -> Any:
    """(p, m, v) that there are, each with its rows."""
    table = np.stack([column.ravel() for column in columns])
    which, number = np.unique(table, axis=1, return_inverse=True)
    number = number.reshape(columns[0].shape)
    for k, at in enumerate(which.T):
        yield tuple(map(int, at)), number == k


def timed(
    schedule: Schedule, at: tuple[int, int, int], d: StageCosts
) -> Schedule:
    """The schedule of one layout with the order that it has there. at: (p, m, v)."""
    if not schedule.by_costs:
        return schedule
    plain = [float(x) for x in d.numbers]
    passes = stage_seconds(schedule, at, d.of(plain))
    return schedule.timed(costs_of(passes, plain[-1]))


def one(
    schedule: Schedule, at: tuple[int, int, int], d: StageCosts, barrier: bool
) -> float:
    """Seconds of a step, or in a run of them, of one layout. at: (p, m, v)."""
    passes = stage_seconds(schedule, at, d)[None]
    send = np.array([d.send])
    return float(longest(schedule, *at, passes, send, barrier)[0])


def itemised(
    schedule: Schedule,
    at: tuple[int, int, int],
    several: Sequence[StageCosts],
    barrier: bool,
) -> list[Num]:
    """The same of one order with several costs, each a sum of them: so often as a pass or a send
    lies on the longest path, which is by how much longer the step is when one of them is. All are
    replayed at once.
    """
    rows: list[list[float]] = []
    steps = []
    for d in several:
        plain = [float(x) for x in d.numbers]
        least = min((x for x in plain if x > 0), default=1.0)
        step = LONGER * max(max(plain) / at[1], least)
        rows += [plain, *(plain + step * np.eye(len(plain))).tolist()]
        steps.append(step)
    columns = np.array(rows).T[..., None]
    passes = stage_seconds(schedule, at, several[0].of(list(columns)))
    sends = columns[-1, :, 0]
    seconds = longest(schedule, *at, passes, sends, barrier)
    found = []
    for d, step, (whole, *longer) in zip(
        several, steps, seconds.reshape(len(several), -1).tolist(), strict=True
    ):
        sum_: Num = 0.0
        for x, other in zip(d.numbers, longer, strict=True):
            if (times := round((other - whole) / step)) and x:
                sum_ = x * float(times) + sum_
        found.append(sum_ + (whole - float(sum_)))
    return found


def stage_seconds(
    schedule: Schedule, at: tuple[int, int, int], d: StageCosts
) -> Floats:
    """F, I and W of one microbatch through each stage: (stages, 3), of columns of costs (n, 1)
    (n, stages, 3).
    """
    p, _, v = at
    stages = d.at(np.arange(float(schedule.stage_count(p, v))))
    return np.stack([np.asarray(each) for each in stages], axis=-1)


def equal_stages(
    schedule: Schedule, p: Num, m: Num, v: Num, passes: Pass, barrier: bool
) -> Num:
    """Seconds of a step, or in a run of them, of every row, where each stage takes these passes and
    sends take nothing; a number where all are numbers.
    """
    columns = np.broadcast_arrays(p, m, v, *passes)
    each = np.stack(columns[3:], axis=-1)
    found = np.empty(columns[0].shape)
    for (ranks, k, chunks), rows in _alike(columns[:3]):
        count = int(schedule.stage_count(ranks, chunks))
        some = np.repeat(each[rows][:, None], count, axis=1)
        sends = np.zeros(len(some))
        found[rows] = longest(schedule, ranks, k, chunks, some, sends, barrier)
    return found if found.shape else float(found)
