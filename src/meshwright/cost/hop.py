"""One message between neighbouring stages of a pipeline."""

from __future__ import annotations

from ..num import Num, maximum, product, where
from . import measured
from .links import Group, Links
from .load import Busy, Load


def point_to_point(net: Links, V: Num, dim: int) -> Num:
    """One message of V bytes to a neighbour in dimension `dim`: latency + V / W; over one link of a mesh."""
    table = net.dims[dim].collectives.get("send") if net.how.collective == "measured" else None
    seconds = measured.seconds(table, (2.0, V)) if table else net.latencies[dim] + V / link(net, dim)
    return where(V > 0, seconds, 0.0)


def link(net: Links, dim: int) -> Num:
    """Bytes per second to one other chip in dimension `dim`."""
    return net.reach((2.0,) * len(net.rates))[dim]


def pipeline_hop(net: Links, V: Num, group: Group) -> Load:
    """One hop of V bytes between pipeline stages; `group` is the pp axis.

    Of the p - 1 links, p/S_i - p/S_{i+1} cross dimension i. "slowest": the farthest dimension in use; "mean": weighted
    by the number of links (Subramanian et al. 2024). Either way some rank sends over the farthest one.
    """
    p = product(group)
    farthest: Num = 0.0
    mean: Num = 0.0
    start: Num = 0.0
    inside: Num = 1.0
    busy: list[Num] = []
    for i, g in enumerate(group):
        here = point_to_point(net, V, i)
        farthest, start = where(g > 1, here, farthest), where(g > 1, net.latencies[i], start)
        # links between units of level i inside one unit of level i + 1
        links = p / inside - p / (inside * g)
        mean = mean + links * here
        beyond = product(group[i + 1 :])
        busy.append(where((g > 1) & (beyond == 1), V / link(net, i), 0.0))
        inside = inside * g
    seconds = where(p > 1, mean / maximum(p - 1, 1) if net.how.hop == "mean" else farthest, 0.0)
    return Load(seconds, where(p > 1, start, 0.0), Busy(busy))
