"""Rows of layouts under every option: seconds and bytes, by the same functions as one layout's.

Each choice stands in the loop that it changes. How layers are dealt to stages says what devices
hold, and so what they synchronise and update; sequence parallelism and recomputation change what a
microbatch costs; a schedule orders microbatches; a ZeRO stage says when weights and gradients
travel. What an outer loop has computed serves all choices inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.frozen import with_values
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.placement import Shares
from ..layout.stages import schedule_of
from ..num import Num
from ..program.least import least_bytes
from ..program.resident import whole_program
from ..schedule.schedule import Schedule
from ..step import memory
from .columns import layouts, model_costs
from .legal import legal
from .options import Options
from .table import Column, Mask, Table, pick

OptionMask = NDArray[np.bool_]
"""(sequence parallel, recomputation, schedule, ZeRO stage): the options that are looked at."""
Place = tuple[int, int, int, int]
"""Of one combination of options, on the same axes."""


class Rows(NamedTuple):
    """Rows of a table, and where they lie."""

    low: Table
    """With the fewest replicas of each interval of dp, over which collectives take least."""
    high: Table
    """With the most replicas, whose shards are smallest; the same object where rows are layouts and
    not intervals."""
    shares: Shares | None = None
    """Their placements; None: every group lies nearest."""
    any_number: bool = False
    """A schedule need not run with their number of microbatches: they stand for larger ones."""

    @property
    def exact(self) -> bool:
        """They are rows, not intervals of dp."""
        return self.high is self.low

    def some(self, index: Any) -> Rows:
        """Some of the rows."""
        low = pick(self.low, index)
        return Rows(
            low,
            low if self.exact else pick(self.high, index),
            pick(self.shares, index),
            self.any_number,
        )


class Points(NamedTuple):
    """Rows under one combination of options."""

    place: Place
    seconds: Column
    """inf where the layout cannot run."""
    bytes: Column


def points(
    job: Job,
    at: Clock,
    rows: Rows,
    choice: Options,
    alive: OptionMask | None = None,
    most: float = np.inf,
) -> Iterator[tuple[NDArray[np.intp], Points]]:
    """(which of the rows, their seconds and bytes), under each of the options that are alive.

    at: the job's clock, or that of a bound;  most: seconds of a pipeline that are still looked at.
    Rows that are not placed have bounds.
    """
    alive = np.ones(choice.shape, dtype=bool) if alive is None else alive
    piped = rows.low["pp"] > 1
    # a device that is alone runs one schedule, and in most spaces other ZeRO stages
    for index in (np.flatnonzero(~piped), np.flatnonzero(piped)):
        if len(index):
            some = _Table(
                job,
                at,
                rows.some(index),
                choice=choice,
                alive=alive,
                most=most,
            )
            yield from ((index, each) for each in some.points())


class _Table:
    """Rows with what all options share."""

    def __init__(
        self,
        job: Job,
        at: Clock,
        rows: Rows,
        choice: Options,
        alive: OptionMask,
        most: float,
    ) -> None:
        self.job, self.at, self.choice, self.most = job, at, choice, most
        low = layouts(job, choice, rows.low, rows.shares)
        self.low, self.high = low, None
        if not rows.exact:
            self.high = layouts(job, choice, rows.high, rows.shares)[0]
        costs, which = model_costs(job, low, at, choice.recompute)
        self.parts = [pick(cost, which) for cost in costs]
        self.runs = legal(
            job,
            choice,
            low,
            alive=alive,
            high=self.high,
            any_number=rows.any_number,
        )

    def points(self) -> Iterator[Points]:
        every: dict[Schedule, list[int]] = {}
        for k, way in enumerate(self.choice.schedules):
            if self.runs[:, :, k].any():
                every.setdefault(way.layer_deal, []).append(k)
        for deal, schedules in every.items():
            runs = np.zeros_like(self.runs)
            runs[:, :, schedules] = self.runs[:, :, schedules]
            yield from _DealtRows(self, deal, runs).points()


class _DealtRows:
    """Rows whose layers are dealt in one way, with what that says of weights."""

    def __init__(self, table: _Table, deal: Schedule, runs: Mask) -> None:
        self.table, self.runs = table, runs
        job, choice, at = table.job, table.choice, table.at
        low, parts, high = table.low[0], table.parts[0], table.high
        self.shares = step.shares(job, low, deal, low.interleave)
        owned = step.owners(job, low, parts, self.shares)
        self.zero = [
            z for z in range(len(choice.zero)) if runs[..., z, :].any()
        ]
        self.syncs: dict[Any, Any] = {}
        self.fixed_bytes, self.updates = {}, {}
        for z in self.zero:
            sharding = choice.zero[z]
            if sharding.messages not in self.syncs:
                self.syncs[sharding.messages] = step.device_syncs(
                    job,
                    sharding.layout(low),
                    parts,
                    devices=self.shares.slow,
                    at=at,
                    far=None if high is None else sharding.layout(high),
                )
            wide = sharding.layout(low if high is None else high)
            self.updates[z] = step.update(
                job, wide, owned, zero=sharding.zero, at=at
            )
            if not whole_program(job):
                self.fixed_bytes[z] = [
                    memory.fixed_bytes(
                        job, sharding.layout(low), parts, share=share, far=wide
                    )
                    for share in self.shares.full
                ]

    def points(self) -> Iterator[Points]:
        table, choice = self.table, self.table.choice
        for i, layout in enumerate(table.low):
            for r, text in enumerate(choice.recompute):
                if self.runs[i, r].any():
                    again = with_values(layout, recompute=text)
                    yield from self._passes(i, r, again)

    def _passes(self, i: int, r: int, layout: Layout) -> Iterator[Points]:
        """Rows under one setting of sequence parallelism and recomputation."""
        table = self.table
        job, choice, parts = table.job, table.choice, table.parts[i]
        one = step.microbatch_on(
            job, layout, parts, device_shares=self.shares, at=table.at
        )
        activations = (
            []
            if whole_program(job)
            else memory.activations(
                job,
                layout,
                parts,
                text=layout.recompute,
                devices=self.shares.full,
            )
        )
        for k in map(int, np.flatnonzero(self.runs[i, r].any(axis=(1, 2)))):
            way = choice.schedules[k]
            ordered = way.layout(layout)
            pipeline = step.pipeline_of(job, ordered, one)
            quick = self.runs[i, r, k] & (pipeline.total <= table.most)
            if not quick.any():
                continue
            kept = self._kept(
                ordered, way.order, activations, quick.any(axis=0)
            )
            for z in self.zero:
                runs = quick[z]
                if not runs.any():
                    continue
                sharding = choice.zero[z]
                whole = sharding.layout(ordered)
                seconds = step.join(
                    job,
                    whole,
                    one,
                    pipeline=pipeline,
                    syncs=self.syncs[sharding.messages],
                    update_seconds=self.updates[z],
                    how=table.at.overlap,
                ).total
                bytes_ = (
                    _fullest_bytes(self.fixed_bytes[z], kept)
                    if kept
                    else _program(
                        job, whole, table.high, parts=parts, where=runs
                    )
                )
                yield Points(
                    (i, r, k, z),
                    np.where(runs, seconds, np.inf),
                    np.broadcast_to(bytes_, runs.shape),
                )

    def _kept(
        self,
        layout: Layout,
        schedule: Schedule,
        activations: list[memory.Activations],
        where: Mask,
    ) -> list[Num]:
        """Activation bytes of each device that may be the fullest, in the order of a schedule.

        activations: what each keeps of a microbatch; none where the trainer's whole program is
        counted.
        """
        job = self.table.job
        return [
            each.kept(
                *_flights(job, layout, schedule, rank=share.rank, where=where)
            )
            for share, each in zip(self.shares.full, activations, strict=False)
        ]


def _flights(
    job: Job,
    layout: Layout,
    schedule: Schedule,
    rank: Num,
    where: Mask,
) -> Any:
    """`memory.flights`; those of a schedule whose order must be written down for it only where they
    are asked for.
    """
    if not schedule.replayed:
        return memory.flights(job, layout, schedule, rank)
    at = np.flatnonzero(where)
    some = pick(layout, at), schedule, pick(rank, at)
    found = np.zeros((3, len(where)))
    found[:, at] = np.broadcast_arrays(*memory.flights(job, *some))
    return found


def _program(
    job: Job,
    layout: Layout,
    high: Layout | None,
    parts: step.ModelCost,
    where: Mask,
) -> Any:
    """What the trainer's program holds at least (`program.least`), of rows of as many chunks; the
    most replicas hold the smallest shards.
    """
    wide = layout if high is None else with_values(layout, dp=high.dp)
    found = np.full(len(where), np.inf)
    chunks = np.asarray(wide.interleave)
    for v in np.unique(chunks[where]):
        at = np.flatnonzero(where & (chunks == v))
        some = with_values(pick(wide, at), interleave=float(v))
        found[at] = least_bytes(job, some, pick(parts, at), schedule_of(wide))
    return found


def _fullest_bytes(standing: list[memory.FixedBytes], kept: list[Num]) -> Num:
    """Bytes on the fullest device."""
    return reduce(
        np.maximum,
        (
            use.total
            for each, flying in zip(standing, kept, strict=True)
            for use in each.uses(flying)
        ),
    )
