"""Slices of a torus: which shape a number of chips gets, and which of its axes still close to
rings.

An axis of a slice wraps round only if its length is a multiple of `Dim.wrap` (TPU v5e: the full 16;
v5p: 4), and where slices are wired from cubes (`Network.cubes`: v4, v5p, 7x) only if that holds for
every axis. Else it is a line with half the bandwidth.
Source: How To Scale Your Model, part 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import BadInput
from ..num import divisors, product
from .network import Dim, Network

Shape = tuple[int, ...]
TORUS = ("ring", "line")
"""Kinds of dimensions whose chips pass messages on along the links: they join those of a slice."""
MOST_SLICES = 4
"""A number of chips may make this many times more slices than whole pods would be needed."""


def axes(network: Network) -> tuple[Dim, ...]:
    """The leading dimensions that are axes of a torus; none for switched networks."""
    dims = []
    for dim in network.dims:
        if dim.kind not in TORUS:
            break
        dims.append(dim)
    return tuple(dims)


def rings_of_slice(network: Network, shape: Shape) -> tuple[bool, ...]:
    """Which axes of a slice of that shape are rings."""
    whole = tuple(
        d.kind == "ring" and n % d.wrap == 0
        for d, n in zip(axes(network), shape, strict=True)
    )
    return tuple(all(whole) for _ in whole) if network.cubes else whole


def slice_network(network: Network, shape: Shape) -> Network:
    """The network of a slice: its axes have that shape, and are lines of half the bandwidth where
    they do not wrap.

    Raises BadInput for a shape the torus has no room for.
    """
    torus = axes(network)
    if len(shape) != len(torus):
        raise BadInput(
            f"shape {_text(shape)} must have {len(torus)} sides, the axes of {network.name}"
        )
    if any(n < 1 for n in shape):
        raise BadInput(f"shape {_text(shape)} must have sides of at least 1")
    if not _fits(network, shape):
        raise BadInput(
            f"a slice of {_text(shape)} does not fit into {network.name} of {_text(_sizes(torus))}"
        )
    dims = tuple(
        _cut(d, n, ring)
        for d, n, ring in zip(
            torus, shape, rings_of_slice(network, shape), strict=True
        )
    )
    return replace(network, dims=dims + network.dims[len(torus) :])


def shape_for(network: Network, chips: int) -> tuple[Shape, int]:
    """(shape of a slice, number of slices) for that many chips: as few slices as possible, as cubic
    as possible.

    Where slices are made of cubes, shapes that close come first. Slices are alike and joined by the
    dimension above the torus. Raises BadInput if the chips make no such slices.
    """
    torus = axes(network)
    room = 1
    for dim in torus:
        room *= dim.size or chips
    above = len(network.dims) > len(torus)
    for count in divisors(chips) if above else [1]:
        if chips // count > room:
            continue
        if count > MOST_SLICES * -(-chips // room):
            break
        shapes = [
            s for s in _shapes(chips // count, len(torus)) if _fits(network, s)
        ]
        if shapes:
            lines = {
                s: network.cubes and not all(rings_of_slice(network, s))
                for s in shapes
            }
            return min(
                shapes, key=lambda s: (lines[s], max(s), sum(s), s)
            ), count
    raise BadInput(
        f"{chips} chips make no box on {network.name} of {_text(_sizes(torus))}, nor a few equal"
        " ones"
    )


def _fits(network: Network, shape: Shape) -> bool:
    sizes = _sizes(axes(network))
    if network.cubes:  # optical switches join cubes in any order
        return bool(product(shape) <= product(sizes))
    return all(n <= size for n, size in zip(shape, sizes, strict=True))


def _sizes(torus: tuple[Dim, ...]) -> Shape:
    return tuple(d.size or 1 for d in torus)


def _cut(dim: Dim, n: int, ring: bool) -> Dim:
    if ring:
        return replace(dim, size=n)
    return replace(
        dim,
        size=n,
        kind="line",
        bandwidth=dim.bandwidth / (2 if dim.kind == "ring" else 1),
    )


def _shapes(chips: int, sides: int) -> Iterator[Shape]:
    """Boxes of that many chips with sides in ascending order."""
    if sides == 1:
        yield (chips,)
        return
    for side in divisors(chips):
        if side**sides > chips:
            return
        yield from (
            (side, *rest)
            for rest in _shapes(chips // side, sides - 1)
            if side <= rest[0]
        )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def parse_shape(text: str) -> Shape:
    """The sides of "16x16x16"; BadInput if it is not a box."""
    sides = text.lower().replace("×", "x").split("x")
    if not all(
        side.strip().isdigit() and len(side.strip()) < 10 for side in sides
    ):
        raise BadInput(
            f"shape {text[:40]!r} must be the sides of a slice, such as 8x16 or 16x16x16"
        )
    return tuple(int(side) for side in sides)
