"""A model dealt to the stages of a pipeline: what one microbatch takes in a stage, on a rank, and
on its way between stages.

Parts of the model lie on stages and ranks as a `StagePartition` says. Fields are numbers or arrays.
What its messages take is said by `sends`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ..num import Num, maximum, sum_of, where
from .partition import Parts, StagePartition
from .sends import StageSends

if TYPE_CHECKING:
    from .partition import Floats


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


@dataclass(frozen=True, eq=False)
class StageCosts:
    """One microbatch on a cut model."""

    partition: StagePartition
    parts: tuple[PassSeconds, ...]
    """A layer of each kind, the embedding and the head."""
    sends: StageSends

    def at(self, stage: Num) -> PassSeconds:
        """In a stage."""
        return self.passes(stage, stage + 1)

    @property
    def numbers(self) -> tuple[Num, ...]:
        """Seconds that it is made of, those of sends last."""
        return (*chain(*self.parts), *self.sends.seconds)

    def with_numbers(self, numbers: Sequence[Num]) -> StageCosts:
        """This cut with other seconds, in the order of `numbers`."""
        sends = len(self.sends.seconds)
        parts = tuple(map(PassSeconds, *[iter(numbers[:-sends])] * 3))
        seconds = self.sends._replace(seconds=tuple(numbers[-sends:]))
        return StageCosts(self.partition, parts, seconds)

    def load(self, rank: Num) -> PassSeconds:
        """On a rank, in all its chunks."""
        return self._passes(self.partition.on(rank))

    def passes(self, a: Num, b: Num) -> PassSeconds:
        """In the stages from a up to b, without b."""
        return self._passes(self.partition.parts(a, b))

    @property
    def every_stage(self) -> Floats:
        """F, I and W in each stage of one pipeline: (stages, 3), of columns of seconds (n, 1)
        (n, stages, 3).
        """
        import numpy as np

        passes = self._passes(tuple(self.partition.every_stage))
        return np.stack(np.broadcast_arrays(*passes), axis=-1)

    def _passes(self, often: Parts) -> PassSeconds:
        """Of parts, each so often."""
        return PassSeconds(
            *(
                sum_of(zip(often, seconds, strict=True))
                for seconds in zip(*self.parts, strict=True)
            )
        )

    @cached_property
    def slowest(self) -> Num:
        """The rank that has the most work, of several the last."""
        cut = self.partition
        slow: Num = 0.0
        longest = self.load(slow).total
        for rank in cut.busiest[1:]:
            load = self.load(rank).total
            slow = where(load >= longest, rank, slow)
            longest = maximum(load, longest)
        return slow

    @property
    def others(self) -> PassSeconds:
        """On a rank that is not the slowest, in the mean of them."""
        every = self.passes(0.0, self.partition.stages)
        # a pipeline of one rank has no others: the rest is 0 too
        others = maximum(self.partition.q, 1.0)
        pairs = zip(every, self.load(self.slowest), strict=True)
        return PassSeconds(*((s - slow) / others for s, slow in pairs))

    def ways(self, rank: Num) -> tuple[Num, Num]:
        """From the start of F in the first stage to its start in stage `rank` (of looped ones,
        chunk 0 of that rank), of one microbatch that waits for nobody; and from the end of whole
        backward passes there to their end in the first stage.
        """
        before, sends = self.passes(0.0, rank), self.sends.first(rank)
        return before.f + sends, before.b + sends
