"""What a collective costs: a Load, and how several of them add up.

A Load is the seconds of a collective alone on an idle network, the part of them that bytes do not
pay, and how long it keeps each dimension of the network busy, by bytes over rate. Fields are
numbers or arrays and broadcast freely.
"""

from __future__ import annotations

from functools import reduce
from itertools import repeat
from operator import mul
from typing import NamedTuple

from ..num import Num, largest, maximum, minimum

KINDS = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "all_to_all",
)
"""Names of collectives, as PyTorch and NCCL have them."""


class Busy(tuple[Num, ...]):
    """Seconds that each dimension of a network is occupied, nearest first; adds and scales like a
    number.
    """

    __slots__ = ()

    def __add__(self, other: Busy) -> Busy:  # type: ignore[override]
        if not self or not other:
            return self or other
        return Busy([a + b for a, b in zip(self, other, strict=True)])

    def __mul__(self, factor: Num) -> Busy:  # type: ignore[override]
        return Busy(map(mul, self, repeat(factor)))

    @property
    def most(self) -> Num:
        """Seconds of the busiest dimension."""
        return largest(self)


class Load(NamedTuple):
    """The cost of one collective, or of several."""

    seconds: Num = 0.0
    """Alone on an idle network, by the algorithm's own law."""
    latency: Num = 0.0
    """The part of it that bytes do not pay."""
    busy: Busy = Busy()
    """Seconds each dimension is occupied, at most `seconds`; () where nothing is sent."""

    def __add__(self, other: Load) -> Load:  # type: ignore[override]
        """One after the other."""
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        return Load(
            self.seconds + other.seconds,
            self.latency + other.latency,
            self.busy + other.busy,
        )

    def __mul__(self, times: Num) -> Load:  # type: ignore[override]
        """So many times one after the other."""
        if self is NOTHING or (isinstance(times, float) and times == 1.0):
            return self
        return Load(
            self.seconds * times, self.latency * times, self.busy * times
        )


NOTHING = Load()
"""What is never sent."""


def stream(*loads: Load) -> Load:
    """Back to back and pipelined, so that hops hide under bytes: the busiest dimension, or the hops
    of all if they last longer.

    Source: How To Scale Your Model, parts 3 and 12.
    """
    both = reduce(Load.__add__, loads, NOTHING)
    return both._replace(seconds=maximum(both.busy.most, both.latency))


def beside(*loads: Load) -> Load:
    """Loads at once: the longest of them, or the busiest dimension."""
    busy = reduce(Busy.__add__, (load.busy for load in loads), Busy())
    seconds = maximum(busy.most, largest(load.seconds for load in loads))
    return Load(seconds, largest(load.latency for load in loads), busy)


def least(a: Load, b: Load) -> Load:
    """The best of two algorithms: the smaller of every field, so that a faster network never costs
    more.

    (Choosing by seconds alone, a faster link may flip the choice to the algorithm that occupies
    links for longer.)
    """
    busy = Busy(map(minimum, a.busy, b.busy))
    return Load(
        minimum(a.seconds, b.seconds), minimum(a.latency, b.latency), busy
    )
