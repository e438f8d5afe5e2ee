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
    axes must take a share of the chips that is no power of two, or there is none (None), or the
    chips fill no whole units: others may do better.
    """
    common = math.gcd(job.cluster.chips, job.batch)
    odd = is_odd(job.cluster.chips, job.batch)
    return dp is None or odd or FREE * dp > common or unfilled(job)


def is_starved(job: Job, dp: float, pp: float, microbatch: float) -> bool:
    """A pipeline has fewer microbatches than stages: its bubble is longer than its work, and fewer
    chips, each with more to do, may take less time.
    """
    return dp * pp * microbatch > job.batch


def powers_of_two(job: Job) -> list[Job]:
    """The job on fewer chips, down to an eighth, that are a power of two and fill its network
    evenly, most first; of a torus, whose slices are other networks, none.
    """
    N = job.cluster.chips
    most = 0 if axes(job.cluster.network) else (N - 1).bit_length()
    powers = [2**k for k in reversed(range(most)) if 8 * 2**k >= N]
    spreads = ((n, even_members(job, n)) for n in powers)
    return [on_chips(job, n, *spread) for n, spread in spreads if spread]


def is_odd(chips: int, batch: int) -> bool:
    """What the batch leaves of the chips to axes other than dp is no power of two."""
    return math.log2(chips // math.gcd(chips, batch)) % 1 > 0


def fewer_chips(job: Job) -> list[Job]:
    """The job on fewer chips, or on all spread anew, that have twice as much in common with the
    batch as its own (all of it where its own do not fill whole units of the network), or as much
    and leave other axes a power of two where its own do not, most first.

    Of each divisor of the batch the largest multiple, and the largest that fills units of the
    nearest dimension; and what chips and batch have in common, by a power of two.
    """
    network = job.cluster.network
    N = job.cluster.chips
    if axes(network):  # another slice of a torus is another network
        return []
    sizes = job.cluster.sizes
    # a mesh or ring stays whole: its links to chips that are idle would be lost
    bound = [i for i, dim in enumerate(network.dims) if dim.kind != "switch"]
    least = math.prod(sizes[: max(bound, default=-1) + 1])
    units = {least, max(least, sizes[0])}
    shared = math.gcd(N, job.batch)
    common = 0 if unfilled(job) else shared
    odd = is_odd(N, job.batch)
    steps = [math.lcm(d, unit) for d in divisors(job.batch) for unit in units]
    counts = {N // step * step for step in steps if step <= N}
    if (whole := math.lcm(shared, least)) <= N:
        counts.add(whole << ((N // whole).bit_length() - 1))
    fewer = []
    for n in sorted(counts, reverse=True):
        spread = even_members(job, n)
        evener = odd and not is_odd(n, job.batch)
        if (
            n >= LEAST_CHIPS * N
            and math.gcd(n, job.batch) >= common * (1 if evener else 2)
            and (spread or n < N)
        ):
            fewer.append(on_chips(job, n, *spread))
    return fewer


def even_members(job: Job, chips: int) -> tuple[int, ...]:
    """Members of each dimension but the last with which so many chips fill the job's network
    evenly (124 nodes are 4 leaves of 31), on no more of its units than it has; (): none.
    """
    ports = job.cluster.sizes[0]
    left, rest = divmod(chips, ports)
    if rest:
        return ()
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
    tried = {job.batch}
    for d in sorted(divisors(N), reverse=True):
        near = max(round(B / d), 1) * d
        if (
            d >= 2 * math.gcd(N, B)
            and near not in tried
            and abs(near - B) <= BATCHES * B
        ):
            tried.add(near)
            yield near


def unfilled(job: Job) -> bool:
    """The job's chips leave some unit of the network partly used."""
    return math.prod(job.cluster.sizes) != job.cluster.chips
