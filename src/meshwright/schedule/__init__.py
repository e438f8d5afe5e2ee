"""Pipeline schedules: who computes what in which order, and what that costs in idle time and in
memory.

One schedule per file; each is a `Schedule`: an order of actions, and what it says in closed form of
the bubble of equal stages and of what ranks hold (`looped` serves five of them). `partition` and
`stage_costs` say what lies on stages and ranks and what that takes; `timeline` replays any order
and says when each action runs, `longest` only how long it takes, also of a table of layouts, and
`replays` is what is asked of that.
"""

from __future__ import annotations

from ..errors import unknown
from .breadth_first import BREADTH_FIRST
from .controllable import V_HALF, V_MIN
from .cost_aware import ZB_1P, ZB_2P
from .dualpipe import DUALPIPE
from .dualpipev import DUALPIPEV
from .gpipe import GPIPE
from .interleaved import INTERLEAVED
from .interleaved_zero_bubble import INTERLEAVED_ZERO_BUBBLE
from .one_f_one_b import ONE_F_ONE_B
from .schedule import Schedule
from .timeline import Timeline, timeline_of_order
from .types import Action, Order
from .zbv import ZBV
from .zero_bubble import ZB_H1, ZB_H2

SCHEDULES = {
    s.name: s
    for s in (
        GPIPE,
        ONE_F_ONE_B,
        INTERLEAVED,
        ZB_H1,
        ZB_H2,
        ZB_1P,
        ZB_2P,
        INTERLEAVED_ZERO_BUBBLE,
        ZBV,
        DUALPIPEV,
        DUALPIPE,
        V_HALF,
        V_MIN,
        BREADTH_FIRST,
    )
}
"""name -> schedule, simplest first."""


def get(name: str) -> Schedule:
    """The schedule of that name; BadInput with the nearest ones if there is none."""
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    return SCHEDULES[name]


__all__ = [
    "SCHEDULES",
    "Action",
    "Order",
    "Schedule",
    "Timeline",
    "get",
    "timeline_of_order",
]
