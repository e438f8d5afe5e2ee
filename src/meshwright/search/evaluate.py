"""Rows of a table, placed and evaluated; and brute force, which does that to every row of the
space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..describe.job import Job
from ..step import clock, oom
from .degrees import all_rows, most_replicas
from .legal import legal_options
from .merit import weigh
from .options import options
from .placement import placements
from .points import Rows, points
from .space import Space
from .state import SearchState
from .table import BLOCK, Grid, Table, keep, length, pick

FEW = 64
"""Rows that are not worth a bound: a family often has no more, and a plan takes 1.1 to 1.5 times as
long if these are bounded too (70B on 1,024 chips .14 -> .19 CPU seconds, 8B on 64 .13 -> .20)."""


Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done."""


def brute(
    job: Job,
    space: Space,
    k: int = 10,
    **limits: Any,
) -> SearchState:
    """Every grid point of the space, evaluated: the oracle of the cascade, exact counts, heat
    maps.
    """
    state = SearchState(job, space, k, **(ranking(job) | limits))
    for table in all_rows(job, space):
        evaluate(state, table, count=True)
    return state


def ranking(job: Job) -> dict[str, Any]:
    """What a `SearchState` ranks of a job's layouts, and by what."""
    return {"capacity": oom.limit(job), "weigh": weigh(job)}


def evaluate(
    state: SearchState,
    table: Table,
    bounds: Grid | None = None,
    count: bool = False,
) -> None:
    """Place the rows and ask for their seconds and bytes; unless everything is counted, only under
    options whose bound allows it. bounds: what no row undercuts under each combination of options.
    """
    job = state.job
    for start in range(0, length(table), BLOCK):
        rows = pick(table, slice(start, start + BLOCK))
        placed, shares = placements(job, rows, state.space)
        for begin in range(0, length(placed), BLOCK):
            some = slice(begin, begin + BLOCK)
            alive = None if bounds is None else bounds <= state.highest
            mine = pick(placed, some)
            where = pick(shares, some)
            limit = np.inf if count else state.limit
            rows = Rows(mine, shares=where)
            every = points(
                job,
                clock(job),
                rows,
                choice=state.choice,
                alive=alive,
                limit=limit,
            )
            state.add([*every], mine, where)
            if count:
                state.searched = state.feasible + state.too_big


def has_legal_row(job: Job, space: Space) -> bool:
    """Whether some layout of the space is legal; of a relaxed one, whether one with the most
    replicas is: where it holds, nothing is bounded or timed.
    """
    choice = options(job, space)
    for table in most_replicas(job, space):
        rows = keep(table, legal_options(job, table, choice) > 0)
        for start in range(0, length(rows), FEW):
            some = pick(rows, slice(start, start + FEW))
            placed, shares = placements(job, some, space)
            if legal_options(job, placed, choice, shares).any():
                return True
    return False
