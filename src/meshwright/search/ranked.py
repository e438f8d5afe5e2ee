"""The best layouts by replay: those whose bounds do not exceed the best replays, replayed.

What a search ranks by is never above its replay (`step.pipeline.least_idle`), and what ranks
layouts grows with their seconds (`merit`). So the k-th best replay of any layouts bounds those that
can be among the k best; they are searched for, and replayed smallest bound first, until the next
one is above the k-th best replay found. So it is with the memory of the trainer's program: a search
knows what no walk undercuts (`program.least`), merit grows with it, and what is replayed is walked
too; what does not fit by its walk is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..prediction.exact import replayed
from ..program.resident import Terms, fullest, peaks, whole_program
from ..step import by_order, room
from .best import ROUNDING, Best, Row
from .cascade import search
from .merit import burden, weigh
from .space import Space

CANDIDATES = 256
"""Layouts searched for at once; more if that many bounds are below the k-th best replay."""
TOGETHER = 8
"""At least so many layouts are replayed at once."""
SAME = 12
"""Digits to which two replays are as fast."""


Part: TypeAlias = tuple[int, int]
"""The number of a search, and of a part of its space (`split`)."""


class Placed(NamedTuple):
    """A layout that was found, with what ranks it."""

    row: Row
    """With the merit of its replay."""
    layout: Layout
    replayed_s: float | None = None
    """Seconds of a step, replayed; None under a paper's set, whose closed form is exact."""
    peaks: dict[str, Terms] | None = None
    """What lives on its devices by a walk, where the trainer's whole program is counted."""

    @property
    def merit(self) -> float:
        """What ranks it."""
        return self.row.merit


class Ranked:
    """Layouts of one job that searches of several spaces found, by replay.

    Ties rank as in the search. A paper's set is ranked by its closed form.
    """

    def __init__(
        self,
        job: Job,
        found: Sequence[tuple[Space, Best]],
        relaxed: bool,
        by_time: bool = False,
        within: float = np.inf,
    ) -> None:
        """by_time: seconds rank, as they did in the searches, whatever the chance to fit; within:
        nothing beyond this merit is asked for.
        """
        self.within = within
        self.job, self.found, self.relaxed = job, list(found), relaxed
        self.weigh = None if by_time else weigh(job)
        self.by = self.weigh or (lambda seconds, allocated: seconds)
        self.seen: dict[tuple[int, Row], Placed] = {}
        self.exact = by_order(job)
        self.walked = whole_program(job)
        self.names: dict[Part, str] = {
            (number, part): name
            for number, (_, best) in enumerate(found)
            for part, name in enumerate(best.split.names)
        }
        self.known = {
            (number, part): found[number][1].known(part)
            for number, part in self.names
        }

    @property
    def candidates(self) -> int:
        """How many were replayed."""
        return len(self.seen) if self.exact else 0

    @property
    def first(self) -> Row | None:
        """The best, as a row of a search with its replayed merit."""
        best = self.best(1)
        return best[0].row if best else None

    def best(self, k: int, of: Part | None = None) -> list[Placed]:
        """The k best layouts of all spaces, or of a part."""
        many = CANDIDATES
        while True:
            limit = self.within * ROUNDING
            rows = self._rows(of)
            for start in range(0, len(rows), max(k, TOGETHER)):
                some = rows[start : start + max(k, TOGETHER)]
                self._replay([each for each in some if each[1].merit <= limit])
                limit = min(self._limit(k, of), self.within * ROUNDING)
                after = rows[start + len(some) :][:1]
                if after and after[0][1].merit > limit:
                    break
            if not self._widen(limit, many, of):
                every = self._sorted(of)[:k]
                return [one for one in every if one.merit <= limit]
            many *= 4

    def simplest(self, within: float) -> Placed | None:
        """Of the layouts whose merit is at most `within` the one with the least burden, then the
        best.
        """
        # once: of more layouts that tie, those with the least bounds are compared
        self._widen(within, CANDIDATES * 4, None)
        rows = [
            (number, row)
            for number, row in self._rows(None)
            if row.merit <= within * ROUNDING
        ]
        model = self.job.model
        by_burden = sorted(
            (burden(self._layout(number, row), model), number, row)
            for number, row in rows
        )
        for _, alike in groupby(by_burden, key=lambda each: each[0]):
            group = [(number, row) for _, number, row in alike]
            group.sort(key=lambda each: each[1])
            best: list[Placed] = []
            for start in range(0, len(group), TOGETHER):
                some = group[start : start + TOGETHER]
                if best and some[0][1].merit > best[0].merit * ROUNDING:
                    break
                self._replay(some)
                found = (self.seen[each] for each in some)
                best = [min((*best, *found), key=_row)]
            if best[0].merit <= within * ROUNDING:
                return best[0]
        return None

    def closed(self, slack: float) -> Layout | None:
        """Before any is replayed: of the layouts that the first beats by no more than `slack` the
        one with the least burden, then the best.
        """
        rows = self._rows(None)
        model = self.job.model
        within = rows[0][1].merit * (1.0 + slack) * ROUNDING if rows else 0.0
        near = [
            (burden(layout, model), row, layout)
            for number, row in rows
            if row.merit <= within and (layout := self._layout(number, row))
        ]
        least = min(near, key=lambda each: each[:2], default=None)
        return least and least[2]

    def replays(self, of: Part) -> list[Placed]:
        """The layouts of a part that were replayed."""
        return self._sorted(of)

    def _in(self, of: Part | None, number: int, row: Row) -> bool:
        """Whether a row is in a part, or in any."""
        return of is None or of == (number, self.found[number][1].part(row))

    def _rows(self, of: Part | None) -> list[tuple[int, Row]]:
        """(number of the search, row), smallest bound first."""
        rows = [
            (number, row)
            for number, (_, best) in enumerate(self.found)
            for row in best.rows
            if self._in(of, number, row)
        ]
        return sorted(rows, key=lambda each: each[1])

    def _layout(self, number: int, row: Row) -> Layout:
        return self.found[number][1].layout(row)

    def _replay(self, rows: Iterable[tuple[int, Row]]) -> None:
        """Replay the rows that are new."""
        new = [each for each in rows if each not in self.seen]
        layouts = [self._layout(*each) for each in new]
        times = (
            replayed(self.job, layouts) if self.exact else [None] * len(new)
        )
        for each, layout, seconds in zip(new, layouts, times, strict=True):
            row, peak = each[1], None
            merit, allocated = row.merit, row.bytes
            if self.walked:
                peak = peaks(self.job, layout)
                allocated = sum(fullest(peak).values())
            if seconds is not None or peak:
                took = seconds or row.merit / self.by(1.0, row.bytes)
                merit = self.by(took, allocated)
                if peak and not room.fits(self.job, allocated):
                    merit = np.inf
            row = row._replace(merit=float(f"{merit:.{SAME}g}"))
            self.seen[each] = Placed(row, layout, seconds, peak)

    def _sorted(self, of: Part | None) -> list[Placed]:
        """Those that were replayed and fit, best first; spaces may overlap."""
        fine = (
            placed
            for (number, row), placed in self.seen.items()
            if placed.merit < np.inf and self._in(of, number, row)
        )
        found: dict[Layout, Placed] = {}
        for one in sorted(fine, key=_row):
            found.setdefault(one.layout, one)
        return [*found.values()]

    def _limit(self, k: int, of: Part | None) -> float:
        """What the bound of a newcomer must not exceed."""
        best = self._sorted(of)[:k]
        return best[-1].merit * ROUNDING if len(best) == k else np.inf

    def _widen(self, limit: float, many: int, of: Part | None) -> bool:
        """Search again where a part may hold more layouts within the limit; False: nowhere."""
        again = False
        for part in self.names if of is None else [of]:
            bounds = self.exact or self.walked
            if bounds and limit > self.known[part]:
                space, best = self.found[part[0]]
                more = search(
                    self.job,
                    space,
                    many,
                    self.relaxed,
                    split=best.split.only(part[1]),
                    within=limit,
                    weigh=self.weigh,
                )
                best.rows = sorted({*best.rows, *more.rows})
                self.known[part], again = more.known(0), True
        return again


def _row(each: Placed) -> Row:
    return each.row
