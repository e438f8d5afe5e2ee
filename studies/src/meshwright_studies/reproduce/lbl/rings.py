"""Collectives with two defects of the public code of Subramanian et al. 2024, to account for the
numbers that it printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.collectives.ring import Ring, latency
from meshwright.cost.floors import any_hop, any_links
from meshwright.cost.hop import link, point_to_point
from meshwright.cost.links import Group, Links, crossings, group_ranks
from meshwright.cost.load import Busy, Load
from meshwright.num import Num, largest, maximum, product, where


@dataclass(frozen=True)
class DefectiveRing(Ring):
    """Rings, with either defect or both."""

    halved: bool = False
    """An all-reduce moves twice the bytes only if a group has several ranks in several domains."""
    free_hops: bool = False
    """Hops that leave the domain take no time if some stay inside."""
    nearest_is_best = False
    """A farther pipeline is the faster one."""

    def all_reduce(self, net: Links, V: Num, group: Group) -> Load:
        """The factor 2 only across domains."""
        if not self.halved:
            return super().all_reduce(net, V, group)
        n, sends = group_ranks(V, group)
        times = where((group[0] > 1) & (n > group[0]), 2.0, 1.0)
        crossed = crossings(net, V, group)
        hops = latency(net.latencies, group)
        seconds = largest(crossed) * (n - 1) / n * times + hops
        busy = Busy(each * (n - 1) / n * times for each in crossed)
        return Load(where(sends, seconds, 0.0), where(sends, hops, 0.0), busy)

    def hop(self, net: Links, V: Num, group: Group) -> Load:
        """The mean over all links, of which those beyond the first dimension in use are free."""
        if not self.free_hops:
            return super().hop(net, V, group)
        p = product(group)
        mean: Num = 0.0
        inside: Num = 1.0
        busy: list[Num] = []
        for i, g in enumerate(group):
            links = p / inside - p / (inside * g)
            mean = mean + where(
                inside > 1, 0.0, links * point_to_point(net, V, i)
            )
            busy.append(where((inside == 1) & (g > 1), V / link(net, i), 0.0))
            inside = inside * g
        return Load(
            where(p > 1, mean / maximum(p - 1, 1), 0.0), 0.0 * p, Busy(busy)
        )

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """Half of what an all-reduce has to carry."""
        return any_links(
            net, "all_gather" if kind == "all_reduce" else kind, V, group
        )

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """Nothing."""
        return any_hop(net, 0.0 * V, group)
