"""The best layouts found so far, and counts of what was looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..describe.layout import AXES, Layout
from .options import Options
from .placement import Shares
from .points import Points
from .space import DEGREES, Fixed
from .split import NONE, SHARDED, WHOLE, Split
from .table import Column, Index, Table

ROUNDING = 1 + 1e-12
NEAR = 4
"""Times that rounding may come in between two ways to the same number."""
NEARLY = 1.01
"""Of closed forms: replays seldom change the order of what differs by more."""
MOST_TIES = 512
"""Layouts that are kept beyond the k best."""
LARGEST = float(np.finfo(float).max)
TP = 2 + DEGREES.index("tp")
PP = 2 + DEGREES.index("pp")
ZERO = 5 + len(DEGREES)
"""Places in a row, after what ranks it and its bytes."""
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
    trial: Any = np.inf
    """While rows are tried: what is looked for among them (`cascade`), in each part."""
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
    def split(self) -> Split:
        """The parts of which each has its own first, and so its own limit."""
        return self.choice.split if self.choice else WHOLE

    @property
    def firsts(self) -> Column:
        """The first of each part, and 0 for what is in none."""
        found = np.append(np.full(self.split.parts, np.inf), 0.0)
        for row in reversed(
            self.rows if self.split.parts > 1 else self.rows[:1]
        ):
            found[self._part(row)] = row[0]
        return found

    @property
    def common(self) -> float:
        """What no newcomer to any part may exceed, but for what is sure."""
        found = np.inf
        if len(self.rows) >= self.k:
            kth = self._at(self.k)
            last = self._at(max(MOST_TIES, self.k))
            found = max(kth, min(reach(kth, self.first, self.slack), last))
        return min(found, self.within)

    @property
    def kept(self) -> Column:
        """What no row of each part exceeds; bounds may round up. 0: it is in none."""
        found: Column = np.full(self.split.parts + 1, self.common)
        if self.sure:
            found = np.maximum(found, self.firsts * NEARLY)
        found = found * ROUNDING
        found[NONE] = 0.0
        return found

    @property
    def limits(self) -> Column:
        """What a newcomer to each part must not exceed."""
        return np.asarray(np.minimum(self.kept, self.trial))

    @property
    def limit(self) -> float:
        """What no newcomer may exceed."""
        return float(self.limits.max())

    def over(self, table: Table) -> Column:
        """What rows must not exceed while their ZeRO stage is open."""
        parts = self.split.rows(table["tp"], table["pp"])
        most: Column = self.limits[parts].max(axis=0)
        return most

    def alive(
        self, table: Table, bounds: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """The rows that may enter; bounds: (side, row)."""
        parts = self.split.rows(table["tp"], table["pp"])
        most = np.minimum(self.limits, LARGEST)[parts]
        return np.asarray((bounds <= most).any(axis=0))

    def _part(self, row: tuple[Any, ...]) -> int:
        """That of a row."""
        split = self.split
        if split.parts == 1:
            return 0
        return split.part(row[TP], row[PP], self.choice.zero[row[ZERO]].zero)

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

    def add(
        self,
        several: Sequence[tuple[Index, Points]],
        table: Table,
        shares: Shares,
        capacity: float,
    ) -> None:
        """Merge layouts: some rows of a placed table under some options, each with its seconds and
        bytes. Those that do not fit, or are beyond the limit, are only counted.
        """
        limits = np.minimum(self.limits, LARGEST)
        fresh = [
            self._within(index, each, table, limits, capacity)
            for index, each in several
        ]
        row, worth, bytes_, parts, *numbers = (
            np.concatenate(columns) for columns in zip(*fresh, strict=True)
        )
        if self.weigh:
            worth = self.weigh(worth, bytes_)
        kept = np.flatnonzero(worth <= self._far(worth, parts, limits))
        if not len(kept):
            return
        row = row[kept]
        columns = [
            worth[kept],
            bytes_[kept],
            *(table[d][row] for d in DEGREES),
            *(number[kept] for number in numbers),
            *(share[row] for axis in AXES for share in shares[axis]),
        ]
        new = zip(*(x.tolist() for x in columns), strict=True)
        self.rows = sorted({*self.rows, *new})
        limits = self.kept
        tied = self.slack > 0.0 or self.split.parts > 1
        rows = self.rows if tied else self.rows[: self.k]
        self.rows = [x for x in rows if x[0] <= limits[self._part(x)]]

    def _within(
        self,
        index: Index,
        each: Points,
        table: Table,
        limits: Column,
        capacity: float,
    ) -> tuple[Any, ...]:
        """(row, seconds, bytes, part, numbers of the options) of those that fit and stay within the
        limits of their parts; all are counted.
        """
        runs = each.seconds < np.inf
        fits = runs & (each.bytes <= capacity)
        self.evaluated += len(runs)
        fine = int(np.count_nonzero(fits))
        self.feasible += fine
        self.too_big += int(np.count_nonzero(runs)) - fine
        sharded = self.choice.zero[each.place[-1]].zero
        parts = self.split.side(
            sharded, table["tp"][index], table["pp"][index]
        )
        good = np.flatnonzero(fits & (each.seconds <= limits[parts]))
        return (
            index[good],
            each.seconds[good],
            each.bytes[good],
            parts[good],
            *(np.full(len(good), number) for number in each.place),
        )

    def _far(self, worth: Column, parts: Index, limits: Column) -> Column:
        """What each newcomer must not exceed, whatever else there is: many of them limit each
        other."""
        most: Column = limits[parts]
        if len(worth) <= 4 * self.k:
            return most
        least = np.partition(worth, self.k - 1)
        far = np.full(
            len(limits), reach(least[self.k - 1], least.min(), self.slack)
        )
        if self.sure:
            firsts = np.full(len(limits), np.inf)
            np.minimum.at(firsts, parts, worth)
            far = np.maximum(far, firsts * NEARLY)
        return np.asarray(np.minimum(most, far[parts]))

    def of(self, part: int) -> list[tuple[Any, ...]]:
        """The rows of a part, with its ZeRO stages numbered by themselves."""
        mine = [row for row in self.rows if self._part(row) == part]
        if not mine:
            return []
        zero = self.choice.zero
        sharded = zero[mine[0][ZERO]].zero >= SHARDED
        own = [n for n, z in enumerate(zero) if (z.zero >= SHARDED) == sharded]
        return [
            (*row[:ZERO], own.index(row[ZERO]), *row[ZERO + 1 :])
            for row in mine
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
