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

With f = i = w and m >= 2p - 1 the bubble is (p-1) f / 2, half of ZB-H1's. In a run of steps, where
each rank begins the next one when it is done, it is 0: the paper's zero bubble.

Source: Qi et al. 2024 (arXiv 2401.10241) section 6; the order is that of PyTorch's
ScheduleZBVZeroBubble (torch 2.13). The bubbles are our own, checked against `timeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from ..num import Num, maximum, minimum, where
from .folded import (
    numbered,
)
from .types import Order, Schedule, folded_stage, two_chunks


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


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m), the same on every rank."""
    return minimum(p, m)


ZBV = Schedule(
    name="zbv",
    title="Zero bubble ZB-V",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name="ZBVZeroBubble",
    split_backward=True,
    chunks=lambda v: 2,
    stage_of=folded_stage,
    order=order,
    bubble=bubble,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(two_chunks("zbv"),),
    bubble_in_run=bubble_in_run,
    least_bubble_of=least_bubble,
    least_in_run_of=least_in_run,
    in_flight_on_last=lambda p, m, v: minimum(p, (m + 1) / 2),
)
