"""The terms of the step of a block of layouts, each at its own small shape, and what they add up
to: exactly, or as a bound.

Axes: (sequence parallel, recomputation, schedule, ZeRO stage, row), as in `grid`, which makes the
pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .options import Options
from .table import Column

Grid = NDArray[np.float64]
Index = NDArray[np.intp]


class Pieces(NamedTuple):
    """Terms of the step at their own shapes; absent axes have length 1. The fold axis has a place
    for unfolded and for folded schedules.
    """

    left: Index
    """The rows of the table that are left."""
    choice: Options
    """The options that are left."""
    pipe: Grid
    """(sp, recompute, schedule, 1, row) seconds of the pipeline; inf where the schedule cannot run,
    or not within the limit.
    """
    after: Grid
    """(sp, recompute, fold, zero, row) seconds of synchronisation and optimizer."""
    kept: tuple[Grid, ...]
    """Bytes of weights, gradients, optimizer and buffers at each moment of each device that may be
    the fullest: (1, 1, fold or schedule, zero, unplaced row)."""
    held: tuple[Grid, ...]
    """Activation bytes at each of them: (sp, recompute, schedule, 1, unplaced row)."""
    of: Index
    """The unplaced row of each row, ascending: placements of one row need the same memory."""
    folded: Index
    """Position of each schedule on the fold axis."""
    place: Index
    """Position of each schedule on the third axis of `kept`."""
    barred: NDArray[np.bool_] | None
    """Where the framework cannot run a layout, whatever `pipe` and `after` say: (sp, recompute,
    schedule, zero, row); None: nowhere.
    """
    ends: tuple[str, ...]
    """Those devices that may be the fullest (`step.ENDS`)."""
    devices: tuple[str, ...] = ()
    """Those that may be the last to be done (`step.DEVICES`): with as many layers everywhere, the
    first and the last have no less to wait for than those between."""
    floors: tuple[tuple[Grid, Grid], ...] = ()
    """The step takes no less than these sums, of (sp, recompute, fold, zero, row) and (sp,
    recompute or 1, schedule, 1, row): each device done by itself and the way to it; each network
    dimension busy with all but sends, and with them."""

    def rows(self, at: Any) -> Pieces:
        """The terms of some of the rows (an index or a slice)."""
        of = self.of[at]
        first, end = (of[0], of[-1] + 1) if len(of) else (0, 0)
        return self._replace(
            left=self.left[at],
            pipe=self.pipe[..., at],
            after=self.after[..., at],
            of=of - first,
            barred=None if self.barred is None else self.barred[..., at],
            kept=tuple(x[..., first:end] for x in self.kept),
            held=tuple(x[..., first:end] for x in self.held),
            floors=tuple((a[..., at], b[..., at]) for a, b in self.floors),
        )

    def stages(self, at: Index) -> Pieces:
        """The terms of some of the ZeRO stages."""
        if len(at) == len(self.choice.zero):
            return self
        used = np.isin(np.arange(len(self.choice.zero)), at)
        every = [np.ones(n, dtype=bool) for n in self.choice.shape[:3]]
        return self._replace(
            choice=self.choice.part([*every, used]),
            after=self.after[:, :, :, at],
            kept=tuple(k[:, :, :, at] for k in self.kept),
            barred=None if self.barred is None else self.barred[:, :, :, at],
            floors=tuple((a[:, :, :, at], b) for a, b in self.floors),
        )

    def by_fold(self) -> Iterator[Pieces]:
        """The unfolded and the folded schedules by themselves."""
        for f in range(self.after.shape[2]):
            at = self.folded == f
            (sp, rec, _, zero) = (
                np.ones(n, dtype=bool) for n in self.choice.shape
            )
            mine, place = np.unique(self.place[at], return_inverse=True)
            yield self._replace(
                choice=self.choice.part([sp, rec, at, zero]),
                pipe=self.pipe[:, :, at],
                after=self.after[:, :, f, None],
                kept=tuple(k[:, :, mine] for k in self.kept),
                held=tuple(h[:, :, at] for h in self.held),
                folded=self.folded[at] - f,
                place=place,
                barred=None if self.barred is None else self.barred[:, :, at],
                floors=tuple(
                    (a[:, :, f, None], b[:, :, at]) for a, b in self.floors
                ),
            )

    @property
    def legal(self) -> int:
        """How many of the points can run, whether they fit or not."""
        run = np.isfinite(self.pipe)
        means = np.isfinite(self.after)[:, :, self.spread]
        if self.barred is None:
            return int((run * means.sum(axis=3, keepdims=True)).sum())
        return int(np.count_nonzero(run & means & ~self.barred))

    @property
    def spread(self) -> Any:
        """Index that spreads the fold axis over the schedules."""
        return self.folded if self.after.shape[2] > 1 else slice(None)

    @property
    def by_schedule(self) -> Any:
        """The same for `kept`."""
        return self.place if self.kept[0].shape[2] > 1 else slice(None)


def exact(p: Pieces, capacity: float) -> tuple[Grid, Grid]:
    """Seconds on the whole grid, inf where the layout is illegal or does not fit, and bytes of
    unplaced rows (see `Pieces.of`).
    """
    seconds = p.pipe + p.after[:, :, p.spread]
    for a, b in p.floors:
        np.maximum(seconds, a[:, :, p.spread] + b, out=seconds)
    use = p.held[0] + p.kept[0][:, :, p.by_schedule]
    for held, kept in zip(p.held[1:], p.kept[1:], strict=True):
        np.maximum(use, held + kept[:, :, p.by_schedule], out=use)
    if p.barred is not None:
        np.putmask(seconds, np.broadcast_to(p.barred, seconds.shape), np.inf)
    np.putmask(seconds, (use > capacity)[..., p.of], np.inf)
    return seconds, use


class Bound(NamedTuple):
    """What no layout of a row undercuts."""

    seconds: Column
    bytes: Column
    """Whether the schedule can run or not: that may depend on dp."""
    by_schedule: Grid
    """Seconds, (sp, recompute, schedule, 1, row), at the best ZeRO stage."""
    by_zero: Grid
    """Seconds, (sp, recompute, fold, zero, row), at the best schedule."""

    @property
    def by_option(self) -> list[Column]:
        """Seconds of each choice on each axis, with whatever else is best."""
        others = ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4))
        return [
            *(self.by_schedule.min(axis=o, initial=np.inf) for o in others),
            self.by_zero.min(axis=(0, 1, 2, 4), initial=np.inf),
        ]

    def rows(self, at: Any) -> Bound:
        """Of some of the rows."""
        return Bound(*(of[..., at] for of in self))


def bound(p: Pieces, capacity: float) -> Bound:
    """Each term at its best option, among those that can fit at all."""
    least_state = [
        k.min(axis=3, keepdims=True, initial=np.inf)[:, :, p.by_schedule]
        for k in p.kept
    ]
    least_bytes = reduce(
        np.maximum, [h + k for h, k in zip(p.held, least_state, strict=True)]
    )[..., p.of]
    pipe = np.where(least_bytes > capacity, np.inf, p.pipe)
    after = p.after.min(axis=3, keepdims=True, initial=np.inf)
    by_schedule = pipe + after[:, :, p.spread]
    by_zero = pipe.min(axis=2, keepdims=True, initial=np.inf) + p.after
    for a, b in p.floors:
        by_schedule = np.maximum(
            by_schedule,
            a.min(axis=3, keepdims=True, initial=np.inf)[:, :, p.spread] + b,
        )
        by_zero = np.maximum(
            by_zero, a + b.min(axis=2, keepdims=True, initial=np.inf)
        )
    best = [
        x.min(axis=(0, 1, 2, 3), initial=np.inf)
        for x in (by_schedule, least_bytes)
    ]
    return Bound(best[0], best[1], by_schedule, by_zero)
