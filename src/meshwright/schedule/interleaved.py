"""Interleaved 1F1B: v chunks per device shorten every step of the pipeline, and with it the bubble, to 1/v.

    bubble = (p - 1) (f + i + w) / v    exact for all p and v, m a multiple of p
    in flight = min(m, p + (p - 1)/v)   on rank 0: (v-1) p + 2 (p-1) warm-up forwards and one more, 1/v each

The price: v times the messages between stages, and (p - 1)/v more activations than 1F1B.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2, figure 4 bottom.
"""

from __future__ import annotations

from ..num import Num, minimum
from .looped import looped_order
from .types import Order, Schedule, looped_stage, many_chunks, whole_rounds


def order(p: int, m: int, v: int) -> Order:
    """Rank r: (v - 1) p + 2 (p - 1 - r) forwards ahead, in groups of p microbatches per chunk, then F B F B ..."""
    return looped_order(p, m, v, hop=2, split=False)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i + w) / v."""
    return (p - 1) * (f + i + w) / v


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(m, p + (p - 1)/v)."""
    return minimum(m, p + (p - 1) / v)


INTERLEAVED = Schedule(
    name="interleaved",
    title="Interleaved 1F1B",
    source="Narayanan et al. 2021, arXiv 2104.04473",
    torch_name="Interleaved1F1B",
    split_backward=False,
    chunks=lambda v: v,
    stage_of=looped_stage,
    order=order,
    bubble=bubble,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(many_chunks("interleaved", "1f1b"), whole_rounds("interleaved")),
    in_flight_on_second=lambda p, m, v: minimum(m, p + (p - 3) / v),
    in_flight_on_last=lambda p, m, v: minimum(m, p - (p - 1) / v),
)
