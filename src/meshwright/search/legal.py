"""Which rows of a table can run, and with how many options."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..layout.schemes import always_cut
from ..layout.stages import microbatches
from ..num import ceil_div
from ..program.resident import whole_program
from . import framework
from .degrees import splits
from .kinds import runs, some_schedule
from .nearest import each_way, layouts, pick
from .options import Options
from .split import NONE
from .table import Column, Index, Table, distinct, length

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
    index, number = _pipelines(table, np.asarray(microbatches(job, ways[0])))
    scheduled = some_schedule(job, pick(ways[0], index), choice)
    return np.asarray(fine & ((table["pp"] == 1) | scheduled[number]))


def _pipelines(table: Table, m: Column) -> tuple[Index, Index]:
    """(a row of each, its number for every row): what the rules of schedules look at."""
    return distinct([table["pp"], table["interleave"], m])


def legal_options(
    job: Job,
    table: Table,
    choice: Options,
    scheme: str,
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
    # with one replica all of a side are the same
    stages = np.where(alone, np.array(choice.leads)[:, None], True)
    stages = stages & (choice.parts(table["tp"], table["pp"]) != NONE)
    stages = stages & np.array(
        [
            np.broadcast_to(runs_so, alone.shape)
            for runs_so in choice.sharded(rows[0])
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
            split(
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
