"""Hierarchical collectives over a network of any depth, level by level.

A reduce-scatter first sums inside every unit of the nearest level, then between units of the next,
on what is left of the vector; an all-gather goes the other way. Levels work side by side (the
slowest one sets the bandwidth time) and wait for each other once (their latencies add up). Letters
as in `links`: g_i ranks of a group in dimension i, S_i = g_0 ... g_{i-1}. Source: Erdil &
Schneider-Joseph 2024, arXiv 2411.01137, section 4.2 and appendix.
"""

from __future__ import annotations

from ...num import Num, largest, where
from ..floors import any_links
from ..links import Group, Links, Rated, crossings, group_ranks
from ..load import Busy, Load
from .ring import Ring


def phase(
    fabric: Rated, V: Num, group: Group, whole: bool = False
) -> list[Num]:
    """Seconds in each dimension of a reduce-scatter or an all-gather of V bytes: (g_i - 1)/g_i
    V/(S_i W_i).

    whole: without the factor (g_i - 1)/g_i, the shorthand for large groups.
    """
    if whole:
        return crossings(fabric, V, group)
    seconds: list[Num] = []
    inside: Num = 1.0
    for g, rate in zip(group, fabric.reach(group), strict=True):
        seconds.append(V * (g - 1) / (g * inside * rate))
        inside = inside * g
    return seconds


def waits(fabric: Links, group: Group) -> Num:
    """Latency of one phase: one hop in each dimension the group spans."""
    total: Num = 0.0
    for g, latency in zip(group, fabric.latencies, strict=True):
        total = total + where(g > 1, latency, 0.0)
    return total


PHASES = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
"""Collectives that go level by level, and how often."""


class Levels(Ring):
    """Reduce-scatter, all-gather and all-reduce level by level; the rest as a ring."""

    title = "level by level, all levels at work at once"
    source = "Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.2"
    laws = (
        "cost.links:crossings",
        "cost.collectives.levels:phase",
        "cost.collectives.levels:waits",
    )

    def gather(self, net: Links, V: Num, group: Group) -> Load:
        """One phase: the busiest level, and one hop in each."""
        busy = phase(net, V, group)
        hops = where(V > 0, waits(net, group), 0.0)
        return Load(where(V > 0, largest(busy) + hops, 0.0), hops, Busy(busy))

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """Levels that work at once may beat the nearest alone: the links of a chip together, and
        one hop a phase.
        """
        if kind not in PHASES:
            return super().floor(net, kind, V, group)
        load = any_links(net, kind, V, group)
        (_, sends) = group_ranks(V, group)
        hops = where(sends, PHASES[kind] * min(net.latencies), 0.0)
        return Load(load.seconds + hops, hops, load.busy)


LEVELS = Levels()
