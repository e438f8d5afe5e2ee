"""A network that can be asked what a collective costs: links, and the algorithm that an assumption
set names.

One algorithm a file of `collectives`: `nccl` with `nccl_choice` and `span`, `best` with `tree` and
`in_network`, `book` with `torus`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from ..describe.assumptions import NetworkTime
from ..describe.network import Network
from ..exchange import KERNELS
from ..exchange.reach import Draw
from ..layout.placement import node_ranks
from ..num import Num, anywhere, where
from ..parts import parts
from . import dispatch_kernels
from .bound import Bound
from .collectives.book import Torus
from .collectives.free import Free
from .links import Algorithm, Group, Links, NamedAlgorithm, group_ranks
from .load import Load, stream

NAMED = parts("cost.collectives", NamedAlgorithm)  # type: ignore[type-abstract]
"""Option of `NetworkTime.collective` -> its algorithm."""


NUMBERS = frozenset((int, float))
MOST_SENT = 16384
"""Messages of plain numbers that a network remembers at once."""
ALONE = Draw()
"""Of messages whose bytes go to one place each."""


@dataclass(frozen=True)
class Fabric(Links):
    """The links of a network with the algorithm of its collectives; another one may be injected."""

    injected: Algorithm | None = None

    @classmethod
    def from_network(
        cls,
        network: Network,
        how: NetworkTime,
    ) -> Fabric:
        """A network as an assumption set sees it."""
        dims = network.dims
        rates = tuple(d.rate(how.efficiency) for d in dims)
        latencies = tuple(d.latency for d in dims)
        reduces = tuple(d.reduces for d in dims)
        return cls(
            rates,
            latencies,
            reduces,
            how=how,
            dims=dims,
        )

    def under(self, *shares: Group) -> Fabric:
        """This network as it is filled by ranks with these shares of its dimensions, one for each
        axis (those of `Layout.placement`).
        """
        if not shares or all(d.shared_by == 1 for d in self.dims):
            return self
        fabric: Fabric = self.once(_filled, tuple(chain(*shares)))
        return fabric

    def with_ranks(self, ranks: Num) -> Fabric:
        """This network with so many ranks in a node; the same object where as many share each
        adapter as before.
        """
        if not any(
            anywhere(d.sharers(ranks) != d.sharers(self.ranks))
            for d in self.dims
        ):
            return self
        rates = tuple(d.rate(self.how.efficiency, ranks) for d in self.dims)
        return replace(self, rates=rates, ranks=ranks)

    @property
    def algorithm(self) -> Algorithm:
        """What runs: on a torus that of its axes."""
        if self.injected:
            return self.injected
        option = self.how.collective
        if self.on_torus and option != "free":
            return NAMED["book"]
        return self.how.algorithm or NAMED[option]

    @property
    def bound(self) -> Fabric:
        """This network, asked for what no group of at least so many ranks undercuts, wherever
        they lie.

        More ranks of a mesh reach more of its links; as a switch it gives every group all of them.
        """
        dims = tuple(
            replace(d, kind="switch") if d.kind == "mesh" else d
            for d in self.dims
        )
        return replace(self, dims=dims, injected=Bound(self.algorithm))

    def load(
        self,
        kind: str,
        V: Num,
        group: Group,
        draw: Draw = ALONE,
    ) -> Load:
        """The cost of one collective (`load.KINDS`) over V bytes, the full vector; nothing for one
        rank.

        send: one message between neighbouring stages, `group` the pp axis; ring: blocks of V/n go
        round the group, n - 1 sends to the next rank one after the other; kinds of `KERNELS`:
        tokens to the experts of a `draw` each by kernels of a dispatcher, not by the algorithm.

        Each of plain numbers is timed once; numbers that know their items, columns, and groups that
        know the links they lie on (roofline's), each for themselves.
        """
        plain = type(group) in (tuple, list) and type(V) is float
        if not (plain and NUMBERS.issuperset(map(type, group))):
            return self._load(kind, V, group, draw)
        key = (kind, V, *group, draw)
        known = self._sent.get(key)
        if known is None:
            if len(self._sent) >= MOST_SENT:
                self._sent.clear()
            known = self._load(kind, V, group, draw)
            self._sent[key] = known
        return known

    @cached_property
    def _sent(self) -> dict[tuple[Any, ...], Load]:
        return {}

    def _load(self, kind: str, V: Num, group: Group, draw: Draw) -> Load:
        if kind == "send":
            return self.algorithm.hop(self, V, group)
        if kind == "ring":
            n, sends = group_ranks(V, group)
            passed = self.load("send", V / n, group)
            return passed * where(sends, n - 1.0, 0.0)
        if kind not in KERNELS or isinstance(self.algorithm, Free):
            return self.algorithm.load(self, kind, V, group)
        if isinstance(self.algorithm, Bound):
            return dispatch_kernels.floor_load(self, V, group, draw)
        return dispatch_kernels.once_a_node(
            self,
            V=V,
            group=group,
            draw=draw,
            kernel=kind,
        )

    def time(self, kind: str, V: Num, group: Group) -> Num:
        """Seconds of it alone."""
        return self.load(kind, V, group).seconds

    def in_turn(self, load: Load) -> Load:
        """Messages of one axis, added up, back to back: on a torus the hops of one hide under the
        bytes of the others.
        """
        return stream(load) if isinstance(self.algorithm, Torus) else load

    def neighbours(self, V: Num) -> list[Load]:
        """One message of V bytes to the next chip in each dimension."""
        dims = range(len(self.rates))
        return [
            self.load("send", V, tuple(2.0 if i == dim else 1.0 for i in dims))
            for dim in dims
        ]


def _filled(fabric: Fabric, flat: Group) -> Fabric:
    """The network under shares that stand one after the other."""
    n = len(fabric.rates)
    shares = [flat[i : i + n] for i in range(0, len(flat), n)]
    return fabric.with_ranks(node_ranks(shares, fabric.behind))


def algorithm_and_source(fabric: Fabric) -> tuple[str, str]:
    """The algorithm of the collectives on this network, and where it is from: a torus has its
    own.
    """
    how = fabric.how.collective
    named = NAMED["book" if fabric.on_torus and how != "free" else how]
    return named.title, named.source
