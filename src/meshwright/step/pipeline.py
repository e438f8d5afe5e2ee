"""All microbatches of a step through a pipeline: sends between its stages, and seconds in the order
of the schedule, carried out action by action. What an order takes at least says `idle_bound`, what
papers say of it `closed_form`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..cost.layer import Clock
from ..cost.load import Busy
from ..describe.layout import Layout
from ..num import Num, product, where, with_name
from ..schedule.partition import StagePartition
from ..schedule.schedule import Schedule
from ..schedule.sends import StageSends
from ..schedule.stage_costs import StageCosts
from ..schedule.types import ScheduleOrder
from .microbatch import ModelCost

# it loads slowly, and a step without a pipeline does without
if TYPE_CHECKING:
    from ..schedule.replays import Paths

Shape: TypeAlias = tuple[Num, Num, Num]
"""(p, m, v): ranks, microbatches of a step, and chunks of a rank in the order of a schedule."""
SendsAndBubble: TypeAlias = Callable[[], tuple[Num, Num]]
"""Computes the seconds of sends that show and of the bubble, which few ask to be told apart."""


class FillAndDrain(NamedTuple):
    """The way of one microbatch down to a device and up again, for which that device is idle."""

    seconds: Num
    """Of passes and sends, before anything waits for weights or gradients."""
    forward: Num = 0.0
    """Forward passes on the way, counted in passes of a whole device: rank / v, since each rank
    before runs one of its v chunks."""
    backward: Num = 0.0
    """Backward passes on the way, counted alike; 0 where they are split into B and W."""


@dataclass(frozen=True)
class Pipeline:
    """Seconds of the microbatches of one step."""

    total: Num
    """From the first action to the end."""
    sends_and_bubble: SendsAndBubble
    """`sends` and `bubble`, which with m microbatches on the slowest device are the total; computed
    when one is asked for."""
    links: Busy = Busy()
    """Seconds each dimension of the network carries what stages send."""

    @cached_property
    def _parts(self) -> tuple[Num, Num]:
        return self.sends_and_bubble()

    @property
    def sends(self) -> Num:
        """Seconds of sends between stages, as far as they do not hide."""
        return self._parts[0]

    @property
    def bubble(self) -> Num:
        """Seconds the slowest device waits for others, sends aside."""
        return self._parts[1]


def stage_sends(
    layout: Layout, cost: ModelCost, clock: Clock, partition: StagePartition
) -> tuple[StageSends, Busy]:
    """(What sends between neighbouring stages take, seconds each dimension is busy with those of
    one rank), forward and backward, of one microbatch through one chunk.
    """
    group, turns = layout.group("pp"), partition.folded
    links = clock.links(layout)
    if links.how.hop != "each":
        send = links.load("send", cost.message, group)
        seconds = with_name(send.seconds, "sends", cost.boundary)
        ranks = product(group)
        return StageSends.alike(seconds, ranks, turns), send.busy * 2
    hops = links.neighbours(cost.message)
    sends = StageSends.over(
        [
            with_name(h.seconds, f"sends over {dim.name}", cost.boundary)
            for h, dim in zip(hops, links.dims, strict=True)
        ],
        group,
        turns,
    )
    busy = Busy()
    for h, g, here in zip(hops, group, sends.every, strict=False):
        # a rank has two neighbours; of those beyond its unit, where units hold several ranks, one
        often = where(g > 1, where(here == 1, 2.0, 1.0), 0.0)
        busy = busy + h.busy * often
    return sends, busy


def replay_total(
    schedule: ScheduleOrder,
    shape: Shape,
    stages: StageCosts,
    busy: Num,
    paths: Paths,
    barrier: bool,
) -> tuple[Num, SendsAndBubble]:
    """`Pipeline.total` of one layout, action by action, and its parts: the bubble is what it takes
    without sends; one order serves both. paths, barrier: as in `replays.replayed`.
    """
    from ..schedule.replays import replayed

    at = int(shape[0]), int(shape[1]), int(shape[2])
    seconds = replayed(schedule, at, stages, barrier, paths=paths)

    def parts() -> tuple[Num, Num]:
        silent = replace(stages, sends=stages.sends.free)
        quiet = replayed(schedule, at, silent, barrier, paths=paths)
        return seconds - quiet, quiet - busy

    return seconds, parts


def fill_and_drain(
    schedule: Schedule,
    stages: StageCosts,
    ranks: Sequence[Num],
    barrier: bool,
) -> tuple[FillAndDrain, ...]:
    """When ranks have nothing to do yet, or nothing any more: the way of one microbatch down to
    each, by one chunk of each stage before it, and, where backward passes are whole, up again.
    Where a rank may begin the next step meanwhile (no barrier), nothing.
    """
    split = schedule.split_backward
    if split and not barrier:
        return tuple(FillAndDrain(0.0 * stages.partition.p) for _ in ranks)
    once = 1.0 / stages.partition.v
    ways = []
    for rank in ranks:
        down, up = stages.ways(rank)
        passes = rank * once
        ways.append(
            FillAndDrain(down, passes)
            if split
            else FillAndDrain(down + up, passes, passes)
        )
    return tuple(ways)
