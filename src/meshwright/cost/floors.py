"""What no collective undercuts, whatever its algorithm and wherever its ranks lie: bounds for the
search.

Every rank sends or receives (n-1)/n of the vector through its own links, all dimensions together:

    V (n-1)/n / sum_i W_i        all-gather, reduce-scatter, broadcast, all-to-all
    twice that                   all-reduce

(where switches add up, divided by what they gain). It grows with n, so that it also bounds every
larger group.
"""

from __future__ import annotations

from ..num import Num, product, where
from .in_network import GAIN
from .links import Group, Links
from .load import Busy, Load


def any_links(net: Links, kind: str, V: Num, group: Group) -> Load:
    """At most the load of any group of at least so many ranks."""
    n = product(group)
    times = (
        (2 / GAIN if any(net.reduces) else 2.0)
        if kind == "all_reduce"
        else 1.0
    )
    seconds: Num = times * V * (n - 1) / n / sum(net.rates)
    return Load(seconds, 0.0 * seconds, Busy(0.0 * seconds for _ in net.rates))


def any_hop(net: Links, V: Num, group: Group) -> Load:
    """At most the hop of any pipeline of so many stages: V over the fastest link; nothing for one
    stage.
    """
    seconds = where(product(group) > 1, V / max(net.rates), 0.0)
    return Load(seconds, 0.0 * seconds, Busy(0.0 * seconds for _ in net.rates))
