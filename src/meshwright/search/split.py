"""A space in parts: what of a layout says which one it is in.

One search finds the best of each part. What does not depend on parts is computed once; only limits
are one for each: those of a row by the *kind* of its degrees and the *side* of its ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..step.zero import CUT_FROM

SHARDED = CUT_FROM["gradients"]
"""ZeRO stage from which gradients, or weights too, are sharded while a step runs."""
NONE = -1
"""The number of what the space does not hold; columns by part have a place for it: the last."""


class Split(NamedTuple):
    """The number of each part, from 0."""

    numbers: tuple[tuple[int, ...], ...]
    """By kind, then by side; one side: where no ZeRO stage differs from another, one stands for all
    of them.
    """
    names: tuple[str, ...] = ("",)
    """Of each part."""

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.names)

    def only(self, part: int) -> Split:
        """The same space without the other parts."""
        return Split(
            tuple(
                tuple(0 if n == part else NONE for n in sides)
                for sides in self.numbers
            ),
            (self.names[part],),
        )

    @staticmethod
    def kind(tp: Any, pp: Any) -> Any:
        """With pipelines or without, with tp or without."""
        return 2 * (pp > 1) + (tp > 1)

    def rows(self, tp: Any, pp: Any) -> NDArray[np.intp]:
        """(side, row) the part of each row."""
        kind = np.asarray(self.kind(tp, pp), dtype=np.intp)
        return np.array(self.numbers).T[:, kind]

    def part(self, tp: Any, pp: Any, zero: int) -> Any:
        """The part of each row under a ZeRO stage."""
        return self.rows(tp, pp)[-1 if zero >= SHARDED else 0]

    def kinds(self, tp: Any, pp: Any) -> NDArray[np.intp]:
        """A number from 0 of each row, the same for those that are in the same parts."""
        parts = self.rows(tp, pp) - NONE
        kinds: NDArray[np.intp] = parts[0] * (self.parts + 1) + parts[-1]
        return kinds

    def sides(self, stages: Sequence[int]) -> list[NDArray[np.intp]]:
        """Of each side the positions of its ZeRO stages."""
        if len(self.numbers[0]) == 1:
            return [np.arange(len(stages))]
        on = np.array([zero >= SHARDED for zero in stages], dtype=bool)
        return [np.flatnonzero(~on), np.flatnonzero(on)]


WHOLE = Split(((0,),) * 4)
"""A space in one part."""
