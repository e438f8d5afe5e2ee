"""The scaling book's collectives: axes of a torus side by side, levels pipelined behind one another
(`cost.torus`).
"""

from __future__ import annotations

from functools import reduce

from ...describe.slices import TORUS
from ...num import Num, floor, log2, maximum, minimum, product, where
from ..floors import any_links
from ..links import Group, Links
from ..load import Busy, Load
from ..torus import TIMES, collective, torus_span
from .ring import Ring


class Torus(Ring):
    """Every collective on the axes of a torus; a group that is no `TorusGroup` fills each axis from
    its beginning, so a part of a ring is a line."""

    title = "axes of the mesh side by side"
    source = "How To Scale Your Model, parts 3 and 12"
    laws = (
        "cost.torus:axis",
        "cost.torus:latency",
        "cost.torus:exchange_seconds",
        "cost.torus:send",
    )

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The cost of one collective over V bytes."""
        at = torus_span(net, group)
        alone = collective(kind, V, at, net.how.ring_factor == "one")
        busy: list[Num] = [0.0] * len(group)
        for part, seconds in zip(
            (p for level in at for p in level), alone.busy, strict=True
        ):
            busy[part.dim] = busy[part.dim] + seconds
        return alone._replace(busy=Busy(busy))

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """What the links of a chip can carry at all, and the hops of a phase: at least one each
        time that its ranks double (n chips of an axis take n/2 round a ring, n - 1 along a line),
        or one through a switch.
        """
        doublings = floor(log2(product(group)))
        hops = reduce(
            minimum,
            (
                dim.latency
                * (doublings if dim.kind in TORUS else minimum(doublings, 1))
                for dim in net.dims
            ),
        )
        latency = where(V > 0, TIMES.get(kind, 1) * hops, 0.0)
        least = any_links(net, kind, V, group)
        return least._replace(
            seconds=maximum(least.seconds, latency), latency=latency
        )

    nearest_is_best = False
    """Two axes of a torus carry twice as much as one."""


TORUS_AXES = Torus()
