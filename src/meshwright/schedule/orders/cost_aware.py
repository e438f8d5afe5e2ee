"""ZB-1p and ZB-2p: zero bubble whose order follows from what the passes take (`board`).

No rank may hold more than p (ZB-1p) or 2p (ZB-2p) microbatches between F and W; 1p is what 1F1B
holds. The bubble is that of the order, replayed.

Source: Qi et al. 2024 (arXiv 2401.10241), section 3.1 and its appendix.
"""

from __future__ import annotations

from ...num import Num, minimum
from ..board import order_for
from ..rules import one_chunk
from ..schedule import Schedule
from ..types import Costs, Order, looped_stage


def _schedule(name: str, title: str, times: float) -> Schedule:
    def by_costs(costs: Costs, p: int, m: int, v: int) -> Order:
        return order_for(costs, m, times * p)

    def equal(p: int, m: int, v: int) -> Order:
        return by_costs(
            Costs(((1.0, 1.0, 1.0),) * p, (0.0,) * (p - 1)), p, m, v
        )

    def flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
        return minimum(times * p, m)

    return Schedule(
        name=name,
        title=title,
        source="Qi et al. 2024, arXiv 2401.10241",
        order=equal,
        stage_of=looped_stage,
        chunks=lambda v: 1,
        split_backward=True,
        needs=(one_chunk(name),),
        flight=flight,
        heads=lambda p, m, v: (1, minimum(times * p, m) - 1),
        by_costs=by_costs,
        costed=True,
    )


ZB_1P = _schedule("zb-1p", "Zero bubble ZB-1p", 1.0)
ZB_2P = _schedule("zb-2p", "Zero bubble ZB-2p", 2.0)
