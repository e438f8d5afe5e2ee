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
from heapq import nsmallest
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..prediction.exact import replayed
from ..program.resident import Terms, fullest, peaks, whole_program
from ..step import by_order, room
from .best import ROUNDING, Best
from .cascade import search
from .merit import burden, weigh
from .nearby import Row
from .space import Space

CANDIDATES = 256
"""Layouts searched for at once; more if that many bounds are below the k-th best replay."""
TOGETHER = 8
"""At least so many layouts are replayed at once."""
SAME = 12
"""Digits to which two replays are as fast."""


class Placed(NamedTuple):
    """A layout that was found, with what ranks it."""

    merit: float
    ties: tuple[Any, ...]
    """What ranks it among those of one merit: the rest of its row."""
    layout: Layout
    replayed_s: float | None = None
    """Seconds of a step, replayed; None under a paper's set, whose closed form is exact."""
    peaks: dict[str, Terms] | None = None
    """What lives on its devices by a walk, where the trainer's whole program is counted."""


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
        self.dims = len(job.cluster.network.dims)
        self.weigh = None if by_time else weigh(job)
        self.by = self.weigh or (lambda seconds, allocated: seconds)
        self.seen: dict[tuple[int, tuple[Any, ...]], Placed] = {}
        self.exact = by_order(job)
        self.walked = whole_program(job)

    @property
    def candidates(self) -> int:
        """How many were replayed."""
        return len(self.seen) if self.exact else 0

    @property
    def first(self) -> Row | None:
        """The best, as a row of a search with its replayed merit."""
        best = self.best(1)
        return (best[0].merit, *best[0].ties) if best else None

    def best(self, k: int, of: int | None = None) -> list[Placed]:
        """The k best layouts of all spaces, or of one."""
        many = CANDIDATES
        while True:
            limit = self.within * ROUNDING
            rows = self._rows(of)
            for start in range(0, len(rows), max(k, TOGETHER)):
                some = rows[start : start + max(k, TOGETHER)]
                self._replay([row for row in some if row[1][0] <= limit])
                limit = min(self._limit(k, of), self.within * ROUNDING)
                if rows[min(start + len(some), len(rows) - 1)][1][0] > limit:
                    break
            if not self._widen(limit, many, of):
                every = self._sorted(of)[:k]
                return [one for one in every if one.merit <= limit]
            many *= 4

    def simplest(self, within: float) -> Placed | None:
        """Of the layouts whose merit is at most `within` the one with the least burden, then the
        best.
        """
        self._widen(within, CANDIDATES * 4, None)
        rows = [
            (number, row)
            for number, row in self._rows(None)
            if row[0] <= within * ROUNDING
        ]
        layers = self.job.model.layers
        by_burden = sorted(
            (burden(self._layout(number, row), layers), number, row)
            for number, row in rows
        )
        for _, alike in groupby(by_burden, key=lambda each: each[0]):
            group = [(number, row) for _, number, row in alike]
            group.sort(key=lambda each: each[1])
            best: list[Placed] = []
            for start in range(0, len(group), TOGETHER):
                some = group[start : start + TOGETHER]
                if best and some[0][1][0] > best[0].merit * ROUNDING:
                    break
                self._replay(some)
                found = (self.seen[each] for each in some)
                best = [min((*best, *found), key=_rank)]
            if best[0].merit <= within * ROUNDING:
                return best[0]
        return None

    def closed(self, slack: float) -> Layout | None:
        """Before any is replayed: of the layouts that the first beats by no more than `slack` the
        one with the least burden, then the best.
        """
        rows = self._rows(None)
        layers = self.job.model.layers
        within = rows[0][1][0] * (1.0 + slack) * ROUNDING if rows else 0.0
        near = [
            (burden(layout, layers), row, layout)
            for number, row in rows
            if row[0] <= within and (layout := self._layout(number, row))
        ]
        least = min(near, key=lambda each: each[:2], default=None)
        return least and least[2]

    def of(self, number: int) -> list[Placed]:
        """The layouts of a space that were replayed."""
        return self._sorted(number)

    def _rows(self, of: int | None) -> list[tuple[int, tuple[Any, ...]]]:
        """(number of the space, row), smallest bound first."""
        every = enumerate(self.found)
        rows = [
            (i, row)
            for i, (_, best) in every
            if of in (None, i)
            for row in best.rows
        ]
        return sorted(rows, key=lambda each: each[1])

    def _layout(self, number: int, row: tuple[Any, ...]) -> Layout:
        space, best = self.found[number]
        return best.layout(row, space.scheme, self.dims)

    def _replay(self, rows: Iterable[tuple[int, tuple[Any, ...]]]) -> None:
        """Replay the rows that are new."""
        new = [each for each in rows if each not in self.seen]
        layouts = [self._layout(*each) for each in new]
        times = (
            replayed(self.job, layouts) if self.exact else [None] * len(new)
        )
        for each, layout, seconds in zip(new, layouts, times, strict=True):
            row = each[1]
            worth, allocated, peak = row[0], row[1], None
            if self.walked:
                peak = peaks(self.job, layout)
                allocated = sum(fullest(peak).values())
            if seconds is not None or peak:
                took = seconds or row[0] / self.by(1.0, row[1])
                worth = self.by(took, allocated)
                if peak and not room.fits(self.job, allocated):
                    worth = np.inf
            rounded = float(f"{worth:.{SAME}g}")
            self.seen[each] = Placed(rounded, row[1:], layout, seconds, peak)

    def _sorted(self, of: int | None) -> list[Placed]:
        each = sorted(
            (
                x
                for (i, _), x in self.seen.items()
                if of in (None, i) and x.merit < np.inf
            ),
            key=_rank,
        )
        found: dict[Layout, Placed] = {}
        for one in each:  # spaces may overlap
            found.setdefault(one.layout, one)
        return [*found.values()]

    def _limit(self, k: int, of: int | None) -> float:
        """What the bound of a newcomer must not exceed."""
        merits = {  # spaces may overlap
            x.layout: x.merit
            for (i, _), x in self.seen.items()
            if of in (None, i)
        }
        best = nsmallest(k, merits.values())
        return best[-1] * ROUNDING if len(best) == k else np.inf

    def _widen(self, limit: float, many: int, of: int | None) -> bool:
        """Search again where a space may hold more layouts within the limit; False: nowhere."""
        again = False
        for i, (space, best) in enumerate(self.found):
            bounds = self.exact or self.walked
            if of in (None, i) and bounds and not best.complete(limit):
                more = search(
                    self.job,
                    space,
                    many,
                    self.relaxed,
                    within=limit,
                    weigh=self.weigh,
                )
                more.rows = sorted({*more.rows, *best.rows})
                # counted once: of spaces searched as one, all stands with the first
                more.searched, more.feasible = best.searched, best.feasible
                more.too_big = best.too_big
                self.found[i], again = (space, more), True
        return again


def _rank(each: Placed) -> tuple[Any, ...]:
    return each.merit, each.ties
