"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact for all p, v, f, i, w, m a multiple of p
    in a run = (p - 1) (f + i - min(f, w)) / v      if each rank begins the next step when it is done; exact
    in flight = p                                   activations counted until the weight gradients are done

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv 2401.10241). The bubble for
unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from ..num import Num, minimum
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
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: in_flight(p, m, v) - 1,
    bubble_in_run=bubble_in_run,
    needs=(many_chunks("interleaved-zb", "zb-h1"), whole_rounds("interleaved-zb")),
)
