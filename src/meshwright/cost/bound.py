"""An algorithm at its best: what the search asks before it knows where ranks lie, or how many there
are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..num import Num
from .links import Algorithm, Group, Links
from .load import Busy, Load


@dataclass(frozen=True)
class Bound:
    """Every answer is the floor of the algorithm's."""

    algorithm: Algorithm

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """At most the load of any group of at least so many ranks."""
        # where it will lie is not known
        return self.algorithm.floor(net, kind, V, group)._replace(busy=Busy())

    def hop(self, net: Links, V: Num, group: Group) -> Load:
        """At most the hop of any pipeline of so many stages."""
        return self.algorithm.hop_floor(net, V, group)._replace(busy=Busy())

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """A floor is its own."""
        return self.load(net, kind, V, group)

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """The least seconds of a hop."""
        return self.hop(net, V, group)
