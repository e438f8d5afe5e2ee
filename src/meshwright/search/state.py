"""A search under way: what is asked, the best layouts so far, and counts of what was looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import AXES, Layout
from ..layout.placement import Shares
from .options import Options, space_options
from .space import DEGREES, Space
from .table import Column, Table

ROUNDING = 1 + 1e-12
"""Two ways to the same sum differ by less."""
COMPLETE = 1 + 1e-11
"""Times a limit, up to where the rows within it are all there are: a `Ranking` rounds a limit up
twice (2e-12), and the merit of a replay to `DIGITS` of it (5e-12 at most), and need not search
again for what it has."""
REPLAY_MARGIN = 1.01
"""Times the least bound up to which layouts are kept: replays seldom change the order of what
differs by more. Where they do, `Ranking` searches again."""
MOST_TIES = 512
"""Layouts that are kept beyond the k best, so that ties do not fill the memory where hundreds of
layouts differ in nothing that takes time; of more than these the least bounds are kept."""
LARGEST = float(np.finfo(float).max)
"""Stands for a limit where there is none."""
Weigh = Callable[[Any, Any], Any]
"""(seconds, bytes) of layouts -> what ranks them: never less than the seconds."""


class Points(NamedTuple):
    """Rows of a table under one combination of options."""

    combination: tuple[int, int, int, int]
    """Positions of sequence parallelism, recomputation, schedule and ZeRO stage in `Options`."""
    seconds: Column
    """inf where the layout cannot run."""
    bytes: Column
    """Of tensors on the fullest device, at its fullest moment."""


class RankedRow(NamedTuple):
    """A layout as it ranks: by its merit, and among ties by the rest, from left to right."""

    merit: float
    """What ranks it, the least first: seconds of a step over the chance to fit (`merit`), or what
    `SearchState.weigh` makes of seconds and bytes."""
    bytes: float
    degrees: tuple[float, ...]
    """In the order of `DEGREES`."""
    options: tuple[int, int, int, int]
    """As in `Points.combination`."""
    placement: tuple[float, ...]
    """The share of each axis in each dimension of the network."""

    def degree(self, name: str) -> float:
        """One of its degrees."""
        return self.degrees[DEGREES.index(name)]


@dataclass
class SearchState:
    """The best k layouts of a space so far, and counts of what was looked at."""

    job: Job
    space: Space
    k: int
    capacity: float = np.inf
    """The most bytes that a layout may need."""
    within: float = np.inf
    """What no layout may exceed, whatever else there is."""
    weigh: Weigh | None = None
    """None: seconds rank."""
    slack: float = 0.0
    """Beyond the k best, layouts that the first beats by no more than this share are kept too, and
    what is nearly as good as any of these: replays decide."""
    keep_first: bool = False
    """The first, and what is nearly as good, is kept whatever `within` says."""
    rows: list[RankedRow] = field(default_factory=list)
    """Sorted."""
    searched: int = 0
    """Layouts that the search answers for, looked at or not."""
    feasible: int = 0
    """Layouts that were evaluated, can run and fit."""
    evaluated: int = 0
    """Layouts that were evaluated, those that cannot run included."""
    too_big: int = 0
    """Layouts that were evaluated, can run and do not fit."""
    options: Options = field(init=False)
    """What is evaluated of every row."""
    limit: float = field(init=False)
    """Merit that no newcomer may exceed, with room for bounds that are rounded up. It only falls,
    so what was dropped by it stays dropped."""

    def __post_init__(self) -> None:
        """The options of the space, and the limit before any layout is known."""
        self.options = space_options(self.job, self.space)
        self.limit = self._limit_with(())

    def _limit_with(self, merits: Sequence[float]) -> float:
        """What no newcomer may exceed beside layouts of these merits, the least first."""
        limit = self.within
        if len(merits) >= self.k:
            kth, most = merits[self.k - 1], max(MOST_TIES, self.k)
            last = merits[most - 1] if len(merits) >= most else np.inf
            near = min(replay_limit(kth, merits[0], self.slack), last)
            limit = min(max(kth, near), limit)
        if self.keep_first:
            first = merits[0] if len(merits) else np.inf
            limit = max(limit, first * REPLAY_MARGIN)
        return float(limit) * ROUNDING

    @property
    def highest(self) -> float:
        """The highest bound that is looked at: `limit`, but what cannot run (inf) exceeds it."""
        return min(self.limit, LARGEST)

    @property
    def complete_to(self) -> float:
        """Merit up to which `rows` has every layout of the space: above it some were dropped.
        `Ranking` searches again where a replay comes out above it.
        """
        if self._keeps_all:
            return self.limit * COMPLETE
        if len(self.rows) < self.k:
            return self.within * COMPLETE
        # others may tie with the last
        return float(np.nextafter(self.rows[-1].merit, 0.0))

    @property
    def _keeps_all(self) -> bool:
        """All rows within the limit are kept, not k of them."""
        return self.slack > 0.0 or self.keep_first

    def add(self, points: Points, table: Table, shares: Shares) -> None:
        """Merge layouts: the rows of a placed table. Those that do not fit, or are beyond the
        limit, are only counted.
        """
        runs = points.seconds < np.inf
        fits = runs & (points.bytes <= self.capacity)
        self.evaluated += len(runs)
        fine = int(np.count_nonzero(fits))
        self.feasible += fine
        self.too_big += int(np.count_nonzero(runs)) - fine
        row = np.flatnonzero(fits & (points.seconds <= self.limit))
        merit, bytes_ = points.seconds[row], points.bytes[row]
        if self.weigh:
            merit = self.weigh(merit, bytes_)
        kept = np.flatnonzero(merit <= self.limit)
        if not len(kept):
            return
        row = row[kept]
        degrees = (table[d][row].tolist() for d in DEGREES)
        placed = (
            np.asarray(each)[row].tolist()
            for axis in AXES
            for each in shares[axis]
        )
        new = map(
            RankedRow,
            merit[kept].tolist(),
            bytes_[kept].tolist(),
            zip(*degrees, strict=True),
            repeat(points.combination),
            zip(*placed, strict=True),
        )
        self.rows = sorted({*self.rows, *new})
        self.limit = self._limit_with([row.merit for row in self.rows])
        rows = self.rows if self._keeps_all else self.rows[: self.k]
        self.rows = [row for row in rows if row.merit <= self.limit]

    @property
    def layouts(self) -> list[Layout]:
        """Best first."""
        return [self.layout(row) for row in self.rows]

    def layout(self, row: RankedRow) -> Layout:
        """The layout of a row."""
        options = self.options
        degrees: dict[str, Any] = dict(
            zip(DEGREES, map(int, row.degrees), strict=True)
        )
        sequence_parallel, recompute, schedule, zero = row.options
        dims = len(row.placement) // len(AXES)
        shares = zip(*[map(int, row.placement)] * dims, strict=True)
        sharding = options.zero[zero]
        ranks = (degrees[axis] for axis in ("tp", "cp", "dp"))
        common = {
            **options.common_fields,
            **(options.alone if degrees["cp"] == 1 else {}),
        }
        return Layout(
            **degrees,
            zero=sharding.zero,
            dp_replicate=int(sharding.copies_of(*ranks)),
            recompute=options.recompute[recompute],
            sequence_parallel=options.sequence_parallel[sequence_parallel],
            **{**common, **options.schedules[schedule].fields},
            placement=dict(zip(AXES, shares, strict=True)),
        )


class Everything(SearchState):
    """Of brute force: every layout is looked at, and counted."""

    highest = LARGEST


class Smallest(SearchState):
    """The layout that needs the least memory: bytes rank, and limit what is still looked at."""

    def add(self, *placed: Any) -> None:
        """Merge layouts, as `SearchState.add`; from then on only fewer bytes may enter."""
        super().add(*placed)
        self.limit = np.inf  # of seconds
        if self.rows:
            self.capacity = self.rows[0].bytes * ROUNDING


def replay_limit(kth: float, first: float, slack: float) -> float:
    """The highest lower bound with which a layout may still be among the k best by replay, or tie
    with the first. kth, first: the merits of the k-th best and the best layout, in seconds;  slack:
    share by which a layout may be slower and tie; 0: bounds are exact, and the k-th is the limit.
    """
    return max(kth, first * (1.0 + slack)) * REPLAY_MARGIN if slack else kth
