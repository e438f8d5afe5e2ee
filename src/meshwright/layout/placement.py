"""Where the ranks of each axis lie in the network, for one layout and for columns of them: as
launchers number ranks, unless a layout says otherwise, or every group as near as its size allows.

A placement gives each axis a share of every dimension of the network; shares multiply up to the
degree, and those of all axes in one dimension to at most its `rooms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from ..describe.framework import Framework
from ..describe.frozen import FrozenDict, with_values
from ..describe.layout import AXES, Layout
from ..num import (
    Num,
    anywhere,
    common_divisor,
    floor,
    largest,
    largest_divisor,
    minimum,
    product,
    where,
)

Shares = Mapping[str, tuple[Num, ...]]
"""Of each axis in each dimension."""


def rank_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...] = AXES,
) -> Shares:
    """Shares of each axis, as launchers number ranks: axes in `order` take the fast dimensions
    first, of each as many ranks as divide what they still need; the last dimension takes the rest.

    sizes: members of each network dimension (`Cluster.sizes`).
    """
    rooms: list[Num] = [float(size) for size in sizes[:-1]]
    placement = {}
    for axis in order:
        need, shares = degrees[axis], list[Num]()
        for i, room in enumerate(rooms):
            shares.append(share := largest_divisor(need, room))
            need, rooms[i] = need / share, floor(room / share)
        placement[axis] = (*shares, need)
    return placement


def uneven_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...],
) -> Shares:
    """Shares of each axis where ranks fill no whole units of some dimension: as many of each group
    in every unit, since launchers start the same number of ranks on every node.

    Ranks are numbered in `order`, so a group of g ranks that are s apart has gcd(g, U / s) in each
    unit of U chips, or 1 where s does not divide U; all g where the job needs no second unit. 20
    replicas in nodes of 8 are thus 4 in each of 5. Those in 8, 8 and 4 take as long: NCCL gives all
    ranks the channels and bandwidth of the one with the least (src/init.cc, initTransportsRank).
    """
    ranks = product([degrees[axis] for axis in order])
    apart: Num = 1
    placement = {}
    for axis in order:
        group, shares = degrees[axis], list[Num]()
        unit = 1
        inside: Num = 1.0
        for size in sizes[:-1]:
            unit *= size
            here = where(
                ranks <= unit,
                group,
                where(
                    unit % apart == 0, common_divisor(group, unit / apart), 1.0
                ),
            )
            shares.append(here / inside)
            inside = here
        placement[axis] = (*shares, group / inside)
        apart = apart * group
    return placement


def rooms(shares: Shares, sizes: tuple[int, ...]) -> list[tuple[Num, Num]]:
    """(ranks of all axes, room for them) in each dimension, in blocks of what lies in those before:
    two blocks of 32 are in one rack of 72.
    """
    blocks: Num = 1
    every = list[tuple[Num, Num]]()
    for i, size in enumerate(sizes):
        ranks = product([share[i] for share in shares.values()])
        every.append((ranks, room := size * blocks))
        blocks = floor(room / ranks)
    return every


def node_ranks(shares: Iterable[Sequence[Num]], dims: int) -> Num:
    """The most ranks of a node that send to others at once: those among which its adapters are
    shared.

    shares: of each axis in each dimension of the network;  dims: how many of these a node joins.
    An axis with x ranks beyond a node cuts all N into x parts, which lie in nodes of their own, N/x
    ranks in each, if no other axis leaves the node. If several do, parts may share a node (5
    replicas of 4 stages in nodes of 8: ranks 3 to 7 of the first node send to the next stage), but
    no more ranks of one send than the parts of the axis with the fewest have.
    """
    groups = [(product(group), product(group[dims:])) for group in shares]
    n = product([whole for whole, _ in groups])
    most = largest(where(x > 1, n / x, 0.0) for _, x in groups)
    return where(most > 0, most, n)


def exceeds_last(shares: Shares, sizes: tuple[int, ...]) -> Any:
    """Where the last dimension has no room for what lies beyond the others."""
    ranks, room = rooms(shares, sizes)[-1]
    return ranks > room


def placed(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...] = AXES
) -> Layout:
    """A layout of scalar degrees with its placement filled in as a launcher numbers ranks in
    `order`; one that is given stays as it is.
    """
    if layout.placement:
        return layout
    degrees = {axis: getattr(layout, axis) for axis in AXES}
    shares = launcher_shares(degrees, sizes, order)
    placement = {
        axis: tuple(map(int, share)) for axis, share in shares.items()
    }
    return with_values(layout, placement=FrozenDict(placement))


def launcher_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...] = AXES,
) -> Shares:
    """Shares of each axis as a launcher that numbers ranks in `order` gives them: whole ones where
    these fit the last dimension, else uneven ones.
    """
    whole = rank_shares(degrees, sizes, order)
    beyond = exceeds_last(whole, sizes)
    if not anywhere(beyond):
        return whole
    uneven = uneven_shares(degrees, sizes, order)
    return {
        axis: tuple(
            where(beyond, two, one)
            for one, two in zip(shares, uneven[axis], strict=True)
        )
        for axis, shares in whole.items()
    }


def launcher_orders(by: Framework | None) -> tuple[tuple[str, ...], ...]:
    """Orders of the axes in which the launcher of a framework that a job names numbers ranks;
    empty: any placement.
    """
    orders = by.orders if by else ()
    return tuple(tuple(order.split("-")) for order in orders)


def lies(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...]
) -> Any:
    """Where the ranks lie in that order of the axes, nearest first (as `placed`)."""
    if not layout.placement:
        return order == AXES
    degrees = {axis: getattr(layout, axis) for axis in AXES}
    other = launcher_shares(degrees, sizes, order)
    return reduce(
        and_,
        (
            one == two
            for axis, shares in layout.placement.items()
            for one, two in zip(shares, other[axis], strict=True)
        ),
    )


@dataclass(frozen=True)
class Nearest(Layout):
    """A layout whose groups each lie as near together as if they had the network to themselves: a
    bound on every placement.
    """

    sizes: tuple[int, ...] = ()

    def _ranks(self, axis: str) -> tuple[Num, ...]:
        if axis == "ends":
            return self._across_stages(2)
        degrees: dict[str, Num] = {
            "replicas": self.replicas,
            "edp": self.expert_replicas,
            "shards": self.shards,
            "copies": self.dp_replicate,
            "edp shards": self.expert_shards,
            "edp copies": self.dp_replicate,
        }
        left = degrees[axis] if axis in degrees else getattr(self, axis)
        shares: list[Num] = []
        for size in self.sizes[:-1]:
            shares.append(minimum(left, float(size)))
            left = left / shares[-1]
        return (*shares, left)
