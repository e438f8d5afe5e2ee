"""Rows of a table, placed and evaluated; and brute force, which does that to every row of the
space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..describe.job import Job
from ..step import clock_of, oom
from .degrees import all_rows, most_replicas_in_blocks
from .legal import legal_options
from .merit import weigh
from .options import space_options
from .placement import placements
from .points import Rows, points
from .space import Space
from .state import Everything, SearchState
from .table import BLOCK, Grid, Table, length, pick

ROWS_WITHOUT_BOUND = 64
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
    state = Everything(job, space, k, **(criteria(job) | limits))
    for table in all_rows(job, space):
        evaluate(state, table)
    state.searched = state.feasible + state.too_big
    return state


def criteria(job: Job) -> dict[str, Any]:
    """What a `SearchState` asks of a job's layouts: how many bytes they may need, and
    what ranks them."""
    return {"capacity": oom.limit(job), "weigh": weigh(job)}


def evaluate(
    state: SearchState, table: Table, bounds: Grid | None = None
) -> None:
    """Place rows, ask for the seconds and bytes of each placement and add them to the search.

    table: rows that are not placed;  bounds: as in `points`.
    """
    job = state.job
    for start in range(0, length(table), BLOCK):
        bare = pick(table, slice(start, start + BLOCK))
        placed, shares = placements(job, bare, state.space)
        for begin in range(0, length(placed), BLOCK):
            block = slice(begin, begin + BLOCK)
            low, at = pick(placed, block), pick(shares, block)
            rows = Rows(low, shares=at)
            for each in points(state, rows, job, clock_of(job), bounds):
                state.add(each, low, at)


def has_legal_row(job: Job, space: Space) -> bool:
    """Whether some row of the space is legal in some placement, by rules alone: no step is bounded
    or timed. Of a relaxed space only rows with the most replicas are asked, so True is certain and
    False is not.
    """
    options = space_options(job, space)
    for table in most_replicas_in_blocks(job, space):
        placed, shares = placements(job, table, space)
        if legal_options(job, placed, options, shares).any():
            return True
    return False
