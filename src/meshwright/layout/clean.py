"""Clean numbers near those asked for: chips that a batch and a network divide evenly, and batches
that the chips do.

A strict layout has tp cp pp dp = chips, with dp a divisor of the batch: what chips and batch have
in common bounds dp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..describe.job import Job
from ..describe.slices import axes
from ..num import divisors

LEAST_CHIPS = 0.5
"""Fewer chips than this share of those asked for are not tried."""
BATCHES = 0.125
"""Batches that differ by up to this share are near."""
FREE = 4
"""Chips and batch do not bind dp if they have this many times the best layout's dp in common."""


def dp_is_bound(job: Job, dp: float | None) -> bool:
    """A layout with so many replicas has nearly the most that divide chips and batch, or its other
    axes must take a share of the chips that is no power of two, or there is none (None): others may
    do better.
    """
    common = math.gcd(job.cluster.chips, job.batch)
    odd = math.log2(job.cluster.chips // common) % 1 > 0
    return dp is None or odd or FREE * dp > common


def fewer_chips(job: Job) -> list[Job]:
    """The job on fewer chips, or on all spread anew, that fill whole units of its network and have
    twice as much in common with the batch (all of it where its own do not fill them), most first.

    Whole units: all of the nearest switch, or of its ports a power of two (64 of 72), or where more
    chips run so as many in each of the units that the job's take (6 of 8 in each of 2 nodes for 12
    chips). Of each divisor of the batch the largest multiple.
    """
    network = job.cluster.network
    N = job.cluster.chips
    if axes(network):  # another slice of a torus is another network
        return []
    near = network.dims[0]
    first = job.cluster.sizes[0]
    power = 2 ** math.floor(math.log2(first))
    found = dict.fromkeys(_multiples(job, first, N), first)
    if near.kind == "switch" and near.size == first > power:
        most = power * math.ceil(N / first)
        found = dict.fromkeys(_multiples(job, power, most), power) | found
    if near.kind == "switch":
        # a mesh stays whole: its links to chips that are idle would be lost
        units = math.ceil(N / first)
        whole = N // first * first
        found |= {
            n: n // units for n in _multiples(job, units, N) if n > whole
        }
    ways = (
        (n, even_members(job, n, ports))
        for n, ports in sorted(found.items(), reverse=True)
    )
    return [on_chips(job, n, *sizes) for n, sizes in ways if sizes]


def _multiples(job: Job, step: int, most: int) -> set[int]:
    """Multiples of `step` chips (the ports of a unit, or one in each unit), up to `most`, that have
    twice as much in common with the batch as the job's, if these fill the network.
    """
    N = job.cluster.chips
    part, _ = unfilled_unit(job)
    common = 0 if part else math.gcd(N, job.batch)
    sizes = zip(job.cluster.network.dims, job.cluster.sizes, strict=False)
    _, *far = sizes
    rings = [n for dim, n in far if dim.kind != "switch"]
    unit = step * math.prod(rings)
    steps = [math.lcm(d, unit) for d in divisors(job.batch) if d <= most]
    found = {most // step * step for step in steps}
    return {
        n
        for n in found
        if LEAST_CHIPS * N <= n <= N
        and math.gcd(n, job.batch) >= max(2 * common, 1)
    }


def even_members(job: Job, chips: int, ports: int) -> tuple[int, ...]:
    """Members of each dimension but the last with which so many chips fill the job's network
    evenly (124 nodes are 4 leaves of 31), on no more of its units than it has; (): none.
    """
    left = chips // ports
    sizes = [ports]
    dims = job.cluster.network.dims
    for place, dim in enumerate(dims[1:-1], 1):
        units = math.prod(job.cluster.sizes[place + 1 :])
        most = min(dim.size or left, left)
        least = 1 if dim.kind == "switch" else most
        even = range(most, max(least, -(-left // units)) - 1, -1)
        size = next((m for m in even if left % m == 0), 0)
        if not size:
            return ()
        sizes.append(size)
        left //= size
    return tuple(sizes)


def on_chips(job: Job, chips: int, *sizes: int) -> Job:
    """The job on so many chips; sizes: of the nearest dimensions only so many ports are used."""
    network = job.cluster.network
    near = zip(network.dims, sizes, strict=False)
    dims = tuple(
        replace(dim, size=size) if dim.size and size < dim.size else dim
        for dim, size in near
    )
    network = replace(network, dims=(*dims, *network.dims[len(dims) :]))
    return replace(
        job,
        cluster=replace(job.cluster, chips=chips, network=network, name=""),
    )


def batches(job: Job) -> Iterator[int]:
    """Batches near the job's that have at least twice as much in common with its chips, the most
    first.
    """
    N = job.cluster.chips
    B = job.batch
    seen = {job.batch}
    for d in sorted(divisors(N), reverse=True):
        near = max(round(B / d), 1) * d
        if (
            d >= 2 * math.gcd(N, B)
            and near not in seen
            and abs(near - B) <= BATCHES * B
        ):
            seen.add(near)
            yield near


def whole_units(job: Job) -> Job:
    """The job on the most of its chips that fill whole units of its network."""
    unit, _ = unfilled_unit(job)
    return next(iter(fewer_chips(job)), job) if unit else job


def unfilled_unit(job: Job) -> tuple[int, str]:
    """(chips, name) of the smallest unit of the network of which the job's chips leave one partly
    used; (0, ""): they fill all.
    """
    near = zip(job.cluster.network.dims[:-1], job.cluster.sizes, strict=False)
    unit = 1
    for dim, size in near:
        unit *= size
        if job.cluster.chips % unit:
            return unit, dim.name
    return 0, ""
