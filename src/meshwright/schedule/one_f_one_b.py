"""1F1B (PipeDream-Flush): after a short warm up, one forward, one backward, so that activations are
freed early.

    bubble = (p - 1) (f + i + w)        exact for all p, m: GPipe's
    in flight = min(p, m)               on rank 0; rank r holds min(p - r, m)

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.1, figure 4 top.
"""

from __future__ import annotations

from ..num import Num, minimum
from .looped import looped_order
from .types import Order, Schedule, looped_stage, one_chunk


def order(p: int, m: int, v: int) -> Order:
    """Rank r: p - 1 - r forwards ahead, then F B F B ..."""
    return looped_order(p, m, 1, hop=1, split=False)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i + w)."""
    return (p - 1) * (f + i + w)


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m)."""
    return minimum(p, m)


ONE_F_ONE_B = Schedule(
    name="1f1b",
    title="1F1B",
    source="Narayanan et al. 2021, arXiv 2104.04473",
    torch_name="1F1B",
    split_backward=False,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=order,
    bubble=bubble,
    in_flight=in_flight,
    ahead=1,
    heads=lambda p, m, v: 1,
    needs=(one_chunk("1f1b"),),
    in_flight_on_last=lambda p, m, v: 1,
    in_flight_on=lambda p, m, v, rank: minimum(p - rank, m),
)
