"""Double binary trees (NCCL), for an all-reduce: a chain inside each unit of the nearest dimension,
a binary tree of units beyond it, up and down again.

    2 [ (g_0 - 1) a_0 + sum_i ceil(log2 g_i) a_i ] + 2 V in the slowest dimension

Letters as in `links`. Source: NCCL, tuning of the tree algorithm.
"""

from __future__ import annotations

from ..num import Num, ceil, largest, log2, where
from .links import Group, Links, crossings, group_ranks
from .load import Busy, Load


def all_reduce(net: Links, V: Num, group: Group, chains: bool = True) -> Load:
    """chains: count the hops along the nearest dimension; without them a nearer group is never
    slower.
    """
    _, sends = group_ranks(V, group)
    steps = net.latencies[0] * (group[0] - 1) if chains else 0.0 * group[0]
    for g, latency in zip(group[1:], net.latencies[1:], strict=True):
        steps = steps + latency * ceil(log2(g))
    crossed = crossings(net, V, group)
    hops = where(sends, 2 * steps, 0.0)
    seconds = where(sends, hops + 2 * largest(crossed), 0.0)
    return Load(seconds, hops, Busy(crossed) * 2)
