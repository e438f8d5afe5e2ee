"""A model dealt to the stages of a pipeline: what one microbatch takes in a stage, on a rank, and
on its way between stages.

Layers lie on stages and ranks as a `StagePartition` says. The first stage has the embedding besides
and the last the head. Fields are numbers or arrays. Where stages are folded, the turn needs no
send, unless the way up belongs to other ranks (`crosses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from ..num import Num, maximum, where
from .partition import Layers, StagePartition


class PassSeconds(NamedTuple):
    """Seconds of F, I and W of one microbatch."""

    f: Num
    i: Num
    w: Num

    @property
    def b(self) -> Num:
        """The whole backward pass."""
        return self.i + self.w

    @property
    def total(self) -> Num:
        return self.f + self.i + self.w

    def plus(self, other: PassSeconds, times: Num = 1.0) -> PassSeconds:
        """With so many times another added."""
        if isinstance(times, float) and times == 0.0:
            return self
        return PassSeconds(
            self.f + times * other.f,
            self.i + times * other.i,
            self.w + times * other.w,
        )


@dataclass(frozen=True, eq=False)
class StageCosts:
    """One microbatch on a cut model."""

    partition: StagePartition
    layer: PassSeconds
    first: PassSeconds
    """The embedding, beside the layers of the first stage."""
    last: PassSeconds
    """The head, beside those of the last."""
    more: tuple[PassSeconds, ...]
    """What a layer of each further kind takes more than one of the first kind."""
    send: Num

    def at(self, stage: Num) -> PassSeconds:
        """In a stage."""
        return self.passes(stage, stage + 1)

    @property
    def numbers(self) -> tuple[Num, ...]:
        """Seconds that it is made of, the send last."""
        every = (self.layer, self.first, self.last, *self.more)
        return (*chain(*every), self.send)

    def of(self, numbers: Sequence[Num]) -> StageCosts:
        """This cut with other seconds, in the order of `numbers`."""
        layer, first, last, *more = map(PassSeconds, *[iter(numbers[:-1])] * 3)
        return StageCosts(
            self.partition,
            layer,
            first,
            last=last,
            more=tuple(more),
            send=numbers[-1],
        )

    def load(self, rank: Num) -> PassSeconds:
        """On a rank, in all its chunks."""
        last = 0.0 if self.partition.folded else self.partition.q
        return (
            self._layers(self.partition.on(rank))
            .plus(self.first, (rank == 0) * 1.0)
            .plus(self.last, (rank == last) * 1.0)
        )

    def passes(self, a: Num, b: Num) -> PassSeconds:
        """In the stages from a up to b, without b."""
        stages = self.partition.stages
        begins: Any = (a <= 0) & (b > 0)
        ends: Any = (b >= stages) & (a < stages)
        return (
            self._layers(self.partition.layers(a, b))
            .plus(self.first, begins * 1.0)
            .plus(self.last, ends * 1.0)
        )

    def _layers(self, layers: Layers) -> PassSeconds:
        n, *kinds = layers
        seconds = PassSeconds(
            n * self.layer.f, n * self.layer.i, n * self.layer.w
        )
        for more, often in zip(self.more, kinds, strict=False):
            seconds = seconds.plus(more, often)
        return seconds

    @cached_property
    def slowest(self) -> Num:
        """The rank that has the most work, of several the last."""
        cut = self.partition
        slow: Num = 0.0
        longest = self.load(slow).total
        for rank in (*cut.heavy, cut.q):
            load = self.load(rank).total
            slow = where(load >= longest, rank, slow)
            longest = maximum(load, longest)
        return slow

    @property
    def others(self) -> PassSeconds:
        """On a rank that is not the slowest, in the mean of them."""
        every = self.passes(0.0, self.partition.stages)
        rest = every.plus(self.load(self.slowest), -1.0)
        # a pipeline of one rank has no others: the rest is 0 too
        return PassSeconds(*(s / maximum(self.partition.q, 1.0) for s in rest))

    def down(self, rank: Num) -> Num:
        """From the start of F in the first stage to its start in stage `rank` (of looped
        ones, chunk 0 of that rank), of one microbatch that waits for nobody.
        """
        return self.passes(0.0, rank).f + rank * self.sent

    def up(self, rank: Num) -> Num:
        """From the end of whole backward passes in stage `rank` to their end in the first stage."""
        return self.passes(0.0, rank).b + rank * self.sent

    @property
    def sent(self) -> Num:
        """Seconds of one send; a device that is alone sends nothing."""
        return where(self.partition.p > 1, self.send, 0.0)
