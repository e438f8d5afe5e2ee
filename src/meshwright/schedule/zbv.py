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
from typing import TypeAlias

from ..num import Num, maximum, minimum, where
from .folded import numbered
from .rules import two_chunks
from .schedule import Bubble, Schedule
from .types import Order, folded_stage

Paths: TypeAlias = tuple[Num, ...]
"""Twice the bubble along each of several paths through an order."""


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


def _few(q: Num, n: Num, f: Num, i: Num, w: Num) -> Paths:
    """n = m - 1 <= q = p - 1: the pipeline never fills."""
    d = q - n
    return (
        2 * d * f + 2 * q * i,
        (q + d) * (f + i),
        2 * q * f + 2 * d * i - 2 * n * w,
        2 * q * f + (2 * d - n) * i - n * w,
    )


def _many(q: Num, e: Num, f: Num, i: Num, w: Num) -> Paths:
    """q = p - 1 and 1 <= e = min(m - p, q)."""
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


def _many_in_run(q: Num, e: Num, f: Num, i: Num, w: Num) -> tuple[Num, ...]:
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


def longest_of(paths: Callable[[Num, Num, Num, Num, Num], Paths]) -> Bubble:
    """Half the longest path: one of those of few microbatches, or of `paths`."""

    def closed(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
        q = p - 1
        few = reduce(maximum, _few(q, minimum(m, p) - 1, f, i, w))
        e = minimum(maximum(m - p, 1), q)
        many = reduce(maximum, paths(q, e, f, i, w))
        return where((m <= p) | (p == 1), few, many) / 2

    return closed


def flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
    """min(p, m); of fewer than 2p - 1 microbatches the first rank, to which they come back last,
    holds (m + 1) / 2."""
    return where(rank == 0, minimum(p, (m + 1) / 2), minimum(p, m))


ZBV = Schedule(
    name="zbv",
    title="Zero bubble ZB-V",
    source="Qi et al. 2024, arXiv 2401.10241",
    order=order,
    stage_of=folded_stage,
    chunks=lambda v: 2,
    split_backward=True,
    needs=(two_chunks("zbv"),),
    torch_name="ZBVZeroBubble",
    closed=longest_of(_many),
    closed_in_run=longest_of(_many_in_run),
    flight=flight,
    heads=lambda p, m, v: (1, 0),
)
