"""The best layouts by replay: those whose bounds do not exceed the best replays, replayed.

What a search ranks by is never above its replay (`step.idle_bound.least_idle`), and what ranks
layouts grows with their seconds (`merit`). So the k-th best replay of any layouts bounds those that
can be among the k best; they are searched for, and replayed smallest bound first, until the next
one is above the k-th best replay found. So it is with the memory of the trainer's program: a search
knows what no walk undercuts (`program.least`), merit grows with it, and what is replayed is walked
too; what does not fit by its walk is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..prediction.exact import replayed_seconds
from ..program.resident import Terms, fullest, peaks, whole_program
from ..step import oom
from .cascade import search
from .evaluate import Progress
from .merit import complexity, weigh
from .space import Space
from .state import ROUNDING, RankedRow, SearchState, replay_limit

CANDIDATES = 256
"""Layouts searched for at once; more if that many bounds are below the k-th best replay."""
FEW_CANDIDATES = 4
"""Layouts searched for at first where the best within a limit is asked for."""
TOGETHER = 8
"""At least so many layouts are replayed at once."""
DIGITS = 12
"""Digits to which two replays are as fast."""


class RankedLayout(NamedTuple):
    """A layout that was found, with what ranks it."""

    row: RankedRow
    """With the merit of its replay."""
    layout: Layout
    replayed_s: float | None = None
    """Seconds of a step, replayed; None under a paper's set, whose closed form is exact."""
    peaks: dict[int, Terms] | None = None
    """What lives on its devices by a walk, where the trainer's whole program is counted."""

    @property
    def merit(self) -> float:
        """What ranks it."""
        return self.row.merit


class Ranking:
    """The best layouts of a job in several spaces, by replay.

    Ties rank as in the search. A paper's set is ranked by its closed form.
    """

    def __init__(
        self,
        job: Job,
        spaces: Sequence[Space],
        k: int,
        *,
        within: float = np.inf,
        slack: float = 0.0,
        keep_first: bool = False,
        by_time: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Of all spaces together the k best, and those that the first beats by no more than
        `slack`: each is searched within the limits of what those before it hold.

        within: layouts of a larger merit (seconds) are left out;  slack: a share, 0 for exact
        closed forms;  keep_first: the best of each space is kept even beyond `within`;  by_time:
        seconds rank, whatever the chance to fit.
        """
        self.job, self.within = job, within
        self.weigh = None if by_time else weigh(job)
        self.merit = self.weigh or (lambda seconds, allocated: seconds)
        self.cache: dict[tuple[int, RankedRow], RankedLayout] = {}
        self.by_replay = job.how.overlap.follows_schedule
        self.by_walk = whole_program(job)
        self.searches: list[SearchState] = []
        for space in spaces:
            one = search(
                job,
                space,
                k,
                progress,
                within=within,
                slack=slack,
                keep_first=keep_first,
                weigh=self.weigh,
            )
            self.searches.append(one)
            merits = sorted(x.merit for s in self.searches for x in s.rows)
            if len(merits) >= k:
                limit = replay_limit(merits[k - 1], merits[0], slack)
                within = min(within, limit)
        self.complete_to = [one.complete_to for one in self.searches]

    @property
    def best_row(self) -> RankedRow | None:
        """The best, as a row of a search with its replayed merit."""
        best = self.best_layouts(1)
        return best[0].row if best else None

    def best_layouts(
        self, k: int, search_number: int | None = None
    ) -> list[RankedLayout]:
        """The k best layouts of all spaces, or of one, by its number."""
        many = CANDIDATES
        while True:
            limit = self.within * ROUNDING
            rows = self._rows(search_number)
            for start in range(0, len(rows), max(k, TOGETHER)):
                some = rows[start : start + max(k, TOGETHER)]
                self._replay([each for each in some if each[1].merit <= limit])
                best = self.replayed_layouts(search_number)[:k]
                if len(best) == k:
                    limit = min(limit, best[-1].merit * ROUNDING)
                after = rows[start + len(some) :][:1]
                if after and after[0][1].merit > limit:
                    break
            if not self._widen(limit, many, search_number):
                best = self.replayed_layouts(search_number)[:k]
                return [one for one in best if one.merit <= limit]
            many *= 4

    def preferred(self, within: float) -> RankedLayout | None:
        """Of the layouts whose merit is at most `within` the one with the least complexity, then
        the best.

        The spaces are searched once more, for four times the candidates: of more ties than that
        those with the least bounds are compared. The k best are exact (`best_layouts`); only which
        of them is shown first rests on this.
        """
        self._widen(within, CANDIDATES * 4, None)
        rows = [
            (number, row)
            for number, row in self._rows(None)
            if row.merit <= within * ROUNDING
        ]
        job = self.job
        by_complexity = sorted(
            (complexity(job, self._layout(number, row)), number, row)
            for number, row in rows
        )
        for _, alike in groupby(by_complexity, key=itemgetter(0)):
            group = [(number, row) for _, number, row in alike]
            self._replay(group)
            best = min(
                (self.cache[each] for each in group), key=attrgetter("row")
            )
            if best.merit <= within * ROUNDING:
                return best
        return None

    def best_by_bounds(self, slack: float) -> Layout | None:
        """Before any is replayed: of the layouts that the first beats by no more than `slack` the
        one with the least complexity, then the best.
        """
        rows = self._rows(None)
        job = self.job
        within = rows[0][1].merit * (1.0 + slack) * ROUNDING if rows else 0.0
        near = [
            (complexity(job, layout), row, layout)
            for number, row in rows
            if row.merit <= within and (layout := self._layout(number, row))
        ]
        least = min(near, key=lambda each: each[:2], default=None)
        return least and least[2]

    def _rows(self, search_number: int | None) -> list[tuple[int, RankedRow]]:
        """(number of the search, row), smallest bound first."""
        rows = [
            (number, row)
            for number, one in enumerate(self.searches)
            if search_number in (None, number)
            for row in one.rows
        ]
        return sorted(rows, key=itemgetter(1))

    def _layout(self, number: int, row: RankedRow) -> Layout:
        return self.searches[number].layout(row)

    def _replay(self, rows: Iterable[tuple[int, RankedRow]]) -> None:
        """Replay the rows that are new."""
        new = [each for each in rows if each not in self.cache]
        layouts = [self._layout(*each) for each in new]
        times = (
            replayed_seconds(self.job, layouts)
            if self.by_replay
            else [None] * len(new)
        )
        for each, layout, seconds in zip(new, layouts, times, strict=True):
            row, peak = each[1], None
            merit, allocated = row.merit, row.bytes
            if self.by_walk:
                peak = peaks(self.job, layout)
                allocated = sum(fullest(peak).values())
            if seconds is not None or peak:
                took = seconds or row.merit / self.merit(1.0, row.bytes)
                # what exceeds the memory by far has no chance to fit to divide by
                fits = not peak or oom.fits(self.job, allocated)
                merit = self.merit(took, allocated) if fits else np.inf
            row = row._replace(merit=float(f"{merit:.{DIGITS}g}"))
            self.cache[each] = RankedLayout(row, layout, seconds, peak)

    def replayed_layouts(
        self, search_number: int | None
    ) -> list[RankedLayout]:
        """Layouts of all spaces, or of one, that were replayed and fit, best first; spaces may
        overlap.
        """
        fine = (
            placed
            for (number, _), placed in self.cache.items()
            if placed.merit < np.inf and search_number in (None, number)
        )
        best: dict[Layout, RankedLayout] = {}
        for one in sorted(fine, key=attrgetter("row")):
            best.setdefault(one.layout, one)
        return [*best.values()]

    def _widen(
        self, limit: float, many: int, search_number: int | None
    ) -> bool:
        """Search again where a space may hold more layouts within the limit; False: nowhere."""
        if not (self.by_replay or self.by_walk):
            return False
        again = False
        for number, one in enumerate(self.searches):
            asked = search_number in (None, number)
            if asked and limit > self.complete_to[number]:
                more = search(
                    self.job, one.space, many, within=limit, weigh=self.weigh
                )
                one.rows = sorted({*one.rows, *more.rows})
                self.complete_to[number] = max(
                    self.complete_to[number], more.complete_to
                )
                again = True
        return again


def best_within(
    job: Job,
    spaces: Sequence[Space],
    within: float,
    progress: Progress | None = None,
) -> RankedLayout | None:
    """The best layout of some spaces, if its merit is within a limit."""
    best = Ranking(
        job, spaces, FEW_CANDIDATES, within=within, progress=progress
    ).best_layouts(1)
    return best[0] if best else None
