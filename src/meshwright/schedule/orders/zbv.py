"""ZB-V: zero bubble on a V, two chunks per device, so that every rank holds the same number of
activations, 1F1B's p.

The first backward starts on the rank of the first forward, and the turn of the V needs no send.

    bubble = (p - 1) f / 2      of f = i = w and m >= 2p - 1: half of ZB-H1's
    in a run = 0                the same, if each rank begins the next step when it is done: the
                                paper's zero bubble
    in flight = min(p, m)       activations counted until the weight gradients are done

Of other f, i and w the bubble is read off the order: no formula says it for all m.

Source: Qi et al. 2024 (arXiv 2401.10241) section 6; the order is that of PyTorch's
ScheduleZBVZeroBubble (torch 2.13).
"""

from __future__ import annotations

from ...num import Num, minimum, where
from ..folded import numbered
from ..rules import two_chunks
from ..schedule import Schedule
from ..types import Order, folded_stage


def _order(p: int, m: int, v: int) -> Order:
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


def flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
    """min(p, m); of fewer than 2p - 1 microbatches the first rank, to which they come back last,
    holds (m + 1) / 2."""
    return where(rank == 0, minimum(p, (m + 1) / 2), minimum(p, m))


ZBV = Schedule(
    name="zbv",
    title="Zero bubble ZB-V",
    source="Qi et al. 2024, arXiv 2401.10241",
    order=_order,
    stage_of=folded_stage,
    chunks=lambda v: 2,
    split_backward=True,
    needs=(two_chunks("zbv"),),
    torch_name="ZBVZeroBubble",
    flight=flight,
    heads=lambda p, m, v: (1, 0),
)
