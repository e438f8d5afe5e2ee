"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact for m >= p
    in a run = (p - 1) (f + i - min(f, w)) / v      the same, if each rank begins the next
                                                    step when it is done
    in flight = p                                   until the weight gradients are done

With fewer microbatches than ranks no formula says it, and the bubble is read off the order.

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many
forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv
2401.10241). The bubble for unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from ...num import Num, minimum
from ..looped import looped


def _bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, i, w)) / v."""
    return (p - 1) * (f + i - minimum(minimum(f, i), w)) / v


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, w)) / v."""
    return (p - 1) * (f + i - minimum(f, w)) / v


INTERLEAVED_ZERO_BUBBLE = looped(
    "interleaved-zb",
    "Interleaved zero bubble",
    "Qi et al. 2024, arXiv 2401.10241; PyTorch",
    hop=1,
    split=True,
    closed=_bubble,
    in_run=bubble_in_run,
    beyond=lambda p, m: m < p,
    plain="zb-h1",
    torch_name="InterleavedZeroBubble",
)(0)
