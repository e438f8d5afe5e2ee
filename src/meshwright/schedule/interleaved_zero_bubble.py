"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact for all p, v, f, i, w, m a multiple of p
    in a run = (p - 1) (f + i - min(f, w)) / v      if each rank begins the next step when it is done; exact
    in flight = p                                   activations counted until the weight gradients are done

Where stages differ or sends take time, the paths are those of interleaved 1F1B to rank x's last chunk, then x's work and
one of: all of it; or up to the first rank from x's last input gradient of its last or of its first chunk, where x leaves
x + 1 weight gradients behind. Or the microbatches go in rounds of p through the ranks, a chunk each: there sends hide
behind one weight gradient.

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv 2401.10241). The bubble for
unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from functools import reduce

from ..num import Num, floor, maximum, minimum, where
from .dealt import Dealt
from .looped import looped_order
from .types import Order, Schedule, looped_stage, many_chunks, whole_rounds


def order(p: int, m: int, v: int) -> Order:
    """Rank r: (v - 1) p + p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
    return looped_order(p, m, v, hop=1, split=True)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, i, w)) / v."""
    return (p - 1) * (f + i - minimum(minimum(f, i), w)) / v


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, w)) / v."""
    return (p - 1) * (f + i - minimum(f, w)) / v


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above; a device that is alone waits for nobody."""
    paths = [*_rounds(d)]
    for x in d.slow:
        earlier = d.earlier(x)
        left_f, left_b = d.p * earlier.f, d.p * earlier.b
        turned = maximum(_turned(d, x), 0.0)
        stay = maximum(d.up(d.top + x, x) - left_b, 0.0)
        up = _up(d, x, left_b)
        if barrier:
            before = d.to_last_chunk(x) - left_f
            paths.append(d.busy(x) + before + turned + maximum(stay, up))
        else:
            wait = maximum(d.down(x, d.top + x) - left_f, 0.0)
            paths.append(d.busy(x) + wait + turned + maximum(stay, up + d.down(0.0, x)))
    return where(d.p == 1, d.busy(0.0), reduce(maximum, paths))


def _up(d: Dealt, x: Num, left: Num) -> Num:
    """Up to the first rank and its last W, less what x leaves behind; left: of its earlier chunks."""
    held = x + 1
    from_first = d.up(x, 0.0) - held * d.at(x).w
    from_last = d.up(d.top + x, 0.0) - left - held * d.at(d.top + x).w
    return maximum(from_first, from_last) + d.w(0.0, 1.0)


def _turned(d: Dealt, x: Num) -> Num:
    """From x's last chunk to the last stage and back, less p - 1 - x forwards of that chunk that x runs meanwhile."""
    return d.below(d.top + x, d.stages - 1) - (d.q - x) * d.at(d.top + x).f


def _rounds(d: Dealt) -> tuple[Num, Num]:
    """(All in rounds of p slots, and what is left on the last rank or in a round of fewer ranks;  the first and the last
    in a round, the others on the first rank)."""
    once, slots = d.p, (d.m - d.p) * d.v + d.q
    k = floor(slots / once)
    left, last, first = slots - k * once, d.load(d.q), d.load(0.0)
    down = maximum(d.down(0.0, d.top), d.p * d.earlier(0.0).f)
    weights = d.at(d.top).w
    up = maximum(d.up(d.top, 0.0) + d.w(0.0, 1.0), d.p * d.earlier(0.0).b + weights)
    end = d.last_ranks(d.p)
    mean = (
        (d.f(0.0, d.stages) + d.i(0.0, d.stages)) / d.v
        + 2 * d.q * d.send
        + d.lightest.w * (d.cut.most - d.spare / d.stages)
    )
    short = d.lightest.w * (d.cut.most - where(d.spare >= 1, 1.0, 0.0))
    fewer = d.last_ranks(left) + where((left > 0) & (k > 0), short, 0.0)
    held = maximum(minimum(left, slots - d.q), 0.0)
    rest = maximum(fewer, (left * (last.f + last.i) + held * last.w) / d.v)
    two = down + 2 * end + weights + (slots - d.p) * first.total / d.v + up
    return down + end + k * mean + rest + up, where(slots >= d.p, two, 0.0)


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m), and m >= p."""
    return minimum(p, m)


INTERLEAVED_ZERO_BUBBLE = Schedule(
    name="interleaved-zb",
    title="Interleaved zero bubble",
    source="Qi et al. 2024, arXiv 2401.10241; PyTorch",
    torch_name="InterleavedZeroBubble",
    split_backward=True,
    chunks=lambda v: v,
    stage_of=looped_stage,
    order=order,
    bubble=bubble,
    span=span,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: in_flight(p, m, v) - 1,
    bubble_in_run=bubble_in_run,
    needs=(many_chunks("interleaved-zb", "zb-h1"), whole_rounds("interleaved-zb")),
)
