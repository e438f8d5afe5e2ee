"""Several spaces searched as one: each within the limits of what was found in those before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..describe.job import Job
from .best import Best, reach
from .cascade import search
from .evaluate import Progress
from .nearby import Row
from .space import Space

Found = list[tuple[Space, Best]]


def several(
    job: Job,
    spaces: Sequence[Space],
    k: int,
    relaxed: bool,
    progress: Progress | None = None,
    slack: float = 0.0,
) -> Found:
    """The k best layouts of all spaces together, those that the first beats by no more than
    `slack`, and in any case the first of each space.
    """
    found: Found = []
    within = np.inf
    for space in spaces:
        found.append(
            (
                space,
                search(
                    job,
                    space,
                    k,
                    relaxed,
                    progress,
                    within=within,
                    slack=slack,
                    sure=True,
                ),
            )
        )
        merits = sorted(row[0] for _, best in found for row in best.rows)
        if len(merits) >= k:
            within = reach(merits[k - 1], merits[0], slack)
    return found


def first(found: Found) -> Row | None:
    """The best row of all."""
    return min((best.rows[0] for _, best in found if best.rows), default=None)


def quickest(
    spaces: Sequence[Space],
    job: Job,
    within: float = np.inf,
    relaxed: bool = False,
) -> Row | None:
    """The best row of all spaces whose merit is within a limit."""
    best: Row | None = None
    for space in spaces:
        rows = search(
            job,
            space,
            1,
            relaxed,
            within=within,
        ).rows
        if rows and (best is None or rows[0] < best):
            best = rows[0]
            within = min(within, rows[0][0])
    return best
