"""Schedules without closed forms: idle time, span and memory are read off the order itself.

A search asks for many layouts at once; those with as many ranks, microbatches and chunks run one
order, which is replayed for all of them together (`longest`). In an explanation a step is a sum:
of each pass and of a send as many as lie on the longest path, by how much longer the step is when
one of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..num import Itemised, Num, where
from .dealt import Dealt, Pass
from .longest import longest
from .order import in_flight_rank
from .types import Order, Rule, Schedule

Floats: TypeAlias = NDArray[np.float64]
Stage: TypeAlias = Callable[[float], Pass]
LONGER = 1e-6
"""Share by which a pass is made longer, to see how often it lies on the longest path."""
ROUNDS = 6
"""An order of more microbatches than so many for each rank holds no more at once: it repeats."""


class Own(NamedTuple):
    """What a schedule says of itself."""

    name: str
    title: str
    source: str
    order: Callable[[int, int, int], Order]
    stage_of: Callable[[int, int, int, int], int]
    chunks: Callable[[Num], Num]
    split_backward: bool
    needs: tuple[Rule, ...]


def by_replay(own: Own) -> Schedule:
    """The schedule, with all else from its order."""

    def nothing(*_: object) -> Any:
        raise NotImplementedError

    bare = Schedule(
        **own._asdict(),
        torch_name=None,
        bubble=nothing,
        span=nothing,
        in_flight=nothing,
        heads=nothing,
        replayed=True,
    )

    def idle(barrier: bool) -> Callable[[Num, Num, Num, Num, Num, Num], Num]:
        def of(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
            n = own.chunks(v)
            each = Pass(f / n, i / n, w / n)
            whole = _seconds(bare, (p, m, v), lambda _: each, 0.0, barrier)
            return whole - m * (f + i + w)

        return of

    def span(d: Dealt, barrier: bool) -> Num:
        whole = _seconds(bare, (d.p, d.m, d.v), d.at, d.send, barrier)
        return where(d.p == 1, d.busy(0.0), whole)

    def held(which: str) -> Callable[[Num, Num, Num], Num]:
        def of(p: Num, m: Num, v: Num) -> Num:
            return _each(
                lambda *at: getattr(_holds(bare, *at), which), p, m, v
            )

        return of

    return replace(
        bare,
        bubble=idle(True),
        bubble_in_run=idle(False) if own.split_backward else None,
        least_bubble_of=_none,
        least_in_run_of=_none if own.split_backward else None,
        span=span,
        in_flight=held("most"),
        in_flight_on_last=held("at_end"),
        heads=held("heads"),
        heads_late=held("late"),
    )


def _none(p: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """No bound of the bubble but this."""
    return 0.0 * (p * f)


class Holds(NamedTuple):
    """What ranks hold at once."""

    most: float
    at_end: float
    heads: float
    late: float


@lru_cache(maxsize=4096)
def _holds(schedule: Schedule, p: int, m: int, v: int) -> Holds:
    order = schedule.order(p, min(m, ROUNDS * p + m % p), v)
    chunks = int(schedule.chunks(v))
    end = 0 if schedule.folded else p - 1
    at = [schedule.stage_of(end, c, p, v) for c in range(chunks)]
    head = at.index(max(at))
    waits = late = 0
    fullest = (0, 0)  # most logits, and what waits for W then
    for kind, chunk, _ in order[end]:
        if chunk == head:
            waits += (kind == "F") - (kind in "IB")
            late += (kind == "I") - (kind == "W")
            fullest = max(fullest, (waits, late))
    each = [in_flight_rank(order, rank) for rank in range(p)]
    return Holds(max(each), each[end], *fullest)


def _each(
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


def _seconds(
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
    return range(int(p * schedule.chunks(v)))


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
