"""How long an order takes, and what it holds, in every row of a table of layouts.

Rows with as many ranks, microbatches and chunks run one order, which is replayed for all of them
together (`longest`). In an explanation a step is a sum: of each pass and of a send as many as lie
on the longest path, by how much longer the step is when one of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..num import SCALARS, Itemised, Num, anywhere, where
from .dealt import Dealt, Pass
from .longest import costs_of, longest
from .types import Schedule

Floats: TypeAlias = NDArray[np.float64]
Stage: TypeAlias = Callable[[float], Pass]
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


def refined(
    schedule: Schedule, p: Num, m: Num, v: Num, d: Dealt, barrier: bool
) -> Num:
    """The span of a schedule; where it is only a bound, the longest path of the order itself."""
    closed = schedule.span(d, barrier)
    loose = (p > 1) & schedule.loose(d) if schedule.loose else False
    if not anywhere(loose):
        return closed
    found = seconds(schedule, (p, m, v), d.at, d.send, barrier)
    return where(loose, found, closed)


def timed(schedule: Schedule, p: Num, v: Num, d: Dealt) -> Schedule:
    """The schedule of one layout with the order that it has there."""
    if not schedule.by_costs or not isinstance(p, SCALARS):
        return schedule
    passes = [d.at(float(k)) for k in _stages(schedule, int(p), int(v))]
    return schedule.timed(
        costs_of(np.array(passes, dtype=float), float(d.send))
    )


def seconds(
    schedule: Schedule,
    at: tuple[Num, Num, Num],
    stage: Stage,
    send: Num,
    barrier: bool,
) -> Num:
    """Of a step, or in a run of them, of every row."""
    one = stage(0.0)
    shape = np.broadcast_shapes(
        *(np.shape(x) for x in (*at, send, one.f, one.i, one.w))
    )
    if not shape:
        whole = tuple(map(int, at))
        every = _stages(schedule, whole[0], whole[2])
        passes = [stage(float(k)) for k in every]
        return _one(schedule, whole, passes, send, barrier)
    columns = np.broadcast_arrays(*at, np.empty(shape))[:3]
    found = np.empty(shape)
    for (p, m, v), rows in _alike(columns):
        stages = [stage(float(k)) for k in _stages(schedule, p, v)]
        sends = np.broadcast_to(send, shape)[rows]
        found[rows] = longest(
            schedule, p, m, v, _some(stages, rows), sends, barrier
        )
    return found


def _stages(schedule: Schedule, p: int, v: int) -> range:
    return range(int(schedule.stage_count(p, v)))


def _some(passes: list[Pass], rows: Any) -> Floats:
    """(rows, stages, 3) seconds."""
    return np.stack(
        [
            np.stack([np.broadcast_to(x, rows.shape)[rows] for x in each], -1)
            for each in passes
        ],
        1,
    )


def _one(
    schedule: Schedule,
    at: tuple[int, ...],
    passes: list[Pass],
    send: Num,
    barrier: bool,
) -> Num:
    """Of one layout; of items a sum of them."""
    p, m, v = at
    every = [*(x for each in passes for x in each), send]
    plain = np.array([float(x) for x in every])
    schedule = schedule.timed(costs_of(plain[:-1].reshape(-1, 3), plain[-1]))

    def replayed(rows: Floats) -> Floats:
        shaped = rows[:, :-1].reshape(len(rows), -1, 3)
        return longest(schedule, p, m, v, shaped, rows[:, -1], barrier)

    seconds = float(replayed(plain[None])[0])
    if not any(isinstance(x, Itemised) for x in every):
        return seconds
    step = LONGER * max(plain.max() / m, plain[plain > 0].min(initial=1.0))
    longer = replayed(plain + step * np.eye(len(plain)))
    often = np.rint((longer - seconds) / step)
    found: Num = 0.0
    for times, x in zip(often, every, strict=True):
        if times and x:
            found = x * float(times) + found
    return found + (seconds - float(found))
