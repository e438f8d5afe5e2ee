"""Communication that takes no time: the closed forms of Narayanan et al. 2021, arXiv 2104.04473,
section 3.
"""

from __future__ import annotations

from ...num import Num
from ..links import Group, Links, NamedAlgorithm
from ..load import Load


class Free(NamedAlgorithm):
    """Nothing, in the shape of the bytes."""

    title = "communication takes no time"
    source = "closed forms without it: Narayanan et al. 2021, arXiv 2104.04473"
    laws = ()

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """One collective over V bytes."""
        return Load(0.0 * V, 0.0 * V)

    def hop(self, net: Links, V: Num, group: Group) -> Load:
        """One message of V bytes to the next stage."""
        return Load(0.0 * V, 0.0 * V)

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """At least nothing."""
        return self.load(net, kind, V, group)

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """A hop is free, too."""
        return self.hop(net, V, group)


FREE = Free()
