"""What NCCL makes of a kind of link: the waits, rates and protocols of its collectives there.

A dimension of a network names its transport (`Dim.transport`); the profiles lie in
catalog/transports, each number with its source. A kind of link that nobody measured takes the
numbers of another one (`like`) and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import shipped
from .fields import (
    Amount,
    Bandwidth,
    Checked,
    Known,
    Name,
    Seconds,
    Sources,
    finder,
    origins,
)
from .frozen import short_repr
from .read import ORIGIN, read


@dataclass(frozen=True)
class Transport(Checked):
    """One kind of link. Shares are of the rate that large messages reach (`Dim.rate`)."""

    name: Name
    inside: bool = False
    """It joins what NCCL calls a node: GPUs that read each other's memory. Else messages go through
    network cards.
    """
    launch: Seconds = 0.0
    """Before the first byte moves; a network's is added to that of the node."""
    hop: Seconds = 0.0
    """One step of a ring in the protocol Simple, which waits for whole chunks."""
    hop_ll: Seconds = 0.0
    """The same in LL, which sends a flag beside every word."""
    hop_ll128: Seconds = 0.0
    """The same in LL128, which sends a flag beside every 120 bytes."""
    climb: Seconds = 0.0
    """One level of a tree of nodes, Simple."""
    climb_ll: Seconds = 0.0
    climb_ll128: Seconds = 0.0
    ll: float = 0.5
    """Share of the rate that LL reaches in a ring, at most a half."""
    ll128: Amount = 0.0
    """Share of the rate that LL128 reaches; 0: it is off. Between nodes it takes cards that share
    a PCIe switch with the GPUs.
    """
    channel_ll128: Bandwidth | None = None
    """What LL128 sends through one adapter of another node at most (of a node's transport, whose
    chip packs the flags); None = no such limit.
    """
    ll_node: Bandwidth | None = None
    """What all ranks of a node together send by LL at most; None = no such limit."""
    ring_node: Bandwidth | None = None
    """What a ring or a tree has to leave a node by, where NCCL takes one adapter of several; None =
    the links of all its ranks."""
    channel: Bandwidth | None = None
    """What one channel sends to one rank of another node at most; None = no such limit."""
    climb_rate: float = 1.0
    """Share of the rate that a tree reaches."""
    climb_rate_ll: float = 0.1
    """The same by LL."""
    alone: float = 1.0
    """Share of the rate that a rank without others of its group in its node reaches."""
    copied: Amount = 0.0
    """A rank copies its own part of the vector too, at 1/copied of the rate."""
    mix: Amount = 1.0
    """How waits L and bytes b add up, Simple and in a node LL128: sqrt(L^2 + 2 mix L b + b^2). 1:
    one after the other; 0: mostly side by side; above 1: chunks of a pipeline.
    """
    mix_ll: Amount = 1.0
    """The same for LL, for LL128 between nodes and for trees."""
    sharp: Amount = 0.0
    """Share of the rate at which the switch adds up values (NVLS); 0: it does not."""
    sharp_wait: Seconds = 0.0
    sharp_mix: Amount = 1.0
    exchange: float = 1.0
    """Share of the rate that an all-to-all reaches."""
    exchange_launch: Seconds = 0.0
    exchange_copied: Amount = 0.0
    exchange_mix: Amount = 1.0
    believed: float = 0.8
    """Share of the bandwidth that NCCL's tuner reckons with."""
    believed_ll: tuple[Bandwidth, ...] = ()
    """At most so much by LL, as the tuner has it, on one, two and more nodes (of a node's
    transport).
    """
    believed_ll128: tuple[Bandwidth, ...] = ()
    """At most so much by LL128 in one channel between nodes, as the tuner has it: in a ring, in a
    tree of two nodes, in one of more (of a node's transport).
    """
    believed_step: Seconds = 0.0
    """What the tuner adds to a step when messages leave the node, by the maker of the host's CPU
    (of a node's transport).
    """
    believed_sharp: float = 0.85
    """Share of its rate at which the tuner believes the switch to add up."""
    like: Known = ""
    """The kind of link whose numbers it takes where it has none of its own: they are not measured
    on it.
    """
    sources: Sources = origins()
    """field -> where its number comes from."""

    __repr__ = short_repr


@cache
def transports() -> dict[str, Transport]:
    """name -> profile."""
    tables: dict[str, dict[str, Any]] = {}
    for file in shipped.tables("transports").values():
        tables |= file
    return {name: _read(name, tables) for name in tables}


def _read(name: str, tables: Mapping[str, dict[str, Any]]) -> Transport:
    """A profile, laid over the numbers of the one it is like."""
    return read(
        Transport, {"name": name, **_merged(name, tables)}, f"transport {name}"
    )


def _merged(name: str, tables: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A transport's own numbers over those that it takes from another."""
    own = tables[name]
    base = _merged(own["like"], tables) if "like" in own else {}
    return {k: v for k, v in base.items() if k not in ORIGIN} | own


def transport(name: str) -> Transport:
    """The profile of that name; BadInput names the nearest ones."""
    link: Transport = finder("transport", transports())(name)
    return link
