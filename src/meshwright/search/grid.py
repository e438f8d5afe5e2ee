"""A block of layouts under every option at once: the step formulas on broadcast axes.

Axes of a grid: (sequence parallel, recomputation, schedule, ZeRO stage, row). What depends on few of them is computed at its own small
shape; only one addition of times and three operations on bytes run at full size. Rows are the last axis: they are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import memory, step
from ..cost.layer import LayerCost
from ..num import Num, ceil_div
from ..rules import sharded
from ..schedule import get as schedule_named
from ..spec.job import Job
from ..spec.layout import Layout
from .placement import Shares, partial
from .space import DEGREES, Column, Options, Table

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Nearest(Layout):
    """A layout whose groups each lie as near together as if they had the network to themselves: a bound on every placement.

    Axes that `placement` names already have their place, and leave less room to the others.
    """

    sizes: tuple[int, ...] = ()

    def group(self, axis: str) -> tuple[Num, ...]:
        if axis in self.placement:
            return self.placement[axis]
        degrees: dict[str, Num] = {
            "replicas": self.replicas,
            "edp": self.expert_replicas,
            "ep": self.ep,
            "etp": self.etp,
        }
        left = degrees[axis] if axis in degrees else getattr(self, axis)
        others = OUTSIDE.get(axis, ("pp",)) if self.placement else ()
        shares: list[Num] = []
        for i, size in enumerate(self.sizes[:-1]):
            room: Num = float(size)
            for other in others:
                room = room / self.placement[other][i]
            here = np.minimum(left, room)
            shares.append(here)
            left = left / here
        return (*shares, left)


OUTSIDE = {"dp": ("tp", "cp", "pp"), "replicas": ("tp", "pp")}
"""Axes whose ranks are never in a group of this one; expert groups mix tp, cp and dp."""


class Pieces(NamedTuple):
    """Terms of the step at their own shapes; absent axes have length 1. The fold axis has a place for unfolded and for folded schedules."""

    pipe: Grid
    """(sp, recompute, schedule, 1, row) seconds of the pipeline; inf where the schedule cannot run."""
    after: Grid
    """(sp, recompute, fold, zero, row) seconds of synchronisation and optimizer."""
    kept: tuple[Grid, ...]
    """Bytes of weights, gradients, optimizer and buffers on each of `devices`: (1, 1, fold, zero, row)."""
    held: tuple[Grid, ...]
    """Activation bytes on each of `devices`: (sp, recompute, schedule, 1, row)."""
    folded: NDArray[np.intp]
    """Position of each schedule on the fold axis."""
    devices: tuple[str, ...]
    """Those of `step.ENDS` that may be the fullest."""

    def rows(self, at: Any) -> Pieces:
        """The terms of some of the rows (an index or a slice)."""
        kept, held = (tuple(x[..., at] for x in pair) for pair in (self.kept, self.held))
        return Pieces(self.pipe[..., at], self.after[..., at], kept, held, self.folded, self.devices)

    @property
    def spread(self) -> Any:
        """Index that spreads the fold axis over the schedules."""
        return self.folded if self.after.shape[2] > 1 else slice(None)


def layouts(table: Table, shares: Shares | None, sizes: tuple[int, ...], scheme: str, sp: bool) -> Layout:
    """A layout of columns: placed by `shares`, or every group nearest."""
    degrees: dict[str, Any] = {k: table[k] for k in DEGREES}
    if shares is None:
        return Nearest(
            **degrees, scheme=scheme, sequence_parallel=sp, sizes=sizes, placement=partial(table, len(sizes))
        )
    return Layout(**degrees, scheme=scheme, sequence_parallel=sp, placement=shares)


def bodies(job: Job, layout: Layout) -> step.Body:
    """Layer costs of all rows, each distinct one computed once."""
    groups = [layout.group(a) for a in (("tp", "cp", "ep", "etp") if job.model.moe else ("tp", "cp"))]
    columns = [layout.microbatch, layout.panels, *(share for group in groups for share in group)]
    index, inverse = distinct(columns)
    if len(index) == len(inverse):  # all distinct: `index` would only reorder them
        return step.body(job, layout)
    parts = step.body(job, _pick(layout, index))
    return spread_rows(parts, inverse)


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
        placement: dict[str, Any] = dict(layout.placement)
        columns["placement"] = {a: tuple(s[index] for s in shares) for a, shares in placement.items()}
    return replace(layout, **columns)


def spread_rows(parts: step.Body, index: NDArray[np.intp]) -> step.Body:
    """The costs of the rows at `index`."""
    return step.Body(*(_spread(part, index) for part in parts))


def _spread(part: Any, inverse: NDArray[np.intp]) -> Any:
    """Values of the distinct rows back on all rows."""
    if isinstance(part, LayerCost):
        return LayerCost(*(_spread(x, inverse) for x in part))
    return part[inverse] if isinstance(part, np.ndarray) else part


def pieces(job: Job, table: Table, far: Table, shares: Shares | None, choice: Options, scheme: str) -> Pieces:
    """The terms of every row.

    table: rows, whose dp counts in time;  far: the same rows with the dp that counts in sharding (another one only for bounds on an
    interval of dp);  shares: their placements, or None for every group nearest.
    """
    rows, sizes = len(table["tp"]), job.cluster.sizes
    kinds = [(schedule_named(name), v) for name, v in choice.schedules]
    folds = sorted({kind.folded for kind, _ in kinds})
    folded = np.array([folds.index(kind.folded) for kind, _ in kinds], dtype=np.intp)
    n_sp, n_rec, n_sched, n_zero = choice.shape
    devices = _devices(job, table)
    p = Pieces(
        np.empty((n_sp, n_rec, n_sched, 1, rows)), np.empty((n_sp, n_rec, len(folds), n_zero, rows)),
        tuple(np.empty((1, 1, len(folds), n_zero, rows)) for _ in devices),
        tuple(np.empty((n_sp, n_rec, n_sched, 1, rows)) for _ in devices), folded, devices,
    )  # fmt: skip
    runs = _runs(job, table, choice)
    for i, sp in enumerate(choice.sequence_parallel):
        near = layouts(table, shares, sizes, scheme, sp)
        wide = near if far is table else layouts(far, shares, sizes, scheme, sp)
        holders = [
            step.shares(job, near, next(k for k, _ in kinds if k.folded == fold), 2.0 if fold else 1.0)
            for fold in folds
        ]
        parts = bodies(job, near)
        _fill_after(p, i, job, near, wide, parts, holders, choice)
        fine = _shards(job, table, sp, choice, scheme)
        _fill_pipe(p, i, job, near, parts, holders, choice, [can & fine for can in runs])
    return p


def _devices(job: Job, table: Table) -> tuple[str, ...]:
    """The second device can only be the fullest if the first holds fewer or lighter layers."""
    uneven = bool((job.model.layers % table["pp"] != 0).any())
    lighter = job.model.moe is not None and job.model.moe.dense_layers > 0
    return step.ENDS if uneven or lighter else (step.ENDS[0], step.ENDS[-1])


def _fill_after(
    p: Pieces,
    i: int,
    job: Job,
    near: Layout,
    wide: Layout,
    parts: step.Body,
    holders: list[step.Shares],
    choice: Options,
) -> None:
    """What depends on the ZeRO stage: seconds after the pipeline, bytes that live for the whole run."""
    times, first = step.collectives(job, near, parts), choice.all.zero[0]
    owned = [[step.held(job, near, parts, by, end) for end in p.devices] for by in holders]
    for z, zero in enumerate(choice.zero):
        means = (near.replicas > 1) | (zero == first)  # with one replica all stages are the same: only the first counts
        if i == 0:
            buffers = memory.buffers(job, wide, parts, zero)
            for f, ends in enumerate(owned):
                for e, parameters in enumerate(ends):
                    p.kept[e][0, 0, f, z] = memory.states(job, wide, parameters, zero).total + buffers
        updates = [step.update(job, wide, devices, zero) for devices in owned]
        for r, recompute in enumerate(choice.recompute):
            sync = step.synchronise(job, near, parts, times, recompute, zero, holders[0]["middle"].typical)
            for f, seconds in enumerate(updates):
                p.after[i, r, f, z] = np.where(means, sync + seconds, np.inf)


def _fill_pipe(
    p: Pieces,
    i: int,
    job: Job,
    near: Layout,
    parts: step.Body,
    holders: list[step.Shares],
    choice: Options,
    runs: list[Any],
) -> None:
    """What depends on the schedule: seconds of the pipeline, bytes of activations."""
    send = step.hop(job, near, parts)
    kinds = [(schedule_named(name), float(v)) for name, v in choice.schedules]
    flights = [[memory.in_flight(job, near, kind, v, end) for end in p.devices] for kind, v in kinds]
    for r, recompute in enumerate(choice.recompute):
        staged = [step.stages(near, parts, recompute, by) for by in holders]
        bytes_ = [[memory.activations(job, near, parts, recompute, by, end) for end in p.devices] for by in holders]
        for k, (kind, v) in enumerate(kinds):
            seconds = step.ordered(job, near, staged[p.folded[k]], send, kind, v).total
            p.pipe[i, r, k, 0] = np.where(runs[k], seconds, np.inf)
            for e, flight in enumerate(flights[k]):
                each, once = bytes_[p.folded[k]][e]
                p.held[e][i, r, k, 0] = flight * each + once


def _runs(job: Job, table: Table, choice: Options) -> list[Any]:
    """Where each schedule can run. On one stage all are the same: only the first of the space counts."""
    pp, runs, first = table["pp"], [], choice.all.schedules[0]
    m = ceil_div(job.batch, table["dp"] * table["microbatch"])
    for name, v in choice.schedules:
        kind = schedule_named(name)
        stages = pp * kind.chunks(v)
        even = (job.model.layers % stages == 0) if kind.chunks(v) > 1 else stages <= job.model.layers
        runs.append(even & kind.legal(pp, m, v) & ((pp > 1) | ((name, v) == first)))
    return runs


def _shards(job: Job, table: Table, sp: bool, choice: Options, scheme: str) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and counts as on, if the space has both."""
    tp = table["tp"]
    if sp:
        return (table["microbatch"] * job.T) % (table["cp"] * (tp if sharded(scheme, sp) else 1.0)) == 0
    useful = (tp > 1) | (True not in choice.all.sequence_parallel)
    return useful & ((tp == 1) | (job.model.moe is None))


def legal_options(job: Job, table: Table, choice: Options, scheme: str) -> Column:
    """How many of the options each row can run with."""
    runs = _runs(job, table, choice)
    ways: Column = sum(
        np.count_nonzero([can & _shards(job, table, sp, choice, scheme) for can in runs], axis=0)
        for sp in choice.sequence_parallel
    )
    alone = layouts(table, {}, job.cluster.sizes, scheme, False).replicas == 1
    return ways * len(choice.recompute) * np.where(alone, 1, len(choice.zero))


def exact(p: Pieces, capacity: float) -> tuple[Grid, Grid]:
    """(seconds, bytes) on the whole grid; seconds are inf where the layout is illegal or does not fit."""
    seconds = p.pipe + p.after[:, :, p.spread]
    use = p.held[0] + p.kept[0][:, :, p.spread]
    for held, kept in zip(p.held[1:], p.kept[1:], strict=True):
        np.maximum(use, held + kept[:, :, p.spread], out=use)
    np.putmask(seconds, use > capacity, np.inf)
    return seconds, use


class Bound(NamedTuple):
    """What no layout of a row undercuts."""

    seconds: Column
    bytes: Column
    by_schedule: Grid
    """Seconds, (sp, recompute, schedule, 1, row), at the best ZeRO stage."""
    by_zero: Grid
    """Seconds, (sp, recompute, fold, zero, row), at the best schedule."""

    def used(self, limit: float) -> list[NDArray[np.bool_]]:
        """The choices of each axis that some row may need to stay within the limit."""
        schedule, zero = self.by_schedule <= limit, self.by_zero <= limit
        others = ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4))
        return [*(np.asarray(schedule.any(axis=o)) for o in others), np.asarray(zero.any(axis=(0, 1, 2, 4)))]


def bound(p: Pieces, capacity: float) -> Bound:
    """Each term at its best option, among those that can fit at all."""
    least_state = [k.min(axis=3, keepdims=True)[:, :, p.spread] for k in p.kept]
    least_bytes = reduce(np.maximum, [h + k for h, k in zip(p.held, least_state, strict=True)])
    pipe = np.where(least_bytes > capacity, np.inf, p.pipe)
    by_schedule = pipe + p.after.min(axis=3, keepdims=True)[:, :, p.spread]
    by_zero = pipe.min(axis=2, keepdims=True) + p.after
    legal = np.where(np.isfinite(p.pipe), least_bytes, np.inf)
    return Bound(by_schedule.min(axis=(0, 1, 2, 3)), legal.min(axis=(0, 1, 2, 3)), by_schedule, by_zero)
