"""1F1B (PipeDream-Flush): after a short warm up, one forward, one backward, so that activations are
freed early.

    bubble = (p - 1) (f + i + w)        exact for all p, m: GPipe's
    in flight = min(p, m)               on rank 0; rank r holds min(p - r, m)

Where stages differ or sends take time, with T_x all of rank x's passes and C = sum T + 2 (p-1)
send, a microbatch down through all stages and up again, the step is the longest of

    rank x never waits              down to x, m T_x, up from x
    one that goes to the end first  C + (m-1) T_x, less the p-1-x forwards that x ran ahead
    the last, too                   2 C + (m-1-p) T_x
    all in rounds of p              k + 1 times C and what is left, r = m-1 - k p:
                                    on the last rank, or one round of r ranks

and rounds over ranks next to each other only (the fuller ones, with those after them or with the
first), until the forwards run out or until the last microbatch, which goes to the end. Each round
pays 2 (p-1) sends for p microbatches: nothing hides them.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.1, figure 4 top.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from ..num import Num, ceil, floor, maximum, minimum, where
from . import waits
from .dealt import Dealt, Pass
from .looped import looped_order
from .types import Order, Schedule, looped_stage, one_chunk


def order(p: int, m: int, v: int) -> Order:
    """Rank r: p - 1 - r forwards ahead, then F B F B ..."""
    return looped_order(p, m, 1, hop=1, split=False)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i + w)."""
    return (p - 1) * (f + i + w)


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above."""
    first = d.through + d.w(0.0, d.stages)
    paths = [_rounds(d, first)]
    for x in d.slow:
        mine = d.load(x)
        ahead = minimum(d.q - x, d.m - 1) * mine.f
        paths.append(d.down(0.0, x) + d.busy(x) + d.up_whole(x, 0.0))
        paths.append(first + (d.m - 1) * mine.total - ahead)
        paths.append(
            where(d.m > d.p, 2 * first + (d.m - 1 - d.p) * mine.total, 0.0)
        )
    if d.uneven and not d.more:
        paths.append(where(d.spare >= 1, _several(d, first), 0.0))
    return reduce(maximum, paths)


def _rounds(d: Dealt, first: Num) -> Num:
    """p microbatches a round, and those that are left."""
    k = floor((d.m - 1) / d.p)
    left = d.m - 1 - k * d.p
    weights = where(left > 0, d.w(d.p - left, d.p), 0.0)
    return (1 + k) * first + maximum(
        left * d.load(d.q).total, d.last_ranks(left) + weights
    )


class Rank(NamedTuple):
    """A rank, one microbatch on it, and one on all ranks before."""

    number: Num
    at: Pass
    before: Num


def _several(d: Dealt, first: Num) -> Num:
    """Rounds of the fuller ranks, of these and the ones after, of these and the first one."""
    top, fuller, last = (
        Rank(x, d.load(x), d.passes(0.0, x).total)
        for x in (where(d.spare >= 2, 1.0, 0.0), d.fuller, d.q)
    )
    begin = Rank(0.0, d.load(0.0), 0.0)
    ways = (top, fuller), (top, last), (begin, fuller)
    return reduce(maximum, (_around(d, first, a, b) for a, b in ways))


def _around(d: Dealt, first: Num, a: Rank, b: Rank) -> Num:
    """Rounds of the n ranks from a to b, n microbatches each, behind the first microbatch through
    all stages: as long as there are forwards left, then what is left on b, or on a; one such round
    where a has no more forwards, which goes on on b; or up to the last microbatch, that one through
    all stages too, with a round of fewer ranks before it.
    """
    n = b.number - a.number + 1.0
    once = b.before + b.at.total - a.before + 2 * (n - 1) * d.send
    between = d.m - 1 - d.p + a.number
    k = ceil(maximum(between + 1, 0.0) / n)
    left = d.m - 1 - k * n
    plain = first + k * once + maximum(_left(d, a, left), _left(d, b, left))
    many = maximum(between, 0.0)
    single = first + once + many * a.at.total + _left(d, b, d.q - b.number)
    k = floor(many / n)
    left = many - k * n
    fewer = d.passes(0.0, a.number + left).total - a.before
    fewer = fewer + 2 * maximum(left - 1, 0.0) * d.send
    # both turn back before the ranks above a
    short = a.before + 2 * a.number * d.send
    twice = 2 * first - short + k * once + fewer
    return maximum(plain, where(between >= 0, maximum(single, twice), 0.0))


def _left(d: Dealt, x: Rank, microbatches: Num) -> Num:
    """So many microbatches on a rank, less the forwards that it ran ahead."""
    ahead = minimum(d.q - x.number, microbatches)
    return microbatches * x.at.total - ahead * x.at.f


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m)."""
    return minimum(p, m)


ONE_F_ONE_B = Schedule(
    name="1f1b",
    title="1F1B",
    source="Narayanan et al. 2021, arXiv 2104.04473",
    torch_name="1F1B",
    split_backward=False,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=order,
    bubble=bubble,
    span=span,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(one_chunk("1f1b"),),
    waits=lambda d, seconds: waits.one_f_one_b(d),
    in_flight_on_last=lambda p, m, v: 1,
    in_flight_on=lambda p, m, v, rank: minimum(p - rank, m),
)
