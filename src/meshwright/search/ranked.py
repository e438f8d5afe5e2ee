"""The fastest layouts by replay: those whose closed forms do not exceed the best replays, replayed.

A closed form is never above its replay (`prediction.exact`). So the k-th best replay of any layouts
bounds the closed forms of all that can be among the k best; they are searched for, and replayed
best closed form first, until the next one is above the k-th best replay found.
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
TOGETHER = 8
"""At least so many layouts are replayed at once."""
SAME = 12
"""Digits to which two replays are as fast."""


def wide(k: int) -> int:
    """How many layouts to search for where the k fastest by replay are asked for: those whose
    closed forms are not above the k-th best replay are seldom more, and then one search is
    enough."""
    return 2 * k + 4


class Ranked(NamedTuple):
    """Layouts, fastest first."""

    layouts: tuple[Layout, ...]
    candidates: int
    """How many were replayed."""


def ranked(job: Job, space: Space, k: int, relaxed: bool, first: Best) -> Ranked:
    """The k fastest layouts of a space by replay; first: the fastest by closed form, `wide(k)` of
    them or more.

    Ties rank as in the search. A paper's set is ranked by its closed form.
    """
    dims = len(job.cluster.network.dims)
    if not first.rows or not by_order(job):
        return Ranked(tuple(first.layouts(space.scheme, dims)[:k]), 0)
    found, more, many = _Found(job, space.scheme, dims, k), first, CANDIDATES
    while True:
        for start in range(0, len(more.rows), max(k, TOGETHER)):
            some = more.rows[start : start + max(k, TOGETHER)]
            found.replay(more, [row for row in some if row[0] <= found.limit])
        if len(more.rows) < more.k or more.rows[-1][0] > found.limit:
            break
        more = search(job, space, many, relaxed, within=found.limit)
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
        every = [
            (float(f"{s:.{SAME}g}"), row[1:], layout) for row, (s, layout) in self.seen.items()
        ]
        return sorted(every, key=lambda one: one[:2])[: self.k]

    @property
    def limit(self) -> float:
        """Seconds that the closed form of a newcomer must not exceed."""
        best = self.best()
        return float(best[-1][0]) * ROUNDING if len(best) == self.k else np.inf
