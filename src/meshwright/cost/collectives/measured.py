"""Collectives as measured on the network, by ranks and bytes; by formula where none was
measured.
"""

from __future__ import annotations

from ...num import Num, minimum, where
from ..floors import any_hop, any_links
from ..links import Group, Links, group_ranks
from ..load import Busy, Load
from ..measured import table_seconds
from .best import BestAlgorithm


class Tabled(BestAlgorithm):
    """A group inside one dimension takes what was measured there; one that spans several, or a
    collective without a table, the formula."""

    title = "as measured, else the faster of ring and tree"
    source = "measured by `meshwright calibrate`; else NCCL"
    laws = ("cost.measured:table_seconds", *BestAlgorithm.laws)

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The cost of one collective over V bytes."""
        load = super().load(net, kind, V, group)
        n, sends = group_ranks(V, group)
        for g, dim in zip(group, net.dims, strict=True):
            if table := dim.collectives.get(kind):
                here = (g == n) & sends
                took = where(here, table_seconds(table, (n, V)), load.seconds)
                busy = Busy(minimum(seconds, took) for seconds in load.busy)
                load = Load(took, minimum(load.latency, took), busy)
        return load

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """Nothing is known of what will be looked up in a table."""
        if any(kind in dim.collectives for dim in net.dims):
            return any_links(net, kind, 0.0 * V, group)
        return super().floor(net, kind, V, group)

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """The least seconds of messages between stages."""
        if any("send" in dim.collectives for dim in net.dims):
            return any_hop(net, 0.0 * V, group)
        return super().hop_floor(net, V, group)


MEASURED = Tabled()
