"""How long an order takes, and what it holds, in every row of a table of layouts.

Rows with as many ranks, microbatches and chunks run one order, which is replayed for all of them
together (`longest`). In an explanation a step is a sum: of each pass and of a send as many as lie
on the longest path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..num import Num, naming
from .longest import LongestPath, longest, longest_path
from .order import ROUNDS, in_flight_rank
from .stage_costs import StageCosts
from .types import ScheduleOrder

Floats: TypeAlias = NDArray[np.float64]


def in_rows(
    value: Callable[[int, int, int], float], p: Num, m: Num, v: Num
) -> Num:
    """The value of (p, m, v) in every row of a table; of numbers a number."""
    columns = np.broadcast_arrays(p, m, v)
    if not columns[0].shape:
        return value(int(p), int(m), int(v))
    values = np.empty(columns[0].shape)
    for at, rows in _rows_by_shape(columns):
        values[rows] = value(*at)
    return values


def _rows_by_shape(columns: Any) -> Any:
    """(p, m, v) that there are, each with its rows."""
    table = np.stack([column.ravel() for column in columns])
    which, number = np.unique(table, axis=1, return_inverse=True)
    number = number.reshape(columns[0].shape)
    for k, at in enumerate(which.T):
        yield tuple(map(int, at)), number == k


Paths: TypeAlias = dict[bool, LongestPath]
"""Longest paths of the order of one layout: with sends (True), and where none takes time."""


def replayed(
    schedule: ScheduleOrder,
    at: tuple[int, int, int],
    costs: StageCosts,
    barrier: bool,
    paths: Paths,
) -> Num:
    """Seconds of a step, or in a run of them, of one layout. at: (p, m, v). Of costs with names a
    sum: as often as a pass or a send lies on the longest path.

    paths: longest paths of this layout that are known; one that is not is put there, of the same
    order as the others."""
    named = any(map(naming, costs.numbers))
    sent = any(costs.sends.seconds)
    if sent not in paths:
        plain = (
            costs.with_numbers([float(x) for x in costs.numbers])
            if named
            else costs
        )
        known = next(iter(paths.values()), None)
        passes = known.passes if known else plain.every_stage
        sends = plain.sends.each(len(passes) - 1)
        paths[sent] = (
            replace(known, sends=sends)
            if known
            else longest_path(schedule, *at, passes, sends, barrier)
        )
    path = paths[sent]
    if not named:
        return path.seconds
    passed, crossed = path.often
    units = costs.sends._replace(
        seconds=(*np.eye(len(costs.sends.seconds))[..., None],)
    )
    often = [
        *(costs.partition.every_stage @ passed).ravel().tolist(),
        *(units.each(len(crossed)) @ crossed).tolist(),
    ]
    total: Num = 0.0
    for x, times in zip(costs.numbers, often, strict=True):
        if times and x:
            total = x * times + total
    return total + (path.seconds - float(total))


def bubble_of_order(
    schedule: ScheduleOrder,
    p: Num,
    m: Num,
    v: Num,
    passes: tuple[Num, Num, Num],
    barrier: bool,
    asked: Any,
) -> Num:
    """Idle seconds of a device per step, or in a run of them, of every row that is asked for: what
    equal stages take longer than their passes. passes: f, i and w of a device. A number where all
    are numbers.
    """
    columns = np.broadcast_arrays(p, m, v, *passes)
    seconds = np.stack(columns[3:], axis=-1)
    idle = np.zeros(columns[0].shape)
    for (ranks, k, chunks), alike in _rows_by_shape(columns[:3]):
        rows = alike & asked
        if not rows.any():
            continue
        count = int(schedule.stage_count(ranks, chunks))
        own = seconds[rows][:, None] / schedule.chunks(chunks)
        some = np.repeat(own, count, axis=1)
        sends = np.zeros((len(some), count - 1))
        idle[rows] = longest(
            schedule,
            ranks,
            k,
            v=chunks,
            passes=some,
            sends=sends,
            barrier=barrier,
        )
    idle -= schedule.rounds(m) * sum(passes)
    return idle if idle.shape else float(idle)


class Holds(NamedTuple):
    """Microbatches that ranks hold at once."""

    most: float
    """On the fullest rank."""
    end: float
    """On the rank of the last stage."""
    heads: float
    """There, of its logits."""
    late: float
    """When it holds the most logits: those whose gradient of the last stage's weights is not made.
    """


@lru_cache(maxsize=4096)
def order_holds(schedule: ScheduleOrder, p: int, m: int, v: int) -> Holds:
    """What an order holds: once the pipeline is filled each microbatch takes the place of another,
    unless all of them are held. So if one more of a few adds nothing, no further one does."""
    few = min(m, ROUNDS * p)
    held_by_few = _counted(schedule, p, few, v)
    if few == m or held_by_few == _counted(schedule, p, few + 1, v):
        return held_by_few
    return _counted(schedule, p, m, v)


def _counted(schedule: ScheduleOrder, p: int, m: int, v: int) -> Holds:
    order = schedule.order(p, m, v)
    end = 0 if schedule.folded else p - 1
    stages = [
        schedule.stage_of(end, chunk, p, v)
        for chunk in range(int(schedule.chunks(v)))
    ]
    head = stages.index(max(stages))
    waits = late = 0
    fullest = (0, 0)
    for kind, chunk, _ in order[end]:
        if chunk == head:
            waits += (kind == "F") - (kind in "IB")
            late += (kind == "I") - (kind == "W")
            fullest = max(fullest, (waits, late))
    flight = [in_flight_rank(order, rank) for rank in range(p)]
    return Holds(max(flight), flight[end], *fullest)
