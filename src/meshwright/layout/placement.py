"""Where the ranks of each axis lie in the network, for one layout and for columns of them: as
launchers number ranks, unless a layout says otherwise, or every group as near as its size allows.

A placement gives each axis a share of every dimension of the network; shares multiply up to the
degree, and those of all axes in one dimension to at most its `rooms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from operator import and_, or_
from typing import Any

from ..describe.cluster import Cluster
from ..describe.framework import Framework
from ..describe.frozen import FrozenDict, with_values
from ..describe.job import Job
from ..describe.layout import AXES, Layout
from ..describe.slices import axes
from ..num import (
    Num,
    anywhere,
    common_divisor,
    floor,
    largest,
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
) -> Shares:
    """Shares of each axis, as launchers number ranks: axes in `order` take the fast dimensions
    first, of each as many ranks as divide what they still need; the last dimension takes the rest.
    An axis that leaves a unit is the last with neighbours there: those of later ones are beyond.

    sizes: members of each network dimension (`Cluster.sizes`).
    """
    rooms: list[Num] = [float(size) for size in sizes[:-1]]
    placement = {}
    for axis in order:
        need, shares = degrees[axis], list[Num]()
        for i, room in enumerate(rooms):
            shares.append(share := largest_divisor(need, room))
            need = need / share
            rooms[i] = where(need > 1, 1.0, floor(room / share))
        placement[axis] = (*shares, need)
    return placement


def mesh_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...],
    mesh: int,
) -> Shares:
    """Shares of each axis where the first `mesh` dimensions join a slice that is full: axes in
    `order` take of each what divides it, so that the axes of a slice fill it, and slices are
    numbered as ranks are. A mesh of JAX is the product of one of slices and one in each
    (jax/experimental/mesh_utils.py, create_hybrid_device_mesh).
    """
    rooms: list[Num] = [float(size) for size in sizes[:mesh]]
    near, slices = dict[str, list[Num]](), dict[str, Num]()
    for axis in order:
        need, shares = degrees[axis], list[Num]()
        for i, room in enumerate(rooms):
            shares.append(share := common_divisor(need, room))
            need, rooms[i] = need / share, room / share
        near[axis], slices[axis] = shares, need
    far = launcher_shares(slices, sizes[mesh:], order)
    return {axis: (*near[axis], *far[axis]) for axis in order}


def uneven_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...],
) -> Shares:
    """Shares of each axis where ranks fill no whole units of some dimension: as many of each group
    in every unit, since launchers start the same number of ranks on every node.

    As many as divide the group, of at most those that it has everywhere where units are filled one
    after the other (`least_inside`). 20 replicas in nodes of 8 are thus 4 in each of 5. Those in
    8, 8 and 4 take as long: NCCL gives all ranks the channels and bandwidth of the one with the
    least (src/init.cc, initTransportsRank).
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
            least = least_inside(group, apart, unit, ranks)
            share = largest_divisor(group / inside, floor(least / inside))
            shares.append(share)
            inside = inside * share
        placement[axis] = (*shares, group / inside)
        apart = apart * group
    return placement


def least_inside(group: Num, apart: Num, unit: int, ranks: Num) -> Num:
    """The fewest ranks that a group has in a unit where it has any, with units of so many filled
    one after the other; 1 where the ranks of a group, `apart` from each other, do not divide a
    unit.

    Where k groups end and the next begins, a border cuts the unit it lies in. How near the first
    borders come to those of units is what the convergents of group/room leave (best approximations
    of the second kind), each within more of them.
    """
    room = where(unit % apart == 0, unit / apart, 1.0)
    groups = ranks / apart / group
    end = (groups * group) % room
    fewest = minimum(group, room)
    fewest = where(end > 0, minimum(fewest, end), fewest)
    past, left = room, group % room
    before, k = 0.0 * groups, 0.0 * groups + 1.0
    for _ in range(2 * unit.bit_length()):  # Fibonacci numbers take longest
        cut = (left > 0) & (k < groups)
        fewest = where(cut, minimum(fewest, left), fewest)
        times = floor(past / maximum(left, 1.0))
        past, left = left, where(left > 0, past - times * left, 0.0)
        before, k = k, before + times * k
    return where(ranks <= unit, group, fewest)


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
    layout: Layout,
    sizes: tuple[int, ...],
    order: tuple[str, ...] = AXES,
    mesh: int = 0,
) -> Layout:
    """A layout of scalar degrees with its placement filled in as a launcher numbers ranks in
    `order`; one that is given stays as it is.

    mesh: as in `launcher_shares`.
    """
    if layout.placement:
        return layout
    degrees = {axis: getattr(layout, axis) for axis in AXES}
    shares = launcher_shares(degrees, sizes, order, mesh)
    placement = {
        axis: tuple(map(int, share)) for axis, share in shares.items()
    }
    return with_values(layout, placement=FrozenDict(placement))


def launched(
    job: Job, layout: Layout, order: tuple[str, ...] = AXES
) -> Layout:
    """The layout placed as the launcher of the job's framework does it by itself, with axes in
    `order`.
    """
    on = job.cluster
    return placed(layout, on.sizes, order, mesh_dims(job.profile, on))


def launcher_shares(
    degrees: Mapping[str, Num],
    sizes: tuple[int, ...],
    order: tuple[str, ...] = AXES,
    mesh: int = 0,
) -> Shares:
    """Shares of each axis as a launcher that numbers ranks in `order` gives them: whole ones where
    these fit the last dimension, else uneven ones.

    mesh: so many of the first dimensions join slices that it fills, where there are ranks for that.
    """
    if mesh := min(mesh, len(sizes) - 1):
        ranks = product([degrees[axis] for axis in order])
        return _either(
            ranks % prod(sizes[:mesh]) == 0,
            mesh_shares(degrees, sizes, order, mesh),
            launcher_shares(degrees, sizes, order),
        )
    whole = rank_shares(degrees, sizes, order)
    beyond = exceeds_last(whole, sizes)
    if not anywhere(beyond):
        return whole
    return _either(beyond, uneven_shares(degrees, sizes, order), whole)


def _either(condition: Any, one: Shares, other: Shares) -> Shares:
    return {
        axis: tuple(map(partial(where, condition), mine, other[axis]))
        for axis, mine in one.items()
    }


def launcher_orders(by: Framework | None) -> tuple[tuple[str, ...], ...]:
    """Orders of the axes in which the launcher of a framework that a job names numbers ranks;
    empty: any placement.
    """
    orders = by.orders if by else ()
    return tuple(tuple(order.split("-")) for order in orders)


def mesh_dims(by: Framework | None, on: Cluster) -> int:
    """How many of the first dimensions join a slice, which holds a mesh of its own: those of a
    torus; under JAX those of a node.
    """
    return len(axes(on.network)) or (1 if by and by.mesh else 0)


def lays_out(by: Framework | None, layout: Layout, on: Cluster) -> Any:
    """Where the launcher of a framework, if a job names one, can lay ranks as the layout has them:
    numbered in one of its orders, or as a mesh that fills each slice, whose slices are numbered.
    """
    if orders := launcher_orders(by):
        each = [lies(layout, on.sizes, order) for order in orders]
        return reduce(or_, each)
    if not (by and by.mesh and layout.placement) or axes(on.network):
        return True
    near, *far = on.sizes
    if not far:
        return True
    here = {axis: shares[0] for axis, shares in layout.placement.items()}
    slices = {axis: getattr(layout, axis) / n for axis, n in here.items()}
    ranks = product([getattr(layout, axis) for axis in AXES])
    filled = (product([*here.values()]) == near) | (ranks % near > 0)
    numbered = launcher_shares(slices, tuple(far))
    return (filled | (ranks <= near)) & same_shares(
        {axis: shares[1:] for axis, shares in layout.placement.items()},
        numbered,
    )


def lies(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...]
) -> Any:
    """Where the ranks lie in that order of the axes, nearest first (as `placed`)."""
    if not layout.placement:
        return order == AXES
    degrees = {axis: getattr(layout, axis) for axis in AXES}
    return same_shares(
        layout.placement, launcher_shares(degrees, sizes, order)
    )


def same_shares(shares: Shares, other: Shares) -> Any:
    """Where every axis has the same shares."""
    return reduce(
        and_,
        (
            one == two
            for axis, mine in shares.items()
            for one, two in zip(mine, other[axis], strict=True)
        ),
    )


@dataclass(frozen=True)
class Nearest(Layout):
    """A layout whose groups each lie as near together as if they had the network to themselves: a
    bound on every placement.

    It may stand for an interval of dp, whose fewest replicas are its own. No layout of the interval
    sends less than the fewest ranks do, since every collective takes longer over more, nor has
    smaller shards than the most.
    """

    sizes: tuple[int, ...] = ()
    high: Layout | None = None
    """The most replicas of an interval; None: it is a layout."""

    @property
    def most_replicas(self) -> Layout:
        """The rows with the most replicas, whose shards are smallest."""
        return self.high or self

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
