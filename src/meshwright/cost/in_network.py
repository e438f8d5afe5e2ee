"""Switches add up values themselves (NVLink SHARP), for an all-reduce: one message up and one down
in each dimension.

The bandwidth term is that of a ring over GAIN; possible only where every dimension that the group
spans can do it.
"""

from __future__ import annotations

from ..num import Num, largest, product, where
from .links import Group, Links, crossings
from .load import Busy, Load

GAIN = 480 / 370
"""Bus bandwidth of an all-reduce by NVLink SHARP over that of a ring, 8 H100, large messages: NCCL
issue 1455 (2024), How To Scale Your Model, part 12."""


def in_network_all_reduce(
    net: Links, V: Num, group: Group, otherwise: Load
) -> Load:
    """The better of it and `otherwise`; that alone where some dimension cannot add up."""
    n = product(group)
    possible = V > 0
    hops = 0.0 * V
    for g, latency, reduces in zip(
        group, net.latencies, net.reduces, strict=True
    ):
        possible = possible & ((g <= 1) | reduces)
        hops = hops + where(g > 1, 2 * latency, 0.0)
    crossed = crossings(net, V, group)
    seconds = 2 * largest(crossed) * (n - 1) / n / GAIN + hops

    def better(mine: Num, other: Num) -> Num:
        return where(possible & (mine < other), mine, other)

    busy = Busy(
        better(2 * mine * (n - 1) / n / GAIN, other)
        for mine, other in zip(crossed, otherwise.busy, strict=True)
    )
    return Load(
        better(seconds, otherwise.seconds),
        better(hops, otherwise.latency),
        busy,
    )
