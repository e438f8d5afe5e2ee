"""Bytes that the devices of a grid's rows hold: of a framework's tensors, or of the trainer's whole
program, moment by moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import step
from ..describe.job import Job
from ..program import closed
from ..program.closed import MOMENTS
from ..program.standing import standing
from ..step import memory
from .blocks import Block
from .kinds import Kind, kinds
from .nearest import abreast, pick
from .pieces import Index, Pieces


def activations(
    p: Pieces,
    job: Job,
    blocks: list[Block],
    holders: list[step.Shares],
) -> None:
    """Bytes of activations under each setting of sequence parallelism."""
    moments = memory.moments(job)
    every = _flights(p, blocks[0], holders)
    for i, rows in enumerate(blocks):
        parts = rows.parts
        for r, text in enumerate(p.choice.recompute):
            bytes_ = [
                memory.activations(
                    job,
                    rows.near,
                    parts,
                    text,
                    by,
                    p.ends,
                )
                for by in holders
            ]
            for k, flights in enumerate(every):
                for e, kept in enumerate(bytes_[p.folded[k]]):
                    p.held[e * moments][i, r, k, 0] = kept.kept(*flights[e])
    # activations are gone when the optimizer runs
    for at, grid in enumerate(p.held):
        if at % moments:
            grid[:] = 0.0


def _flights(
    p: Pieces, rows: Block, holders: list[step.Shares]
) -> list[list[tuple[Any, Any, Any]]]:
    """Of each schedule, on each device, microbatches in flight and in either half of the head's
    backward pass.
    """
    pp, v, m = rows.near.pp, rows.near.interleave, rows.m
    found = []
    for kind, fold in zip(kinds(p.choice), p.folded, strict=True):
        schedule = kind.schedule
        heads = schedule.heads(pp, m, v), schedule.heads_late(pp, m, v)
        ranks = [holders[fold][end].rank for end in p.ends]
        found.append(
            [
                (
                    memory.in_flight(
                        pp,
                        m,
                        schedule,
                        v,
                        end,
                        rank,
                    ),
                    *heads,
                )
                for end, rank in zip(p.ends, ranks, strict=True)
            ]
        )
    return found


EVERY = "every"
"""All devices that may be the fullest, however layers are dealt, side by side."""


def devices(holders: list[step.Shares], ends: tuple[str, ...]) -> step.Shares:
    """What they hold, one way to deal layers behind the other."""
    every = abreast([by[end] for by in holders for end in ends])
    return step.Shares({EVERY: every, "whole": holders[0]["whole"]})


def apart(p: Pieces, of: Any) -> Any:
    """What was computed of all of them: (way to deal layers, device, row)."""
    rows = p.kept[0].shape[-1]
    ways = p.after.shape[2]
    every = np.broadcast_to(of, (ways * len(p.ends), rows))
    return every.reshape(ways, len(p.ends), rows)


def states(
    p: Pieces,
    job: Job,
    rows: Block,
    parts: step.Body,
    by: step.Shares,
    owned: step.Held,
) -> None:
    """Bytes that live for the whole run. by, owned: what all `devices` hold."""
    moments = memory.moments(job)
    own = memory.own_buffers(
        job,
        rows.near,
        parts,
        owned,
        by,
        EVERY,
    )
    for z, sharding in enumerate(p.choice.zero):
        # of an interval of dp: states are smallest with the most replicas, buffers with the fewest
        close = sharding.layout(rows.near)
        wide = sharding.layout(rows.far)
        zero = sharding.zero
        units = memory.units_in_use(
            job,
            close,
            parts,
            zero,
            by,
            EVERY,
        )
        states = memory.states(job, wide, owned, zero)
        bytes_ = states.total + sum(units.values(), own)
        for moment in range(moments):
            if moment:
                bytes_ = bytes_ + memory.step_copies(job, states)
            each = apart(p, bytes_)
            for e in range(len(p.ends)):
                p.kept[e * moments + moment][0, 0, :, z] = each[:, e]


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
                    p,
                    (i, k, at),
                    job,
                    rows.rows(at),
                    kind,
                    pick(units, at),
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
