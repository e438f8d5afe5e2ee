"""The exact timeline of any order of actions: the longest path through its dependencies.

An action starts when the one before it on its rank has ended and its input is there:

    F of stage s    after F of stage s-1, plus the send if that stage lies on another rank
    I or B          after F of its own stage, and after I or B of stage s+1, plus the send
    W               after I of its own stage

Sends occupy neither device; the gradient of a B is sent when the whole B is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from .order import NOTHING, StageOf, dependencies, in_flight_rank
from .types import Order

Passes: TypeAlias = tuple[float, float, float]
"""Seconds of F, I and W of one microbatch through one stage; B takes I + W."""
Durations: TypeAlias = Sequence[Passes] | Callable[[str, int, int], float]
"""The passes of each stage; or (kind, stage, microbatch) -> seconds of that one action."""


class Send(NamedTuple):
    """One message between ranks: the output of a forward going down, or the gradient of an input
    going up.
    """

    sender: int
    receiver: int
    kind: str
    """F or I, what the receiver will do with it."""
    stage: int
    """The stage that made it."""
    microbatch: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """When each action of an order runs. `start_s` and `end_s` have the shape of `order`."""

    order: Order
    stages: list[list[int]]
    """The stage of each action, in the shape of `order`."""
    start_s: list[list[float]]
    end_s: list[list[float]]
    sends: list[Send]
    """Ascending by start."""

    @cached_property
    def makespan_s(self) -> float:
        """From zero to the end of the last action of all."""
        return max((ends[-1] for ends in self.end_s if ends), default=0.0)

    @cached_property
    def busy_s(self) -> list[float]:
        """Seconds that each rank computes."""
        return [
            sum(e) - sum(s)
            for s, e in zip(self.start_s, self.end_s, strict=True)
        ]

    @property
    def idle_s(self) -> list[float]:
        """Seconds that each rank waits, before its first action and after its last included."""
        # gap by gap: without one it is nothing, not what sums of ends and starts leave
        return [
            sum(
                start - end
                for end, start in zip(
                    (0.0, *ends), (*starts, self.makespan_s), strict=True
                )
            )
            for starts, ends in zip(self.start_s, self.end_s, strict=True)
        ]

    @property
    def bubble_fraction(self) -> float:
        """Idle share of all device time, between 0 and 1. (Narayanan et al. divide by the useful
        time instead.)
        """
        total = self.makespan_s * len(self.order)
        return sum(self.idle_s) / total if total else 0.0

    @property
    def in_flight(self) -> list[float]:
        """The most microbatches whose activations each rank holds at once; 1 = one through all its
        chunks.
        """
        return [
            in_flight_rank(self.order, rank) for rank in range(len(self.order))
        ]


def timeline_of_order(
    order: Order,
    stage_of: StageOf,
    durations: Durations,
    send_s: float | Sequence[float] = 0.0,
) -> Timeline:
    """Replay an order.

    order: the actions of each rank;  stage_of: (rank, chunk) -> stage;  durations: see `Durations`;
    send_s: seconds from the end of an action on one rank to the arrival of its output on another,
    of all sends or of those over each boundary (the first lies between stages 0 and 1). Raises
    BadInput if ranks wait for each other for ever, an input is never made, or an action comes
    twice.
    """
    d = dependencies(order, stage_of)
    seconds = durations if callable(durations) else _by_stage(durations)
    rank, stage, number = (
        d.rank.tolist(),
        d.stage.tolist(),
        d.microbatch.tolist(),
    )
    hops = (
        [send_s] * max(len(stage), 1)
        if isinstance(send_s, float | int)
        else send_s
    )
    kind = [action.kind for actions in order for action in actions]
    starts = [0.0] * len(kind)
    ends = [0.0] * len(kind)
    sends: list[Send] = []
    for k in d.level.argsort(kind="stable").tolist():
        if k and rank[k - 1] == rank[k]:
            starts[k] = ends[k - 1]
        need, boundary = int(d.needs[k]), int(d.boundary[k])
        if need != NOTHING:
            arrives = ends[need]
            if boundary != NOTHING:
                arrives += hops[boundary]
                part = "F" if kind[k] == "F" else "I"
                at = rank[need], rank[k], part, stage[need], number[k]
                sends.append(Send(*at, ends[need], arrives))
            starts[k] = max(starts[k], arrives)
        ends[k] = starts[k] + seconds(kind[k], stage[k], number[k])
    by_rank = [slice(*each) for each in pairwise(d.first.tolist())]
    return Timeline(
        order,
        [stage[some] for some in by_rank],
        [starts[some] for some in by_rank],
        end_s=[ends[some] for some in by_rank],
        sends=sorted(sends, key=lambda send: send.start_s),
    )


def _by_stage(passes: Sequence[Passes]) -> Callable[[str, int, int], float]:
    seconds = [{"F": f, "I": i, "W": w, "B": i + w} for f, i, w in passes]
    return lambda kind, stage, microbatch: seconds[stage][kind]
