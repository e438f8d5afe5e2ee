"""Layers dealt to the stages of a pipeline, and its stages to ranks.

All stages hold as many layers as the fullest, but `spare` of them hold one fewer: the last, then
the first, then those before the last (`layout.stages.stage_layers`). So the layers of a range of
stages are a difference of two prefixes, and the fuller ranks are those with fewer light stages.

Fields are numbers or arrays. Stages count from 0 to p v - 1; looped ones go round the ranks (stage
k on rank k mod p), folded ones down the ranks and up again (v = 2), so that rank 0 has both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any

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

if (
    TYPE_CHECKING
):  # NumPy is imported where it is used: orders alone do without
    from .held import Held, Ranks


@dataclass(frozen=True, eq=False)
class StagePartition:
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
        slots: bool = False,
        kinds: tuple[tuple[float, ...], ...] = (),
    ) -> StagePartition:
        """As even as can be. slots: with embedding and loss, which count as a layer each; over one
        stage or two they change nothing.
        """
        ends = where(p * v > 2, 1.0, 0.0) if slots else 0.0
        dealt = layers + 2.0 * ends
        most = ceil_div(dealt, p * v)
        spare = p * v * most - dealt
        if not slots:
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
    ) -> StagePartition:
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
    def _full(self) -> Num:
        """Stages before these."""
        return self.stages - self._end

    @cached_property
    def _begin(self) -> Num:
        """Layers that the first stage lacks."""
        return where(self.spare >= 2, 1.0, 0.0) + self.first

    def layers(self, a: Num, b: Num) -> Num:
        """Layers of the stages from a up to b, without b; 0 <= a <= b <= p v."""
        if not self.uneven:
            return (b - a) * self.most
        if isinstance(a, float) and a == 0.0:
            return self._before(b)
        return self._before(b) - self._before(a)

    def _before(self, stage: Num) -> Num:
        if not self.uneven:
            return stage * self.most
        if self.before:
            index: Any = minimum(stage, len(self.before) - 1.0)
            return at(
                self.before,
                index.astype(int) if hasattr(index, "dtype") else int(index),
            )
        light = maximum(stage - self._full, 0.0)
        first = minimum(stage, 1.0) * self._begin
        found = stage * self.most - light - first
        if self.plain is True:
            return found
        return found - maximum(stage - (self.stages - 1.0), 0.0) * self.last

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
        if self.plain is not True:
            end = 0.0 if self.folded else self.q
            ends = ends + where(rank == end, self.last, 0.0)
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
        """Ranks between the ends of which one has the most work, whatever each kind of layer takes;
        none where all hold as many layers as the last."""
        if self.kinds:
            return self.held.heavy
        return (self.fuller,) if self.uneven else ()

    @property
    def early(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one needs the most memory, where earlier ones hold more
        microbatches."""
        if self.before or self.kinds:
            return self.held.early
        return (minimum(self.q, 1.0),)

    @property
    def late(self) -> tuple[Num, ...]:
        """The same where later ones hold more: of those with the most layers the last, and the last
        of all, which may have fewer."""
        if self.before or self.kinds:
            return self.held.late
        inner = maximum(self.q - 1.0, 0.0)
        if not self.uneven:
            return (inner,)
        e = self._end
        full = self.q - (e - self.p * floor(e / self.p))
        return minimum(maximum(full, minimum(inner, 1.0)), inner), inner

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

    one = StagePartition(p, v, folded, most, spare, True, first, last, before)
    stages = np.arange(p * v + 1.0)
    bounds = np.asarray(one._before(stages), dtype=float)
    return Held.of(bounds, kinds, int(p), folded)
