"""ZB-H1 and ZB-H2: the backward pass is cut in two, and the weight gradients, which nobody waits
for, fill the bubble.

ZB-H1 is 1F1B with the gradients of the weights held back by r microbatches on rank r; it holds no
more activations
than 1F1B:

    bubble = (p-1)(f + i) - a min(f, i, w)          a = min(m, p) - 1
    in a run = (p-1)(f + i) - a min(f, w)
    in flight = min(p, m)

ZB-H2 runs twice as many forwards ahead and holds back twice as many weight gradients:

    bubble = (p-1)(f + i) - min(a f, a w, a/2 i)            a = min(m, 2p - 1) - 1, even
    in a run = (p-1)(f + i) - min(a f, a w, a/2 (f + i))    a odd: (a-1)/2 of them,
                                                            and one min(i, w) or min(f, w)
    in flight = min(2p - 1, m)

All exact for all p, m, f, i, w. With f = i = w and enough microbatches both bubbles are (p-1) f, a
third of 1F1B's: the last rank cannot start before (p-1) f, and a step that ends with a collective
(gradient norm, loss scale) ends when the last rank does. In a run of steps without such a barrier
(the paper's "post-validation" of the optimizer) every rank begins the next step as soon as it is
done, and two steps take less than twice one. What the second adds to m (f + i + w) is, if w <= f
and w <= (f + i)/2, the paper's (p-1)(f + i - w) for H1 and, from m = 2p - 1 on, (p-1)(f + i - 2w)
for H2: zero. H2 is never below zero: beyond w = (f + i)/2 there is nothing left to fill.

Where stages differ or sends take time (rank x runs w_x = h (p-1-x) forwards ahead and holds back h
x weight gradients; h
is 1 or 2), the step is rank x's work and what comes before and after it, the longest way:

    before  down to x; or as many forwards on the first rank as x runs ahead; or further down with
            the first microbatch and up again, less the forwards run ahead meanwhile; or up as far
            as the first rank or the second, and down to x
    after   nothing; or down with the last forward and up; or up from x with the last input gradient
            to rank y, which has fewer weight gradients left; or with an earlier one to a rank that
            has more left: as soon as x has no forwards left, or as y begins with weight gradients
    in a run  after, and down again to x with the next step's first, or nothing

or the microbatches go in rounds of h (p-1) + 1, sum (f + i) + 2 (p-1) send + w each: where sends
are longer than the weight gradients that hide them.

That is what every step from the third on takes; in one pipeline of some fifty thousand the second
takes less, by up to 2 %.

With fewer than 2p - 1 microbatches ZB-H2 can be slower than ZB-H1. Activations are counted until
the weight gradients are done; the paper's M_W, what is left of them after I, is smaller.

Source: Qi et al. 2024 (arXiv 2401.10241) sections 2.3 and 3, table 2. The bubbles for unequal f, i,
w are our own: the longest paths of the order, checked against `timeline` on every p, m of the
tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from ..num import Num, ceil, floor, largest, maximum, minimum, where
from . import waits
from .dealt import Dealt, Place
from .looped import looped_order
from .types import Order, Schedule, looped_stage, one_chunk

NEVER = 1e6
"""Microbatches: what a path that there is not falls behind any other."""


def h1_order(p: int, m: int, v: int) -> Order:
    """Rank r: p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
    return looped_order(p, m, 1, hop=1, split=True)


def h1_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, i, w), a = min(m, p) - 1."""
    a = minimum(m, p) - 1
    return (p - 1) * (f + i) - a * minimum(minimum(f, i), w)


def h1_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, w), a = min(m, p) - 1."""
    return (p - 1) * (f + i) - (minimum(m, p) - 1) * minimum(f, w)


def h1_span(d: Dealt, barrier: bool) -> Num:
    """See above, h = 1."""
    return _Pipe(d, 1.0).span(barrier)


def h2_span(d: Dealt, barrier: bool) -> Num:
    """See above, h = 2."""
    return _Pipe(d, 2.0).span(barrier)


class _Pipe(NamedTuple):
    """Stages that run h forwards ahead for each rank below, and hold back h weight gradients for
    each rank above.
    """

    d: Dealt
    h: float

    def span(self, barrier: bool) -> Num:
        """The longest path."""
        d = self.d
        slow = d.places([0.0, d.q, *d.second, *d.between])
        first, last, *more = slow.each
        second = tuple(more[: len(d.second)])
        fuller = tuple(more[len(d.second) :])
        all_ahead = d.places([maximum(d.q - k, 0.0) for k in self._all()])
        all_left = d.places([minimum(k, d.q) for k in self._all()])
        turns = (last, *all_ahead.each)
        ends = (first, *second, *all_left.each)
        idle = [(x, d.place(self._idle(x))) for x in fuller]
        paths = [self._rounds(first, last), self._two_rounds(first, last)]
        if fuller and not d.more:
            paths.append(self._fuller_rounds(first, last))
        between = (*((first,) if fuller else ()), *second, *fuller)
        for x in slow.together:
            turned = reduce(maximum, [self._turned(x, to) for to in turns])
            late = self._late(x, ends, between, idle, last)
            after = late + self._early(x, first, (*second, *fuller))
            via = [(z, self._via(z, x, last)) for z in (first, *second)]
            via.append(
                (
                    first,
                    minimum(self.ahead(x), d.m - 1) * (first.at.f - x.at.f),
                )
            )
            if barrier:
                before = maximum(
                    turned, reduce(maximum, [gain for _, gain in via])
                )
                last_ones = largest(gain for _, gain in late)
                around = x.down + maximum(
                    before + last_ones,
                    turned + largest(gain for _, gain in after),
                )
            else:
                ways = [turned + gain + x.down - y.down for y, gain in after]
                ways += [
                    lost + gain + x.down - y.down
                    for z, lost in via
                    for y, gain in late
                    if y is z or y is first
                ]
                around = maximum(turned, reduce(maximum, ways))
            paths.append(d.m * x.at.total + around)
        return d.longest(paths)

    def _idle(self, x: Place) -> Num:
        """The rank that the first microbatch after x's last forward leaves for the first one."""
        behind = maximum(self.d.m - 1 - self.ahead(x), 0.0)
        return minimum(ceil(behind / self.h), x.stage)

    def _all(self) -> tuple[Num, Num]:
        """Ranks from an end on which all microbatches run ahead, or all are held back: the last of
        them and the next.
        """
        most = floor((self.d.m - 1) / self.h)
        return most, most + 1

    def ahead(self, x: Place) -> Num:
        """Forwards that a rank runs before its first backward, if there are as many."""
        return self.h * (self.d.q - x.stage)

    def left(self, x: Place, j: Num) -> Num:
        """Seconds that a rank has left after its I of microbatch j."""
        m = self.d.m
        forward = maximum(m - 1 - self.ahead(x) - j, 0.0)
        held = m - maximum(j - self.h * x.stage, 0.0)
        return forward * x.at.f + (m - 1 - j) * x.at.i + held * x.at.w

    def owed(self, x: Place) -> Num:
        """The same after its last I: weight gradients."""
        return minimum(self.h * x.stage + 1, self.d.m) * x.at.w

    def _turned(self, x: Place, to: Place) -> Num:
        """Down from x with its first microbatch to where F turns into I, less the forwards that x
        runs meanwhile.
        """
        meanwhile = minimum(self.ahead(x), self.d.m - 1) - self.ahead(to)
        return where(
            to.stage > x.stage,
            maximum(x.below(to) - maximum(meanwhile, 0.0) * x.at.f, 0.0),
            0.0,
        )

    def _via(self, z: Place, x: Place, last: Place) -> Num:
        """To the end first from z, then down from z to x, less what x does of the microbatches
        before.
        """
        before = self.ahead(z) + 1
        held = where(z.stage == 0, z.at.w - x.at.w, 0.0)
        there = z.at.f + z.below(last) + z.at.i + held
        found = (
            there
            - before * x.at.f
            - (self.h * (x.stage - z.stage) + 1) * x.at.i
        )
        return where((z.stage < x.stage) & (before < self.d.m), found, 0.0)

    def _late(
        self,
        x: Place,
        ends: tuple[Place, ...],
        between: tuple[Place, ...],
        idle: list[tuple[Place, Place]],
        last: Place,
    ) -> list[tuple[Place, Num]]:
        """(y, gain): up from x with the last microbatch, or the first after x's last forward, to
        rank y, and what that has left, less what x has left."""
        owed = self.owed(x)
        again = self._again(x, last)
        m = self.d.m
        found = [
            (
                y,
                again
                + where(
                    y.stage <= x.stage, x.up - y.up - owed + self.owed(y), 0.0
                ),
            )
            for y in ends
        ]
        first = ends[0]
        none_left = maximum(m - 1 - self.ahead(x), 0.0)
        found += self._leaves(x, first, between, lambda y: none_left)
        for rank, y in idle:
            mine = x.stage == rank.stage
            found += self._leaves(x, first, (y,), lambda _: none_left, mine)
        return found

    def _early(
        self, x: Place, first: Place, between: tuple[Place, ...]
    ) -> list[tuple[Place, Num]]:
        """The same when rank y begins with weight gradients."""
        return self._leaves(
            x,
            first,
            between,
            lambda y: minimum(self.h * y.stage, self.d.m - 1),
        )

    def _leaves(
        self,
        x: Place,
        first: Place,
        between: tuple[Place, ...],
        when: Callable[[Place], Num],
        can: Any = True,
    ) -> list[tuple[Place, Num]]:
        """Up from x with such a microbatch to y, which it may leave for the first rank after its
        last one. can: for which x.
        """
        found = []
        for y in between:
            if y is not x:
                j = when(y)
                gain = x.up - y.up + self.left(y, j) - self.left(x, j)
                on = gain + y.up - self.owed(y) + self.owed(first)
                before = (y.stage < x.stage) & (self.d.spare >= 1) & can
                nowhere = -NEVER * x.at.total
                found += [
                    (y, where(before, gain, nowhere)),
                    (first, where(before, on, nowhere)),
                ]
        return found

    def _again(self, x: Place, last: Place) -> Num:
        """With the last microbatch down to the end, up to x again, less what x does meanwhile of
        the others.
        """
        m = self.d.m
        ahead = self.ahead(x)
        held = self.h * x.stage
        weights = maximum(m - 1 - held, 0.0) - maximum(
            m - 1 - ahead - held, 0.0
        )
        found = x.below(last) - ahead * x.at.i - weights * x.at.w
        return where(ahead + 1 < m, maximum(found, 0.0), 0.0)

    def _rounds(self, first: Place, last: Place) -> Num:
        """As many rounds as there are, and what is left on the last rank or, with h = 1, in a round
        of fewer ranks.
        """
        d = self.d
        once = self.h * self.d.q + 1
        k = floor((d.m - 1) / once)
        left = d.m - 1 - k * once
        rest = (
            left * (last.at.f + last.at.i)
            + minimum(left, maximum(d.m - once, 0.0)) * last.at.w
        )
        if self.h == 1.0:
            rest = maximum(
                rest,
                d.last_ranks(left)
                + where((left > 0) & (k > 0), d.at(d.p - left).w, 0.0),
            )
        return (1 + k) * (self._through(first, last) + first.at.w) + rest

    def _two_rounds(self, first: Place, last: Place) -> Num:
        """The first and the last microbatch through all stages, the others on the first rank, which
        holds nothing back.
        """
        between = self.d.m - 1 - (self.h * self.d.q + 1)
        return where(
            between >= 0,
            2 * (self._through(first, last) + first.at.w)
            + between * first.at.total,
            0.0,
        )

    def _fuller_rounds(self, first: Place, last: Place) -> Num:
        """Rounds of the n ranks that hold the most layers, between the first and the last
        microbatch through all stages; these turn back before the first rank, if it is no fuller
        one."""
        d = self.d
        h = self.h
        layer = self.d.layer
        n = d.p - d.spare
        top = where(d.spare >= 2, 1.0, 0.0)
        between = d.m - 1 - (h * (d.q - top) + 1)
        each = n - 1.0
        once = h * each + 1.0
        k = floor(maximum(between, 0.0) / once)
        most = d.cut.most
        rounds = k * (
            most * (n * (layer.f + layer.i) + layer.w) + 2 * each * d.send
        )
        rest = between - k * once
        # a rank that holds back h weight gradients has none after its first I
        weights = minimum(rest, maximum(between + 1 - h * top, 0.0))
        rest = most * (rest * (layer.f + layer.i) + weights * layer.w)
        ends = 2 * self._through(first, last) + first.at.w
        ends = ends + where(
            top > 0, -(first.at.f + first.at.i + 2 * d.send), first.at.w
        )
        several = (d.spare >= 1) & (d.spare < d.q)
        return where((between >= 0) & several, ends + rounds + rest, 0.0)

    def _through(self, first: Place, last: Place) -> Num:
        """F and I of one microbatch through all stages."""
        return first.at.f + first.below(last) + first.at.i


def h1_in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(p, m)."""
    return minimum(p, m)


def h2_order(p: int, m: int, v: int) -> Order:
    """Rank r: 2 (p - 1 - r) forwards ahead; the k-th W after the (k + 2r)-th I."""
    return looped_order(p, m, 1, hop=2, split=True)


def h2_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - min(a f, a w, a/2 i), a = min(m, 2p - 1) - 1; if a is odd, (a-1)/2 i + min(i,
    w) for a/2 i.
    """
    return (p - 1) * (f + i) - _filled(p, m, f, w, i, minimum(i, w))


def h2_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The same with f + i for i, and for an odd a with min(f, w) for min(i, w)."""
    return (p - 1) * (f + i) - _filled(p, m, f, w, f + i, minimum(f, w))


def _filled(p: Num, m: Num, f: Num, w: Num, pair: Num, odd: Num) -> Num:
    """What a = min(m, 2p - 1) - 1 weight gradients fill: a min(f, w), or `pair` for two of them and
    `odd` for one more.
    """
    a = minimum(m, 2 * p - 1) - 1
    pairs = floor(a / 2)
    return minimum(a * minimum(f, w), pairs * pair + (a - 2 * pairs) * odd)


def h2_in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(2p - 1, m)."""
    return minimum(2 * p - 1, m)


ZB_H1 = Schedule(
    name="zb-h1",
    title="Zero bubble ZB-H1",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name=None,
    split_backward=True,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=h1_order,
    bubble=h1_bubble,
    span=h1_span,
    in_flight=h1_in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: h1_in_flight(p, m, v) - 1,
    bubble_in_run=h1_in_run,
    needs=(one_chunk("zb-h1"),),
    waits=lambda d, seconds: waits.zero_bubble(d, 1.0),
)

ZB_H2 = Schedule(
    name="zb-h2",
    title="Zero bubble ZB-H2",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name=None,
    split_backward=True,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=h2_order,
    bubble=h2_bubble,
    span=h2_span,
    in_flight=h2_in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: h2_in_flight(p, m, v) - 1,
    bubble_in_run=h2_in_run,
    needs=(one_chunk("zb-h2"),),
    waits=lambda d, seconds: waits.zero_bubble(d, 2.0),
)
