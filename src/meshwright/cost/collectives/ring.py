"""One ring through all ranks of a group (NCCL).

    all-gather, reduce-scatter   (n-1)/n V / (S_i W_i) in the slowest dimension, and n - 1 hops
    all-reduce                   a reduce-scatter and an all-gather
    broadcast, reduce            the whole vector passes every link
    all-to-all                   V S_i (g_i - 1)/n cross dimension i, one after the other;
                                 all messages start at once

Letters as in `links`. Every rank passes (n-1)/n V on; n/S_i hops leave units of level i. Sources:
NCCL tests, PERFORMANCE.md; Subramanian et al. 2024, arXiv 2410.00273, eq. 2-3 (two dimensions); How
To Scale Your Model, part 12 (levels).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...num import Num, largest, maximum, where
from ..floors import any_hop, any_links
from ..hop import pipeline_hop
from ..links import Group, Links, NamedAlgorithm, crossings, group_ranks
from ..load import Busy, Load


class Ring(NamedAlgorithm):
    """Rings for everything but the all-to-all, whose messages go directly."""

    title = "one ring through all ranks"
    source = "NCCL; Subramanian et al. 2024, arXiv 2410.00273, eq. 2-3"
    laws: tuple[str, ...] = (
        "cost.collectives.ring:around",
        "cost.collectives.ring:latency",
        "cost.collectives.ring:passed_on",
        "cost.collectives.ring:ring_exchange",
    )

    nearest_is_best = True
    """On links of which the nearer are the faster, no group is faster than one that lies as near as
    can be.
    """

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The cost of one collective over V bytes."""
        if kind == "all_reduce":
            return self.all_reduce(net, V, group)
        if kind == "all_to_all":
            return self.all_to_all(net, V, group)
        return (
            self.gather(net, V, group)
            if kind in ("all_gather", "reduce_scatter")
            else passed_on(net, V, group)
        )

    def hop(self, net: Links, V: Num, group: Group) -> Load:
        """One message of V bytes to the next stage."""
        return pipeline_hop(net, V, group)

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The nearest group's, or what the links of a chip can carry at all."""
        if self.nearest_is_best and net.nearer_is_faster:
            return self.load(net, kind, V, group)
        return any_links(net, kind, V, group)

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """The nearest pipeline's, or the fastest link's."""
        if self.nearest_is_best and net.nearer_is_faster:
            return self.hop(net, V, group)
        return any_hop(net, V, group)

    def gather(self, net: Links, V: Num, group: Group) -> Load:
        """A gather: all-gather or reduce-scatter."""
        return around(net, V, group)

    def all_reduce(self, net: Links, V: Num, group: Group) -> Load:
        """Reduce-scatter, then all-gather."""
        return self.gather(net, V, group) * 2

    def all_to_all(self, net: Links, V: Num, group: Group) -> Load:
        """Every rank sends V/n to each other one."""
        return ring_exchange(net, V, group)


def around(net: Links, V: Num, group: Group) -> Load:
    """(n-1)/n of the vector past every rank, n - 1 hops one after the other."""
    n, sends = group_ranks(V, group)
    crossed = crossings(net, V, group)
    hops = where(sends, latency(net.latencies, group), 0.0)
    seconds = where(sends, largest(crossed) * (n - 1) / n + hops, 0.0)
    return Load(
        seconds, hops, Busy([seconds * (n - 1) / n for seconds in crossed])
    )


def latency(hops: Sequence[float], group: Group) -> Num:
    """Seconds of n - 1 steps round a ring, each over a hop of its dimension: of the n hops n/S_i
    leave a unit of level i; the last one is not needed.
    """
    total: Num = 0.0
    above: Num = 1.0
    for g, hop in zip(reversed(group), reversed(hops), strict=True):
        total = total + hop * (above * g - above)
        above = above * g
    return total


def passed_on(net: Links, V: Num, group: Group) -> Load:
    """Broadcast or reduce, pipelined along the ring: the whole vector passes every link."""
    _, sends = group_ranks(V, group)
    crossed = crossings(net, V, group)
    hops = where(sends, latency(net.latencies, group), 0.0)
    return Load(
        where(sends, largest(crossed) + hops, 0.0), hops, Busy(crossed)
    )


def ring_exchange(net: Links, V: Num, group: Group) -> Load:
    """Exchange, all-to-all: V S_i (g_i - 1)/n of what a rank sends crosses dimension i, at W_i; all
    messages start at once.

    Dimensions are taken one after the other, so that more ranks nearby never cost time.
    """
    n, sends = group_ranks(V, group)
    crossed: list[Num] = []
    total: Num = 0.0
    start: Num = 0.0
    inside: Num = 1.0
    for g, rate, hop in zip(
        group, net.reach(group), net.latencies, strict=True
    ):
        crossed.append(V * inside * (g - 1) / n / rate)
        total = total + crossed[-1]
        start = maximum(start, where(g > 1, hop, 0.0))
        inside = inside * g
    start = where(sends, start, 0.0)
    return Load(where(sends, total + start, 0.0), start, Busy(crossed))


RING = Ring()
