"""Where the ranks of each axis lie in the network, for one layout and for columns of them: as
launchers number ranks, unless a layout says otherwise, or every group as near as its size allows.

A placement gives each axis a share of every dimension of the network; shares multiply up to the
degree, and those of all axes in one dimension to at most its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from ..describe.framework import Framework
from ..describe.frozen import FrozenDict, with_values
from ..describe.layout import AXES, Layout
from ..num import (
    Num,
    floor,
    largest_divisor,
    maximum,
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
    whole: bool = True,
) -> Shares:
    """Shares of each axis, as launchers number ranks: axes in `order` take the fast dimensions
    first, of each as many ranks as divide what they still need; the last dimension takes the rest.

    sizes: members of each network dimension (`Cluster.sizes`). whole: False numbers ranks through,
    so that dp fills a dimension whether it divides or not (97 ranks in nodes of 8: 12.125 nodes).
    """
    rooms: list[Num] = [float(size) for size in sizes[:-1]]
    placement = {}
    for axis in order:
        need, shares = degrees[axis], list[Num]()
        for i, room in enumerate(rooms):
            share = (
                largest_divisor(need, room)
                if whole or axis != "dp"
                # replicas of a relaxed layout need not divide: as many as have room, one at least
                else maximum(minimum(room, need), 1)
            )
            shares.append(share)
            need, rooms[i] = need / share, floor(room / share)
        placement[axis] = (*shares, need)
    return placement


def last_dimension_fits(shares: Shares, sizes: tuple[int, ...]) -> Any:
    """Where the last dimension has room for what lies beyond the others."""
    return product([share[-1] for share in shares.values()]) <= sizes[-1]


def placed(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...] = AXES
) -> Layout:
    """A layout of scalar degrees with its placement filled in: whole shares where these fit the
    last dimension, else ranks numbered through. A placement given stays as it is.
    """
    if layout.placement:
        return layout
    degrees = {axis: getattr(layout, axis) for axis in AXES}
    shares = rank_shares(degrees, sizes, order)
    if not last_dimension_fits(shares, sizes):
        shares = rank_shares(degrees, sizes, order, whole=False)
    placement = {
        axis: tuple(int(n) if n == int(n) else n for n in share)
        for axis, share in shares.items()
    }
    return with_values(layout, placement=FrozenDict(placement))


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
    whole = rank_shares(degrees, sizes, order)
    through = rank_shares(degrees, sizes, order, whole=False)
    return where(
        last_dimension_fits(whole, sizes),
        _same(layout.placement, whole),
        _same(layout.placement, through),
    )


def _same(placement: Shares, other: Shares) -> Any:
    """Where the axes of a placement have the same shares in another one."""
    return reduce(
        and_,
        (
            one == two
            for axis, shares in placement.items()
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
