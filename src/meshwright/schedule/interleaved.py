"""Interleaved 1F1B: v chunks per device shorten every step of the pipeline, and with it the bubble,
to 1/v.

    bubble = (p - 1) (f + i + w) / v            exact for all p, v and groups of g >= p
    bubble = (vp - 1 - (v-1) m) (f + i + w) / v with m < p, which are one group
    in flight = min(m, ((v-1) g + 2p - 1)/v)    on rank 0: (v-1) g + 2 (p-1) warm-up
                                                forwards and one more, 1/v each

The price: v times the messages between stages, and (p - 1)/v more activations than 1F1B.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2, figure 4 bottom.
"""

from __future__ import annotations

from functools import cache

from ..num import Num, maximum
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
    """(p - 1 + (v - 1) max(p - m, 0))(f + i + w) / v."""
    return (p - 1 + (v - 1) * maximum(p - m, 0.0)) * (f + i + w) / v


@cache
def interleaved(group: int = 0) -> Schedule:
    """With groups of so many microbatches."""

    def order(p: int, m: int, v: int) -> Order:
        """Rank r: (v - 1) g + 2 (p - 1 - r) forwards ahead, in groups of g microbatches per chunk,
        then F B F B ...
        """
        return looped_order(p, m, v, 2, False, group)

    return Schedule(
        name="interleaved",
        title="Interleaved 1F1B",
        source="Narayanan et al. 2021, arXiv 2104.04473",
        torch_name="Interleaved1F1B",
        split_backward=False,
        chunks=lambda v: v,
        stage_of=looped_stage,
        order=order,
        bubble=bubble,
        in_flight=lambda p, m, v: groups.ahead(p, m, v, group, 2 * p - 1),
        heads=lambda p, m, v: 1,
        needs=(
            many_chunks("interleaved", "1f1b"),
            whole_groups("interleaved", group),
        ),
        in_flight_on=lambda p, m, v, rank: groups.ahead(
            p, m, v, group, 2 * (p - rank) - 1
        ),
        in_flight_on_last=lambda p, m, v: groups.ahead(p, m, v, group, 1.0),
        group=group,
        grouped=interleaved,
    )


INTERLEAVED = interleaved()
