"""Where a group lies, as NCCL sees it: ranks inside nodes, and nodes on a network.

Letters as in `links`; N nodes of g ranks, n = N g. A byte of every unit of dimension i takes 1/(S_i
W_i) seconds to leave it; the slowest dimension that the group spans sets the pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ..num import Num, maximum, product, where
from .links import Group, Links

T = TypeVar("T")


class Span(NamedTuple):
    """A group on the dimensions of a network."""

    n: Num
    g: Num
    """Ranks of a node."""
    nodes: Num
    over: Any
    """Messages leave the node."""
    used: tuple[Any, ...]
    """Dimensions that the group spans."""
    share: tuple[Num, ...]
    """1 / S_i: of a unit's traffic, what passes each rank's own link."""
    ranks: Group

    def slowest(self, rates: Sequence[Num], first: int = 0) -> Num:
        """Seconds for a byte of every unit in the slowest of the dimensions from `first` on, with a
        rate for each.
        """
        longest: Num = 0.0
        for i, rate in enumerate(rates, first):
            longest = maximum(
                longest, where(self.used[i], self.share[i] / rate, 0.0)
            )
        return longest


class Over:
    """A group on the links, and what functions of both make of them, each computed once: whatever
    does not depend on the bytes that are sent.
    """

    def __init__(self, net: Links, group: Group) -> None:
        self.net, self.span = net, span(net, group)
        self._known: dict[tuple[Any, ...], Any] = {}

    def once(self, make: Callable[..., T], *more: Any) -> T:
        """What a function of links, span and more makes of them."""
        key = make, *more
        if key not in self._known:
            self._known[key] = make(self.net, self.span, *more)
        value: T = self._known[key]
        return value


def over(net: Links, group: Group) -> Over:
    """The group on the network, the same one each time."""
    group_over: Over = net.once(Over, group)
    return group_over


def span(net: Links, group: Group) -> Span:
    """The group on the network."""
    inside = net.inside
    g = product(group[:inside])
    nodes = product(group[inside:])
    n = g * nodes
    share: list[Num] = []
    below: Num = 1.0
    for ranks in group:
        share.append(1.0 / below)
        below = below * ranks
    return Span(
        n,
        g,
        nodes,
        over=nodes > 1,
        used=tuple(r > 1 for r in group),
        share=tuple(share),
        ranks=group,
    )
