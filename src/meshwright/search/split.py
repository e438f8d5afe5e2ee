"""A space in parts: what of a layout says which one it is in.

One search finds the best of each part. What does not depend on parts is computed once; only limits
are one for each: those of a row by the *kind* of its degrees and the *side* of its ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SHARDED = 2
"""ZeRO stage from which gradients, or weights too, are sharded while a step runs."""


class Split(NamedTuple):
    """The number of each part, from 0; NONE: what the space does not hold."""

    of: tuple[tuple[int, ...], ...]
    """By kind, then by side."""

    @property
    def parts(self) -> int:
        """How many there are."""
        return max(map(max, self.of)) + 1

    @staticmethod
    def kind(tp: Any, pp: Any) -> Any:
        """Of (rows of) these degrees: with pipelines or without, with tp or without."""
        return 2 * (pp > 1) + (tp > 1)

    def rows(self, tp: Any, pp: Any) -> NDArray[np.intp]:
        """(side, row) the part of each row."""
        kind = np.asarray(self.kind(tp, pp), dtype=np.intp)
        return np.array(self.of).T[:, kind]

    def side(self, zero: int, tp: Any, pp: Any) -> NDArray[np.intp]:
        """The part of each row under a ZeRO stage."""
        rows: NDArray[np.intp] = self.rows(tp, pp)[
            -1 if zero >= SHARDED else 0
        ]
        return rows

    def kinds(self, tp: Any, pp: Any) -> NDArray[np.intp]:
        """A number from 0 of each row, the same for those that are in the same parts."""
        parts = self.rows(tp, pp)
        first, last = parts[0] - NONE, parts[-1] - NONE
        found: NDArray[np.intp] = first * (self.parts + 1) + last
        return found

    def sides(self, stages: Sequence[int]) -> list[NDArray[np.intp]]:
        """Of each side the positions of its ZeRO stages."""
        if len(self.of[0]) == 1:
            return [np.arange(len(stages))]
        on = np.array([zero >= SHARDED for zero in stages], dtype=bool)
        return [np.flatnonzero(~on), np.flatnonzero(on)]

    def part(self, tp: float, pp: float, zero: int) -> int:
        """That of a layout."""
        return self.of[int(self.kind(tp, pp))][-1 if zero >= SHARDED else 0]


NONE = -1
"""Where columns by part have a place of their own: the last."""
WHOLE = Split(((0,),) * 4)
"""All in one part."""
