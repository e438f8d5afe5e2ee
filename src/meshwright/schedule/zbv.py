"""ZB-V: zero bubble on a V, two chunks per device, so that every rank holds the same number of activations, 1F1B's p.

The first backward starts on the rank of the first forward, and the turn of the V needs no send. With q = p - 1 and f,
i, w of one device (a chunk takes half):

    m >= 2p - 1     bubble = 1/2 max( q i,  2q (i - w),  i + (q-1) w,  f + (q-1) w,  (2q-1) f - (q-1) i,
                                      2q f - q i - w,  2q f - (2q+1) w,  (2q-1) f + i - 2q w )
    m <= p          bubble = 1/2 max( 2d f + 2q i,  (q+d)(f + i),  2q f + 2d i - 2n w,  2q f + (2d-n) i - n w )
                    with d = p - m, n = m - 1
    in between      a straight line in m between the two (see below)
    in flight = min(p, m), activations counted until the weight gradients are done

The first two are exact for all f, i, w. With f = i = w and m >= 2p - 1 the bubble is q f / 2 + 0, half of ZB-H1's;
the span from first to last action of a rank (`Timeline.span_s`, the paper's measure) is then m (f + i + w): no bubble
at all. For p < m < 2p - 1 the longest path has a dozen more forms; the straight line is off by at most BETWEEN of the
makespan on the tests' grid.

Source: Qi et al. 2024 (arXiv 2401.10241) section 6; the order is that of PyTorch's ScheduleZBVZeroBubble (torch
2.13). The bubbles are our own, checked against `timeline`.
"""

from __future__ import annotations

from functools import reduce

from ..num import Num, maximum, minimum, where
from .folded import numbered
from .types import Order, Schedule, folded_stage, two_chunks


def order(p: int, m: int, v: int = 2) -> Order:
    """The order of at least 2p - 1 microbatches, less those that do not exist."""
    return [[a for a in numbered(_program(p, max(m, 2 * p - 1), rank)) if a.microbatch < m] for rank in range(p)]


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
    """See above: exact for m <= p and m >= 2p - 1, a straight line between."""
    many = minimum(maximum((m - p) / maximum(p - 1, 1), 0), 1)
    return where(p == 1, 0.0, many * _many(p - 1, f, i, w) + (1 - many) * _few(p - 1, minimum(m, p) - 1, f, i, w))


def _many(q: Num, f: Num, i: Num, w: Num) -> Num:
    """m >= 2p - 1, q = p - 1 > 0: the longest of eight paths."""
    paths = (
        q * i,
        2 * q * (i - w),
        i + (q - 1) * w,
        f + (q - 1) * w,
        (2 * q - 1) * f - (q - 1) * i,
        2 * q * f - q * i - w,
        2 * q * f - (2 * q + 1) * w,
        (2 * q - 1) * f + i - 2 * q * w,
    )
    return reduce(maximum, paths) / 2


def _few(q: Num, n: Num, f: Num, i: Num, w: Num) -> Num:
    """n = m - 1 <= q = p - 1: the longest of four paths."""
    d = q - n
    paths = (
        2 * d * f + 2 * q * i,
        (q + d) * (f + i),
        2 * q * f + 2 * d * i - 2 * n * w,
        2 * q * f + (2 * d - n) * i - n * w,
    )
    return reduce(maximum, paths) / 2


def in_flight(p: Num, m: Num, v: Num = 2) -> Num:
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
    needs=(two_chunks("zbv"),),
)
