"""GPipe: all forwards, then all backwards.

    bubble = (p - 1) (f + i + w)        exact for all p, m
    in flight = m                       every microbatch waits for the last forward

Source: Huang et al. 2019 (arXiv 1811.06965) section 2.3; Narayanan et al. 2021 (arXiv 2104.04473)
section 2.2.1, (p-1)/m of the useful time m (f + i + w).
"""

from __future__ import annotations

from ..num import Num
from .types import Action, Order, Schedule, looped_stage, one_chunk


def order(p: int, m: int, v: int) -> Order:
    """F0 F1 ... then B0 B1 ..., the same on every rank."""
    return [
        [Action(kind, 0, k) for kind in "FB" for k in range(m)]
        for _ in range(p)
    ]


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i + w): filling the pipeline with forwards, and emptying it with backwards."""
    return (p - 1) * (f + i + w)


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """All m."""
    return m


GPIPE = Schedule(
    name="gpipe",
    title="GPipe",
    source="Huang et al. 2019, arXiv 1811.06965",
    torch_name="GPipe",
    split_backward=False,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=order,
    bubble=bubble,
    in_flight=in_flight,
    heads=in_flight,
    needs=(one_chunk("gpipe"),),
)
