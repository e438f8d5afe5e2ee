"""ZB-1p and ZB-2p: zero bubble whose order follows from what the passes take (`board`).

No rank may hold more than p (ZB-1p) or 2p (ZB-2p) microbatches between F and W; 1p is what 1F1B
holds. The bubble is that of the order, replayed; below it lies what no order within the limit L
undercuts, with T_x all of rank x's passes:

    by itself   down to x, from there to the end and back less min(L, m) - 1 forwards, and m T_x;
                or all of it but W of L microbatches, and up with the last I
    in a run    m T_x; of the first rank also to the end and back, less the forwards

Why m T_x in a run of steps: the longest path of a step begins on rank 0 and ends on some rank y. It
goes through x <= y, and a second step puts all of x's actions in between; where x > y they come
after the way down from y.

Source: Qi et al. 2024 (arXiv 2401.10241), section 3.1 and its appendix.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

from ..num import Num, maximum, minimum
from . import waits
from .board import Memory, order_for
from .dealt import Dealt
from .replayed import idle, no_bound
from .types import (
    Costs,
    Order,
    Schedule,
    everywhere,
    looped_stage,
    one_chunk,
)
from .waits import Wait


def _limit(p: Num, m: Num, times: float) -> Num:
    """Microbatches that a rank may hold."""
    return minimum(times * p, m)


def span(times: float, d: Dealt, barrier: bool) -> Num:
    """What no order within the limit undercuts."""
    limit = _limit(d.p, d.m, times)
    if not barrier:
        return reduce(
            maximum,
            map(d.busy, d.slow),
            d.busy(0.0) + _turned(d, 0.0, limit),
        )
    paths = []
    for x in d.slow:
        mine = d.load(x)
        last = d.m * (mine.f + mine.i) + (d.m - limit) * mine.w
        end = maximum(d.busy(x), last + d.up(x, 0.0) + d.load(0.0).w)
        paths.append(d.down(0.0, x) + _turned(d, x, limit) + end)
    return reduce(maximum, paths)


def _turned(d: Dealt, x: Num, limit: Num) -> Num:
    """From rank x with its first microbatch to the end and back, less the forwards that it may run
    meanwhile.
    """
    return maximum(d.below(x, d.q) - (limit - 1) * d.load(x).f, 0.0)


def waits_of(times: float, d: Dealt, seconds: Num) -> tuple[Wait, ...]:
    """In a run of steps: from the first rank to the end and back, less its forwards meanwhile; and
    less what it is done sooner with each microbatch than the slowest.
    """
    first = d.load(0.0)
    below = d.f(1.0, d.p) + d.i(1.0, d.p)
    sooner = maximum(seconds - first.total, 0.0)
    slowest = Wait(below, first.f, times * d.p - 1.0)
    other = Wait(below - sooner, first.f + sooner, d.p * waits.ALL)
    return (slowest.where(sooner <= 0.0, other),)


def _schedule(name: str, title: str, times: float) -> Schedule:
    def by_costs(costs: Costs, p: int, m: int, v: int) -> Order:
        return order_for(costs, m, Memory(times * p))

    def equal(p: int, m: int, v: int) -> Order:
        return by_costs(Costs(((1.0, 1.0, 1.0),) * p, 0.0), p, m, v)

    def held(p: Num, m: Num, v: Num) -> Num:
        return _limit(p, m, times)

    bare = Schedule(
        name=name,
        title=title,
        source="Qi et al. 2024, arXiv 2401.10241",
        torch_name=None,
        split_backward=True,
        chunks=lambda v: 1,
        stage_of=looped_stage,
        order=equal,
        by_costs=by_costs,
        costed=True,
        loose=everywhere,
        bubble=no_bound,
        span=partial(span, times),
        in_flight=held,
        heads=lambda p, m, v: 1,
        heads_late=lambda p, m, v: held(p, m, v) - 1,
        least_bubble_of=no_bound,
        least_in_run_of=no_bound,
        needs=(one_chunk(name),),
        waits=partial(waits_of, times),
    )
    return replace(
        bare, bubble=idle(bare, True), bubble_in_run=idle(bare, False)
    )


ZB_1P = _schedule("zb-1p", "Zero bubble ZB-1p", 1.0)
ZB_2P = _schedule("zb-2p", "Zero bubble ZB-2p", 2.0)
