"""A block of layouts under every option at once: the step formulas on broadcast axes.

Axes of a grid: (sequence parallel, recomputation, schedule, ZeRO stage, row). What depends on few of them is computed at its own small
shape; only one addition of times and three operations on bytes run at full size. Rows are the last axis: they are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import memory, step
from .cost.layer import LayerCost
from .num import Num, ceil_div
from .schedule import get as schedule_named
from .space import DEGREES, Column, Options, Table
from .spec.job import Job
from .spec.layout import Layout

Grid = NDArray[np.float64]
ENDS = ("first", "last")


@dataclass(frozen=True)
class Nearest(Layout):
    """A layout whose groups each lie as near together as if they had the network to themselves: a bound on every placement."""

    sizes: tuple[int, ...] = ()

    def group(self, axis: str) -> tuple[Num, ...]:
        degrees: dict[str, Num] = {"replicas": self.replicas, "edp": self.expert_replicas, "ep": self.ep, "etp": self.etp}
        left = degrees[axis] if axis in degrees else getattr(self, axis)
        shares: list[Num] = []
        for size in self.sizes[:-1]:
            here = np.minimum(left, size)
            shares.append(here)
            left = left / here
        return (*shares, left)


class Pieces(NamedTuple):
    """Terms of the step at their own shapes; absent axes have length 1."""

    pipe: Grid
    """(sp, recompute, schedule, 1, row) seconds of the pipeline; inf where the schedule cannot run."""
    after: Grid
    """(sp, recompute, schedule, zero, row) with schedule axis 1 or 2 (folded or not): synchronisation and optimizer."""
    kept: tuple[Grid, Grid]
    """Bytes of weights, gradients and optimizer on the first and last device: (1, 1, 1 or 2, zero, row)."""
    held: tuple[Grid, Grid]
    """Activation bytes on the first and last device: (sp, recompute, schedule, 1, row)."""
    buffers: Grid
    """(1, 1, 1, zero, row)."""
    folded: NDArray[np.intp]
    """Position of each schedule on the axis of length 1 or 2."""

    def rows(self, at: Any) -> Pieces:
        """The terms of some of the rows (an index or a slice)."""
        return Pieces(
            self.pipe[..., at], self.after[..., at], (self.kept[0][..., at], self.kept[1][..., at]),
            (self.held[0][..., at], self.held[1][..., at]), self.buffers[..., at], self.folded,
        )  # fmt: skip

    @property
    def spread(self) -> Any:
        """Index that spreads the axis of length 1 or 2 over the schedules."""
        return self.folded if self.after.shape[2] > 1 else slice(None)


def layouts(table: Table, shares: dict[str, tuple[Column, ...]] | None, sizes: tuple[int, ...], scheme: str, sp: bool) -> Layout:
    """A layout of columns: placed by `shares`, or every group nearest."""
    degrees: dict[str, Any] = {k: table[k] for k in DEGREES}
    if shares is None:
        return Nearest(**degrees, scheme=scheme, sequence_parallel=sp, sizes=sizes)
    return Layout(**degrees, scheme=scheme, sequence_parallel=sp, placement=shares)


def bodies(job: Job, layout: Layout) -> step.Body:
    """Layer costs of all rows, each distinct one computed once."""
    groups = [layout.group(a) for a in (("tp", "cp", "ep", "etp") if job.model.moe else ("tp", "cp"))]
    columns = [layout.microbatch, layout.panels, *(share for group in groups for share in group)]
    index, inverse = distinct(columns)
    if len(index) == len(inverse):  # all distinct: `index` would only reorder them
        return step.body(job, layout)
    parts = step.body(job, _pick(layout, index))
    return step.Body(*(_spread(part, inverse) for part in parts))


def distinct(columns: list[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(index of the first row of each distinct combination, its number for every row). Columns are packed into one whole number each row."""
    rows = max(len(c) for c in columns if isinstance(c, np.ndarray))
    code, range_ = np.zeros(rows, dtype=np.int64), 1
    for column in columns:
        number, values = _numbered(np.broadcast_to(column, rows))
        if range_ * values > 2**62:
            _, code = np.unique(code, return_inverse=True)
            range_ = int(code.max()) + 1
        code, range_ = code * values + number, range_ * values
    _, index, inverse = np.unique(code, return_index=True, return_inverse=True)
    return index, inverse


def _numbered(column: Column) -> tuple[NDArray[np.int64], int]:
    """(a whole number for each value, how many there may be): the values themselves if they are whole."""
    whole = column.astype(np.int64)
    if (whole == column).all() and (most := int(whole.max())) < 2**20:
        return whole, most + 1
    values, number = np.unique(column, return_inverse=True)
    return number, len(values)


def _pick(layout: Layout, index: NDArray[np.intp]) -> Layout:
    """The layout of the rows at `index`."""
    columns: dict[str, Any] = {k: getattr(layout, k)[index] for k in DEGREES}
    if layout.placement:
        columns["placement"] = {a: tuple(s[index] for s in shares) for a, shares in layout.placement.items()}
    return replace(layout, **columns)


def _spread(part: Any, inverse: NDArray[np.intp]) -> Any:
    """Values of the distinct rows back on all rows."""
    if isinstance(part, LayerCost):
        return LayerCost(*(_spread(x, inverse) for x in part))
    return part[inverse] if isinstance(part, np.ndarray) else part


def pieces(job: Job, table: Table, far: Table, shares: dict[str, tuple[Column, ...]] | None, choice: Options, scheme: str) -> Pieces:
    """The terms of every row.

    table: rows; its dp counts in time;  far: the same rows with the dp that counts in sharding (equal, but for a bound on an interval of dp).
    """
    rows, sizes = len(table["tp"]), job.cluster.sizes
    n_sp, n_rec, n_sched, n_zero = choice.shape
    kinds = [(schedule_named(name), v) for name, v in choice.schedules]
    folds = sorted({kind.folded for kind, _ in kinds})
    folded = np.array([folds.index(kind.folded) for kind, _ in kinds])
    of_fold = [next(((kind, 2 if fold else 1)) for kind, _ in kinds if kind.folded == fold) for fold in folds]
    pipe, held = np.empty((n_sp, n_rec, n_sched, 1, rows)), (np.empty((n_sp, n_rec, n_sched, 1, rows)), np.empty((n_sp, n_rec, n_sched, 1, rows)))
    after = np.empty((n_sp, n_rec, len(folds), n_zero, rows))
    kept = (np.empty((1, 1, len(folds), n_zero, rows)), np.empty((1, 1, len(folds), n_zero, rows)))
    buffers = np.empty((1, 1, 1, n_zero, rows))
    runs = _runs(job, table, choice)
    holders = [step.shares(job, layouts(table, shares, sizes, scheme, True), kind, v) for kind, v in of_fold]
    for i, sp in enumerate(choice.sequence_parallel):
        near = layouts(table, shares, sizes, scheme, sp)
        wide = near if far is table else layouts(far, shares, sizes, scheme, sp)
        parts, means, fine = bodies(job, near), _means(near, choice), _shards(job, table, sp, choice)
        send, times = step.hop(job, near, parts), step.collectives(job, near, parts)
        owned = [[step.held(job, near, parts, by, end) for end in ENDS] for by in holders]
        for z, zero in enumerate(choice.zero):
            if i == 0:
                buffers[0, 0, 0, z] = memory.buffers(job, wide, parts, zero)
                for f, ends in enumerate(owned):
                    for e, parameters in enumerate(ends):
                        kept[e][0, 0, f, z] = memory.states(job, wide, parameters, zero).total
            updates = [step.update(job, wide, *ends, zero) for ends in owned]
            for r, recompute in enumerate(choice.recompute):
                sync = step.synchronise(job, near, parts, times, recompute, zero, holders[0]["middle"].typical)
                for f, seconds in enumerate(updates):
                    after[i, r, f, z] = np.where(means[z], sync + seconds, np.inf)
        flights = [[memory.in_flight(job, near, kind, float(v), end) for end in ENDS] for kind, v in kinds]
        for r, recompute in enumerate(choice.recompute):
            staged = [step.stages(near, parts, recompute, by) for by in holders]
            bytes_ = [[memory.activations(job, near, parts, recompute, by, end) for end in ENDS] for by in holders]
            for k, (kind, v) in enumerate(kinds):
                seconds = step.ordered(job, near, staged[folded[k]], send, kind, float(v)).total
                pipe[i, r, k, 0] = np.where(runs[k] & fine, seconds, np.inf)
                for e, flight in enumerate(flights[k]):
                    each, once = bytes_[folded[k]][e]
                    held[e][i, r, k, 0] = flight * each + once
    return Pieces(pipe, after, kept, held, buffers, folded)


def _runs(job: Job, table: Table, choice: Options) -> list[Any]:
    """Where each schedule can run. On one stage all are the same: only the first counts."""
    pp, runs = table["pp"], []
    m = ceil_div(job.batch, table["dp"] * table["microbatch"])
    for k, (name, v) in enumerate(choice.schedules):
        kind = schedule_named(name)
        stages = pp * kind.chunks(v)
        even = (job.model.layers % stages == 0) if kind.chunks(v) > 1 else stages <= job.model.layers
        runs.append(even & kind.legal(pp, m, v) & ((pp > 1) | (k == 0)))
    return runs


def _shards(job: Job, table: Table, sp: bool, choice: Options) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and is off, if the space has both."""
    tp = table["tp"]
    if sp:
        return ((tp > 1) | (False not in choice.sequence_parallel)) & ((table["microbatch"] * job.T) % (table["cp"] * tp) == 0)
    return (tp == 1) | (job.model.moe is None)


def _means(layout: Layout, choice: Options) -> list[Any]:
    """Where each ZeRO stage means something: with one replica only the first does."""
    return [(layout.replicas > 1) | (zero == choice.zero[0]) for zero in choice.zero]


def exact(p: Pieces, capacity: float) -> tuple[Grid, Grid]:
    """(seconds, bytes) on the whole grid; seconds are inf where the layout is illegal or does not fit."""
    seconds = p.pipe + p.after[:, :, p.spread]
    use = p.held[0] + (p.kept[0] + p.buffers)[:, :, p.spread]
    np.maximum(use, p.held[1] + (p.kept[1] + p.buffers)[:, :, p.spread], out=use)
    np.putmask(seconds, use > capacity, np.inf)
    return seconds, use


def bound(p: Pieces, capacity: float) -> tuple[Column, Column]:
    """(seconds, bytes) that no option of a row undercuts: each term at its best, among those that can fit at all."""
    least_state = [np.min(k + p.buffers, axis=3, keepdims=True)[:, :, p.spread] for k in p.kept]
    least_held = np.max([h + s for h, s in zip(p.held, least_state, strict=True)], axis=0)
    pipe = np.where(least_held > capacity, np.inf, p.pipe)
    seconds = np.min(pipe.min(axis=2, keepdims=True) + p.after.min(axis=(2, 3), keepdims=True), axis=(0, 1, 2, 3))
    legal = np.where(np.isfinite(p.pipe), least_held, np.inf)
    return seconds, legal.min(axis=(0, 1, 2, 3))

