"""A plan on cleaner numbers than those asked for (`layout.clean`): on fewer chips where that is as
fast, and which batch would train more tokens a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ..describe.job import Job
from ..layout.clean import (
    batches,
    dp_is_bound,
    fewer_chips,
    is_starved,
    powers_of_two,
)
from ..prediction.certainty import resolution
from .evaluate import Progress
from .merit import seconds_of
from .ranked import best_within
from .space import Space
from .state import RankedRow

TRIED = 4
"""Batches tried."""
WORTH_SAYING = 1.05
"""A batch is named that trains this many times the tokens a second."""


def on_fewer(
    job: Job,
    spaces: Sequence[Space],
    best: RankedRow | None,
    progress: Progress | None,
) -> Job:
    """The job on all its chips (`best`: the best layout there) or on a cleaner number of them: the
    fewest that are as fast as any, as far as the model can tell. Where more chips only lengthen a
    bubble, powers of two that are faster count too.
    """
    tie = 1.0 + resolution(job)
    rows = [(best, job)] if best else []

    def fastest() -> RankedRow:
        return min((row for row, _ in rows), key=lambda row: row.merit)

    def search_on(fewer: Iterable[Job], tie: float) -> None:
        for on_chips in fewer:
            within = fastest().merit * tie if rows else np.inf
            if one := best_within(on_chips, spaces, within, progress):
                rows.append((one.row, on_chips))

    if dp_is_bound(job, best and best.degree("dp")):
        search_on(fewer_chips(job), tie)
    if rows and is_starved(
        job, *map(fastest().degree, ("dp", "pp", "microbatch"))
    ):
        search_on(powers_of_two(job), 1.0)
    fast = (used for row, used in rows if row.merit <= fastest().merit * tie)
    return min(fast, key=lambda used: used.cluster.chips, default=job)


def why_fewer(
    job: Job, used: Job, best: RankedRow, best_on_all: RankedRow | None
) -> str:
    """The sentence for an answer that leaves chips idle; "": none are."""
    N = job.cluster.chips
    if used.cluster.chips == N:
        return ""
    idle = N - used.cluster.chips
    verb = "is" if idle == 1 else "are"
    head = f"{idle:,} of {N:,} chips {verb} idle: "
    more = "; --relaxed also tries uneven batches"
    if not best_on_all:
        return (
            f"{head}no usual layout that fits uses all {N:,} and divides a batch of {job.batch:,}"
            f" sequences evenly{more}"
        )
    times = best_on_all.merit / best.merit
    slower = (
        "is no faster, as far as the model can tell"
        if times <= 1.0 + resolution(job)
        else f"takes {times:.3g} times as long"
    )
    return (
        f"{head}the fastest layout that uses all {N:,} evenly {slower}{more}"
    )


def better_batch(
    job: Job,
    used: Job,
    spaces: Sequence[Space],
    best: RankedRow,
    progress: Progress | None,
) -> str | None:
    """A batch near the job's that would train far more tokens a second than the best layout, on the
    chips that it uses or on all, as a sentence.
    """
    merit = best.merit
    times, better, row = WORTH_SAYING, used, None
    bound = [used] if dp_is_bound(used, best.degree("dp")) else []
    for on_chips in bound if used is job else [*bound, job]:
        for batch, _ in zip(batches(on_chips), range(TRIED), strict=False):
            near = replace(on_chips, batch=batch)
            within = merit * batch / job.batch / times
            if one := best_within(near, spaces, within, progress):
                times = merit / one.merit * batch / job.batch
                better, row = near, one.row
    if not row:
        return None
    chips = better.cluster.chips
    on_these = f" on {chips:,} chips" if chips != used.cluster.chips else ""
    more = f"{100 * (better.batch / job.batch - 1):+.1f} %"
    return (
        f"a batch of {better.batch:,} sequences ({more}){on_these}"
        f" would train {times:.3g} times as many tokens a second ({seconds_of(better, row):.3g} s a"
        f" step): the greatest common divisor of {job.batch:,} and {chips:,} chips is"
        f" {math.gcd(chips, job.batch):,}, which limits dp"
    )
