"""A model dealt to the stages of a pipeline: what one microbatch takes in any range of stages, and
on any rank.

Layers lie on stages and ranks as a `Cut` says. The first stage has the embedding besides and the
last the head. Fields are numbers or arrays. Where stages are folded, the turn needs no send, unless
the way up belongs to other ranks (`crosses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from itertools import chain
from operator import mul, sub
from typing import Any, NamedTuple

from ..num import Num, apart, beside, highest, maximum, minimum, where
from . import groups
from .cut import Cut

SHORT = 8192
"""Numbers for which one operation costs less than several of fewer."""


class Pass(NamedTuple):
    """Seconds of F, I and W of one microbatch."""

    f: Num
    i: Num
    w: Num

    @property
    def b(self) -> Num:
        """The whole backward pass."""
        return self.i + self.w

    @property
    def total(self) -> Num:
        return self.f + self.i + self.w

    def plus(self, other: Pass, times: Num = 1.0) -> Pass:
        """With so many times another added."""
        if isinstance(times, float) and times == 0.0:
            return self
        return Pass(
            self.f + times * other.f,
            self.i + times * other.i,
            self.w + times * other.w,
        )


NOTHING = Pass(0.0, 0.0, 0.0)


class Place(NamedTuple):
    """A stage: one microbatch in it, and its way there from the first stage and back. Ways between
    two stages are differences of these."""

    stage: Num
    at: Pass
    before: Pass
    """One microbatch in the stages before."""
    down: Num
    """From the start of F in the first stage to its start here, of one microbatch that waits for
    nobody.
    """
    up: Num
    """From the end of I here to its end in the first stage."""

    @property
    def silent(self) -> Place:
        """Where sends take no time."""
        before = self.before
        return Place(self.stage, self.at, before, before.f, before.i)

    @property
    def back(self) -> Num:
        """The way up of whole backward passes."""
        return self.up + self.before.w

    def below_whole(self, to: Place) -> Num:
        """`below`, with whole backward passes."""
        there = self.below(to) + to.before.w + to.at.w
        return there - self.before.w - self.at.w

    def below(self, to: Place) -> Num:
        """From the end of F here down to another stage and back to the start of I here."""
        there = to.down + to.at.f + to.up + to.at.i
        here = self.down + self.at.f + self.up + self.at.i
        return there - here


class Places(NamedTuple):
    """Several stages."""

    each: tuple[Place, ...]
    together: tuple[Place, ...]
    """All of them: of short columns one that has them side by side, (which, row)."""


class Rank(NamedTuple):
    """The chunks of a rank (looped)."""

    first: Place
    last: Place
    earlier: Pass
    """One microbatch in all chunks but the last."""
    load: Num
    """One microbatch in all of them."""

    @property
    def silent(self) -> Rank:
        """Where sends take no time."""
        return Rank(
            self.first.silent, self.last.silent, self.earlier, self.load
        )


class Ranks(NamedTuple):
    """Several ranks."""

    each: tuple[Rank, ...]
    together: tuple[Rank, ...]
    """As in `Places`."""


class Work(NamedTuple):
    """Of m microbatches on a cut model."""

    cut: Cut
    m: Num
    layer: Pass
    first: Pass
    """What the first stage has besides its layers."""
    last: Pass
    more: tuple[Pass, ...]
    """What a layer of each further kind takes more."""
    send: Num
    group: int = 0
    """Microbatches that go through a chunk before the next one has its turn (`groups`)."""


class Dealt(Work):
    """The same with what follows from it, computed once."""

    @property
    def silent(self) -> Dealt:
        """Where sends take no time; what is known already is not computed again."""
        found = self._replace(send=0.0)
        known = vars(self)
        vars(found).update(known)
        vars(found).pop("sent", None)
        if "ranks" in known:
            together = tuple(rank.silent for rank in self.ranks.together)
            vars(found)["ranks"] = self._ranks(together)
        return found

    @cached_property
    def g(self) -> Num:
        """Microbatches of the first group."""
        return groups.size(self.p, self.m, self.group)

    @cached_property
    def late(self) -> Num:
        """Those of the last group."""
        return groups.last(self.p, self.m, self.group)

    @cached_property
    def usual(self) -> Any:
        """All groups hold p microbatches."""
        return groups.usual(self.p, self.m, self.group)

    @property
    def p(self) -> Num:
        return self.cut.p

    @property
    def v(self) -> Num:
        return self.cut.v

    @property
    def q(self) -> Num:
        """p - 1."""
        return self.cut.q

    @property
    def stages(self) -> Num:
        return self.cut.stages

    @property
    def spare(self) -> Num:
        """Stages with one layer fewer, in the order that paths along them know; else none."""
        plain = self.cut.plain
        return (
            self.cut.spare
            if plain is True
            else where(plain, self.cut.spare, 0.0)
        )

    @property
    def uneven(self) -> bool:
        return self.cut.uneven

    @property
    def fuller(self) -> Num:
        return self.cut.fuller

    def load(self, rank: Num) -> Pass:
        """One microbatch on a rank."""
        last = 0.0 if self.cut.folded else self.q
        found = self._layers(
            self.cut.rank_layers(rank),
            self.cut.rank_kinds(rank) if self.more else (),
        )
        return found.plus(self.first, (rank == 0) * 1.0).plus(
            self.last, (rank == last) * 1.0
        )

    def _layers(self, n: Num, kinds: tuple[Num, ...]) -> Pass:
        """n layers, so many of each further kind among them."""
        found = Pass(n * self.layer.f, n * self.layer.i, n * self.layer.w)
        for more, often in zip(self.more, kinds, strict=True):
            found = found.plus(more, often)
        return found

    @cached_property
    def slow(self) -> tuple[Num, ...]:
        """Ranks that may have the most work: the first, the last, and between them the last fuller
        one and the second; of several kinds of layers, those that hold most of any.
        """
        if self.cut.before:
            return (
                0.0,
                self.q,
                *(
                    minimum(self.q, float(r))
                    for r in range(1, self.cut.ranks - 1)
                ),
            )
        return (0.0, self.q, *self.between, *self.second)

    @property
    def between(self) -> tuple[Num, ...]:
        """Of the ranks between the ends those that may have the most work, where stages differ."""
        if self.cut.mixed:
            return self.cut.heavy
        return (self.fuller,) if self.uneven else ()

    @property
    def second(self) -> tuple[Num, ...]:
        """The second rank, if it may have more work than all others; where stages are equal, the
        last.
        """
        if self.more:
            return (minimum(self.q, 1.0),)
        return (
            (where(self.cut.alike, self.q, minimum(self.q, 1.0)),)
            if self.uneven
            else ()
        )

    @property
    def lightest(self) -> Pass:
        """A layer, of the kind that takes least of each pass; where all stages hold the same, their
        mean."""
        if not self.more:
            return self.layer
        alike = self.cut.alike
        kinds = self.cut.kinds_of(0.0, 1.0)
        return Pass(
            *(
                where(
                    alike,
                    each + sum(map(mul, kinds, mine)) / self.cut.most,
                    each + minimum(reduce(minimum, mine), 0.0),
                )
                for each, *mine in zip(self.layer, *self.more, strict=True)
            )
        )

    def busy(self, rank: Num) -> Num:
        """Seconds that a rank computes."""
        return self.m * self.load(rank).total

    def at(self, stage: Num) -> Pass:
        """One microbatch in a stage."""
        return self._times(self.cut.layers(stage, stage + 1), stage, stage + 1)

    def passes(self, a: Num, b: Num) -> Pass:
        """One microbatch in the stages from a up to b, without b."""
        return self._times(self.cut.layers(a, b), a, b)

    def place(self, stage: Num) -> Place:
        """A stage with the ways to it."""
        if isinstance(stage, float) and stage == 0.0:
            return Place(stage, self.at(stage), NOTHING, 0.0, 0.0)
        before = self._times(self.cut.layers(0.0, stage), 0.0, stage)
        hops = self.hops(0.0, stage)
        return Place(
            stage, self.at(stage), before, before.f + hops, before.i + hops
        )

    def places(self, stages: Sequence[Num]) -> Places:
        """Several stages."""
        together = tuple(map(self.place, self.abreast(stages)))
        return Places(self.alone(together, len(stages)), together)

    def abreast(self, columns: Sequence[Num]) -> Sequence[Num]:
        """Short columns as one that has them side by side, (which, row); others as they are."""
        number = max(getattr(column, "size", 0) for column in columns)
        if not 0 < number <= SHORT // len(columns) or len(columns) == 1:
            return columns
        every = beside(columns)
        # what they are put together with may have more axes
        if every is None or every.ndim != self.axes + 1:
            return columns
        return (every,)

    def alone(self, of: Sequence[Any], number: int) -> tuple[Any, ...]:
        """What was computed of so many columns `abreast`, one by one."""
        if len(of) == number:
            return tuple(of)
        return tuple(apart(of[0], k, self.axes + 1) for k in range(number))

    def longest(self, paths: Sequence[Num]) -> Num:
        """The longest of paths, some of which are several abreast."""
        return reduce(maximum, (highest(path, self.axes) for path in paths))

    @cached_property
    def axes(self) -> int:
        """The most that a column has; 0: all are plain numbers."""
        layers = (self.layer, self.first, self.last, *self.more)
        numbers = (self.p, self.m, self.v, self.send, *chain(*layers))
        return max(getattr(x, "ndim", 0) for x in numbers)

    def _times(self, n: Num, a: Num, b: Num) -> Pass:
        """n layers and what the stages from a up to b have besides."""
        first, last = self._ends(a, b)
        kinds = self.cut.kinds_of(a, b) if self.more else ()
        return (
            self._layers(n, kinds)
            .plus(self.first, first)
            .plus(self.last, last)
        )

    def _ends(self, a: Num, b: Num) -> tuple[Num, Num]:
        """Whether the first and the last stage are among those from a up to b: 1 or 0."""
        begins: Any = (a <= 0) & (b > 0)
        ends: Any = (b >= self.stages) & (a < self.stages)
        after = isinstance(a, float) and a > 0
        return 0.0 if after else begins * 1.0, ends * 1.0

    def f(self, a: Num, b: Num) -> Num:
        """Forward seconds of the stages from a up to b, without b."""
        return self._sum("f", a, b)

    def i(self, a: Num, b: Num) -> Num:
        """Seconds of their input gradients."""
        return self._sum("i", a, b)

    def w(self, a: Num, b: Num) -> Num:
        """Seconds of their weight gradients."""
        return self._sum("w", a, b)

    def _sum(self, what: str, a: Num, b: Num) -> Num:
        layer, first, last = (
            getattr(part, what) for part in (self.layer, self.first, self.last)
        )
        found: Num
        at_first, at_last = self._ends(a, b)
        found = self.cut.layers(a, b) * layer + at_last * last
        kinds = self.cut.kinds_of(a, b) if self.more else ()
        for more, often in zip(self.more, kinds, strict=True):
            found = found + often * getattr(more, what)
        return (
            found
            if isinstance(at_first, float) and not at_first
            else found + at_first * first
        )

    def hops(self, a: Num, b: Num) -> Num:
        """Seconds of the sends between stages a and b."""
        number = b - a
        if self.cut.folded and not self.cut.crosses:  # none at the turn
            number = number - where((a < self.p) & (b >= self.p), 1.0, 0.0)
        return number * self.sent

    @cached_property
    def sent(self) -> Num:
        """Seconds of one send; a device that is alone sends nothing."""
        return where(self.p > 1, self.send, 0.0)

    def down(self, a: Num, b: Num) -> Num:
        """From the start of F in stage a to its start in stage b, of one microbatch that waits for
        nobody.
        """
        return self.f(a, b) + self.hops(a, b)

    def up(self, b: Num, a: Num) -> Num:
        """From the end of I in stage b to its end in stage a before it."""
        return self.i(a, b) + self.hops(a, b)

    def up_whole(self, b: Num, a: Num) -> Num:
        """The same of whole backward passes."""
        return self.up(b, a) + self.w(a, b)

    def below(self, stage: Num, to: Num) -> Num:
        """From the end of F in a stage down to stage `to` and back to the start of its own I."""
        return (
            self.f(stage + 1, to + 1)
            + self.i(stage + 1, to + 1)
            + 2 * self.hops(stage, to)
        )

    def last_ranks(self, r: Num) -> Num:
        """F and I of one microbatch on the last r ranks of the last chunk, down and up again; 0 if
        r is.
        """
        first = self.stages - r
        work = self.f(first, self.stages) + self.i(first, self.stages)
        return where(r > 0, work + 2 * self.hops(first, self.stages - 1), 0.0)

    @property
    def through(self) -> Num:
        """F and I of one microbatch through all stages, down and up again."""
        return (
            self.f(0.0, self.stages)
            + self.i(0.0, self.stages)
            + 2 * self.hops(0.0, self.stages - 1)
        )

    @property
    def top(self) -> Num:
        """The first stage of the last chunks."""
        return (self.v - 1.0) * self.p

    def earlier(self, rank: Num) -> Pass:
        """One microbatch in all chunks of a rank but the last (looped)."""
        stage = self.top + rank
        n = self.cut.rank_layers(rank) - self.cut.layers(stage, stage + 1)
        kinds: tuple[Num, ...] = ()
        if self.more:
            last = self.cut.kinds_of(stage, stage + 1)
            kinds = tuple(map(sub, self.cut.rank_kinds(rank), last))
        return self._layers(n, kinds).plus(self.first, (rank == 0) * 1.0)

    @cached_property
    def ranks(self) -> Ranks:
        """Those of `slow`."""
        return self._ranks(tuple(map(self._rank, self.abreast(self.slow))))

    def _ranks(self, together: tuple[Rank, ...]) -> Ranks:
        return Ranks(self.alone(together, len(self.slow)), together)

    def _rank(self, x: Num) -> Rank:
        last = self.place(self.top + x)
        earlier = self.earlier(x)
        load = earlier.total + last.at.total
        return Rank(self.place(x), last, earlier, load)

    def to_last_chunk(self, x: Rank, ranks: tuple[Rank, ...]) -> Num:
        """To the start of rank x's first F in its last chunk (looped, v > 1): one microbatch
        through all stages before, or a group of p through the earlier chunks of one rank, of x or
        one before it; or, where layers do not divide, through the first chunk of the first rank or
        the second, then one microbatch."""
        ways = [x.last.down]
        for y in ranks if x is not ranks[0] else (x,):
            way = (
                y.first.down
                + self.g * y.earlier.f
                + (x.last.down - y.last.down)
            )
            ways.append(
                way
                if y is x or y is ranks[0]
                else where(y.first.stage <= x.first.stage, way, 0.0)
            )
        if self.uneven:
            before = self.place(x.last.stage - self.p)
            begins = maximum(
                ranks[0].first.at.f, self.at(minimum(before.stage, 1.0)).f
            )
            wait = (self.g - 1.0) * begins
            ways.append(
                where(self.cut.alike, 0.0, before.down + before.at.f + wait)
            )
        return reduce(maximum, ways)
