"""GPipe: all forwards, then all backwards.

    bubble = (p - 1) (f + i + w)        exact for all p, m
    in flight = m                       every microbatch waits for the last forward

Source: Huang et al. 2019 (arXiv 1811.06965) section 2.3; Narayanan et al. 2021 (arXiv 2104.04473)
section 2.2.1, (p-1)/m of the useful time m (f + i + w).
"""

from __future__ import annotations

from ..looped import flush_bubble
from ..rules import one_chunk
from ..schedule import Schedule
from ..types import Action, Order, looped_stage


def _order(p: int, m: int, v: int) -> Order:
    """F0 F1 ... then B0 B1 ..., the same on every rank."""
    return [[Action(kind, 0, k) for kind in "FB" for k in range(m)]] * p


GPIPE = Schedule(
    name="gpipe",
    title="GPipe",
    source="Huang et al. 2019, arXiv 1811.06965",
    order=_order,
    stage_of=looped_stage,
    chunks=lambda v: 1,
    split_backward=False,
    needs=(one_chunk("gpipe"),),
    torch_name="GPipe",
    closed=flush_bubble,
    flight=lambda p, m, v, rank: m,
    heads=lambda p, m, v: (m, 0),
)
