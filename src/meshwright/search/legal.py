"""Which rows of a table can run, and with how many options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.placement import Shares
from ..layout.schemes import always_cut
from ..layout.stages import microbatches
from ..program.resident import whole_program
from . import framework
from .columns import each_way
from .degrees import splits
from .options import Options
from .table import Column, Index, Mask, Table, distinct, length, pick
from .ways import by_need


def split(
    job: Job,
    table: Table,
    sp: bool,
    choice: Options,
) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and counts
    as on, if the space has both.
    """
    tp = table["tp"]
    fine = splits(job, table, choice.fixed, sp)
    if sp:
        return fine
    useful = (tp > 1) | (True not in choice.sequence_parallel)
    cut = always_cut(job.model, choice.fixed["scheme"])
    return fine & useful & ((tp == 1) | (not cut))


def possible(
    job: Job,
    table: Table,
    choice: Options,
) -> Mask:
    """Where a row, wherever it lies and with so many replicas or fewer, may run in some way by the
    rules of the job's framework.
    """
    sizes = job.cluster.sizes
    fine = np.zeros(length(table), dtype=bool)
    ways = each_way(
        table,
        None,
        sizes,
        choice.fixed,
        choice.sequence_parallel,
    )
    for way in ways:
        splits_so = split(
            job,
            table,
            way.sequence_parallel,
            choice,
        )
        fine |= splits_so & framework.rows(job, way, False, False)
    scheduled = np.any(orders(job, choice, ways[0], any_number=True), axis=0)
    return np.asarray(fine & ((table["pp"] == 1) | scheduled))


def pipelines_of(job: Job, rows: Layout) -> tuple[Layout, Column, Index]:
    """(a row of each pipeline, its microbatches, the number of that of every row): what the rules
    of schedules look at.
    """
    m = np.asarray(microbatches(job, rows))
    index, number = distinct([rows.pp, rows.interleave, m])
    return pick(rows, index), m[index], number


def orders(
    job: Job, choice: Options, rows: Layout, any_number: bool = False
) -> list[Mask]:
    """Where each schedule can run. On one stage all take as long: only that counts which holds
    least, of those the first. any_number: where it can with some number of microbatches; then all
    count, since another may hold least with each.
    """
    rows, m, number = pipelines_of(job, rows)
    p, v = np.asarray(rows.pp), np.asarray(rows.interleave)
    exact = not any_number
    found = [
        (way.runs(job, p, m, v) & (p > 1) if exact else way.filled(job, p, v))
        & framework.schedules(job, rows, way, exact)
        for way in choice.schedules
    ]
    if any_number:
        return [mask[number] for mask in found]
    one = np.flatnonzero(p == 1)
    alone, free = pick(rows, one), np.ones(len(one), dtype=bool)
    for k, way, n in by_need(choice.schedules):
        if not free.any():
            break
        chunks = np.full(len(one), float(n))
        can = free & way.runs(job, p[one], m[one], chunks)
        can &= framework.schedules(job, replace(alone, interleave=chunks), way)
        free &= ~can
        found[k][one] |= can & (v[one] == n)
    return [mask[number] for mask in found]


class Legal(NamedTuple):
    """Where rows can run, option by option."""

    splits: list[Mask]
    """Under each setting of sequence parallelism."""
    orders: list[Mask]
    """With each schedule."""
    shardings: list[Mask]
    """With each ZeRO stage: where its groups are, and it stands for others that are the same."""
    barred: Mask | None
    """(1, recompute, schedule, zero, row) combinations that cannot run; None: nowhere."""

    @classmethod
    def of(
        cls,
        job: Job,
        table: Table,
        choice: Options,
        ways: Sequence[Layout],
        far: Layout | None = None,
        any_number: bool = False,
    ) -> Legal:
        """ways: the rows under each setting of sequence parallelism, placed or not;  far: the same
        with the most replicas, where they stand for intervals;
        any_number: as in `orders`.
        """
        near = ways[0]
        placed = bool(near.placement)
        # with one replica all stages are the same, and only the first counts: over one group,
        # if any is, since a space's values stand in order
        alone: Any = (near.replicas == 1) & (not whole_program(job))
        groups = (
            choice.sharded(near)
            if far is None
            else [sharding.may_run(far) for sharding in choice.zero]
        )
        return cls(
            [
                split(job, table, way.sequence_parallel, choice)
                & framework.rows(job, way, far is None, placed)
                for way in ways
            ],
            orders(job, choice, near, any_number),
            [
                np.asarray(has) & (~alone | (z == 0))
                for z, has in enumerate(groups)
            ],
            framework.barred(job, near, choice, far is None, placed),
        )

    def options(self, choice: Options) -> Column:
        """How many of the options each row can run with."""
        orders, stages = np.array(self.orders), np.array(self.shardings)
        each = len(choice.recompute) * orders.sum(0) * stages.sum(0)
        if self.barred is not None:
            points = orders[None, :, None] & stages & ~self.barred[0]
            each = points.sum(axis=(0, 1, 2))
        return np.asarray(each * np.sum(self.splits, axis=0))


def legal_options(
    job: Job, table: Table, choice: Options, shares: Shares | None = None
) -> Column:
    """How many of the options each row can run with, where it lies; shares None: anywhere."""
    sizes, settings = job.cluster.sizes, choice.sequence_parallel
    ways = each_way(table, shares or {}, sizes, choice.fixed, settings)
    return Legal.of(job, table, choice, ways).options(choice)
