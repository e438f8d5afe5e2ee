"""Collectives on the axes of a torus and the levels above it, as the scaling book times them.

A group spans n chips of an axis: the whole ring, a line, or every s-th chip. Letters: W [B/s], what
one chip sends along a ring axis, both directions together (a line, or a part of an axis, has W/2);
V [B], the full vector: what each chip ends with.

    all-gather, reduce-scatter   V/(W_1 + W_2 + ...)   axes of a torus work side by side;
                                 n drops out (exactly: (n-1)/n)
    all-reduce                   twice that
    all-to-all                   S n_i/(4 W_i) for the longest axis i;
                                 S = V/n is what one chip starts with
    latency                      hops x 1 us, hidden under the bytes: the larger of the two counts

Levels above (other pods, other nodes) see V/S_i and work behind one another: the slowest counts
(`levels`). Source: How To Scale Your Model, parts 3, 5 and 12; parts of axes and exchanges over
several axes follow from the load of the links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..describe.network import ALL, Dim
from ..describe.slices import TORUS
from ..num import (
    Num,
    ceil,
    floor,
    maximum,
    product,
    where,
)
from .collectives import levels
from .links import Group, Links
from .load import Busy, Load, stream


class Part(NamedTuple):
    """What one axis, or one switched level, gives a group."""

    n: Num
    """Members of the group on it."""
    rate: Num
    """Bytes per second one chip can send to them."""
    latency: Num = 0.0
    """Seconds a message needs to reach all of them, were it empty."""
    row: bool = False
    """They stand in a row (ring or line) and pass messages on; else a switch joins any to any."""
    dim: int = 0
    """The network dimension that it loads."""


TIMES = {"all_reduce": 2}
"""collective -> phases of an all-gather it takes, where more than one."""
Level = tuple[Part, ...]
"""Parts used side by side: the axes of a torus, or one switch."""
Span = tuple[Level, ...]
"""All a group stretches over, nearest first."""


class TorusGroup(tuple[Num, ...]):
    """A group by its ranks in each dimension, as any other, that lies on its own parts of the axes:
    not from their beginning.
    """

    span: Span

    @classmethod
    def on(cls, group: Group, span: Span) -> TorusGroup:
        """The group and where it lies."""
        made = cls(group)
        made.span = span
        return made


class Lanes(NamedTuple):
    """Levels as `levels.phase` takes them: bytes per second of each."""

    rates: tuple[Num, ...]

    def reach(self, group: Group) -> tuple[Num, ...]:
        """The rates: parts know their groups already."""
        return self.rates


def axis(
    dim: Dim,
    n: Num,
    stride: Num = 1,
    efficiency: float | None = None,
    ranks: Num = ALL,
) -> Part:
    """n members of a network dimension, every `stride`-th one.

    A ring that the group closes (n x stride chips are the axis) gives W, half of it where it does
    not close; s interleaved groups share the links, so each has 1/s of that. Hops: half way round a
    ring, all along a line; one through a switch. efficiency, ranks: as in `Dim.rate`.
    """
    rate = dim.rate(efficiency, ranks)
    if dim.kind not in TORUS:
        return Part(n, rate * dim.used(n), where(n > 1, dim.latency, 0.0))
    ring = dim.kind == "ring"
    closed = (n * stride == dim.size) & ring
    open_rate = rate / 2 if ring else rate
    hops = where(closed, ceil(n / 2), n - 1) * stride
    return Part(
        n,
        where(closed, rate, open_rate) / stride,
        where(n > 1, hops, 0.0) * dim.latency,
        row=True,
    )


def members(span: Span) -> tuple[Num, ...]:
    """Ranks of the group in each level."""
    return tuple(product(p.n for p in level) for level in span)


def lanes(span: Span) -> Lanes:
    """Bytes per second of each level: its parts that the group spans, added up."""
    return Lanes(
        tuple(
            # a level that the group does not span sends nothing: its rate is divided by all the
            # same
            maximum(sum(where(p.n > 1, p.rate, 0.0) for p in level), 1e-30)
            for level in span
        )
    )


def latency(span: Span) -> Num:
    """Seconds of the hops of one phase: all axes of all levels one after the other."""
    total: Num = 0.0
    for level in span:
        for part in level:
            total = total + part.latency
    return total


def exchange_load(part: Part) -> Num:
    """What a uniform exchange loads on an axis, in units of what a chip starts with: n/4, exactly
    floor(n^2/4)/n.

    On a line floor(n^2/4) of the n^2 pairs cross the middle; a ring carries half as much each way,
    on twice the rate. Through a switch: (n-1)/n.
    """
    return (
        floor(part.n * part.n / 4) / part.n
        if part.row
        else (part.n - 1) / part.n
    )


def exchange_seconds(S: Num, span: Span) -> list[Num]:
    """Seconds each part is busy when every rank sends S/n of its S bytes to each other one.

    A share of S_{i+1}/n stays below level i + 1 and is spread evenly over the members of level i.
    """
    sizes = members(span)
    n = product(sizes)
    inside: Num = 1.0
    busy: list[Num] = []
    for level, size in zip(span, sizes, strict=True):
        inside = inside * size
        busy += [
            S * inside / n * exchange_load(part) / part.rate for part in level
        ]
    return busy


def parts_busy(kind: str, V: Num, span: Span, whole: bool) -> list[Num]:
    """Seconds each part is busy with a collective. whole: without the factor (n-1)/n."""
    if kind == "all_to_all":
        return exchange_seconds(V, span)
    times = TIMES.get(kind, 1)
    levels_busy = levels.phase(lanes(span), V, members(span), whole)
    pairs = zip(span, levels_busy, strict=True)
    return [
        where(part.n > 1, times * busy, 0.0)
        for level, busy in pairs
        for part in level
    ]


def collective(kind: str, V: Num, span: Span, whole: bool = False) -> Load:
    """A collective on the parts of a span: the busiest of them, or the hops if they last longer."""
    hops = where(V > 0, TIMES.get(kind, 1) * latency(span), 0.0)
    return stream(
        Load(latency=hops, busy=Busy(parts_busy(kind, V, span, whole)))
    )


def send(V: Num, parts: Sequence[Part], hops: Num = 1.0) -> Num:
    """A message of V bytes to one chip, over the links of several axes at once; `hops` links one
    after the other.
    """
    return where(
        V > 0,
        maximum(V / sum(p.rate for p in parts), parts[0].latency * hops),
        0.0,
    )


def torus_span(net: Links, group: Group) -> Span:
    """Where a group lies: neighbouring axes of a torus make one level, every other dimension its
    own.
    """
    if isinstance(group, TorusGroup):
        return group.span
    runs: list[list[Part]] = []
    before = ""
    for i, (dim, n) in enumerate(zip(net.dims, group, strict=True)):
        part = axis(
            dim, n, efficiency=net.how.efficiency, ranks=net.ranks
        )._replace(dim=i)
        if dim.kind in TORUS and before in TORUS:
            runs[-1].append(part)
        else:
            runs.append([part])
        before = dim.kind
    return tuple(map(tuple, runs))
