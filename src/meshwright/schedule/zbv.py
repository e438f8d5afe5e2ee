"""ZB-V: zero bubble on a V, two chunks per device, so that every rank holds the same number of
activations, 1F1B's p.

The first backward starts on the rank of the first forward, and the turn of the V needs no send.
With q = p - 1 and
f, i, w of one device (a chunk takes half):

    m <= p     bubble = 1/2 max( 2d f + 2q i,  (q+d)(f + i),  2q f + 2d i - 2n w,
                                 2q f + (2d-n) i - n w )
               with n = m - 1, d = q - n
    m > p      bubble = 1/2 max( q i,  2q i - 2e w,  (d+1) i + (e-1) w,  (d+1) f + (e-1) w,
                                 2q f - (2q+1) w,  (q+e-1) f - (e-1) i,
                                 (q+e-1) f + (d+1) i - 2e w,  2q f - q i - min(q, 2d+1) w )
               with e = min(m - p, q), d = q - e
    in a run   m <= p: the same;  m > p: 1/2 max( 2q i - 2e w,  2q f - q i - q w,  2q f - (2q+1) w,
                                 (d+1) i + (e-1) w - q f,  (e-1)(w - f),  2d i,  d (f + i),
                                 (q+e) f + (q-2e) i - e w,
                                 (q+e-1) f + (d+1) i - 2e w,  (q+d) i - e f - d w,  (e-1)(f - i) )
    in flight = min(p, m)       activations counted until the weight gradients are done

Exact for all f, i, w if m <= p or m >= 2p - 1. Between the two there are more paths than these
eight, and the bubble is a lower bound: the makespan is longer by at most 5 % (3 % for the usual f,
i, w; the tests measure it), the step in a run by at most 1 %.

Where stages differ or sends take time the step is the longest of: every stage as light as the
lightest, by the law above; rank 0 with both ends of the model, which waits for its first microbatch
and, at the end, for its last gradient; the same from the turn's last gradient on, with the weight
gradients that are left there; and what goes down and up the V once with F (or late, behind the
forwards that rank 0 or rank 1 runs ahead) and I, stays on a rank with the turn's work, and comes
up, or goes round once more, or comes up one round before the end and back to the turn with the last
gradient; where layers do not divide, also to the rank's last I1, from there down to another rank
and up to rank 1, which holds a heavy first chunk, with what that has left.

With f = i = w and m >= 2p - 1 the bubble is (p-1) f / 2, half of ZB-H1's. In a run of steps, where
each rank begins the next one when it is done, it is 0: the paper's zero bubble.

Source: Qi et al. 2024 (arXiv 2401.10241) section 6; the order is that of PyTorch's
ScheduleZBVZeroBubble (torch 2.13). The bubbles are our own, checked against `timeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from ..num import Num, floor, maximum, minimum, where
from . import waits
from .dealt import Dealt, Pass
from .folded import (
    as_if_equal,
    begins,
    first_waits,
    fuller_ranks,
    fullest_never_waits,
    numbered,
)
from .types import Order, Schedule, differ, folded_stage, two_chunks


def order(p: int, m: int, v: int) -> Order:
    """The order of at least 2p - 1 microbatches, less those that do not exist."""
    return [
        [
            a
            for a in numbered(_program(p, max(m, 2 * p - 1), rank))
            if a.microbatch < m
        ]
        for rank in range(p)
    ]


def _program(p: int, m: int, r: int) -> str:
    """Rank r: warm up, steady state, and a cool down that runs I first and W last."""
    return (
        "F0 " * (2 * (p - r) - 1)
        + "F1 F0 " * r
        + "F1 I1 W1 " * (p - r)
        + "F0 I0 W0 F1 I1 W1 " * (m - (2 * p - 1 - r))
        + "I0 W0 F1 I1 W1 " * (p - 1 - r)
        + "I0 I1 " * r
        + "I0 W0 " * (p - r)
        + "W1 " * r
        + "W0 " * r
    )


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The longest of a few paths, see above."""
    q = p - 1
    few = _few(q, minimum(m, p) - 1, f, i, w)
    many = _many(q, minimum(maximum(m - p, 1), q), f, i, w)
    return where((m <= p) | (p == 1), few, many)


def _few(q: Num, n: Num, f: Num, i: Num, w: Num) -> Num:
    """n = m - 1 <= q = p - 1: the pipeline never fills."""
    d = q - n
    paths = (
        2 * d * f + 2 * q * i,
        (q + d) * (f + i),
        2 * q * f + 2 * d * i - 2 * n * w,
        2 * q * f + (2 * d - n) * i - n * w,
    )
    return reduce(maximum, paths) / 2


def _many(q: Num, e: Num, f: Num, i: Num, w: Num) -> Num:
    """q = p - 1 and 1 <= e = min(m - p, q): the longest of eight paths."""
    return reduce(maximum, _paths(q, e, f, i, w)) / 2


def _paths(q: Num, e: Num, f: Num, i: Num, w: Num) -> tuple[Num, ...]:
    """Twice the bubble along each of the paths; every one of them falls or grows with e
    throughout.
    """
    d = q - e
    return (
        q * i,
        2 * q * i - 2 * e * w,
        (d + 1) * i + (e - 1) * w,
        (d + 1) * f + (e - 1) * w,
        2 * q * f - (2 * q + 1) * w,
        (q + e - 1) * f - (e - 1) * i,
        (q + e - 1) * f + (d + 1) * i - 2 * e * w,
        2 * q * f - q * i - minimum(q, 2 * d + 1) * w,
    )


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The longest of a few paths through two steps, the second behind the first."""
    q = p - 1
    few = _few(q, minimum(m, p) - 1, f, i, w)
    many = (
        reduce(
            maximum, _paths_in_run(q, minimum(maximum(m - p, 1), q), f, i, w)
        )
        / 2
    )
    return where((m <= p) | (p == 1), few, many)


def _paths_in_run(q: Num, e: Num, f: Num, i: Num, w: Num) -> tuple[Num, ...]:
    """Twice the bubble in a run along each of the paths; every one of them is linear in e."""
    d = q - e
    return (
        2 * q * i - 2 * e * w,
        2 * q * f - q * i - q * w,
        2 * q * f - (2 * q + 1) * w,
        (d + 1) * i + (e - 1) * w - q * f,
        (e - 1) * (w - f),
        2 * d * i,
        d * (f + i),
        (q + e) * f + (q - 2 * e) * i - e * w,
        (q + e - 1) * f + (d + 1) * i - 2 * e * w,
        (q + d) * i - e * f - d * w,
        (e - 1) * (f - i),
    )


def least_bubble(p: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """Of any number of microbatches: that of m = p, or the longest path at its shorter end (e = 1
    or q).
    """
    return _least(_paths, p, f, i, w)


def least_in_run(p: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The same of `bubble_in_run`."""
    return _least(_paths_in_run, p, f, i, w)


def _least(
    paths: Callable[[Num, Num, Num, Num, Num], tuple[Num, ...]],
    p: Num,
    f: Num,
    i: Num,
    w: Num,
) -> Num:
    q = p - 1
    ends = zip(paths(q, 1.0, f, i, w), paths(q, q, f, i, w), strict=True)
    longest = reduce(maximum, [minimum(a, b) for a, b in ends]) / 2
    return where(p == 1, 0.0, minimum(_few(q, q, f, i, w), longest))


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above."""
    p = d.p
    m = d.m
    last = d.at(d.stages - 1)
    first = d.at(0.0)
    turn = d.at(d.q)
    law = bubble if barrier else bubble_in_run
    leaves = last.w + minimum(p, m) * first.b
    begin = _begin(d, first)
    ranks = fuller_ranks(d)
    if d.uneven:
        begin = begins(d, begin, ranks[1])
    waits = begin - last.f - minimum(2 * p - 1, m) * first.f
    paths = [
        as_if_equal(d, lambda f, i, w: law(p, m, d.v, f, i, w)),
        first_waits(d, waits, leaves, where(m <= p, d.w(p, p + 1), 0.0)),
        *_around(d, d.q, begin),
    ]
    if d.uneven:
        paths += [
            fullest_never_waits(d, barrier),
            *(
                where(d.cut.alike, 0.0, path)
                for x in d.abreast(ranks[1:3])
                for path in _around(d, x, begin)
            ),
            *_by_second(d, ranks, begin, barrier),
        ]
    if barrier:
        held = minimum(maximum(m - d.q, 1.0), p) * turn.w + minimum(
            maximum(m - p, 0.0), d.q
        ) * d.w(p, p + 1)
        paths.append(
            d.busy(0.0)
            + maximum(waits, 0.0)
            + d.up(2 * p - 1, d.q)
            + held
            - leaves
        )
        paths.append(_turn_ends(d, begin))
    return where(p == 1, d.busy(0.0), d.longest(paths))


def _begin(d: Dealt, first: Pass) -> Num:
    """To the end of the first F of the last stage: one microbatch through all; or down to the last
    rank that runs all m forwards of its first chunk ahead, with the last of them, and up with the
    first."""
    r = maximum(floor(d.p - (d.m + 1) / 2), 0.0)
    ahead = minimum(d.m, 2 * (d.p - r) - 1) - 1
    up = 2 * d.p - 1 - r
    behind = (
        ahead * maximum(first.f, d.at(minimum(r, 1.0)).f)
        + d.down(0.0, r)
        + d.at(r).f
        + d.down(up, d.stages - 1)
        + d.at(d.stages - 1).f
    )
    return maximum(
        d.down(0.0, d.stages - 1) + d.at(d.stages - 1).f,
        where(up > r + 1, behind, 0.0),
    )


def _turn_ends(d: Dealt, begin: Num) -> Num:
    """Up to the turn with the first I, its work, in its last round up to the first or second rank,
    and with the last I back.
    """
    p, m, q = d.p, d.m, d.q
    turn = d.at(q)
    other = d.at(p)
    own = (
        begin
        + d.up(2 * p, p + 1)
        + d.busy(q)
        - minimum(p, m) * (turn.f + other.f)
    )
    instead = turn.w + other.total + q * (turn.i + other.i)

    def way(y: Num, again: float) -> Num:
        """To rank y, which has one more I of either chunk to do, or none."""
        here = d.at(y)
        there = d.at(2 * p - 1 - y)
        once = here.w + there.f + there.i + again * (there.b + here.i)
        return d.up(q, y) + once + d.up(2 * p - 1 - y, p) - instead

    # with fewer microbatches the last rounds are not whole, and other work follows them
    return own + where(
        m >= 2 * p - 1,
        maximum(maximum(way(0.0, 0.0), way(minimum(q, 1.0), 1.0)), 0.0),
        0.0,
    )


def _by_second(
    d: Dealt, ranks: tuple[Num, ...], begin: Num, barrier: bool
) -> list[Num]:
    """Down and up the V and down to rank x, on x to its last I1; down with it to a rank z, up to
    the second with the I0 that comes there next, and what that has left then; or up to the first
    rank. In a run from the second to the second, or from the first to the first.
    """
    y = ranks[1]
    end = d.stages - 1
    # besides the last whose first I0 comes after all its I1
    below = (*ranks[1:], minimum(maximum(d.p - d.m, 2.0), d.q))
    up = d.up(y, 0.0) + d.w(0.0, 1.0)
    again = begin
    if not barrier:
        again = begins(d, 0.0, y) - d.down(0.0, y)
    tails = [_second_ends(d, z, y) for z in d.abreast(below)]
    some = [maximum(begin + b + up, again + a) for a, b in tails]
    ends = d.alone(some, len(below))
    found = []
    for x in d.abreast(ranks):
        ways = [
            where(z >= x, e, 0.0) for z, e in zip(below, ends, strict=True)
        ]
        longest = reduce(maximum, ways) - d.up(end, end - x)
        found.append(where(d.spare >= 1, _stays(d, x) + longest, 0.0))
    return found


def _second_ends(d: Dealt, z: Num, y: Num) -> tuple[Num, Num]:
    """From the first rank's last I1 down to rank z, up to y with I0 and (all that y has left, to
    its last I0)."""
    m = d.m
    end = d.stages - 1
    k = _next(d, z)
    here = d.at(y)
    other = d.at(end - y)
    chain = d.up(end, end - z) + d.i(y, z + 1) + d.hops(y, z)
    chain = chain + (m - 1 - k) * here.i
    done = _weights(d, y, k)
    late = _weights(d, y, m - 1)
    left = (m - done[0]) * here.w + (m - done[1]) * other.w
    between = (late[0] - done[0]) * here.w + (late[1] - done[1]) * other.w
    return chain + left, chain + between


def _stays(d: Dealt, x: Num) -> Num:
    """From the last stage's first F down to rank x with I1, on x to its last I1."""
    m = d.m
    one = d.at(x)
    other = d.at(d.stages - 1 - x)
    k = _next(d, x)
    stay = m * other.i + k * one.i + _weights(d, x, k)[0] * one.w
    stay = stay + minimum(m - 1, maximum(m, 2 * d.p - 1) - x) * other.w
    stay = stay + maximum(m - 1 - x, 0.0) * other.f
    stay = stay + maximum(m - 2 * d.p + 1 + x, 0.0) * one.f
    return d.up(2 * d.p, 2 * d.p - x) + stay


def _next(d: Dealt, rank: Num) -> Num:
    """The I0 that follows the last I1 of a rank."""
    return minimum(maximum(d.m - d.p + rank, 0.0), d.m - 1.0)


def _weights(d: Dealt, rank: Num, k: Num) -> tuple[Num, Num]:
    """W0 and W1 that a rank has done when it begins its k-th I0, one of those after the last I1."""
    steady = maximum(d.m, 2 * d.p - 1) - d.p
    once = minimum(k, steady)
    return maximum(once, k - rank), minimum(d.m, d.p - rank + once)


def _around(d: Dealt, y: Num, begin: Num) -> tuple[Num, Num]:
    """Down and up the V and down to rank y, on y to its last I0 and up;  on y only to the last but
    p, up, and round again.
    """
    p = d.p
    m = d.m
    first = d.at(0.0)
    last = d.at(d.stages - 1)
    one = d.at(y)
    other = d.at(2 * p - 1 - y)
    begin = begin + d.up(2 * p, 2 * p - y)
    end = d.up(y, 0.0) + first.w
    # rounds of F0 I0 W0 F1 I1 W1 on the last rank
    steady = maximum(m, 2 * p - 1) - p
    stay = (
        m * (one.i + other.i)
        + minimum(m, steady + p - y) * other.w
        + maximum(minimum(m - 1, steady), m - 1 - y) * one.w
    )
    forward = maximum(m - 2 * p + y + 1, 0.0) * one.f
    ahead = maximum(m - 1 - y, 0.0) * other.f + forward
    short = (
        (m - 1 - y) * other.b
        + (m - y - 2) * other.f
        + forward
        + (m - p) * one.i
        + (m - p - 1) * one.w
    )
    again = last.f + d.i(0.0, 2 * p) + d.hops(0.0, 2 * p - 1) + first.w
    return begin + stay + ahead + end, where(
        m > p, begin + short + end + again, 0.0
    )


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m), the same on every rank."""
    return minimum(p, m)


ZBV = Schedule(
    name="zbv",
    title="Zero bubble ZB-V",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name="ZBVZeroBubble",
    split_backward=True,
    loose=differ,
    chunks=lambda v: 2,
    stage_of=folded_stage,
    order=order,
    bubble=bubble,
    span=span,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(two_chunks("zbv"),),
    waits=lambda d, seconds: waits.zbv(d, seconds, fuller_ranks(d)[2]),
    bubble_in_run=bubble_in_run,
    least_bubble_of=least_bubble,
    least_in_run_of=least_in_run,
    in_flight_on_last=lambda p, m, v: minimum(p, (m + 1) / 2),
)
