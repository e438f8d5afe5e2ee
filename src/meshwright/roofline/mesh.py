"""A cluster as a mesh of chips: its torus axes or switched levels, and groups of chips placed on
them.

A logical axis (data X, tensor Y) takes a share of each network dimension. On a torus it may take a
whole axis, the inner part of one (neighbours: a line) or the outer part (every s-th chip, sharing
links with the groups between). Whole and inner parts work side by side; outer parts come on top as
a level of their own, on what is left of the vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..cost import torus
from ..cost.chip import rates
from ..cost.layer import Clock
from ..cost.network import Fabric
from ..cost.torus import Part, TorusGroup
from ..describe.assumptions import Assumptions
from ..describe.cluster import Cluster
from ..describe.layout import AXES
from ..describe.network import Dim
from ..describe.slices import TORUS, Shape, axes, shape_for, slice_network
from ..errors import BadInput
from ..layout.placement import launcher_shares
from ..num import Num, maximum, product, where

Ranks = tuple[Num, ...]
"""Chips of a group in each dimension of the network."""
LONG = 1e15
"""Bytes of a message so long that its hops do not matter."""


@dataclass(frozen=True)
class Mesh:
    """One pod of chips under an assumption set, and how many pods there are."""

    clock: Clock
    """What the chip and the network reach, in the precision asked for."""
    shape: Shape
    """Chips in each dimension of a pod."""
    pods: int = 1

    @property
    def fabric(self) -> Fabric:
        return self.clock.fabric

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Torus axes, or levels of a hierarchy, nearest first."""
        return self.fabric.dims[: len(self.shape)]

    @property
    def above(self) -> tuple[Dim, ...]:
        """What joins pods."""
        return self.fabric.dims[len(self.shape) :]

    @property
    def chips(self) -> int:
        """Chips of one pod."""
        return int(product(self.shape))

    @property
    def all_chips(self) -> int:
        """Chips of all pods."""
        return self.chips * self.pods

    @property
    def torus(self) -> bool:
        return self.dims[0].kind in TORUS

    @property
    def flops(self) -> float:
        """FLOP/s of one chip."""
        return self.clock.rates.matrix

    @property
    def nearest(self) -> int:
        """The nearest dimension that has more than one chip."""
        return next((i for i, n in enumerate(self.shape) if n > 1), 0)

    @property
    def everything(self) -> Ranks:
        """The chips of a pod as one group."""
        return place(self, self.shape)

    @property
    def counterparts(self) -> Ranks:
        """One chip of every pod."""
        return (*(1.0 for _ in self.dims), float(self.pods))

    @property
    def alone(self) -> Ranks:
        """One chip."""
        return tuple(1.0 for _ in self.fabric.dims)


def mesh(
    cluster: Cluster,
    precision: str,
    assumptions: Assumptions,
    shape: Shape | None = None,
) -> Mesh:
    """The cluster as pods of one shape; on switched networks one pod of everything, with as many
    chips in each unit where they fill no whole ones (20 in nodes of 8 are 5 x 4).

    shape: of a slice, such as (8, 16); None = the most cubic one.  Raises BadInput if the chips
    make no such slices.
    """
    network = cluster.network
    pods = 1
    filled: Sequence[Shape] = ()
    if not axes(network):
        if shape is not None:
            raise BadInput(
                f"a shape is for slices of a torus: network {network.name} has switches, leave"
                " --shape out"
            )
        everyone = dict.fromkeys(AXES, 1.0) | {"dp": float(cluster.chips)}
        ranks = launcher_shares(everyone, cluster.sizes)["dp"]
        shape = tuple(map(int, ranks))
        filled = (shape,)
        dims = tuple(
            replace(d, size=n)
            for d, n in zip(network.dims, shape, strict=True)
        )
    else:
        if shape is None:
            shape, pods = shape_for(network, cluster.chips)
        else:
            # fewer chips than the shape are one pod, cut to size
            pods = max(1, cluster.chips // int(product(shape)))
        dims = slice_network(network, shape).dims[: len(shape) + 1]
    fabric = Fabric.from_network(
        replace(network, dims=dims), assumptions.network
    ).under(*filled)
    clock = Clock(
        rates(cluster.chip, precision, assumptions.chip),
        fabric,
        assumptions.overlap,
    )
    return Mesh(clock, shape, pods)


def place(
    mesh: Mesh, share: Sequence[int], inner: Sequence[bool] | None = None
) -> Ranks:
    """A group with share[i] chips of dimension i, neighbours where inner[i] (None: everywhere),
    else as far apart as they can be."""
    group = (*map(float, share), *(1.0 for _ in mesh.above))
    if not mesh.torus:
        return group
    near: list[Part] = []
    far: list[Part] = []
    for i, (dim, n) in enumerate(zip(mesh.dims, share, strict=True)):
        stride = 1 if inner is None or inner[i] else (dim.size or n) // n
        part = torus.axis(dim, n, stride, mesh.fabric.how.efficiency)._replace(
            dim=i
        )
        if n > 1:
            (near if stride == 1 else far).append(part)
    return TorusGroup.on(
        group, tuple(tuple(level) for level in (near, far) if level)
    )


def shares(sizes: Sequence[int], degree: int) -> tuple[list[int], int]:
    """How many of `degree` chips lie in each dimension, as many as divide it, the first one filled
    first; and the factor that finds no room.
    """
    taken = []
    for n in sizes:
        taken.append(math.gcd(n, degree))
        degree //= taken[-1]
    return taken, degree


def farthest(mesh: Mesh, degree: int) -> Ranks:
    """`degree` chips as far apart as a pod has them, for stages of a pipeline; what is left, on the
    nearest dimension.
    """
    taken, left = shares(mesh.shape[::-1], degree)
    near, *others = reversed(taken)
    return tuple(map(float, (near * left, *others, *(1 for _ in mesh.above))))


def box(mesh: Mesh, degree: int, what: str) -> Ranks:
    """The nearest `degree` chips, whole dimensions first; BadInput if they make no box."""
    taken, left = shares(mesh.shape, degree)
    if left > 1:
        shape = " x ".join(map(str, mesh.shape))
        raise BadInput(
            f"{what} {degree} cannot be laid out as a box of whole parts of {shape} chips"
        )
    return place(mesh, taken)


def ring(mesh: Mesh, degree: int) -> Ranks:
    """`degree` chips in a row on the nearest dimension, at the rate of one direction; BadInput if
    it is shorter.
    """
    i = mesh.nearest
    dim = mesh.dims[i]
    size = mesh.shape[i]
    if degree > size:
        raise BadInput(
            f"context {degree} is more than the {size} chips of {dim.name}; a ring lies on one"
            " dimension"
        )
    group = place(
        mesh, [degree if j == i else 1 for j in range(len(mesh.shape))]
    )
    if isinstance(group, TorusGroup) and dim.kind == "ring" and degree == size:
        one_way = [
            [part._replace(rate=part.rate / 2) for part in level]
            for level in group.span
        ]
        return TorusGroup.on(group, tuple(map(tuple, one_way)))
    return group


def bandwidth(mesh: Mesh, group: Ranks) -> Num:
    """Bytes per second of a long all-gather over the group: V over its seconds; infinite where it
    takes none.
    """
    seconds = mesh.fabric.time("all_gather", LONG, group)
    # NumPy works both branches out: no division by 0 in the one that is not taken
    return where(seconds > 0, LONG / maximum(seconds, 1e-300), float("inf"))
