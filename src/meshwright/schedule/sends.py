"""What sends between neighbouring stages take, each over the links between its own two ranks.

A pipeline of p ranks has g_i of them in dimension i of the network, consecutive ranks nearest first
(`layout.placement`), so that S_i = g_0 ... g_{i-1} of them share a unit of dimension i. The n-th
boundary, behind stage n - 1, crosses dimension i where S_i divides n and S_{i+1} does not:

    ranks       0  1  2  3 | 4  5  6  7      g = (4, 2), S = (1, 4, 8)
    boundary      1  2  3  4  5  6  7        only the fourth leaves the node

Where p divides n, looped stages go back from the last rank to the first, over the farthest
dimension in use, and folded ones turn on one rank. p - n is divisible by what n is, so the same
sends come from either end of the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..num import Num, floor, where

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class StageSends(NamedTuple):
    """Of one microbatch, one way."""

    seconds: tuple[Num, ...]
    """Of a send over each dimension, and of that back to the first rank or of the turn (0); of one
    rank 0."""
    every: tuple[Num, ...]
    """Boundaries after which one is at least that far: S_0 = 1, S_1, ..., p."""

    @classmethod
    def over(
        cls, seconds: Sequence[Num], group: Sequence[Num], turns: bool
    ) -> StageSends:
        """A pipeline with so many ranks in each dimension of a network, where a send takes so long.

        turns: folded stages, which turn on one rank.
        """
        every: list[Num] = [1.0]
        farthest: Num = 0.0
        for g, send in zip(group, seconds, strict=True):
            every.append(every[-1] * g)
            farthest = where(g > 1, send, farthest)
        back = 0.0 if turns else farthest
        return cls((*seconds, back), tuple(every))

    @classmethod
    def alike(cls, send: Num, p: Num, turns: bool = False) -> StageSends:
        """Every send of p ranks takes as long."""
        return cls.over((send,), (p,), turns)

    def first(self, n: Num) -> Num:
        """Seconds of the first n sends from either end, one after the other; at least that where
        ranks do not fill their units (`layout.placement.Nearest`): of n boundaries in a row, units
        of S leave no fewer than floor(n / S), and no fewer where they are smaller.
        """
        passed = [*(floor(n / every) for every in self.every), 0.0]
        total: Num = 0.0
        for send, (here, beyond) in zip(
            self.seconds, pairwise(passed), strict=True
        ):
            often = here - beyond
            if not (isinstance(often, float) and often == 0.0):
                total = total + send * often
        return total

    def each(self, boundaries: int) -> NDArray[np.float64]:
        """Seconds of each send, of columns of seconds (n, 1) (n, boundaries); ranks are numbers."""
        import numpy as np

        number = np.arange(1, boundaries + 1)
        sends = np.zeros(boundaries)
        for send, every in zip(self.seconds, self.every, strict=True):
            sends = np.where(number % every == 0, send, sends)
        return sends

    @property
    def free(self) -> StageSends:
        """As many, which take no time."""
        return self._replace(seconds=(0.0,) * len(self.seconds))

    @property
    def nearest(self) -> Num:
        """Of the dimension of the first boundary; of one rank 0."""
        near: Num = 0.0
        for send, (here, beyond) in reversed(
            [*zip(self.seconds[:-1], pairwise(self.every), strict=True)]
        ):
            near = where(beyond > here, send, near)
        return near

    @property
    def farthest(self) -> Num:
        """Of the farthest dimension in use; of one rank 0."""
        far: Num = 0.0
        for send, (here, beyond) in zip(
            self.seconds[:-1], pairwise(self.every), strict=True
        ):
            far = where(beyond > here, send, far)
        return far


NO_SENDS = StageSends((0.0,), (1.0,))
"""Of stages that need none, or none that counts."""
