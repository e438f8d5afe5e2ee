"""A cluster as a mesh of chips: its torus axes or switched levels, and groups of chips placed on them.

A logical axis (data X, tensor Y) takes a share of each network dimension. On a torus it may take a whole axis, the
inner part of one (neighbours: a line) or the outer part (every s-th chip, sharing links with the groups between).
Whole and inner parts work side by side; outer parts come on top as a level of their own, on what is left of the
vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..cost import torus
from ..cost.chip import rates
from ..cost.links import TORUS
from ..cost.torus import Part, Span
from ..count.work import Message
from ..describe.assumptions import Assumptions, NetworkTime
from ..describe.cluster import Cluster
from ..describe.network import Dim
from ..describe.slices import Shape, axes, shape_for, sliced
from ..errors import BadInput
from ..num import Num, maximum, product, where

LONG = 1e15
"""Bytes of a message so long that its hops do not matter."""


@dataclass(frozen=True)
class Mesh:
    """One pod of chips under an assumption set, and how many pods there are."""

    name: str
    dims: tuple[Dim, ...]
    """Torus axes, or levels of a hierarchy, nearest first; each with its size in this pod."""
    flops: float
    """FLOP/s of one chip in the precision asked for."""
    hbm_bytes: float
    hbm_bandwidth: float
    how: NetworkTime
    pods: int = 1
    above: Dim | None = None
    """What joins pods."""

    @property
    def shape(self) -> Shape:
        return tuple(d.size or 1 for d in self.dims)

    @property
    def chips(self) -> int:
        """Chips of one pod."""
        return int(product(self.shape))

    @property
    def torus(self) -> bool:
        return self.dims[0].kind in TORUS

    @property
    def whole(self) -> bool:
        """The shorthand V/W for V (n-1)/(n W)."""
        return self.how.ring_factor == "one"


class Placed(NamedTuple):
    """A group of chips, and the network dimension that each of its parts loads."""

    span: Span
    dims: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> Num:
        """Chips in the group."""
        return product(torus.members(self.span))


def mesh(cluster: Cluster, precision: str, assumptions: Assumptions, shape: Shape | None = None) -> Mesh:
    """The cluster as pods of one shape; on switched networks one pod of everything.

    shape: of a slice, such as (8, 16); None = the most cubic one.  Raises BadInput if the chips make no such slices.
    """
    chip, network = cluster.chip, cluster.network
    flops = rates(chip, precision, assumptions.chip).matrix
    made = Mesh(cluster.name or chip.name, (), flops, chip.hbm_bytes, chip.hbm_bandwidth, assumptions.network)
    if not axes(network):
        if shape is not None:
            raise BadInput(f"a shape is for slices of a torus: network {network.name} has switches, leave --shape out")
        sizes = zip(network.dims, cluster.sizes, strict=True)
        return replace(made, dims=tuple(replace(d, size=n) for d, n in sizes))
    if shape is None:
        shape, pods = shape_for(network, cluster.chips)
    else:
        pods = max(1, cluster.chips // int(product(shape)))
    cut = sliced(network, shape)
    above = cut.dims[len(shape) :]
    return replace(made, dims=cut.dims[: len(shape)], pods=pods, above=above[0] if above else None)


def place(mesh: Mesh, share: Sequence[int], inner: Sequence[bool]) -> Placed:
    """A group with share[i] chips of dimension i, neighbours where inner[i], else as far apart as they can be."""
    parts = []
    for i, (dim, n) in enumerate(zip(mesh.dims, share, strict=True)):
        stride = 1 if inner[i] or dim.kind not in TORUS else (dim.size or n) // n
        parts.append((i, stride, torus.axis(dim, n, stride, mesh.how.efficiency)))
    if not mesh.torus:
        return Placed(tuple((p,) for _, _, p in parts), tuple((i,) for i, _, _ in parts))
    near = [(i, p) for i, stride, p in parts if p.n > 1 and stride == 1]
    far = [(i, p) for i, stride, p in parts if p.n > 1 and stride > 1]
    found = [level for level in (near, far) if level]
    return Placed(
        tuple(tuple(p for _, p in level) for level in found), tuple(tuple(i for i, _ in level) for level in found)
    )


def everything(mesh: Mesh) -> Placed:
    """All chips of a pod as one group."""
    return place(mesh, mesh.shape, [True] * len(mesh.dims))


def ideal(n: Num, bandwidth: Num, dim: int = 0, latency: float = 0.0) -> Placed:
    """n chips on axes that together give that many bytes per second, n being any number: the book's X, Y and W M."""
    return Placed(((Part(n, bandwidth, latency, row=True),),), ((dim,),))


def between_pods(mesh: Mesh) -> Placed:
    """One chip of every pod."""
    dim = mesh.above
    assert dim is not None
    return Placed(((torus.axis(dim, mesh.pods, efficiency=mesh.how.efficiency),),), ((len(mesh.dims),),))


def bandwidth(placed: Placed, whole: bool = False) -> Num:
    """Bytes per second of a long all-gather over the group: V over its seconds; infinite for one chip."""
    seconds = torus.gather(LONG, placed.span, whole)
    return where(seconds > 0, LONG / maximum(seconds, 1e-300), float("inf"))


def loads(message: Message, placed: Placed, slot: int, width: int, whole: bool = False) -> list[Num]:
    """Seconds a collective keeps each of `width` network dimensions busy; then, in one of two slots, those of its
    hops."""
    if message.kind == "all_to_all":
        seconds: Sequence[Num] = [torus.all_to_all(message.bytes, placed.span)] * len(placed.span)
    else:
        seconds = torus.loads(message.bytes, placed.span, whole)
    times = 2 if message.kind == "all_reduce" else 1
    found: list[Num] = [0.0] * (width + 2)
    for load, dims in zip(seconds, placed.dims, strict=True):
        for dim in dims:
            found[dim] = found[dim] + times * load
    found[width + slot] = times * torus.latency(placed.span)
    return found
