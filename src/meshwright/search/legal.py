"""Which rows of a table can run, and with how many options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.schemes import always_cut
from ..program.resident import whole_program
from . import framework
from .degrees import splits
from .kinds import runs, some_schedule
from .nearest import each_way, layouts
from .options import Options
from .split import NONE
from .table import Column, Table, length

Mask = NDArray[np.bool_]


def split(
    job: Job,
    table: Table,
    sp: bool,
    choice: Options,
    scheme: str,
) -> Any:
    """Where this setting of sequence parallelism can run; at tp = 1 it changes nothing and counts
    as on, if the space has both.
    """
    tp = table["tp"]
    fine = splits(job, table, scheme, sp)
    if sp:
        return fine
    useful = (tp > 1) | (True not in choice.sequence_parallel)
    return fine & useful & ((tp == 1) | (not always_cut(job.model, scheme)))


def possible(
    job: Job,
    table: Table,
    choice: Options,
    scheme: str,
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
        scheme,
        choice.sequence_parallel,
    )
    for way in ways:
        splits_so = split(
            job,
            table,
            way.sequence_parallel,
            choice,
            scheme,
        )
        fine |= splits_so & framework.rows(job, way, False, False)
    scheduled = some_schedule(job, ways[0], choice)
    return np.asarray(fine & ((table["pp"] == 1) | scheduled))


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
        scheme: str,
        ways: Sequence[Layout],
        far: Layout | None = None,
    ) -> Legal:
        """ways: the rows under each setting of sequence parallelism, placed or not;  far: the same
        with the most replicas, where they stand for intervals.
        """
        near = ways[0]
        placed = bool(near.placement)
        # with one replica all of a side are the same, and only its first counts
        alone: Any = (near.replicas == 1) & (not whole_program(job))
        groups = (
            choice.sharded(near)
            if far is None
            else [sharding.may_run(far) for sharding in choice.zero]
        )
        parts = choice.parts(near.tp, near.pp)
        return cls(
            [
                split(job, table, way.sequence_parallel, choice, scheme)
                & framework.rows(job, way, far is None, placed)
                for way in ways
            ],
            runs(job, choice, near),
            [
                (~alone | leads) & (part != NONE) & np.asarray(has)
                for leads, part, has in zip(
                    choice.leads, parts, groups, strict=True
                )
            ],
            framework.barred(job, near, choice),
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
    job: Job, table: Table, choice: Options, scheme: str
) -> Column:
    """How many of the options each row can run with, wherever it lies."""
    sizes, settings = job.cluster.sizes, choice.sequence_parallel
    ways = [layouts(table, {}, sizes, scheme, sp) for sp in settings]
    return Legal.of(job, table, choice, scheme, ways).options(choice)
