"""NCCL as it runs: rings, and for an all-reduce the best of ring, tree and reduction in the
switch.
"""

from __future__ import annotations

from ...num import Num
from .. import in_network, tree
from ..links import Group, Links
from ..load import Load, least
from .ring import Ring


class BestAlgorithm(Ring):
    """The smallest of every field over the algorithms (`load.least`)."""

    title = "the faster of ring, tree and reduction in the switch"
    source = "NCCL; ring: Subramanian et al. 2024, arXiv 2410.00273, eq. 2-3"
    laws = (
        *Ring.laws,
        "cost.tree:all_reduce",
        "cost.in_network:in_network_all_reduce",
    )

    def all_reduce(
        self, net: Links, V: Num, group: Group, chains: bool = True
    ) -> Load:
        """The best of ring, tree and, where switches add up, one pass through them."""
        quickest = least(
            super().all_reduce(net, V, group),
            tree.all_reduce(net, V, group, chains),
        )
        return (
            in_network.in_network_all_reduce(net, V, group, quickest)
            if any(net.reduces)
            else quickest
        )

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """A ring's floor, or that of trees without the chain in the nearest dimension, which a
        nearer group has longer.
        """
        if (
            kind == "all_reduce"
            and self.nearest_is_best
            and net.nearer_is_faster
        ):
            return self.all_reduce(net, V, group, chains=False)
        return super().floor(net, kind, V, group)


BEST = BestAlgorithm()
