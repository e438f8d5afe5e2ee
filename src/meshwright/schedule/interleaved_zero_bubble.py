"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact, m a multiple of p
    in a run = (p - 1) (f + i - min(f, w)) / v      exact, if each rank begins the next
                                                    step when it is done
    in flight = p                                   until the weight gradients are done

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many
forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv
2401.10241). The bubble for unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from ..num import Num, maximum, minimum, where
from .looped import looped


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, i, w)) / v, or with m < p at least one way down and up."""
    return _with_few(
        (p - 1) * (f + i - minimum(minimum(f, i), w)) / v, p, m, v, f, i, w
    )


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, w)) / v, or the same."""
    return _with_few((p - 1) * (f + i - minimum(f, w)) / v, p, m, v, f, i, w)


def _with_few(
    many: Num, p: Num, m: Num, v: Num, f: Num, i: Num, w: Num
) -> Num:
    """With fewer microbatches than ranks: all through the last stage, one after the other, the
    first down to it and the last up from it, and its weight gradient."""
    through = (v * p - 1 + m) * (f + i) / v + w / v - m * (f + i + w)
    return where(m < p, maximum(many, through), many)


INTERLEAVED_ZERO_BUBBLE = looped(
    "interleaved-zb",
    "Interleaved zero bubble",
    "Qi et al. 2024, arXiv 2401.10241; PyTorch",
    hop=1,
    split=True,
    closed=bubble,
    in_run=bubble_in_run,
    plain="zb-h1",
    torch_name="InterleavedZeroBubble",
)(0)
