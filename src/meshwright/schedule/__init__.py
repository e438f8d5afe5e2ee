"""Pipeline schedules: who computes what in which order, and what that costs in idle time and in
memory.

One schedule per file of `orders`, whatever lies there; each is a `Schedule`: an order of actions,
and what it says in closed form of the bubble of equal stages and of what ranks hold (`looped`
serves five of them). `partition` and `stage_costs` say what lies on stages and ranks and what that
takes; `timeline` replays any order and says when each action runs, `longest` only how long it
takes, also of a table of layouts, and `replays` is what is asked of that.
"""

from __future__ import annotations

from ..errors import unknown
from ..parts import parts
from .schedule import Schedule
from .timeline import Timeline, timeline_of_order
from .types import Action, Order

SCHEDULES = parts(
    "schedule.orders",
    Schedule,
    lambda s: (s.split_backward, s.chunks(2), s.name),
)
"""name -> schedule, simplest first: whole backward passes, few chunks."""


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
