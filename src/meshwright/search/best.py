"""The best layouts found so far, and counts of what was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..describe.layout import AXES, Layout
from .pieces import Grid, Pieces
from .placement import Shares
from .space import DEGREES, Options, Table

ROUNDING = 1 + 1e-12


@dataclass
class Best:
    """The best k layouts so far, and counts of what was looked at."""

    k: int
    choice: Options
    within: float = np.inf
    """Seconds that no layout may exceed, whatever was found."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """(seconds, bytes, degrees..., option numbers..., placement...), sorted."""
    searched: int = 0
    feasible: int = 0
    evaluated: int = 0
    too_big: int = 0

    @property
    def limit(self) -> float:
        """Seconds that a newcomer must not exceed; bounds may round up."""
        found = float(self.rows[-1][0]) if len(self.rows) >= self.k else np.inf
        return min(found, self.within) * ROUNDING

    def count(self, p: Pieces, seconds: Grid, covered: bool) -> None:
        """Count the legal and the fitting points of a grid; covered: they are not in `searched`
        yet.
        """
        legal = p.legal
        fit = int(np.count_nonzero(seconds < np.inf))
        self.feasible, self.too_big = self.feasible + fit, self.too_big + legal - fit
        self.searched += legal if covered else 0

    def add(self, seconds: Grid, use: Grid, p: Pieces, table: Table, shares: Shares) -> None:
        """Merge a grid of layouts (`grid.exact`); only those within the limit are touched."""
        flat = seconds.ravel()
        good = np.flatnonzero(flat <= min(self.limit, np.finfo(float).max))
        if len(good) > 4 * self.k:
            cut = np.partition(flat[good], self.k - 1)[self.k - 1]
            good = good[flat[good] <= cut]
        if not len(good):
            return
        place = np.unravel_index(good, seconds.shape)
        row = place[-1]
        columns = [table[d][row] for d in DEGREES]
        where = [share[row] for axis in AXES for share in shares[axis]]
        numbers = [np.array(n)[at] for n, at in zip(p.choice.numbers, place[:-1], strict=True)]
        values = [flat[good], use[(*place[:-1], p.of[row])], *columns, *numbers, *where]
        fresh = list(zip(*(x.tolist() for x in values), strict=True))
        self.rows = sorted({*self.rows, *fresh})[: self.k]

    def layouts(self, scheme: str, dims: int) -> list[Layout]:
        """The layouts found, best first."""
        return [self.layout(row, scheme, dims) for row in self.rows]

    def layout(self, row: tuple[Any, ...], scheme: str, dims: int) -> Layout:
        """The layout of a row."""
        degrees = dict(zip(DEGREES, (int(x) for x in row[2 : 2 + len(DEGREES)]), strict=True))
        sp, rec, sched, zero = row[2 + len(DEGREES) : 6 + len(DEGREES)]
        where = row[6 + len(DEGREES) :]
        shares = {
            a: tuple(int(x) for x in where[i * dims : (i + 1) * dims]) for i, a in enumerate(AXES)
        }
        name, v = self.choice.schedules[sched]
        sharding = self.choice.zero[zero]
        return Layout(
            **degrees,
            interleave=v,
            schedule=name,
            zero=sharding.zero,
            dp_replicate=int(sharding.of(degrees["tp"], degrees["cp"], degrees["dp"])),
            recompute=self.choice.recompute[rec],
            sequence_parallel=self.choice.sequence_parallel[sp],
            scheme=scheme,
            placement=shares,
        )
