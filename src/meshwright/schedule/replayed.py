"""Schedules without closed forms: idle time and memory are read off the order itself.

How long the order takes for many layouts at once, `replays` says; it brings NumPy, and is loaded
when first asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ..num import Num
from .order import ROUNDS, in_flight_rank
from .stage_costs import Pass
from .types import Bubble, Order, Rule, Schedule


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
        in_flight=nothing,
        heads=nothing,
        replayed=True,
    )

    def held(which: str) -> Callable[[Num, Num, Num], Num]:
        def of(p: Num, m: Num, v: Num) -> Num:
            from .replays import each

            return each(lambda *at: getattr(_holds(bare, *at), which), p, m, v)

        return of

    return replace(
        bare,
        bubble=idle(bare, True),
        bubble_in_run=idle(bare, False) if own.split_backward else None,
        least_bubble_of=no_bound,
        least_in_run_of=no_bound if own.split_backward else None,
        in_flight=held("most"),
        in_flight_on_last=held("at_end"),
        heads=held("heads"),
        heads_late=held("late"),
    )


def idle(schedule: Schedule, barrier: bool) -> Bubble:
    """The bubble of equal stages: what a replay takes longer than their passes."""

    def of(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
        from .replays import equal_stages

        n = schedule.chunks(v)
        each = Pass(f / n, i / n, w / n)
        whole = equal_stages(schedule, p, m, v, each, barrier)
        return whole - m * (f + i + w)

    return of


def no_bound(p: Num, v: Num, f: Num, *more: Num) -> Num:
    """Of a bubble: nothing."""
    return 0.0 * (p * f)


class Holds(NamedTuple):
    """What ranks hold at once."""

    most: float
    at_end: float
    heads: float
    late: float


@lru_cache(maxsize=4096)
def _holds(schedule: Schedule, p: int, m: int, v: int) -> Holds:
    few = min(m, ROUNDS * p)
    found = _counted(schedule, p, few, v)
    if few == m or found == _counted(schedule, p, few + 1, v):
        return found
    return _counted(schedule, p, m, v)  # it holds all of them


def _counted(schedule: Schedule, p: int, m: int, v: int) -> Holds:
    order = schedule.order(p, m, v)
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
