"""What a schedule waits at least: a few paths of its order, cheap enough to ask for millions of
layouts.

Each is a way that a microbatch goes while a rank has nothing to do, less what the rank does
meanwhile for each of the first microbatches. So it falls with the number of microbatches, and not
below zero. All sends are free here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..num import Num, maximum, minimum, where
from .dealt import Dealt

ALL = float("inf")
"""Microbatches: a rank has something to do meanwhile of as many as there are."""


class Wait(NamedTuple):
    """Seconds of a way, less `fill` for each microbatch after the first, up to `most` of them."""

    way: Num
    fill: Num = 0.0
    most: Num = 0.0

    def of(self, m: Num) -> Num:
        """With m microbatches."""
        return maximum(self.way - self.fill * minimum(self.most, m - 1.0), 0.0)

    def where(self, condition: Any, other: Wait) -> Wait:
        """This one where a condition holds, else the other."""
        return Wait(
            *(where(condition, a, b) for a, b in zip(self, other, strict=True))
        )

    def under(self, other: Wait) -> Wait:
        """At most either of them."""
        return Wait(
            minimum(self.way, other.way),
            maximum(self.fill, other.fill),
            maximum(self.most, other.most),
        )


def slowest(d: Dealt) -> Num:
    """Of the ranks that may have the most work the one that has, of several the last."""
    found, *others = d.slow
    longest = d.load(found).total
    for rank in others:
        load = d.load(rank).total
        later = (load == longest) & (rank > found)
        found = where((load > longest) | later, rank, found)
        longest = maximum(load, longest)
    return found


def one_f_one_b(d: Dealt) -> tuple[Wait, ...]:
    """Down to the slowest rank and up again; and from there to the end and back, less p - 1 - x
    forwards run ahead.
    """
    x = slowest(d)
    below = d.f(x + 1, d.p) + d.i(x + 1, d.p) + d.w(x + 1, d.p)
    return Wait(d.down(0.0, x) + d.up_whole(x, 0.0)), Wait(
        below, d.load(x).f, d.q - x
    )


def zero_bubble(d: Dealt, h: float) -> tuple[Wait, ...]:
    """In a run of steps, h forwards ahead for each rank below: up from the slowest rank and down
    with the next step's first microbatch, less its weight gradients left; and from there to the end
    and back, less the forwards run ahead.
    """
    x = slowest(d)
    mine = d.load(x)
    around = d.f(0.0, x) + d.i(0.0, x) + d.load(0.0).w - mine.w
    turned = d.f(x + 1, d.p) + d.i(x + 1, d.p)
    return Wait(around, mine.w, h * x), Wait(turned, mine.f, h * (d.q - x))


def interleaved(d: Dealt) -> tuple[Wait, ...]:
    """Down to the slowest rank and up again; of the way to its last chunk what outlasts its earlier
    chunks' forwards, of the way back from there their backward passes: of all microbatches, where
    these are one group; and from there to the end and back, less the forwards run ahead.
    """
    x = slowest(d)
    first, last, mine = d.place(x), d.place(d.top + x), d.earlier(x)
    every = d.p * ALL
    end = last.below_whole(d.place(d.stages - 1.0))
    ahead = maximum(first.at.f, last.at.f)
    return (
        Wait(first.down + first.back),
        Wait(last.down - first.down - mine.f, mine.f, every),
        Wait(last.back - first.back - mine.b, mine.b, every),
        Wait(end, ahead, 2.0 * (d.q - x)),
    )


def zbv(d: Dealt, seconds: Num, heavy: Num) -> tuple[Wait, ...]:
    """In a run of steps: half of (p-1)(f + i) for each of 2 (p-1) - (m-1), of ranks with layers
    only, even ones. Where ranks are uneven: down and up the V, down to a heavy rank and up from it,
    less what that does besides its input gradients.

    seconds: of a microbatch on the slowest rank, which take longer.
    """
    layers = d.v * d.cut.least
    f, i, w = (layers * seconds for seconds in d.lightest)
    more = maximum(seconds - (f + i + w), 0.0)
    even = Wait(d.q * (f + i) - more, (f + i) / 2 + more, 2 * d.q)
    if not d.uneven:
        return (even,)
    one, other = d.at(heavy), d.at(d.stages - 1.0 - heavy)
    behind = maximum(seconds - d.load(heavy).total, 0.0)
    way = d.f(0.0, d.stages) + d.up(d.stages, d.stages - heavy)
    way = way + d.up(heavy, 0.0) + d.at(0.0).w
    # from m = p on weight gradients are left out too, and fewer forwards
    each = one.f + maximum(other.f, one.w + other.w) + behind
    once = one.f + other.f + one.w + behind
    return (even.where(d.cut.alike, Wait(way - once, each, d.p * ALL)),)
