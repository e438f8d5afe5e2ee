"""The links of a network under an assumption set, and what every algorithm computes from them.

A group has g_i ranks in dimension i (fastest first), n = g_0 g_1 ... in all; V is the full vector
in bytes, W_i what one chip sends into dimension i and a_i the latency of a hop there. A unit of
dimension i holds S_i = g_0 ... g_{i-1} ranks of the group, which share the traffic that crosses it,
each through its own interface. In a mesh W_i is that of the links between the members of the group
(`Links.reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from ..describe.assumptions import NetworkTime
from ..describe.network import ALL, Dim
from ..describe.slices import TORUS
from ..describe.transport import Transport, transport
from ..num import Num, cache_key, product, where
from .load import Load

Group = Sequence[Num]
"""Ranks of a group in each dimension, nearest first."""
NEAR = "nvlink4"
FAR = "infiniband"
"""Transports of the first dimension and of others, where a network names none."""
MOST_KNOWN = 256
"""Groups that a network remembers at once (`Links.once`): tables have few, each in many columns."""


@dataclass(frozen=True)
class Links:
    """Rates [B/s] and latencies [s] of each dimension, fastest first.

    rates are those of all links of a chip; a group reaches them in a switch, and in a mesh that it
    fills (`reach`).
    """

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    reduces: tuple[bool, ...]
    """Whose switches add up values."""
    how: NetworkTime
    dims: tuple[Dim, ...] = ()
    """The dimensions themselves: which of them are axes of a torus, and how long."""
    transports: tuple[Transport, ...] = ()
    """What NCCL makes of the links of each dimension; () = what their names say."""
    ranks: Num = ALL
    """Those of a node, which share its adapters; they are in `rates`."""

    def reach(self, group: Group) -> tuple[Num, ...]:
        """Bytes per second that one chip sends into each dimension to the others of its group
        there.
        """
        if all(d.kind != "mesh" for d in self.dims):
            return self.rates
        return tuple(
            rate * d.used(g)
            for rate, d, g in zip(self.rates, self.dims, group, strict=True)
        )

    def __post_init__(self) -> None:
        """Kinds of links by their names, where none are given."""
        if not self.transports:
            names = [d.transport for d in self.dims] or [""] * len(self.rates)
            by_dim = tuple(
                transport(name or (FAR if i else NEAR))
                for i, name in enumerate(names)
            )
            object.__setattr__(self, "transports", by_dim)

    @cached_property
    def _known(self) -> dict[tuple[Any, ...], Any]:
        return {}

    def once(self, make: Callable[..., Any], group: Group, *more: Any) -> Any:
        """What a function of links and a group makes of them, computed once for each group."""
        key = (make, more, *cache_key(*group))
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = make(self, group, *more)
        return self._known[key]

    @cached_property
    def inside(self) -> int:
        """How many of the first dimensions are inside what NCCL calls a node."""
        return next(
            (i for i, t in enumerate(self.transports) if not t.inside),
            len(self.transports),
        )

    @cached_property
    def behind(self) -> int:
        """How many of the first dimensions join the chips that share an adapter."""
        most = max(d.shared_by for d in self.dims)
        chips = 1
        for number, dim in enumerate(self.dims[:-1], 1):
            chips *= dim.size or most
            if chips >= most:
                return number
        return max(len(self.dims) - 1, 1)

    @cached_property
    def near(self) -> Transport:
        """The transport of a node."""
        return self.transports[0] if self.inside else transport(NEAR)

    @cached_property
    def far(self) -> Transport:
        """The transport of the network between nodes."""
        return (
            self.transports[self.inside]
            if self.inside < len(self.transports)
            else transport(FAR)
        )

    @property
    def ll128_between(self) -> bool:
        """NCCL offers LL128 between nodes."""
        return self.near.ll128 > 0 and self.far.ll128 > 0

    @property
    def on_torus(self) -> bool:
        """Some dimensions are axes of a torus, whose links chips pass messages along."""
        return any(d.kind in TORUS for d in self.dims)

    @property
    def nearer_is_faster(self) -> bool:
        """No dimension beats one before it in rate or latency: a larger share of the near
        dimensions never costs time.
        """
        if self.on_torus:  # two axes carry twice as much as one
            return False
        if any(
            far and not near
            for near, far in zip(self.reduces, self.reduces[1:], strict=False)
        ):
            return False
        # fewer ranks there reach less of it
        if any(d.kind == "mesh" for d in self.dims[1:]):
            return False
        # the least a group reaches in a mesh
        pairs = self.reach((2.0,) * len(self.rates))
        faster = all(
            a >= b for a, b in zip(pairs, self.rates[1:], strict=False)
        )
        sooner = all(
            a <= b
            for a, b in zip(self.latencies, self.latencies[1:], strict=False)
        )
        return faster and sooner


class Algorithm(Protocol):
    """How collectives, and messages between stages of a pipeline, run on the links."""

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """One collective over V bytes; nothing if V = 0 or the group has one rank."""
        ...

    def hop(self, net: Links, V: Num, group: Group) -> Load:
        """One message of V bytes to the next stage; `group` is the pp axis."""
        ...

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """At most the load of any group of at least so many ranks, wherever they lie; `group`: as
        near as can be.
        """
        ...

    def hop_floor(self, net: Links, V: Num, group: Group) -> Load:
        """At most the hop of any pipeline of so many stages, wherever they lie."""
        ...


class NamedAlgorithm(Algorithm):
    """One that an assumption set may name, which says what it is: a file of `collectives`."""

    title: str
    """For `--explain`, as its source."""
    source: str
    """Paper or code that it follows."""
    laws: tuple[str, ...]
    """Its functions (room.module:name), whose equations the documentation shows."""

    @property
    def name(self) -> str:
        """The word of a set: the name of its file."""
        return type(self).__module__.rpartition(".")[2]


class Rated(Protocol):
    """Anything that knows the rate a group reaches in each dimension, nearest first."""

    def reach(self, group: Group) -> Sequence[Num]: ...


def crossings(net: Rated, V: Num, group: Group) -> list[Num]:
    """Seconds each dimension takes for V bytes of every unit: V / (S_i W_i) where the group spans
    it.
    """
    seconds: list[Num] = []
    inside: Num = 1.0
    for g, rate in zip(group, net.reach(group), strict=True):
        seconds.append(where(g > 1, V / (inside * rate), 0.0))
        inside = inside * g
    return seconds


def group_ranks(V: Num, group: Group) -> tuple[Num, Any]:
    """(ranks of the group, whether there is anything to send)."""
    n = product(group)
    return n, (V > 0) & (n > 1)
