"""A schedule: an order, and what it says of itself in closed form.

Letters as in `types`: p ranks, m microbatches, v chunks of a device, and f, i, w seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from ..num import Num, anywhere, row_by_row, where
from .rules import Rule
from .types import ScheduleOrder

Bubble: TypeAlias = Callable[[Num, Num, Num, Num, Num, Num], Num]
"""(p, m, v, f, i, w) -> idle seconds of a device per step of equal stages and free sends."""
Flight: TypeAlias = Callable[[Num, Num, Num, Num], Num]
"""(p, m, v, rank) -> microbatches."""
Heads: TypeAlias = Callable[[Num, Num, Num], tuple[Num, Num]]
"""(p, m, v) -> two numbers of microbatches."""

LAWS = ("chunks", "closed", "closed_in_run", "flight", "heads")
"""Fields that a search asks with columns."""


@dataclass(frozen=True, kw_only=True)
class Schedule(ScheduleOrder):
    """One way to order the microbatches.

    The order says everything. What a search asks of many layouts at once, a schedule may say in
    closed form besides, of numbers or arrays, where v is the number of its chunks; what it does not
    say is read off its order (`replays`), one layout after the other.
    """

    title: str
    source: str
    """The paper that introduced it."""
    needs: tuple[Rule, ...]
    """What p, m and v must satisfy."""
    torch_name: str | None = None
    """The class of torch.distributed.pipelining that runs the same order, if there is one."""
    closed: Bubble | None = None
    """The bubble of a step by itself: makespan - m (f + i + w); where ranks share the microbatches
    of a stage, m is a rank's share."""
    closed_in_run: Bubble | None = None
    """The bubble of a step in a run of them, if each rank begins the next one as soon as it is done
    with this one: what one more step takes, less m (f + i + w). None = `closed`: the rank that
    begins first also ends last."""
    beyond: Callable[[Num, Num], Any] | None = None
    """(p, m) -> where the closed forms do not hold, and the order is asked; None: nowhere."""
    flight: Flight | None = None
    """The most microbatches whose activations a rank holds at once; 1 = one through all its chunks.
    At most, where ranks hold less."""
    heads: Heads | None = None
    """(The most microbatches between the forward pass of the last stage and the gradient of its
    input: so many logits are kept at once; how many wait, at that moment, between the gradients of
    the last stage's input and of its weights)."""
    stages: Any = "even"
    """How a layout deals layers to its stages (`describe.stages`: a text, or what it says)."""
    ahead: int = 0
    """Forwards that a rank runs ahead for each rank below it, and weight gradients that it holds
    back for each above, where backward passes are split (1F1B, ZB-H1: 1, ZB-H2: 2); 0: not so.
    """

    def __post_init__(self) -> None:
        for name in LAWS:
            if law := getattr(self, name):
                object.__setattr__(self, name, row_by_row(law))

    @property
    def replayed(self) -> bool:
        """Whether the bubble is read off the order."""
        return self.closed is None

    @property
    def overlaps(self) -> bool:
        """A rank that ends early may begin the next step: in a run of them one takes less."""
        return (
            self.split_backward if self.replayed else bool(self.closed_in_run)
        )

    def bubble(
        self,
        p: Num,
        m: Num,
        v: Num,
        f: Num,
        i: Num,
        w: Num,
        barrier: bool = True,
    ) -> Num:
        """Idle seconds of a device per step of equal stages and free sends; barrier: no rank begins
        the next step before all have ended this one.
        """
        law = self.closed if barrier else self.closed_in_run or self.closed
        beyond = law is None or (self.beyond is not None and self.beyond(p, m))
        if law and not anywhere(beyond):
            return law(p, m, self.chunks(v), f, i, w)
        from .replays import bubble_of_order

        idle = bubble_of_order(
            self, p, m, v=v, passes=(f, i, w), barrier=barrier, asked=beyond
        )
        if law is None:
            return idle
        return where(beyond, idle, law(p, m, self.chunks(v), f, i, w))

    def in_flight(
        self, p: Num, m: Num, v: Num, rank: Num | None = None
    ) -> Num:
        """The most microbatches whose activations a rank holds at once; None: the fullest rank, the
        first one or, where that holds the last stage too, the second."""
        if rank is None:
            rank = 1.0 if self.folded else 0.0
        if self.flight:
            return self.flight(p, m, self.chunks(v), rank)
        end = 0.0 if self.folded else p - 1.0
        return where(
            rank == end,
            self._read(p, m, v, "end"),
            self._read(p, m, v, "most"),
        )

    def logits(self, p: Num, m: Num, v: Num) -> tuple[Num, Num]:
        """Microbatches in either half of the head's backward pass (`heads`)."""
        if self.heads:
            return self.heads(p, m, self.chunks(v))
        return self._read(p, m, v, "heads"), self._read(p, m, v, "late")

    def _read(self, p: Num, m: Num, v: Num, name: str) -> Num:
        from .replays import in_rows, order_holds

        return in_rows(
            lambda *at: getattr(order_holds(self, *at), name), p, m, v
        )

    @property
    def holds_back(self) -> bool:
        """Later ranks hold more weight gradients back, with what they are made of."""
        return self.split_backward and not self.folded

    def __hash__(self) -> int:
        """The hash of what names it; the rest follows, or tells them apart."""
        return hash((self.name, self.stages, self.group))

    def legal(self, p: Any, m: Any, v: Any) -> Any:
        """True where the schedule can run with these numbers."""
        return reduce(
            lambda a, b: a & b, (rule.holds(p, m, v) for rule in self.needs)
        )

    def rules(self, p: int, m: int, v: int) -> list[str]:
        """Why the schedule cannot run with these numbers, a sentence each; empty if it can."""
        return [
            rule.sentence(p, m, v)
            for rule in self.needs
            if not rule.holds(p, m, v)
        ]
