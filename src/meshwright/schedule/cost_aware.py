"""ZB-1p and ZB-2p: zero bubble whose order follows from what the passes take (`board`).

No rank may hold more than p (ZB-1p) or 2p (ZB-2p) microbatches between F and W; 1p is what 1F1B
holds. The bubble is that of the order, replayed.

Source: Qi et al. 2024 (arXiv 2401.10241), section 3.1 and its appendix.
"""

from __future__ import annotations

from dataclasses import replace

from ..num import Num, minimum
from .board import Memory, order_for
from .replayed import idle, no_bound
from .types import (
    Costs,
    Order,
    Schedule,
    looped_stage,
    one_chunk,
)


def _limit(p: Num, m: Num, times: float) -> Num:
    """Microbatches that a rank may hold."""
    return minimum(times * p, m)


def _schedule(name: str, title: str, times: float) -> Schedule:
    def by_costs(costs: Costs, p: int, m: int, v: int) -> Order:
        return order_for(costs, m, Memory(times * p))

    def equal(p: int, m: int, v: int) -> Order:
        return by_costs(Costs(((1.0, 1.0, 1.0),) * p, 0.0), p, m, v)

    def held(p: Num, m: Num, v: Num) -> Num:
        return _limit(p, m, times)

    bare = Schedule(
        name=name,
        title=title,
        source="Qi et al. 2024, arXiv 2401.10241",
        torch_name=None,
        split_backward=True,
        chunks=lambda v: 1,
        stage_of=looped_stage,
        order=equal,
        by_costs=by_costs,
        costed=True,
        bubble=no_bound,
        in_flight=held,
        heads=lambda p, m, v: 1,
        heads_late=lambda p, m, v: held(p, m, v) - 1,
        least_bubble_of=no_bound,
        least_in_run_of=no_bound,
        needs=(one_chunk(name),),
    )
    return replace(
        bare, bubble=idle(bare, True), bubble_in_run=idle(bare, False)
    )


ZB_1P = _schedule("zb-1p", "Zero bubble ZB-1p", 1.0)
ZB_2P = _schedule("zb-2p", "Zero bubble ZB-2p", 2.0)
