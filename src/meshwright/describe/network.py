"""A network as a list of dimensions, fastest first.

A dimension joins `size` members, each member being all chips of the dimensions before it. An 8-GPU
node on InfiniBand is [switch 8, switch unlimited]; a TPU v5p slice is [ring 16, ring 20, ring 28]
and, above it, the data-centre network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ..num import Num, maximum, minimum
from .fields import (
    Bandwidth,
    Checked,
    Known,
    Name,
    OneOf,
    Seconds,
    Share,
    Sources,
    origins,
)
from .frozen import hashed_once, short_repr
from .frozendict import EMPTY
from .measured import MeasuredTable

UNMEASURED = 0.70
"""Share of its bandwidth assumed for a dimension without a measured `efficiency`: the lowest
measured one of the catalogue (Perlmutter, Subramanian et al. 2024, arXiv 2410.00273), so that what
nobody measured is never the faster. Omni-Path, whose 0.4 is what NCCL makes of a fabric that it
does not drive by itself, does not count."""

ALL = float("inf")
"""Ranks of a node where all its chips run."""


@dataclass(frozen=True)
class Dim(Checked):
    """One level or axis of the network.

    >>> from meshwright import Dim
    >>> Dim("nvlink", bandwidth=450e9, latency=2e-6, size=8).size
    8
    """

    name: Name
    bandwidth: Bandwidth
    """What one chip can send into this dimension, ONE WAY, all its links of the dimension together.
    A ring axis counts both directions (the scaling book's W = 2 x link), a line one: its ends
    have but one neighbour, and set the pace."""
    latency: Seconds
    """One hop, software included."""
    size: int | None = None
    """Members; None = as many as the cluster has (last dimension only)."""
    kind: Annotated[str, OneOf("switch", "ring", "line", "mesh")] = "switch"
    """switch (any to any), ring (wraps around), line (does not), mesh (a link between each
    pair).
    """
    efficiency: Share | None = None
    """Share of `bandwidth` that large messages reach; None = not measured (`UNMEASURED` is
    assumed).
    """
    reduces: bool = False
    """The switch adds up values itself (NVLink SHARP, InfiniBand SHARP)."""
    wrap: int = 1
    """A slice of a ring axis still closes if its length is a multiple of this (TPU v5p: 4, v5e:
    16); else it is a line.
    """
    collectives: Mapping[Name, MeasuredTable] = EMPTY
    """collective -> measured seconds by ranks and bytes of the full vector, for the option
    `measured`; "all_gather/cpu": CPU seconds of a rank.
    """
    transport: Known = ""
    """What NCCL makes of its links: a name of catalog/transports; "" = `links.NEAR` for the first
    dimension, `links.FAR` for others.
    """
    shared_by: int = 1
    """Chips behind one such interface: `bandwidth` is divided among those that run (`sharers`)."""

    __repr__ = short_repr

    def sharers(self, ranks: Num) -> Num:
        """Chips that share one interface where so many of a node run: k of n take 1/k each."""
        return minimum(self.shared_by, ranks)

    def rate(self, efficiency: float | None = None, ranks: Num = ALL) -> Any:
        """Bytes per second one chip reaches with large messages while its neighbours send too.
        efficiency: share of the bandwidth, instead of the dimension's own;  ranks: chips of a node
        that run.
        """
        return (
            self.bandwidth
            * (efficiency or self.efficiency or UNMEASURED)
            / self.sharers(ranks)
        )

    def used(self, members: Num) -> Num:
        """Share of a chip's links in this dimension that a group of so many members uses.

        All of them, except in a mesh of n: there only those to the other members, (g - 1)/(n - 1).
        Each pair has its own link, so groups side by side share none. A mesh without a size is the
        group itself.
        """
        if self.kind != "mesh" or not self.size or self.size == 1:
            return 1.0
        others = self.size - 1.0
        return minimum(maximum(members - 1.0, 1.0), others) / others


@hashed_once
@dataclass(frozen=True)
class Network(Checked):
    """Dimensions, fastest (nearest) first.

    >>> from meshwright import Dim, Network
    >>> links = Dim("nvlink", 450e9, 2e-6, size=8), Dim("ib", 50e9, 5e-6)
    >>> [dim.name for dim in Network("mine", links).dims]
    ['nvlink', 'ib']
    """

    name: Name
    dims: tuple[Dim, ...]
    chip: Known = ""
    """Catalogue name of the chip this network is usually built with."""
    aliases: tuple[Name, ...] = ()
    node: int | None = None
    """Chips of one server, for what starts ranks; None = what the first dimension joins."""
    cubes: bool = False
    """A slice is wired from whole cubes by optical switches: its axes may have any lengths, and
    close only if all of them may.
    """
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note)."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """Dimensions need names that differ, and each but the last has a size."""
        if not self.dims:
            return "dims must have at least one dimension"
        if any(d.size is None for d in self.dims[:-1]):
            return "only the last dimension may be without a size"
        names = [d.name for d in self.dims]
        return (
            f"dimension names must differ, not {', '.join(names)}"
            if len({*names}) < len(names)
            else ""
        )
