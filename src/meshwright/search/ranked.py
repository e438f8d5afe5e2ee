"""The fastest layouts by replay: those whose closed forms do not exceed the best replays, replayed.

A closed form is never above its replay (`prediction.exact`). So the k-th best replay of any layouts bounds the closed
forms of all that can be among the k best; they are searched for, and replayed best closed form first, until the next
one is above the k-th best replay found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..prediction.exact import replayed
from ..step import by_order
from .best import ROUNDING, Best
from .cascade import search
from .space import Space

CANDIDATES = 256
"""Layouts searched for at once; more if that many closed forms are below the k-th best replay."""
TOGETHER = 32
"""Layouts replayed at once."""
SAME = 12
"""Digits to which two replays are as fast."""


class Ranked(NamedTuple):
    """Layouts, fastest first."""

    layouts: tuple[Layout, ...]
    candidates: int
    """How many were replayed."""


def ranked(job: Job, space: Space, k: int, relaxed: bool, first: Best) -> Ranked:
    """The k fastest layouts of a space by replay; first: the k fastest by closed form.

    Ties rank as in the search. A paper's set is ranked by its closed form.
    """
    dims = len(job.cluster.network.dims)
    if not first.rows or not by_order(job):
        return Ranked(tuple(first.layouts(space.scheme, dims)), 0)
    found = _Found(job, space.scheme, dims, k)
    found.replay(first, first.rows)
    many = CANDIDATES
    while len(first.rows) == k and first.rows[-1][0] <= found.limit:
        more = search(job, space, many, relaxed, within=found.limit)
        for start in range(0, len(more.rows), TOGETHER):
            some = more.rows[start : start + TOGETHER]
            found.replay(more, [row for row in some if row[0] <= found.limit])
        if len(more.rows) < many or more.rows[-1][0] > found.limit:
            break
        many *= 4
    return Ranked(tuple(layout for *_, layout in found.best()), len(found.seen))


class _Found:
    """Layouts replayed so far."""

    def __init__(self, job: Job, scheme: str, dims: int, k: int) -> None:
        self.job, self.scheme, self.dims, self.k = job, scheme, dims, k
        self.seen: dict[tuple[Any, ...], tuple[float, Layout]] = {}

    def replay(self, best: Best, rows: list[tuple[Any, ...]]) -> None:
        """Replay the rows that are new."""
        new = [row for row in rows if row not in self.seen]
        layouts = [best.layout(row, self.scheme, self.dims) for row in new]
        for row, layout, seconds in zip(new, layouts, replayed(self.job, layouts), strict=True):
            self.seen[row] = (row[0] if seconds is None else seconds), layout

    def best(self) -> list[tuple[Any, ...]]:
        """(seconds to SAME digits, what ranks ties, layout) of the k best."""
        every = [(float(f"{s:.{SAME}g}"), row[1:], layout) for row, (s, layout) in self.seen.items()]
        return sorted(every, key=lambda one: one[:2])[: self.k]

    @property
    def limit(self) -> float:
        """Seconds that the closed form of a newcomer must not exceed."""
        best = self.best()
        return float(best[-1][0]) * ROUNDING if len(best) == self.k else np.inf
