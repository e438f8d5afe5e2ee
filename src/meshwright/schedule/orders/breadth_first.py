"""Breadth-first pipelines (Looped BFS): all microbatches go through a chunk before the next chunk
has its turn, forward and then backward, the last microbatch first.

It keeps every microbatch, as GPipe does, and fills as fast as interleaved 1F1B. With sharded
weights (ZeRO-3) a rank could gather those of a chunk once for all its microbatches and reduce its
gradients once, while other chunks run: the paper's reason for the order. A step here does not count
on it: it prices a gather before every pass and holds two layers whole, not a chunk, as for every
other order (`step.zero`). Of equal stages, exact:

    bubble = ((p - 1) + (v - 1) max(p - m, 0)) (f + i + w) / v
    in flight = m

Source: Lamy-Poirier 2022, "Breadth-first pipeline parallelism" (arXiv 2211.05953), section 3; the
order is that of PyTorch's ScheduleLoopedBFS (torch 2.13).
"""

from __future__ import annotations

from ..looped import flush_bubble
from ..rules import many_chunks
from ..schedule import Schedule
from ..types import Action, Order, looped_stage


def _order(p: int, m: int, v: int) -> Order:
    """Forwards chunk by chunk, then backwards, all in reverse."""
    forward = [(chunk, k) for chunk in range(v) for k in range(m)]
    actions = [Action("F", *at) for at in forward]
    actions += [Action("B", *at) for at in reversed(forward)]
    return [actions] * p


BREADTH_FIRST = Schedule(
    name="breadth-first",
    title="Breadth-first",
    source="Lamy-Poirier 2022, arXiv 2211.05953",
    order=_order,
    stage_of=looped_stage,
    chunks=lambda v: v,
    split_backward=False,
    needs=(many_chunks("breadth-first", "gpipe"),),
    closed=flush_bubble,
    flight=lambda p, m, v, rank: m,
    heads=lambda p, m, v: (m, 0),
)
