"""Clean numbers near those asked for: chips that a batch and a network divide evenly, and batches that the chips do.

A strict layout has tp cp pp dp = chips, with dp a divisor of the batch: what chips and batch have in common bounds dp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..num import divisors
from ..spec.job import Job
from ..spec.slices import axes
from .best import Best
from .cascade import search
from .space import Space

LEAST_CHIPS = 0.5
"""Fewer chips than this share of those asked for are not tried."""
FASTER = 1.01
"""Idle chips must make the step faster than all chips do by this factor."""
BATCHES = 0.125
"""Batches that differ by up to this share are near."""
TRIED = 4
"""Batches tried."""
WORTH_SAYING = 1.05
"""A batch is named that trains this many times the tokens a second."""


def fewer_chips(job: Job) -> list[int]:
    """Numbers of chips below the job's that fill whole units of its network and have more in common with the batch.

    The largest multiple of each divisor of the batch, largest first.
    """
    if axes(job.cluster.network):  # another slice of a torus is another network
        return []
    N, B, units = job.cluster.chips, job.batch, [1]
    for dim in job.cluster.network.dims[:-1]:
        units.append(units[-1] * (dim.size or 1))
    unit = max((u for u in units if u <= N), default=1)
    steps = [math.lcm(d, unit) for d in divisors(B) if d <= N]
    found = {N // step * step for step in steps if step <= N}
    common = math.gcd(N, B)
    clean = [n for n in found if LEAST_CHIPS * N <= n < N]
    return sorted((n for n in clean if math.gcd(n, B) > common or N % unit), reverse=True)


def on(job: Job, chips: int) -> Job:
    """The job on so many of its chips."""
    return replace(job, cluster=replace(job.cluster, chips=chips, name=""))


def on_fewer(job: Job, space: Space, k: int, best: Best) -> tuple[int, Best]:
    """(chips, layouts): of strict layouts on all chips (`best`) and on cleaner numbers of them, the fastest."""
    used, within = job.cluster.chips, best.rows[0][0] / FASTER if best.rows else np.inf
    for chips in fewer_chips(job):
        if rows := search(on(job, chips), space, 1, within=within).rows:
            used, within = chips, rows[0][0]
    return used, best if used == job.cluster.chips else search(on(job, used), space, k)


def why_fewer(job: Job, used: int, seconds: float, all_chips: Best) -> str:
    """The sentence for an answer that leaves chips idle."""
    N = job.cluster.chips
    head = f"{used:,} of {N:,} chips: "
    more = "; --relaxed also looks at batches cut unevenly"
    if not all_chips.rows:
        return f"{head}no layout that fits uses all {N:,} with a batch of {job.batch:,} sequences cut evenly{more}"
    times = all_chips.rows[0][0] / seconds
    return f"{head}the fastest layout that uses all {N:,} evenly takes {times:.3g} times as long{more}"


def batches(job: Job) -> Iterator[int]:
    """Batches near the job's that have at least twice as much in common with its chips, the most first."""
    N, B, seen = job.cluster.chips, job.batch, {job.batch}
    for d in sorted(divisors(N), reverse=True):
        near = max(round(B / d), 1) * d
        if d >= 2 * math.gcd(N, B) and near not in seen and abs(near - B) <= BATCHES * B:
            seen.add(near)
            yield near


def better_batch(job: Job, space: Space, seconds: float) -> str | None:
    """A batch near the job's that would train far more tokens a second than one step in `seconds`, as a sentence."""
    best: tuple[float, int, float] | None = None
    for batch, _ in zip(batches(job), range(TRIED), strict=False):
        within = seconds * batch / job.batch / (best[0] if best else WORTH_SAYING)
        if rows := search(replace(job, batch=batch), space, 1, within=within).rows:
            best = seconds / rows[0][0] * batch / job.batch, batch, rows[0][0]
    if not best:
        return None
    times, batch, took = best
    return (
        f"a batch of {batch:,} sequences ({batch / job.batch - 1:+.1%}) would train {times:.3g} times as many tokens a "
        f"second ({took:.3g} s a step): {job.batch:,} and {job.cluster.chips:,} chips have only "
        f"{math.gcd(job.batch, job.cluster.chips):,} in common, which bounds dp"
    )
