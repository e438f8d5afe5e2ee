"""Messages between neighbouring stages of a pipeline, and to experts: what one costs, and which
dimension it crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..num import Num, maximum, minimum, product, where
from . import measured
from .links import Group, Links
from .load import Busy, Load

Shares = tuple[Num, ...]
"""Of messages that stay on the chip (first) and that cross dimension 0, 1, ...; they add up to
one.
"""


def point_to_point(net: Links, V: Num, dim: int) -> Num:
    """One message of V bytes to a neighbour in dimension `dim`: latency + V / W; over one link of a
    mesh.
    """
    table = (
        net.dims[dim].collectives.get("send")
        if net.how.collective == "measured"
        else None
    )
    seconds = (
        measured.table_seconds(table, (2.0, V))
        if table
        else net.latencies[dim] + V / link(net, dim)
    )
    return where(V > 0, seconds, 0.0)


def link(net: Links, dim: int) -> Num:
    """Bytes per second to one other chip in dimension `dim`: of the link, or of the one channel of
    NCCL that it is sent by.
    """
    rate = net.reach((2.0,) * len(net.rates))[dim]
    channel = net.transports[dim].channel
    if channel is None or net.how.send_channels != "one":
        return rate
    return minimum(rate, channel)


def pipeline_hop(net: Links, V: Num, group: Group) -> Load:
    """One hop of V bytes between pipeline stages; `group` is the pp axis.

    "mean": weighted by how many boundaries cross each dimension (Subramanian et al. 2024); else
    over the farthest dimension in use. Either way some rank sends over that one.
    """
    p = product(group)
    farthest: Num = 0.0
    mean: Num = 0.0
    start: Num = 0.0
    busy: list[Num] = []
    for i, (g, links) in enumerate(zip(group, boundaries(group), strict=True)):
        here = point_to_point(net, V, i)
        farthest = where(g > 1, here, farthest)
        start = where(g > 1, net.latencies[i], start)
        mean = mean + links * here
        beyond = product(group[i + 1 :])
        busy.append(where((g > 1) & (beyond == 1), V / link(net, i), 0.0))
    seconds = where(
        p > 1,
        # one rank has no hops: the branch below is taken, and this one must not divide by 0
        mean / maximum(p - 1, 1) if net.how.hop == "mean" else farthest,
        0.0,
    )
    return Load(seconds, where(p > 1, start, 0.0), Busy(busy))


def boundaries(group: Group, chunks: Num = 1.0) -> Shares:
    """How many of the p v - 1 boundaries between stages cross each dimension.

    group: p ranks over the dimensions, consecutive stages nearest;  chunks: v of a device, dealt
    out in rounds. Inside the farthest dimension in use v g_{i+1} g_{i+2} ... (g_i - 1) cross
    dimension i; the v - 1 ways back to the first device cross the farthest.
    """
    crossed: list[Num] = []
    for i, g in enumerate(group):
        above = product(group[i + 1 :])
        back = where((g > 1) & (above == 1), chunks - 1.0, 0.0)
        crossed.append(chunks * above * (g - 1) + back)
    return tuple(crossed)


def next_stage(group: Group, chunks: Num, steps: Num) -> Shares:
    """Shares of `steps` steps along the layers of a pipeline: L - 1 of a model of L layers."""
    p = product(group)
    stays = where(p > 1, (steps + 1 - chunks * p) / steps, 1.0)
    return (stays, *(crossed / steps for crossed in boundaries(group, chunks)))


def any_rank(group: Group) -> Shares:
    """Chances of a rank drawn from the group, seen from another: (g_i - 1)/(g_i g_{i+1} ...) for
    dimension i.
    """
    return (
        1.0 / product(group),
        *((g - 1) / product(group[i:]) for i, g in enumerate(group)),
    )


def farthest(group: Group) -> Shares:
    """Shares of `any_rank` if somebody always sits at the far end: 1 for the farthest dimension the
    group spans.
    """
    beyond = [
        where(product(group[i:]) > 1, 1.0, 0.0) for i in range(len(group))
    ]
    return (1 - beyond[0], *(a - b for a, b in pairwise([*beyond, 0.0])))


def farther(a: Sequence[Num], b: Sequence[Num]) -> Shares:
    """The farther of two independent ways to go: P(max = i) = A_i B_i - A_{i-1} B_{i-1}, sums A and
    B.
    """
    shares: list[Num] = []
    below: Num = 0.0
    sum_a: Num = 0.0
    sum_b: Num = 0.0
    for x, y in zip(a, b, strict=True):
        sum_a = sum_a + x
        sum_b = sum_b + y
        shares.append(sum_a * sum_b - below)
        below = sum_a * sum_b
    return tuple(shares)


def charged_share(shares: Sequence[Num], group: Group, hop: str) -> Shares:
    """What messages pay: as they cross ("each", "mean"), or, of what leaves the chip, the farthest
    that `group` spans ("slowest").
    """
    if hop != "slowest":
        return tuple(shares)
    leaves = sum(shares[1:])
    return (shares[0], *(leaves * far for far in farthest(group)[1:]))


def mean(hops: Sequence[Load], shares: Sequence[Num]) -> Load:
    """A message on average: hops[i] is what one over dimension i costs."""
    return sum(
        (hop * share for hop, share in zip(hops, shares[1:], strict=True)),
        Load(),
    )
