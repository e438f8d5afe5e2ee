"""The best layouts found so far, and counts of what was looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..describe.layout import AXES, Layout
from .pieces import Grid, Pieces
from .placement import Shares
from .space import DEGREES, Fixed, Options, Table

ROUNDING = 1 + 1e-12
NEAR = 4
"""Times that rounding may come in between two ways to the same number."""
NEARLY = 1.01
"""Of closed forms: replays seldom change the order of what differs by more."""
MOST_TIES = 512
"""Layouts that are kept beyond the k best."""
Weigh = Callable[[Any, Any], Any]
"""(seconds, bytes) of layouts -> what ranks them: never less than the seconds."""


@dataclass
class Best:
    """The best k layouts so far, and counts of what was looked at."""

    k: int
    choice: Options
    within: float = np.inf
    """What no layout may exceed, whatever was found."""
    weigh: Weigh | None = None
    """None: seconds rank."""
    slack: float = 0.0
    """Beyond the k best, layouts that the first beats by no more than this share are kept too, and
    what is nearly as good as any of these: replays decide."""
    sure: bool = False
    """The first, and what is nearly as good, is kept whatever `within` says."""
    trial: float = np.inf
    """While rows are tried: what is looked for among them (`evaluate.tried`)."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """(what ranks, bytes, degrees..., option numbers..., placement...), sorted."""
    searched: int = 0
    feasible: int = 0
    evaluated: int = 0
    too_big: int = 0

    @property
    def first(self) -> float:
        """Of the best; inf: there is none."""
        return float(self.rows[0][0]) if self.rows else np.inf

    @property
    def limit(self) -> float:
        """What a newcomer must not exceed; bounds may round up."""
        found = np.inf
        if len(self.rows) >= self.k:
            kth = self._at(self.k)
            last = self._at(max(MOST_TIES, self.k))
            found = max(kth, min(reach(kth, self.first, self.slack), last))
        found = min(found, self.within)
        found = max(found, self._sure) if self.sure else found
        return min(found * ROUNDING, self.trial)

    @property
    def _sure(self) -> float:
        """What is kept in any case."""
        return self.first * NEARLY

    def _at(self, place: int) -> float:
        """Of the row at this place, counted from 1; inf: there is none."""
        return (
            float(self.rows[place - 1][0])
            if len(self.rows) >= place
            else np.inf
        )

    def complete(self, limit: float) -> bool:
        """Whether no layout within this limit was left out."""
        far = max(self.within, self._sure) if self.sure else self.within
        if limit > far * ROUNDING**NEAR:
            return False
        kept = len(self.rows) < self.k or bool(self.rows[-1][0] > limit)
        return kept or (
            self.slack > 0.0
            and limit <= self.limit
            and len(self.rows) < MOST_TIES
        )

    def count(self, p: Pieces, seconds: Grid, covered: bool) -> None:
        """Count the legal and the fitting points of a grid; covered: they are not in `searched`
        yet.
        """
        legal = p.legal
        fit = int(np.count_nonzero(seconds < np.inf))
        self.feasible, self.too_big = (
            self.feasible + fit,
            self.too_big + legal - fit,
        )
        self.searched += legal if covered else 0

    def add(
        self, seconds: Grid, use: Grid, p: Pieces, table: Table, shares: Shares
    ) -> None:
        """Merge a grid of layouts (`grid.exact`); only those within the limit are touched."""
        flat = seconds.ravel()
        limit = min(self.limit, np.finfo(float).max)
        good = np.flatnonzero(flat <= limit)
        place = np.unravel_index(good, seconds.shape)
        worth = flat[good]
        bytes_ = use[(*place[:-1], p.of[place[-1]])]
        if self.weigh:
            worth = self.weigh(worth, bytes_)
        most = limit
        if len(good) > 4 * self.k:
            least = np.partition(worth, self.k - 1)
            far = reach(least[self.k - 1], least.min(), self.slack)
            most = min(limit, far)
        kept = np.flatnonzero(worth <= most)
        if not len(kept):
            return
        row = place[-1][kept]
        columns = [table[d][row] for d in DEGREES]
        where = [share[row] for axis in AXES for share in shares[axis]]
        numbers = [
            np.array(n)[at[kept]]
            for n, at in zip(p.choice.numbers, place[:-1], strict=True)
        ]
        values = [worth[kept], bytes_[kept], *columns, *numbers, *where]
        fresh = list(zip(*(x.tolist() for x in values), strict=True))
        self.rows = sorted({*self.rows, *fresh})
        limit = self.limit
        k = self.k
        tied = self.slack > 0.0
        self.rows = [
            x
            for n, x in enumerate(self.rows)
            if (n < k or tied) and x[0] <= limit
        ]

    def layouts(self, scheme: str, dims: int) -> list[Layout]:
        """The layouts found, best first."""
        return [self.layout(row, scheme, dims) for row in self.rows]

    def layout(self, row: tuple[Any, ...], scheme: str, dims: int) -> Layout:
        """The layout of a row."""
        degrees: dict[str, Any] = dict(
            zip(
                DEGREES,
                (int(x) for x in row[2 : 2 + len(DEGREES)]),
                strict=True,
            )
        )
        sp, rec, sched, zero = row[2 + len(DEGREES) : 6 + len(DEGREES)]
        where = row[6 + len(DEGREES) :]
        shares = {
            a: tuple(int(x) for x in where[i * dims : (i + 1) * dims])
            for i, a in enumerate(AXES)
        }
        way = self.choice.schedules[sched]
        sharding = self.choice.zero[zero]
        fixed = Fixed.of(scheme) | way._asdict()
        return Layout(
            **degrees,
            zero=sharding.zero,
            dp_replicate=int(
                sharding.of(degrees["tp"], degrees["cp"], degrees["dp"])
            ),
            recompute=self.choice.recompute[rec],
            sequence_parallel=self.choice.sequence_parallel[sp],
            **fixed,
            placement=shares,
        )


def reach(kth: float, first: float, slack: float) -> float:
    """What no closed form exceeds that may be among the k best by replay, or tie with the first of
    them.
    """
    return max(kth, first * (1.0 + slack)) * NEARLY if slack else kth
