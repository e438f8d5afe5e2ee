"""A block of layouts under every option at once: the step formulas on broadcast axes.

Axes of a grid: (sequence parallel, recomputation, schedule, ZeRO stage, row). What depends on few
of them is computed at its own small shape; only one addition of times and three operations on bytes
run at full size. Rows are the last axis: they are contiguous. Under a limit, the pipeline comes
first, and only for the rows and options whose compute alone stays within it; few are left for the
rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layers import sorts
from ..num import Num
from ..program.closed import MOMENTS
from ..program.resident import whole_program
from ..step import memory
from . import framework, held, times
from .blocks import Block, Rows, blocks, chosen
from .kinds import Deal, Dealt, deals, holding_back, runs
from .nearest import pick
from .options import Options
from .pieces import Grid, Index, Pieces
from .table import Column, Table

Mask = NDArray[np.bool_]


class Piped(NamedTuple):
    """Rows with the seconds of their pipelines."""

    left: Index
    """Which of the rows asked for they are."""
    choice: Options
    blocks: list[Block]
    costs: step.Body
    """Of the distinct rows of all blocks under each recomputation."""
    held: Dealt
    """What the devices of the rows hold."""
    pipe: Grid
    """See `Pieces.pipe`."""
    barred: Mask | None
    """See `Pieces.barred`."""

    def within(self, limit: Num) -> Piped:
        """The rows and options that stay within a limit."""
        fine = self.pipe <= limit
        sp, rec, sched = (
            np.asarray(fine.any(axis=o))
            for o in ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4))
        )
        index = np.flatnonzero(fine.any(axis=(0, 1, 2, 3)))
        kept = np.repeat((rec[:, None] & sp).ravel(), self.blocks[0].distinct)
        zero = np.ones(len(self.choice.zero), dtype=bool)
        barred = self.barred
        return Piped(
            index,
            self.choice.part([sp, rec, sched, zero]),
            [
                block.rows(index)
                for block, use in zip(self.blocks, sp, strict=True)
                if use
            ],
            pick(self.costs, kept),
            self.held.rows(index),
            self.pipe[sp][:, rec][:, :, sched][..., index],
            None
            if barred is None
            else barred[:, rec][:, :, sched][..., index],
        )


def pieces(
    job: Job,
    at: Clock,
    rows: Rows,
    choice: Options,
    limit: Num = np.inf,
) -> Pieces:
    """The terms of the rows and options whose pipeline alone stays within the limit, or theirs.

    at: the job's clock, or that of a bound.
    """
    found = _piped(job, at, rows, choice, limit).within(limit)
    # the unplaced row of each row
    row = rows.near.get("row", np.arange(rows.number))[found.left]
    of = np.cumsum(np.diff(row, prepend=-1.0) != 0) - 1
    new = np.flatnonzero(np.diff(of, prepend=-1))
    unplaced = [block.rows(new) for block in found.blocks]
    # no setting of sequence parallelism deals layers otherwise
    by_row = found.held.rows(new)
    holders = [by_row.under(fold) for fold in _folds(found.choice)]
    more = (
        holding_back(job, unplaced[0].near, found.choice) if unplaced else []
    )
    p = _empty(job, found, rows.near, [*holders, *more], of)
    if step.by_order(job):
        shared = rows.shares is not None and step.shared(at.overlap)
        links = len(job.cluster.sizes) if shared else 0
        p = p._replace(floors=_no_floors(p, len(p.devices) + links))
    updates = _held(p, job, at, unplaced, holders)
    if found.blocks:
        first = found.blocks[0]
        where = np.asarray(np.isfinite(p.pipe).any(axis=(2, 3)))
        times.after(
            p,
            job,
            at,
            _points(
                found.blocks, found.costs, found.held, found.choice, where
            ),
            times.Rows.of(
                first.near,
                None if first.exact else first.far,
                lambda at: pick(first.costs, first.which[at]),
                found.held,
            ),
            updates,
            _folds(found.choice),
        )
    return p


def _piped(
    job: Job,
    at: Clock,
    rows: Rows,
    choice: Options,
    limit: Num,
) -> Piped:
    """All rows; the pipelines of those beyond the limit may be left out."""
    each = blocks(job, at, rows, choice)
    near = each[0].near
    m = each[0].m
    pipe = np.full((*choice.shape[:3], 1, rows.number), np.inf)
    fine = np.repeat(
        np.array([block.fine for block in each])[:, None],
        len(choice.recompute),
        axis=1,
    )
    barred = framework.barred(job, near, choice)
    costs = chosen(each, choice)
    held = Dealt.of(job, near, _folds(choice))
    times.pipelines(
        job,
        at,
        _points(each, costs, held, choice, fine),
        choice,
        runs(job, choice, near, m),
        limit,
        pipe,
        rows.shares is None,
    )
    if barred is not None:
        never = barred.all(axis=3, keepdims=True)
        np.putmask(pipe, np.broadcast_to(never, pipe.shape), np.inf)
    every = np.arange(rows.number)
    return Piped(
        every,
        choice,
        each,
        costs,
        held,
        pipe,
        barred,
    )


def _folds(choice: Options) -> list[Deal]:
    """The ways to deal layers, each once."""
    return sorted({*deals(choice)})


def _held(
    p: Pieces,
    job: Job,
    at: Clock,
    blocks_: list[Block],
    holders: list[step.Shares],
) -> list[Grid]:
    """Fill in the bytes of unplaced rows; for each ZeRO stage seconds of the optimizer: (way to
    deal layers, row).
    """
    if not blocks_:
        return []
    # no setting of sequence parallelism changes what a device holds for the whole run
    first = blocks_[0]
    parts = first.parts
    by = held.devices(holders, p.ends)
    owned = step.held(job, first.near, parts, by, held.EVERY)
    if whole_program(job):
        for i, block in enumerate(blocks_):
            held.program_memory(p, i, job, block)
    else:
        held.activations(p, job, blocks_, holders)
        held.states(
            p,
            job,
            first,
            parts,
            by,
            owned,
        )
    return _updates(p, job, at, first, owned)


def _points(
    blocks: list[Block],
    costs: step.Body,
    devices: Dealt,
    choice: Options,
    where: Mask,
) -> times.Points:
    """The rows of blocks under each recomputation, where a mask (sp, recompute, row) holds; costs:
    of all blocks under each;  devices: what those of the rows hold.
    """
    said = [times.left_to_say(text) for text in choice.recompute]
    texts = tuple(dict.fromkeys(said))
    of = np.array([texts.index(text) for text in said], dtype=np.intp)
    order = np.argsort(of, kind="stable")
    first = blocks[0]
    (rec, sp, row) = np.nonzero(where.transpose(1, 0, 2)[order])
    rec = order[rec]
    which = (rec * len(blocks) + sp) * first.distinct + first.which[row]
    return times.Points(
        first.near,
        None if first.exact else first.far,
        first.m,
        costs,
        which,
        sp,
        rec,
        row,
        texts,
        of[rec],
        devices,
    )


def _updates(
    p: Pieces,
    job: Job,
    at: Clock,
    unplaced: Block,
    owned: step.Held,
) -> list[Grid]:
    """Seconds of the optimizer at each ZeRO stage: (way to deal layers, row)."""
    dense, expert = (held.apart(p, kind) for kind in owned)
    devices = [
        step.Held(dense[:, e], expert[:, e]) for e in range(len(p.ends))
    ]
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
        np.broadcast_to(seconds, dense[:, 0].shape)[:, p.of]
        for seconds in each
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
    found: Piped,
    table: Table,
    holders: list[step.Shares],
    of: Index,
) -> Pieces:
    """Pieces to be filled; table: all rows;  of: the unplaced row of each row that is left."""
    left = found.left
    choice = found.choice
    pp = table["pp"][left]
    chunks = table["interleave"][left]
    ends, done = _devices(job, choice, pp, chunks, holders)
    folds = _folds(choice)
    n_sp, n_rec, n_sched, n_zero = choice.shape
    n = of[-1] + 1 if len(of) else 0
    folded = times.dealt_in(choice, folds)
    # what it keeps of weights depends on the schedule
    program = whole_program(job)
    place, moments = (
        (np.arange(n_sched), len(MOMENTS))
        if program
        else (folded, memory.moments(job))
    )
    states = (1, 1, n_sched if program else len(folds), n_zero, n)
    flying = (n_sp, n_rec, n_sched, 1, n)
    each = range(len(ends) * moments)
    return Pieces(
        left,
        choice,
        found.pipe,
        np.full((n_sp, n_rec, len(folds), n_zero, len(of)), np.inf),
        tuple(np.empty(states) for _ in each),
        tuple(np.empty(flying) for _ in each),
        of,
        folded,
        place,
        found.barred,
        ends,
        done,
    )


def _no_floors(p: Pieces, number: int) -> tuple[tuple[Grid, Grid], ...]:
    """Floors of the pieces, to be filled."""
    return tuple(
        (np.zeros(p.after.shape), np.zeros(p.pipe.shape))
        for _ in range(number)
    )
