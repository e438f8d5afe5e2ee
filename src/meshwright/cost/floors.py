"""What no collective undercuts wherever its ranks lie: bounds for the search.

What the ranks of one unit of the network have to get from all others passes their links out of it.
Of a group of n at most S_i ranks lie in a unit of dimension i, those of a group that lies as near
as can be. By the links of dimension i and beyond each of them sends, of V bytes,

    V (1 - S_i/n) / S_i     all-gather, reduce-scatter, broadcast
    V (1 - S_i/n)           all-to-all
    V (1 - S_i/n) / k       tokens to k experts, by all links at once
    twice the first         all-reduce, but where switches add up

which takes what an algorithm needs at least (`Algorithm.least`). It grows with n, so that it also
bounds every larger group. Messages between stages count as nothing.
"""

from __future__ import annotations

from ..exchange.experts import KERNELS
from ..exchange.reach import Draw
from ..num import Num, largest, product, where
from .links import Algorithm, Group, Links
from .load import Load


def floor_load(
    net: Links,
    algorithm: Algorithm,
    kind: str,
    V: Num,
    group: Group,
    draw: Draw,
) -> Load:
    """At most the load of any group of at least so many ranks; which links are busy is not
    known.
    """
    n = product(group)
    if kind == "send":
        return Load(0.0 * V)
    if kind in KERNELS:
        return Load(V / draw.copies * (1.0 - 1.0 / n) / sum(net.rates))
    inside: Num = 1.0
    cuts: list[Load] = []
    # axes of a torus count together, however little one of them carries (`torus`)
    few = group[:1] if net.on_torus else group
    for i, ranks in enumerate(few):
        shared = 1.0 if kind == "all_to_all" else inside
        sent = V * (1.0 - inside / n) / shared
        cuts.append(algorithm.least(net, sent, net.rates[i:]))
        inside = inside * ranks
    twice = kind == "all_reduce" and not any(net.reduces)
    times = where((V > 0) & (n > 1), 2.0 if twice else 1.0, 0.0)
    return Load(
        largest(cut.seconds for cut in cuts) * times,
        largest(cut.latency for cut in cuts) * times,
    )
