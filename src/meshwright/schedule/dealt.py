"""A model dealt to the stages of a pipeline: what one microbatch takes in any range of stages, and
on any rank.

All stages hold as many layers as the fullest, but `spare` of them hold one fewer: the last, then
the first, then those before the last (`layout.stages.stage_layers`). The first stage has the
embedding besides and the last the head. So the layers of a range of stages are a difference of two
prefixes, and the fuller ranks are those with fewer light stages.

Fields are numbers or arrays. Stages count from 0 to p v - 1; looped ones go round the ranks (stage
k on rank k mod p), folded ones down the ranks and up again (v = 2), so that rank 0 has both ends
and the turn needs no send, unless the way up belongs to other ranks (`crosses`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import accumulate, pairwise
from operator import add, mul, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from ..num import (
    Num,
    anywhere,
    at,
    ceil_div,
    floor,
    maximum,
    minimum,
    most,
    where,
)
from . import groups

if (
    TYPE_CHECKING
):  # NumPy is imported where it is used: orders alone do without
    from .held import Held, Ranks


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
        if isinstance(times, float) and times in (0.0, 1.0):
            return Pass(*map(add, self, other)) if times else self
        return Pass(
            self.f + times * other.f,
            self.i + times * other.i,
            self.w + times * other.w,
        )


class Place(NamedTuple):
    """A stage: one microbatch in it, and its way there from the first stage and back. Ways between
    two stages are differences of these."""

    stage: Num
    at: Pass
    down: Num
    """From the start of F in the first stage to its start here, of one microbatch that waits for
    nobody.
    """
    up: Num
    """From the end of I here to its end in the first stage."""
    weights: Num
    """W of the stages before."""

    @property
    def back(self) -> Num:
        """The way up of whole backward passes."""
        return self.up + self.weights

    def below_whole(self, to: Place) -> Num:
        """`below`, with whole backward passes."""
        return self.below(to) + to.weights + to.at.w - self.weights - self.at.w

    def below(self, to: Place) -> Num:
        """From the end of F here down to another stage and back to the start of I here."""
        there = to.down + to.at.f + to.up + to.at.i
        here = self.down + self.at.f + self.up + self.at.i
        return there - here


class Rank(NamedTuple):
    """The chunks of a rank (looped)."""

    first: Place
    last: Place
    earlier: Pass
    """One microbatch in all chunks but the last."""

    @property
    def load(self) -> Num:
        """One microbatch in all of them."""
        return self.earlier.total + self.last.at.total


@dataclass(frozen=True, eq=False)
class Cut:
    """Layers dealt to p ranks with v chunks each."""

    p: Num
    v: Num
    folded: bool
    most: Num
    """Layers of the fullest stage."""
    spare: Num
    """Stages with one layer fewer."""
    uneven: bool
    """There are some (of a table: in some rows)."""
    first: Num = 0.0
    """Layers that the first stage has fewer besides."""
    last: Num = 0.0
    """The same of the last stage."""
    before: tuple[float, ...] = ()
    """Layers before each stage and after all, where they are dealt one by one."""
    crosses: bool = False
    """The turn of a folded pipeline is a send."""
    kinds: tuple[tuple[float, ...], ...] = ()
    """Of each further kind of layer, how many are among the first n, for every n."""

    @classmethod
    def of(
        cls,
        layers: int,
        p: Num,
        v: Num,
        folded: bool,
        slots: Any = False,
        kinds: tuple[tuple[float, ...], ...] = (),
    ) -> Cut:
        """As even as can be. slots: with embedding and loss, which count as a layer each; over one
        stage or two they change nothing. Of a table: where."""
        some = anywhere(slots)
        ends = where(slots & (p * v > 2), 1.0, 0.0) if some else 0.0
        dealt = layers + 2.0 * ends
        most = ceil_div(dealt, p * v)
        spare = p * v * most - dealt
        if not some:
            uneven = bool(kinds) or anywhere(spare > 0)
            return cls(p, v, folded, most, spare, uneven, kinds=kinds)
        fewer = where(spare >= 2, ends, 0.0), where(spare >= 1, ends, 0.0)
        spare = maximum(spare, 2.0 * ends)
        return cls(p, v, folded, most, spare, True, *fewer, kinds=kinds)

    @classmethod
    def given(
        cls,
        layers: tuple[int, ...],
        p: Num,
        v: Num,
        folded: bool,
        kinds: tuple[tuple[float, ...], ...] = (),
    ) -> Cut:
        """One by one."""
        before = tuple(accumulate(layers, initial=0.0))
        most = float(max(layers))
        spare = p * v * most - before[-1]
        return cls(p, v, folded, most, spare, True, before=before, kinds=kinds)

    @cached_property
    def mixed(self) -> bool:
        """Layers of several kinds lie among each other; one kind may come before the others."""
        return len(self.kinds) > 1 or any(
            n != min(i, among[-1])
            for among in self.kinds
            for i, n in enumerate(among)
        )

    @property
    def free(self) -> bool:
        """Any stage may be the heaviest: layers are dealt one by one, or are of several kinds."""
        return bool(self.before) or self.mixed

    @cached_property
    def held(self) -> Ranks:
        """What ranks hold of layers that are dealt one by one or of several kinds."""
        import numpy as np

        from .held import alone, columns

        fields = (self.p, self.v, self.most, self.spare, self.first, self.last)
        rest = (self.folded, self.before, self.kinds)
        if not any(hasattr(field, "shape") for field in fields):
            return alone(_held(*map(float, fields), *rest))
        every = np.broadcast_arrays(*fields)
        return columns(
            self.p,
            self.v,
            len(self.kinds),
            lambda at: _held(*(float(field[at]) for field in every), *rest),
        )

    @cached_property
    def q(self) -> Num:
        """p - 1."""
        return self.p - 1.0

    @cached_property
    def stages(self) -> Num:
        return self.p * self.v

    @cached_property
    def plain(self) -> Any:
        """Where no stage has more than one layer fewer: the last, then the first, then those before
        the last."""
        if self.free:
            return False
        return (self.first == 0) & (self.last == 0)

    @property
    def alike(self) -> Any:
        """Where all stages hold as many layers of each kind."""
        if self.kinds:
            return self.held.alike
        if self.before:
            return len({b - a for a, b in pairwise(self.before)}) == 1
        return self.spare == 0

    @property
    def least(self) -> Num:
        """Layers of the lightest stage."""
        if self.before:
            return min(b - a for a, b in pairwise(self.before))
        ends = maximum(
            where(self.spare >= 1, 1.0, 0.0) + self.last,
            self._begin,
        )
        return self.most - ends

    @cached_property
    def _end(self) -> Num:
        """Light stages at the end; one more is the first, if there are two."""
        return where(self.spare >= 2, self.spare - 1.0, self.spare)

    @cached_property
    def _begin(self) -> Num:
        """Layers that the first stage lacks."""
        return where(self.spare >= 2, 1.0, 0.0) + self.first

    def layers(self, a: Num, b: Num) -> Num:
        """Layers of the stages from a up to b, without b; 0 <= a <= b <= p v."""
        return (
            self._before(b) - self._before(a)
            if self.uneven
            else (b - a) * self.most
        )

    def _before(self, stage: Num) -> Num:
        if not self.uneven:
            return stage * self.most
        if self.before:
            index: Any = minimum(stage, len(self.before) - 1.0)
            return at(
                self.before,
                index.astype(int) if hasattr(index, "dtype") else int(index),
            )
        light = maximum(stage - (self.stages - self._end), 0.0)
        last = maximum(stage - (self.stages - 1.0), 0.0) * self.last
        first = minimum(stage, 1.0) * self._begin
        return stage * self.most - light - first - last

    def rank_layers(self, rank: Num) -> Num:
        """Layers of a rank."""
        if not self.uneven:
            return self.v * self.most
        if self.before:
            stages = (
                self._stage(rank, chunk) for chunk in range(int(most(self.v)))
            )
            return reduce(
                add, (self.layers(stage, stage + 1) for stage in stages)
            )
        e, p = self._end, self.p
        light = floor((e + rank) / p)
        if self.folded:  # down and up again
            light = where(rank < e, 1.0, 0.0) + where(
                rank >= 2 * p - e, 1.0, 0.0
            )
        ends = where(rank == 0, self._begin, 0.0)
        ends = ends + where(
            rank == (0.0 if self.folded else self.q), self.last, 0.0
        )
        return self.v * self.most - light - ends

    def _stage(self, rank: Num, chunk: int) -> Num:
        """The stage of a rank's chunk; none that there is beyond its last chunk."""
        if not self.folded:
            return where(chunk < self.v, rank + self.p * chunk, self.stages)
        return rank if chunk == 0 else 2 * self.p - 1 - rank

    def rank_kinds(self, rank: Num) -> tuple[Num, ...]:
        """Layers of each further kind on a rank."""
        return self.held.kinds(minimum(rank, self.q)) if self.kinds else ()

    def first_kind(self, rank: Num) -> tuple[Num, ...]:
        """For each further kind, whether the first layer of a rank is of it: 1 or 0."""
        if not self.kinds:
            return ()
        n = minimum(self._before(rank), len(self.kinds[0]) - 2.0)
        return tuple(
            after - before
            for after, before in zip(
                self._among(n + 1.0), self._among(n), strict=True
            )
        )

    def kinds_before(self, stage: Num) -> tuple[Num, ...]:
        """Layers of each further kind before a stage."""
        return self._among(self._before(stage)) if self.kinds else ()

    def _among(self, n: Num) -> tuple[Num, ...]:
        """Layers of each further kind among the first n."""
        n = minimum(maximum(n, 0.0), len(self.kinds[0]) - 1.0)
        index: Any = n
        index = index.astype(int) if hasattr(n, "dtype") else int(n)
        return tuple(at(among, index) for among in self.kinds)

    def kinds_of(self, a: Num, b: Num) -> tuple[Num, ...]:
        """Layers of each further kind of the stages from a up to b."""
        return tuple(
            there - here
            for there, here in zip(
                self.kinds_before(b), self.kinds_before(a), strict=True
            )
        )

    @property
    def heavy(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one has the most work, whatever each kind of layer
        takes."""
        return self.held.heavy if self.kinds else (self.fuller,)

    @property
    def early(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one needs the most memory, where earlier ones hold more
        microbatches."""
        if self.before or self.kinds:
            return self.held.early
        return (minimum(self.q, 1.0),)

    @cached_property
    def fuller(self) -> Num:
        """Of the ranks that hold the most layers the last; folded: the turn's, or the second."""
        if not self.uneven:
            return self.q
        if self.before:
            return self._fullest([float(rank) for rank in range(self.ranks)])
        e = self._end
        found = self.q - (e - self.p * floor(e / self.p))
        if self.folded:
            found = where(e <= self.p, self.q, minimum(self.q, 1.0))
        if self.plain is True:
            return found
        return self._fullest(
            [minimum(self.q, 1.0), maximum(self.q - 1.0, 0.0), found]
        )

    def _fullest(self, ranks: list[Num]) -> Num:
        """Of these ranks one that holds the most layers, of several the last."""
        found = ranks[0]
        layers = self.rank_layers(ranks[0])
        for rank in ranks[1:]:
            more = self.rank_layers(rank)
            found = where(more >= layers, rank, found)
            layers = maximum(more, layers)
        return found

    @property
    def ranks(self) -> int:
        """Ranks of stages that are dealt one by one."""
        return int((len(self.before) - 1) // most(self.v))


@lru_cache(maxsize=8192)
def _held(
    p: float,
    v: float,
    most: float,
    spare: float,
    first: float,
    last: float,
    folded: bool,
    before: tuple[float, ...],
    kinds: tuple[tuple[float, ...], ...],
) -> Held:
    """What the ranks of one pipeline hold."""
    import numpy as np

    from .held import Held

    one = Cut(p, v, folded, most, spare, True, first, last, before)
    stages = np.arange(p * v + 1.0)
    bounds = np.asarray(one._before(stages), dtype=float)
    return Held.of(bounds, kinds, int(p), folded)


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

    @property
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
            return Place(stage, self.at(stage), 0.0, 0.0, 0.0)
        before = self._times(self.cut.layers(0.0, stage), 0.0, stage)
        hops = self.hops(0.0, stage)
        return Place(
            stage, self.at(stage), before.f + hops, before.i + hops, before.w
        )

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
        turn: Num = (
            where((a < self.p) & (b >= self.p), 1.0, 0.0)
            if self.cut.folded and not self.cut.crosses
            else 0.0
        )
        return (b - a - turn) * where(self.p > 1, self.send, 0.0)

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

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Those of `slow`."""
        return tuple(
            Rank(self.place(x), self.place(self.top + x), self.earlier(x))
            for x in self.slow
        )

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
