"""A block of layouts under every option at once: the step formulas on broadcast axes.

Axes of a grid: (sequence parallel, recomputation, schedule, ZeRO stage, row). What depends on few of them is computed at its own small
shape; only one addition of times and three operations on bytes run at full size. Rows are the last axis: they are contiguous.
Under a limit, the pipeline comes first, and only for the rows and options whose compute alone stays within it; few are left for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.assumptions import HidePass
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import microbatches
from ..num import ceil_div
from ..program import closed
from ..program.closed import MOMENTS
from ..program.resident import whole_program
from ..program.standing import standing
from ..schedule import get as schedule_named
from ..schedule.types import Schedule
from ..step import memory
from . import framework
from .nearest import bodies, layouts, pick
from .pieces import Grid, Index, Pieces
from .placement import Shares
from .space import Column, Options, Table, length, splits

Mask = NDArray[np.bool_]


class Block(NamedTuple):
    """A table under one setting of sequence parallelism."""

    near: Layout
    """Its dp counts in time."""
    far: Layout
    """Its dp counts in sharding (another one only for bounds on an interval of dp)."""
    costs: step.Body
    """Of distinct rows."""
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
        return self._replace(**{k: pick(getattr(self, k), at) for k in ("near", "far", "which", "m", "fine")})

    @property
    def parts(self) -> step.Body:
        """What a microbatch costs in every row."""
        parts: step.Body = pick(self.costs, self.which)
        return parts


class Kind(NamedTuple):
    """A schedule as the grid sees it."""

    schedule: Schedule
    v: float

    @property
    def chunks(self) -> float:
        """Chunks of the model on a device."""
        return float(self.schedule.chunks(self.v))

    def even(self, job: Job, p: Column) -> Any:
        """Where there are layers for all stages: as many for each, if a device has several."""
        stages = p * self.chunks
        return job.model.layers % stages == 0 if self.chunks > 1 else stages <= job.model.layers

    def runs(self, job: Job, p: Column, m: Column) -> Mask:
        """Where it can run (on one stage: `runs`)."""
        can = p * self.chunks <= job.model.layers
        rows = np.flatnonzero(can)
        p, m = p[rows], m[rows]
        can[rows] = self.even(job, p) & self.schedule.legal(p, m, self.v)
        return can


def kinds(choice: Options) -> list[Kind]:
    """The schedules of the options."""
    return [Kind(schedule_named(name), float(v)) for name, v in choice.schedules]


@cache
def by_need(schedules: tuple[tuple[str, int], ...]) -> list[int]:
    """Positions of schedules, the one first that holds the activations of the fewest microbatches on one stage."""

    def held(at: int) -> float:
        name, v = schedules[at]
        return float(memory.in_flight(1.0, 2.0, schedule_named(name), float(v), step.ENDS[0]))

    return sorted(range(len(schedules)), key=held)


def runs(job: Job, choice: Options, rows: Layout, m: Column) -> list[Mask]:
    """Where each schedule can run. On one stage all take as long: only that counts which holds least, of those the first."""
    p, every = np.asarray(rows.pp), choice.all.schedules
    found = [
        kind.runs(job, p, m) & framework.schedules(job, rows, kind.schedule.name, kind.v) for kind in kinds(choice)
    ]
    one = np.flatnonzero(p == 1)
    alone = pick(rows, one)
    free = np.ones(len(one), dtype=bool)
    mine = {schedule: k for k, schedule in enumerate(choice.schedules)}
    for schedule in (every[at] for at in by_need(every)):
        can = free
        if free.any():
            can = free & Kind(schedule_named(schedule[0]), float(schedule[1])).runs(job, p[one], m[one])
            can = can & framework.schedules(job, alone, *schedule)
        free = free & ~can
        if schedule in mine:
            found[mine[schedule]][one] = can
    return found


def pieces(
    job: Job,
    at: Clock,
    table: Table,
    far: Table,
    shares: Shares | None,
    choice: Options,
    scheme: str,
    limit: float = np.inf,
    quick: bool = False,
) -> Pieces:
    """The terms of the rows and options whose pipeline alone stays within the limit.

    at: the job's clock, or that of a bound;  table: rows, whose dp counts in time;  far: the same rows with the dp that counts in sharding;
    shares: their placements, or None for every group nearest;  quick: a bound without synchronisation.
    """
    blocks = _blocks(job, at, table, far, shares, choice, scheme)
    index, pipe = np.arange(len(table["tp"])), np.full((*choice.shape[:3], 1, len(table["tp"])), np.inf)
    can_run = runs(job, choice, blocks[0].near, blocks[0].m)
    barred = framework.barred(job, blocks[0].near, choice)
    for block, seconds in zip(blocks, pipe, strict=True):
        _pipelines(job, at, block, choice, can_run, limit, seconds, shares is None, quick)
    if barred is not None:
        np.putmask(pipe, np.broadcast_to(barred.all(axis=3, keepdims=True), pipe.shape), np.inf)
    if limit < np.inf:
        within = pipe <= limit
        sp, rec, sched = (np.asarray(within.any(axis=o)) for o in ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4)))
        index = np.flatnonzero(within.any(axis=(0, 1, 2, 3)))
        choice = choice.part([sp, rec, sched, np.ones(len(choice.zero), dtype=bool)])
        pipe = pipe[sp][:, rec][:, :, sched][..., index]
        barred = None if barred is None else barred[:, rec][:, :, sched][..., index]
        blocks = [block.rows(index) for block, use in zip(blocks, sp, strict=True) if use]
    folds = sorted({*deals(job, choice)})
    new = np.diff(table["row"][index] if "row" in table else index, prepend=-1.0) != 0
    p = _empty(job, index, choice, pipe, folds, _ends(job, table["pp"][index]), np.cumsum(new) - 1)
    p = p._replace(barred=barred)
    if step.by_order(job) and not quick:
        links = len(job.cluster.sizes) if shares is not None and step.shared(at.overlap) else 0
        p = p._replace(floors=_no_floors(p, len(_last(p)) + links))
    for i, block in enumerate(blocks):
        unplaced = block.rows(np.flatnonzero(new))
        parts, holders = unplaced.parts, [holders_of(job, unplaced.near, fold) for fold in folds]
        owned = [[step.held(job, unplaced.near, parts, by, end) for end in p.ends] for by in holders]
        if whole_program(job):
            program_memory(p, i, job, unplaced)
        else:
            _memory(p, i, job, unplaced, parts, holders, owned)
        _after(p, i, job, at, block, unplaced, owned, [] if quick else folds)
    return p


def _blocks(
    job: Job, at: Clock, table: Table, far: Table, shares: Shares | None, choice: Options, scheme: str
) -> list[Block]:
    """The table under each setting of sequence parallelism."""
    sizes, ways = job.cluster.sizes, choice.sequence_parallel
    near = [layouts(table, shares, sizes, scheme, sp) for sp in ways]
    wide = near if far is table else [layouts(far, shares, sizes, scheme, sp) for sp in ways]
    costs, which = bodies(job, near, at, choice.recompute)
    m = np.asarray(microbatches(job, near[0]))
    exact = far is table
    fine = [
        _shards(job, table, layout.sequence_parallel, choice, scheme)
        & framework.rows(job, layout, exact, shares is not None)
        for layout in near
    ]
    return [Block(n, w, c, which, m, f, exact) for n, w, c, f in zip(near, wide, costs, fine, strict=True)]


def _ends(job: Job, pp: Column) -> tuple[str, ...]:
    """Devices that may be the fullest; the second only if the first holds fewer or lighter layers, or one receive buffer less."""
    uneven = bool((job.model.layers % pp != 0).any())
    lighter = job.model.moe is not None and job.model.moe.dense_layers > 0
    received = whole_program(job) and bool((pp > 2).any())
    return step.ENDS if uneven or lighter or received else (step.ENDS[0], step.ENDS[-1])


def _empty(
    job: Job, index: Index, choice: Options, pipe: Grid, folds: list[Deal], ends: tuple[str, ...], of: Index
) -> Pieces:
    """Pieces to be filled; of: the unplaced row of each row."""
    n_sp, n_rec, n_sched, n_zero = choice.shape
    n = of[-1] + 1 if len(of) else 0
    folded = np.array([folds.index(deal) for deal in deals(job, choice)], dtype=np.intp)
    program = whole_program(job)  # what it keeps of weights depends on the schedule
    place, moments = (np.arange(n_sched), len(MOMENTS)) if program else (folded, memory.moments(job))
    states = (1, 1, n_sched if program else len(folds), n_zero, n)
    return Pieces(
        index,
        choice,
        pipe,
        np.empty((n_sp, n_rec, len(folds), n_zero, len(of))),
        tuple(np.empty(states) for _ in range(len(ends) * moments)),
        tuple(np.empty((n_sp, n_rec, n_sched, 1, n)) for _ in range(len(ends) * moments)),
        of,
        folded,
        place,
        None,
        ends,
    )


Deal = tuple[bool, float]
"""How layers are dealt: (folded, chunks, where it matters)."""


def deals(job: Job, choice: Options) -> list[Deal]:
    """The ways in which the schedules deal layers, those that keep as many on each device once; chunks matter to leading layers,
    and to recomputation of the first of each."""
    matter = job.model.moe is not None and job.model.moe.dense_layers > 0
    matter = matter or any(recompute(text).layers for text in choice.all.recompute)
    return [(kind.schedule.folded, kind.chunks if matter else 1.0 + kind.schedule.folded) for kind in kinds(choice)]


def holders_of(job: Job, layout: Layout, deal: Deal) -> step.Shares:
    """What the devices hold."""
    folded, chunks = deal
    name = "zbv" if folded else "interleaved" if chunks > 1 else "1f1b"
    return step.shares(job, layout, schedule_named(name), chunks)


def fullest(job: Job, pp: Column) -> Column:
    """At least so many typical layers are on some device."""
    return np.asarray(ceil_div(job.model.layers - step.leading_layers(job), pp))


def _pipelines(
    job: Job,
    clock: Clock,
    block: Block,
    choice: Options,
    can_run: list[Mask],
    limit: float,
    seconds: Grid,
    bounds: bool,
    quick: bool,
) -> None:
    """Seconds of the pipeline, (recompute, schedule, 1, row), of rows that may stay within the limit.

    can_run: as `runs` has it;  bounds: a bound will do;  quick: a loose one.
    """
    every, t, layers = kinds(choice), block.costs.typical, block.m * fullest(job, np.asarray(block.near.pp))
    for r, text in enumerate(choice.recompute):
        share = 0.0 if recompute(text).layers else 1.0  # how many of them depends on the pipeline
        busy = layers * pick(t.forward + step.backward(t, text, share), block.which)
        rows = np.flatnonzero(block.fine & (busy <= limit))
        if not len(rows):
            continue
        some = block.rows(rows)
        near, m, parts = some.near, some.m, some.parts
        send = step.hop(near, parts, clock).seconds
        ways = deals(job, choice)
        for deal in sorted({*ways}):
            s = step.stages(near, parts, text, holders_of(job, near, deal))
            short = m * (s.forward + s.backward) <= limit
            for k, kind in enumerate(every):
                can = short & can_run[k][rows]
                if ways[k] != deal or not (some_ := np.count_nonzero(can)):
                    continue
                at = np.flatnonzero(can) if 2 * some_ < len(can) else slice(None)  # the rest is not worth leaving out
                p, n, stages, hop = pick((near.pp, m, s, send), at)
                bubble = step.least_idle(job, p, stages, kind.schedule, kind.v)
                least = n * (stages.forward + stages.backward) + bubble
                if bounds and (quick or not kind.schedule.split_backward):  # tight enough, but for sends
                    seconds[r, k, 0, rows[at]] = np.where(can[at], least, np.inf)
                    continue
                few = np.flatnonzero(can[at] & (least <= limit))
                at = few if isinstance(at, slice) else at[few]
                p, n, stages, hop = pick((p, n, stages, hop), few)
                total = step.span(job, p, n, stages, hop, kind.schedule, kind.v)
                seconds[r, k, 0, rows[at]] = np.where(can[at], total, np.inf)


def _memory(
    p: Pieces, i: int, job: Job, rows: Block, parts: step.Body, holders: list[step.Shares], owned: list[list[step.Held]]
) -> None:
    """Bytes that live for the whole run, and of activations."""
    near, m = rows.near, rows.m
    every, moments = kinds(p.choice), memory.moments(job)
    flights = [[memory.in_flight(near.pp, m, x.schedule, x.v, end) for end in p.ends] for x in every]
    heads = [(x.schedule.heads(near.pp, m, x.v), x.schedule.heads_late(near.pp, m, x.v)) for x in every]
    for r, text in enumerate(p.choice.recompute):
        bytes_ = [[memory.activations(job, near, parts, text, by, end) for end in p.ends] for by in holders]
        for k, flight in enumerate(flights):
            for e, kept in enumerate(bytes_[p.folded[k]]):
                p.held[e * moments][i, r, k, 0] = kept.kept(flight[e], *heads[k])
                for step_ in range(1, moments):  # activations are gone when the optimizer runs
                    p.held[e * moments + step_][i, r, k, 0] = 0.0
    for z, zero in enumerate(p.choice.zero if i == 0 else ()):
        for f, (by, devices) in enumerate(zip(holders, owned, strict=True)):
            for e, parameters in enumerate(devices):
                # of an interval of dp: states are smallest with the most replicas, buffers with the fewest
                buffers = memory.buffers(job, near, parts, parameters, zero, by, p.ends[e])
                whole = memory.states(job, rows.far, parameters, zero).total + buffers
                p.kept[e * moments][0, 0, f, z] = whole
                for step_ in range(1, moments):
                    p.kept[e * moments + step_][0, 0, f, z] = whole + memory.step_copies(
                        job, rows.far, parameters, zero
                    )


def program_memory(p: Pieces, i: int, job: Job, rows: Block) -> None:
    """The same of the trainer's whole program, moment by moment."""
    near = rows.near
    every, count = kinds(p.choice), len(MOMENTS)
    ways = [closed.units(job, near, text) for text in p.choice.recompute]
    for k, kind in enumerate(every):
        by = step.shares(job, near, kind.schedule, kind.v)
        for e, end in enumerate(p.ends):
            at = closed.device(job, near, kind.schedule, kind.v, by, end)
            for r, (text, of) in enumerate(zip(p.choice.recompute, ways, strict=True)):
                held = closed.flying(job, near, of, at, kind.schedule, text)
                for j, bytes_ in enumerate(held):
                    p.held[e * count + j][i, r, k, 0] = bytes_
            for z, zero in enumerate(p.choice.zero if i == 0 else ()):
                for j, s in enumerate(standing(job, near, rows.far, ways[0], at, zero, rows.exact)):
                    p.kept[e * count + j][0, 0, k, z] = s.weights + s.gradients + s.optimizer + s.buffers


def _after(
    p: Pieces,
    i: int,
    job: Job,
    at: Clock,
    block: Block,
    unplaced: Block,
    owned: list[list[step.Held]],
    folds: list[Deal],
) -> None:
    """Seconds after the pipeline: synchronisation (of no folds: left out), and the optimizer."""
    near, m, parts, choice = block.near, block.m, block.parts, p.choice
    first, how = choice.all.zero[0], at.overlap.dp
    holders = [holders_of(job, near, fold) for fold in folds]
    each = step.units(job, near, parts, choice.zero if folds else (), at)
    names = _last(p)
    held = [[step.devices(job, near, parts, by, each, text, names) for by in holders] for text in choice.recompute]
    for z, zero in enumerate(choice.zero):
        # with one replica all stages are the same, and only the first counts; but a program lets go of weights all the same
        means = (near.replicas > 1) | (zero == first) | whole_program(job)
        updates = [pick(step.update(job, unplaced.far, devices, zero, at), p.of) for devices in owned]
        for r in range(len(choice.recompute)):
            for f, seconds in enumerate(updates):
                of = held[r][f] if folds else []
                p.after[i, r, f, z] = np.where(means, _outside(job, of, m, zero, how) + seconds, np.inf)
                busy = step.occupied(of, m, zero) if len(p.floors) > len(names) else ()
                done = [step.done(d, m, zero, how) + seconds for d in of]
                _fill(p.floors, 0, (i, r, f, z), (*done, *busy))
    if p.floors:
        _ways(p, i, job, at, block, parts, holders)


def _outside(job: Job, of: list[step.Device], m: Column, zero: int, how: HidePass) -> Any:
    """Seconds of synchronisation outside the pipeline; under papers, that add up, all of it."""
    if not of:
        return 0.0
    return step.outside(of[0], m, zero, how) if step.by_order(job) else step.synchronise(of, m, zero, how)


def _ways(p: Pieces, i: int, job: Job, at: Clock, block: Block, parts: step.Body, holders: list[step.Shares]) -> None:
    """The other half of the floors: the way to each device, and the sends on each link."""
    near, m, send, names = block.near, block.m, step.hop(block.near, parts, at), _last(p)
    for k, kind in enumerate(kinds(p.choice)):
        sends = step.carried(m, send, kind.schedule, kind.v)
        for r, text in enumerate(p.choice.recompute):
            s = step.stages(near, parts, text, holders[p.folded[k]])
            way = step.ways(job, near.pp, s, send.seconds, kind.schedule, kind.v)
            _fill(p.floors, 1, (i, r, k, 0), (*(way[name] for name in names), *sends))


def _last(p: Pieces) -> tuple[str, ...]:
    """Devices that may be the last to be done: with as many layers everywhere, those of the first and the last device
    have no less to wait for than those between."""
    return step.DEVICES if "second" in p.ends else (step.DEVICES[0], step.DEVICES[-1])


def _no_floors(p: Pieces, number: int) -> tuple[tuple[Grid, Grid], ...]:
    """Floors of the pieces, to be filled."""
    return tuple((np.zeros(p.after.shape), np.zeros(p.pipe.shape)) for _ in range(number))


def _fill(floors: tuple[tuple[Grid, Grid], ...], which: int, at: tuple[int, ...], seconds: Iterable[Any]) -> None:
    """Write one half of each."""
    for floor, value in zip(floors, seconds, strict=False):
        floor[which][at] = value


def _shards(job: Job, table: Table, sp: bool, choice: Options, scheme: str) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and counts as on, if the space has both."""
    tp, fine = table["tp"], splits(job, table, scheme, sp)
    if sp:
        return fine
    useful = (tp > 1) | (True not in choice.all.sequence_parallel)
    return fine & useful & ((tp == 1) | (job.model.moe is None))


def legal_options(job: Job, table: Table, choice: Options, scheme: str) -> Column:
    """How many of the options each row can run with."""
    m = np.asarray(ceil_div(job.batch, table["dp"] * table["microbatch"]))
    rows = [layouts(table, {}, job.cluster.sizes, scheme, sp) for sp in choice.sequence_parallel]
    orders = np.array(runs(job, choice, rows[0], m))
    alone = (rows[0].replicas == 1) & (not whole_program(job))
    stages = np.where(alone, np.arange(len(choice.zero))[:, None] == 0, True)  # with one replica all are the same
    points = np.broadcast_to(orders[None, :, None] & stages, (*choice.shape[1:], length(table)))
    barred = framework.barred(job, rows[0], choice)
    each = (points if barred is None else points & ~barred[0]).sum(axis=(0, 1, 2))
    ways: Column = sum(
        each * (_shards(job, table, row.sequence_parallel, choice, scheme) & framework.rows(job, row, True, False))
        for row in rows
    )
    return ways
