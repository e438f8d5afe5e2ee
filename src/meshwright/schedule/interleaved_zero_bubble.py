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

from functools import cache

from ..num import Num, maximum, minimum, where
from . import groups
from .looped import looped_order
from .types import (
    Order,
    Schedule,
    looped_stage,
    many_chunks,
    whole_groups,
)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, i, w)) / v, or with m < p at least one way down and up."""
    return _with_few(
        (p - 1) * (f + i - minimum(minimum(f, i), w)) / v, p, m, v, f, i, w
    )


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, w)) / v, or the same."""
    return _with_few((p - 1) * (f + i - minimum(f, w)) / v, p, m, v, f, i, w)


def _with_few(
    found: Num, p: Num, m: Num, v: Num, f: Num, i: Num, w: Num
) -> Num:
    """With fewer microbatches than ranks: all through the last stage, one after the other, the
    first down to it and the last up from it, and its weight gradient."""
    through = (v * p - 1 + m) * (f + i) / v + w / v - m * (f + i + w)
    return where(m < p, maximum(found, through), found)


@cache
def interleaved_zero_bubble(group: int = 0) -> Schedule:
    """With groups of so many microbatches."""

    def order(p: int, m: int, v: int) -> Order:
        """Rank r: (v - 1) g + p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
        return looped_order(p, m, v, 1, True, group)

    return Schedule(
        name="interleaved-zb",
        title="Interleaved zero bubble",
        source="Qi et al. 2024, arXiv 2401.10241; PyTorch",
        torch_name="InterleavedZeroBubble",
        split_backward=True,
        chunks=lambda v: v,
        stage_of=looped_stage,
        order=order,
        bubble=bubble,
        # of every rank: as many as it runs ahead, and those it holds back
        in_flight=lambda p, m, v: groups.ahead(p, m, v, group, p),
        heads=lambda p, m, v: 1,
        heads_late=lambda p, m, v: minimum(p, m) - 1,
        bubble_in_run=bubble_in_run,
        needs=(
            many_chunks("interleaved-zb", "zb-h1"),
            whole_groups("interleaved-zb", group),
        ),
        group=group,
        grouped=interleaved_zero_bubble,
    )


INTERLEAVED_ZERO_BUBBLE = interleaved_zero_bubble()
