"""A table as one layout of columns, placed or with every group nearest, and what a layer costs in
each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..count.microbatch import accumulates
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.placement import Nearest, Shares
from ..num import SCALARS
from .options import Options
from .space import DEGREES
from .table import Table, distinct, pick


def layouts(
    job: Job, options: Options, table: Table, shares: Shares | None = None
) -> list[Layout]:
    """The table as a layout of columns, once for each setting of sequence parallelism, which moves
    no rank. shares: of each axis in each dimension of the network; None: every group nearest, as if
    it had the network to itself.
    """
    fields: dict[str, Any] = {k: table[k] for k in DEGREES}
    fields |= options.common_fields
    if shares is None:
        rows: Layout = Nearest(**fields, sizes=job.cluster.sizes)
    else:
        rows = Layout(**fields, placement=shares)
    return [rows.under(sp) for sp in options.sequence_parallel]


def model_costs(
    job: Job,
    variants: Sequence[Layout],
    clock: Clock,
    modes: Sequence[str] = ("none",),
) -> tuple[list[step.ModelCost], NDArray[np.intp]]:
    """(costs of the model in each distinct row, one `ModelCost` for each variant; number of the
    distinct row that each row of the table is). Rows are alike where all that a layer's cost
    depends on is: degrees that cut it, microbatch, placement and what that leaves of the links,
    and whether several microbatches add up their gradients.

    variants: the same table, sequence parallel or not;  modes: of recomputation whose costs
    are kept too.
    """
    first = variants[0]
    axes = ("tp", "cp", "ep", "etp") if job.model.moe else ("tp", "cp")
    several = np.asarray(accumulates(first, job.batch), dtype=np.float64)
    groups = [share for axis in axes for share in first.group(axis)]
    rates = clock.links(first).rates
    columns = [rate for rate in rates if not isinstance(rate, SCALARS)]
    index, number = distinct(
        [first.microbatch, first.panels, several, *columns, *groups]
    )
    one: Layout = pick(first, index)
    every = [one.under(rows.sequence_parallel) for rows in variants]
    costs = [
        step.model_cost(job, layout, clock, modes=modes) for layout in every
    ]
    return costs, number
