"""A block of layouts under every option at once: the step formulas on broadcast axes.

Axes of a grid: (sequence parallel, recomputation, schedule, ZeRO stage, row). What depends on few
of them is computed at its own small shape; only one addition of times and three operations on bytes
run at full size. Rows are the last axis: they are contiguous. Under a limit, the pipeline comes
first, and only for the rows and options whose compute alone stays within it; few are left for the
rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layers import sorts
from ..describe.layout import Layout
from ..layout.stages import microbatches
from ..num import ceil_div
from ..program import closed
from ..program.closed import MOMENTS
from ..program.resident import whole_program
from ..program.standing import standing
from ..step import memory
from . import framework, times
from .kinds import Deal, Kind, deals, holders_of, kinds, runs, some_schedule
from .nearest import Shapes, bodies, each_way, layouts, pick, stacked
from .pieces import Grid, Index, Pieces
from .placement import Shares
from .space import Column, Options, Table, distinct, length, splits

Mask = NDArray[np.bool_]


class Block(NamedTuple):
    """A table under one setting of sequence parallelism."""

    near: Layout
    """Its dp counts in time."""
    far: Layout
    """Its dp counts in sharding (another one only for bounds on an interval of dp)."""
    costs: step.Body
    """Of distinct rows."""
    distinct: int
    which: Index
    """Which of them a row has."""
    m: Column
    fine: NDArray[np.bool_]
    """Where this setting can run."""
    exact: bool
    """`near` and `far` are one layout, not the ends of an interval."""

    def rows(self, at: Index) -> Block:
        """Some of the rows, in order."""
        if len(at) == len(self.m):
            return self
        return self._replace(
            **{
                k: pick(getattr(self, k), at)
                for k in ("near", "far", "which", "m", "fine")
            }
        )

    @property
    def parts(self) -> step.Body:
        """What a microbatch costs in every row."""
        parts: step.Body = pick(self.costs, self.which)
        return parts


def pieces(
    job: Job,
    at: Clock,
    table: Table,
    far: Table,
    shares: Shares | None,
    choice: Options,
    scheme: str,
    limit: float = np.inf,
    shapes: Shapes | None = None,
) -> Pieces:
    """The terms of the rows and options whose pipeline alone stays within the limit.

    at: the job's clock, or that of a bound;  table: rows, whose dp counts in time;  far: the same
    rows with the dp that counts in sharding; shares: their placements, or None for every group
    nearest;  shapes: what their layers cost, where that is known.
    """
    blocks = _blocks(
        job,
        at,
        table,
        far,
        shares,
        choice,
        scheme,
        shapes,
    )
    kept: Any = slice(None)
    index = np.arange(len(table["tp"]))
    pipe = np.full((*choice.shape[:3], 1, len(table["tp"])), np.inf)
    fine = np.repeat(
        np.array([block.fine for block in blocks])[:, None],
        len(choice.recompute),
        axis=1,
    )
    can_run = runs(job, choice, blocks[0].near, blocks[0].m)
    barred = framework.barred(job, blocks[0].near, choice)
    costs = _chosen(blocks, choice)
    points = _points(blocks, costs, choice, fine)
    times.pipelines(
        job, at, points, choice, can_run, limit, pipe, shares is None
    )
    if barred is not None:
        np.putmask(
            pipe,
            np.broadcast_to(barred.all(axis=3, keepdims=True), pipe.shape),
            np.inf,
        )
    if limit < np.inf:
        within = pipe <= limit
        sp, rec, sched = (
            np.asarray(within.any(axis=o))
            for o in ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4))
        )
        index = np.flatnonzero(within.any(axis=(0, 1, 2, 3)))
        kept = np.repeat((rec[:, None] & sp).ravel(), blocks[0].distinct)
        choice = choice.part(
            [sp, rec, sched, np.ones(len(choice.zero), dtype=bool)]
        )
        pipe = pipe[sp][:, rec][:, :, sched][..., index]
        barred = (
            None if barred is None else barred[:, rec][:, :, sched][..., index]
        )
        blocks = [
            block.rows(index)
            for block, use in zip(blocks, sp, strict=True)
            if use
        ]
    folds = sorted({*deals(choice)})
    new = (
        np.diff(table["row"][index] if "row" in table else index, prepend=-1.0)
        != 0
    )
    every_row = [block.rows(np.flatnonzero(new)) for block in blocks]
    # no setting of sequence parallelism deals layers otherwise
    holders = [
        holders_of(job, rows.near, fold)
        for rows in every_row[:1]
        for fold in folds
    ]
    p = _empty(
        job,
        index,
        choice,
        pipe,
        folds,
        _devices(
            job,
            choice,
            table["pp"][index],
            table["interleave"][index],
            holders,
        ),
        np.cumsum(new) - 1,
    )
    p = p._replace(barred=barred)
    if step.by_order(job):
        links = (
            len(job.cluster.sizes)
            if shares is not None and step.shared(at.overlap)
            else 0
        )
        p = p._replace(floors=_no_floors(p, len(p.devices) + links))
    updates: list[list[Column]] = []
    for i, unplaced in enumerate(every_row):
        parts = unplaced.parts
        owned = [
            [
                step.held(
                    job,
                    unplaced.near,
                    parts,
                    by,
                    end,
                )
                for end in p.ends
            ]
            for by in holders
        ]
        if whole_program(job):
            program_memory(p, i, job, unplaced)
        else:
            _activations(
                p,
                i,
                job,
                unplaced,
                parts,
                holders,
            )
            if i == 0:
                _states(
                    p,
                    job,
                    unplaced,
                    parts,
                    holders,
                    owned,
                )
        updates = updates or [
            _updates(p, job, at, unplaced, devices) for devices in owned
        ]
    if blocks:
        where = np.asarray(np.isfinite(p.pipe).any(axis=(2, 3)))
        points = _points(blocks, pick(costs, kept), choice, where)
        first = blocks[0]
        wide = None if first.exact else first.far
        rows = times.Rows.of(
            first.near, wide, lambda at: pick(first.costs, first.which[at])
        )
        times.after(
            p,
            job,
            at,
            points,
            rows,
            updates,
            folds,
        )
    return p


def _chosen(blocks: list[Block], choice: Options) -> step.Body:
    """Costs of the distinct rows of all blocks under each recomputation, one behind the other."""
    some = any(times.left_to_say(text) != "none" for text in choice.recompute)
    costs = [
        times.chosen(block.costs, text, some)
        for text in choice.recompute
        for block in blocks
    ]
    every: step.Body = stacked(costs, [blocks[0].distinct] * len(costs))
    return every


def _points(
    blocks: list[Block], costs: step.Body, choice: Options, where: Mask
) -> times.Points:
    """The rows of blocks under each recomputation, where a mask (sp, recompute, row) holds; costs:
    of all blocks under each.
    """
    said = [times.left_to_say(text) for text in choice.recompute]
    texts = tuple(dict.fromkeys(said))
    of = np.array([texts.index(text) for text in said], dtype=np.intp)
    order = np.argsort(of, kind="stable")
    first = blocks[0]
    (rec, sp, row) = np.nonzero(where.transpose(1, 0, 2)[order])
    rec = order[rec]
    which = (rec * len(blocks) + sp) * first.distinct + first.which[row]
    far = None if first.exact else pick(first.far, row)
    near = pick(first.near, row)
    return times.Points(
        near, far, costs, which, first.m[row], sp, rec, row, texts, of[rec]
    )


def _updates(
    p: Pieces, job: Job, at: Clock, unplaced: Block, devices: list[step.Held]
) -> list[Column]:
    """Seconds of the optimizer at each ZeRO stage, by row: no setting of sequence parallelism
    changes what a device holds.
    """
    each = (
        step.update(
            job,
            way.layout(unplaced.far),
            devices,
            way.zero,
            at,
        )
        for way in p.choice.zero
    )
    return [
        np.broadcast_to(seconds, len(unplaced.m))[p.of] for seconds in each
    ]


def _blocks(
    job: Job,
    at: Clock,
    table: Table,
    far: Table,
    shares: Shares | None,
    choice: Options,
    scheme: str,
    shapes: Shapes | None,
) -> list[Block]:
    """The table under each setting of sequence parallelism."""
    sizes = job.cluster.sizes
    ways = choice.sequence_parallel
    near = each_way(table, shares, sizes, scheme, ways)
    wide = near if far is table else each_way(far, shares, sizes, scheme, ways)
    costs, which = shapes or bodies(job, near, at, choice.recompute)
    m = np.asarray(microbatches(job, near[0]))
    exact = far is table
    fine = [
        _shards(
            job,
            table,
            layout.sequence_parallel,
            choice,
            scheme,
        )
        & framework.rows(job, layout, exact, shares is not None)
        for layout in near
    ]
    distinct = int(which.max(initial=-1)) + 1
    return [
        Block(n, w, c, distinct, which, m, f, exact)
        for n, w, c, f in zip(
            near,
            wide,
            costs,
            fine,
            strict=True,
        )
    ]


def _devices(
    job: Job,
    choice: Options,
    pp: Column,
    chunks: Column,
    holders: list[step.Shares],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(Devices that may be the fullest, those that may be the last to be done): between the ends
    only if the first holds fewer or lighter layers, or one receive buffer less.
    """
    uneven = bool((job.model.layers % (pp * chunks) != 0).any())
    uneven = uneven or any(way.stages != "even" for way in choice.schedules)
    lighter = len(sorts(job.model)) > 1
    received = whole_program(job) and bool((pp > 2).any())
    between = uneven or lighter or received

    def names(of: tuple[str, ...]) -> tuple[str, ...]:
        if not between:
            return (of[0], of[-1])
        found = dict.fromkeys(
            name for by in holders for name in by.called(*of)
        )
        order = sorted(found, key=lambda name: of.index(name.split()[0]))
        return tuple(order) or of

    return names(step.ENDS), names(step.DEVICES)


def _empty(
    job: Job,
    index: Index,
    choice: Options,
    pipe: Grid,
    folds: list[Deal],
    devices: tuple[tuple[str, ...], tuple[str, ...]],
    of: Index,
) -> Pieces:
    """Pieces to be filled; of: the unplaced row of each row."""
    n_sp, n_rec, n_sched, n_zero = choice.shape
    ends, done = devices
    n = of[-1] + 1 if len(of) else 0
    folded = np.array(
        [folds.index(deal) for deal in deals(choice)], dtype=np.intp
    )
    # what it keeps of weights depends on the schedule
    program = whole_program(job)
    place, moments = (
        (np.arange(n_sched), len(MOMENTS))
        if program
        else (folded, memory.moments(job))
    )
    states = (1, 1, n_sched if program else len(folds), n_zero, n)
    return Pieces(
        index,
        choice,
        pipe,
        np.full((n_sp, n_rec, len(folds), n_zero, len(of)), np.inf),
        tuple(np.empty(states) for _ in range(len(ends) * moments)),
        tuple(
            np.empty((n_sp, n_rec, n_sched, 1, n))
            for _ in range(len(ends) * moments)
        ),
        of,
        folded,
        place,
        None,
        ends,
        done,
    )


def _activations(
    p: Pieces,
    i: int,
    job: Job,
    rows: Block,
    parts: step.Body,
    holders: list[step.Shares],
) -> None:
    """Bytes of activations under one setting of sequence parallelism."""
    near, m = rows.near, rows.m
    every = kinds(p.choice)
    moments = memory.moments(job)
    v = near.interleave
    flights = [
        [
            memory.in_flight(
                near.pp,
                m,
                x.schedule,
                v,
                end,
                by[end].rank,
            )
            for end in p.ends
        ]
        for x, by in zip(
            every, (holders[fold] for fold in p.folded), strict=True
        )
    ]
    heads = [
        (x.schedule.heads(near.pp, m, v), x.schedule.heads_late(near.pp, m, v))
        for x in every
    ]
    for r, text in enumerate(p.choice.recompute):
        bytes_ = [
            [
                memory.activations(
                    job,
                    near,
                    parts,
                    text,
                    by,
                    end,
                )
                for end in p.ends
            ]
            for by in holders
        ]
        for k, flight in enumerate(flights):
            for e, kept in enumerate(bytes_[p.folded[k]]):
                p.held[e * moments][i, r, k, 0] = kept.kept(
                    flight[e], *heads[k]
                )
                # activations are gone when the optimizer runs
                for step_ in range(1, moments):
                    p.held[e * moments + step_][i, r, k, 0] = 0.0


def _states(
    p: Pieces,
    job: Job,
    rows: Block,
    parts: step.Body,
    holders: list[step.Shares],
    owned: list[list[step.Held]],
) -> None:
    """Bytes that live for the whole run."""
    moments = memory.moments(job)
    for f, (by, devices) in enumerate(zip(holders, owned, strict=True)):
        for e, parameters in enumerate(devices):
            own = memory.own_buffers(
                job, rows.near, parts, parameters, by, p.ends[e]
            )
            for z, sharding in enumerate(p.choice.zero):
                # of an interval of dp: states are smallest with the most replicas, buffers with the
                # fewest
                close = rows.near
                wide = sharding.layout(rows.far)
                zero = sharding.zero
                units = memory.units_in_use(
                    job, sharding.layout(close), parts, zero, by, p.ends[e]
                )
                states = memory.states(job, wide, parameters, zero)
                whole = states.total + sum(units.values(), own)
                p.kept[e * moments][0, 0, f, z] = whole
                for step_ in range(1, moments):
                    copies = memory.step_copies(job, states)
                    p.kept[e * moments + step_][0, 0, f, z] = whole + copies


def program_memory(p: Pieces, i: int, job: Job, rows: Block) -> None:
    """The same of the trainer's whole program, moment by moment."""
    for grid in (*p.held, *p.kept) if i == 0 else ():
        grid[:] = np.inf
    units = tuple(
        closed.units(job, rows.near, text) for text in p.choice.recompute
    )
    for k, kind in enumerate(kinds(p.choice)):
        for v in np.unique(rows.near.interleave):
            at = np.flatnonzero(rows.near.interleave == v)
            if v in kind.counts:
                _program_of_kind(
                    p, (i, k, at), job, rows.rows(at), kind, pick(units, at)
                )


def _program_of_kind(
    p: Pieces,
    at: tuple[int, int, Index],
    job: Job,
    rows: Block,
    kind: Kind,
    units: Any,
) -> None:
    """Of rows with as many chunks, under one schedule."""
    (i, k, place) = at
    near = rows.near
    count = len(MOMENTS)
    schedule = kind.schedule
    v = float(np.asarray(near.interleave)[0])
    by = step.shares(job, near, schedule, v)
    for e, end in enumerate(p.ends):
        device = closed.device(
            job,
            near,
            schedule,
            v,
            by,
            end,
        )
        for r, (text, of) in enumerate(
            zip(p.choice.recompute, units, strict=True)
        ):
            held = closed.flying(
                job,
                near,
                of,
                device,
                schedule,
                text,
            )
            for j, bytes_ in enumerate(held):
                p.held[e * count + j][i, r, k, 0, place] = bytes_
        for z, sharding in enumerate(p.choice.zero if i == 0 else ()):
            for j, s in enumerate(
                standing(
                    job,
                    near,
                    rows.far,
                    units[0],
                    device,
                    sharding.zero,
                    rows.exact,
                )
            ):
                p.kept[e * count + j][0, 0, k, z, place] = (
                    s.weights + s.gradients + s.optimizer + s.buffers
                )


def _shards(
    job: Job, table: Table, sp: bool, choice: Options, scheme: str
) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and counts
    as on, if the space has both.
    """
    tp = table["tp"]
    fine = splits(job, table, scheme, sp)
    if sp:
        return fine
    useful = (tp > 1) | (True not in choice.all.sequence_parallel)
    return fine & useful & ((tp == 1) | (job.model.moe is None))


def possible(
    job: Job, table: Table, choice: Options, scheme: str, exact: bool
) -> Mask:
    """Where a row, wherever it lies, can run in some way by the rules of the job's framework.

    exact: dp is one, not the most of several.
    """
    sizes = job.cluster.sizes
    fine = np.zeros(length(table), dtype=bool)
    ways = each_way(
        table,
        None,
        sizes,
        scheme,
        choice.sequence_parallel,
    )
    for way in ways:
        splits_so = _shards(
            job,
            table,
            way.sequence_parallel,
            choice,
            scheme,
        )
        fine |= splits_so & framework.rows(job, way, exact, False)
    index, number = _pipelines(table, np.asarray(microbatches(job, ways[0])))
    scheduled = some_schedule(job, pick(ways[0], index), choice)
    return np.asarray(fine & ((table["pp"] == 1) | scheduled[number]))


def _pipelines(table: Table, m: Column) -> tuple[Index, Index]:
    """(a row of each, its number for every row): what the rules of schedules look at."""
    return distinct([table["pp"], table["interleave"], m])


def legal_options(
    job: Job, table: Table, choice: Options, scheme: str
) -> Column:
    """How many of the options each row can run with."""
    m = np.asarray(ceil_div(job.batch, table["dp"] * table["microbatch"]))
    rows = [
        layouts(table, {}, job.cluster.sizes, scheme, sp)
        for sp in choice.sequence_parallel
    ]
    index, number = _pipelines(table, m)
    orders = np.array(runs(job, choice, pick(rows[0], index), m[index]))
    alone: Any = (rows[0].replicas == 1) & (not whole_program(job))
    # with one replica all are the same
    stages = np.where(alone, np.arange(len(choice.zero))[:, None] == 0, True)
    stages = stages & np.array(
        [
            np.broadcast_to(sharding.runs(rows[0]), alone.shape)
            for sharding in choice.zero
        ]
    )
    barred = framework.barred(job, rows[0], choice)
    each = len(choice.recompute) * orders.sum(axis=0)[number]
    each = each * stages.sum(axis=0)
    if barred is not None:
        points = orders[:, number][None, :, None] & stages & ~barred[0]
        each = points.sum(axis=(0, 1, 2))
    ways: Column = sum(
        each
        * (
            _shards(
                job,
                table,
                row.sequence_parallel,
                choice,
                scheme,
            )
            & framework.rows(job, row, True, False)
        )
        for row in rows
    )
    return ways


def _no_floors(p: Pieces, number: int) -> tuple[tuple[Grid, Grid], ...]:
    """Floors of the pieces, to be filled."""
    return tuple(
        (np.zeros(p.after.shape), np.zeros(p.pipe.shape))
        for _ in range(number)
    )
