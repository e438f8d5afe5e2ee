"""The words of a pipeline schedule: an action, an order, what passes cost.

A pipeline cuts the model into stages. A device (a *rank* of the pp axis) holds one or more of them,
its *chunks*, and works through the microbatches in a fixed order. Letters: `p` ranks, `m`
microbatches, `v` chunks of a device; `f`, `i`, `w` the seconds that one microbatch takes on one
device, all its chunks together: the forward pass, the gradient of the input and the gradient of the
weights. The last two make the backward pass, f + i + w is the useful time of a microbatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple, Self, TypeAlias

from ..num import Num

Placement: TypeAlias = Callable[[int, int, int, int], int]
"""(rank, chunk, p, v) -> stage, 0 the first of the model."""


class Action(NamedTuple):
    """One pass of one microbatch through one chunk of a rank."""

    kind: str
    """F forward, B whole backward, I gradient of the input, W gradient of the weights (B = I then
    W, at once).
    """
    chunk: int
    """Which of the rank's chunks: 0 .. chunks - 1. `Schedule.stage_of` tells the stage."""
    microbatch: int


Order: TypeAlias = list[list[Action]]
"""For each rank, its actions one after the other."""


class Costs(NamedTuple):
    """What the passes of a pipeline take, in seconds."""

    passes: tuple[tuple[float, float, float], ...]
    """F, I and W of one microbatch through each stage."""
    sends: tuple[float, ...]
    """Of one over each boundary, from a stage to the next."""


@dataclass(frozen=True, kw_only=True)
class ScheduleOrder:
    """What a rank does when, and where stages lie: all that a replay needs."""

    name: str
    """What a layout calls the schedule."""
    order: Callable[[int, int, int], Order]
    """(p, m, v) -> the actions of each rank."""
    stage_of: Placement
    chunks: Callable[[Num], Num]
    """v -> chunks that a device holds."""
    split_backward: bool
    """Weight gradients may run later than input gradients."""
    copies: int = 1
    """Ranks that hold each stage, each for a share of the microbatches."""
    group: int = 0
    """Microbatches that go through a chunk before the next one has its turn (`groups`)."""
    grouped: Callable[[int], Any] | None = None
    """The same schedule with such groups; None: it has none."""
    by_costs: Callable[[Costs, int, int, int], Order] | None = None
    """(costs, p, m, v) -> the actions of each rank, where these follow from what passes take;
    `order` is then that of equal passes and free sends, until the schedule is `timed`."""
    costed: bool = False
    """Its order follows from costs: with more microbatches no group of them need repeat."""

    def timed(self, costs: Costs) -> Self:
        """This schedule with the order for these costs, if it follows from them."""
        if not self.by_costs:
            return self
        return replace(
            self, order=partial(self.by_costs, costs), by_costs=None
        )

    @property
    def folded(self) -> bool:
        """The first device holds the last stage too."""
        return both_ends(self.stage_of, self.copies)

    @property
    def chunked(self) -> bool:
        """A layout chooses its chunks; other schedules have a number of their own."""
        return bool(self.chunks(2) != self.chunks(1))

    def stage_count(self, p: Num, v: Num) -> Num:
        """Stages of the model."""
        return self.depth(p) * self.chunks(v)

    def depth(self, p: Num) -> Num:
        """Ranks that one copy of the model is spread over."""
        return p if self.copies == 1 else p / self.copies

    def rounds(self, m: Num) -> Num:
        """Microbatches that a rank runs through each of its chunks."""
        return m if self.copies == 1 else m / self.copies

    def placement(self, p: int, v: int) -> Callable[[int, int], int]:
        """(rank, chunk) -> stage, as `timeline` wants it."""
        return lambda rank, chunk: self.stage_of(rank, chunk, p, v)


def ranks_of_stages(
    stage_of: Placement, depth: int, v: int, copies: int = 1
) -> list[int]:
    """The rank of every stage, among the first `depth` ranks, which hold one copy of the model."""
    rank_of = {
        stage_of(rank, chunk, depth * copies, v): rank
        for rank in range(depth)
        for chunk in range(v)
    }
    return [rank_of[stage] for stage in range(depth * v)]


@cache
def both_ends(stage_of: Placement, copies: int) -> bool:
    """The first rank holds the first stage and the last; of two ranks as of more."""
    return ranks_of_stages(stage_of, 2, 2, copies)[-1] == 0


def looped_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages dealt out in rounds: chunk c of rank r is stage r + p c."""
    return rank + p * chunk


def folded_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages laid out as a V: down the ranks and up again, so that rank 0 holds the first and the
    last.
    """
    return rank if chunk == 0 else 2 * p - 1 - rank


def mirrored_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages laid out twice, down the ranks and up them."""
    return rank if chunk == 0 else p - 1 - rank
