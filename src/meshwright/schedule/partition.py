"""Layers dealt to the stages of a pipeline, and its stages to ranks, as a table.

All stages hold as many layers as the fullest, but some of them one fewer: the last, then the first,
then those before the last. Of 10 layers on 4 stages:

    stage       0  1  2  3
    layers      2  3  3  2
    before   0  2  5  8  10     the layers of a range of stages are a difference of two of these

Stages count from 0 to p v - 1, and the schedule says where they lie (`types.looped_stage` and
others). What lies somewhere is a tuple of the parts of the model: layers of each kind, the
embedding, which the first stage has besides, and the head, which the last one has.

Which rank is the slowest or the fullest depends on what a layer of each kind takes. So all ranks
are candidates that hold more of some kind than the others: with patterns that repeat these are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..num import SCALARS, Num, at, minimum
from .types import Placement, both_ends, looped_stage, ranks_of_stages

if (
    TYPE_CHECKING
):  # it is loaded when layers are dealt: names of schedules do without
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = tuple[tuple[float, ...], ...]
Parts: TypeAlias = tuple[Num, ...]
"""Layers of each kind, embeddings and heads."""


class LayerDeal(NamedTuple):
    """How layers are dealt."""

    layers: int | tuple[int, ...]
    """Of the model, or of each stage."""
    stage_of: Placement = looped_stage
    rule: str = "even"
    """By which they are dealt (`describe.stages.RULES`)."""
    kinds: tuple[tuple[float, ...], ...] = ()
    """Of each kind of layer, how many are among the first n, for every n; none: there is one."""
    further: float = 0.0
    """Layers like the model's last one that go with the head: of the blocks that predict further
    tokens."""
    copies: int = 1
    """Ranks that hold each stage."""


class StageTable(NamedTuple):
    """One pipeline."""

    before: Rows
    """Parts before each stage and after all: (parts, stages + 1)."""
    ranks: Rows
    """Parts on each rank: (parts, p)."""
    first: Rows
    """Whether the first layer of a rank is of a kind, 1 or 0: (kinds, p)."""
    least: float
    """Layers of the lightest stage."""
    heavy: tuple[int, ...]
    """Ranks between the ends of which one has the most work, whatever each kind of layer takes;
    none where all ranks hold as many layers of one kind."""
    early: tuple[int, ...]
    """Ranks between the ends of which one needs the most memory, where earlier ones hold more
    microbatches."""
    late: tuple[int, ...]
    """The same where later ones hold more."""


def stage_sizes(layers: int, stages: int, rule: str = "even") -> list[int]:
    """Layers of each stage by a rule (`describe.stages`): as even as can be; so with embedding and
    loss (slots, which over one stage or two change nothing); or the rest in the last one.
    """
    if rule == "rest":
        most = -(-layers // stages)
        return [min(most, max(layers - most * k, 0)) for k in range(stages)]
    slots = rule == "slots" and stages > 2
    most, spare = divmod(layers + 2 * slots + stages - 1, stages)
    spare = stages - 1 - spare
    fewer = [stages - 1, 0, *range(stages - 2, 0, -1)][:spare]
    sizes = [most] * stages
    for stage in (*fewer, *((0, stages - 1) if slots else ())):
        sizes[stage] -= 1
    return sizes


@lru_cache(maxsize=8192)
def stage_table(p: int, v: int, deal: LayerDeal) -> StageTable:
    """A pipeline of p ranks with v chunks. One stage has all layers of a list; a list for another
    number of stages is cut or goes on with none: no layout can have it, but a table may have a row
    of it."""
    if isinstance(deal.layers, int):
        sizes = stage_sizes(deal.layers, p * v, deal.rule)
    elif p * v == 1:
        sizes = [sum(deal.layers)]
    else:
        sizes = [*deal.layers, *[0] * (p * v)][: p * v]
    kinds = deal.kinds or (tuple(map(float, range(sum(sizes) + 1))),)
    most = len(kinds[0]) - 1
    n = [min(k, most) for k in accumulate(sizes, initial=0)]
    starts = [min(k, most - 1) for k in n[:p]]
    layers = [tuple(kind[k] for k in n) for kind in kinds]
    ends = (0.0, *[1.0] * (p * v)), (*[0.0] * (p * v), 1.0)
    on = ranks_of_stages(deal.stage_of, p, v, deal.copies)
    # no rank between the ends has more by what goes with the head
    counts = [*zip(*(_by_rank(on, p, kind) for kind in layers), strict=True)]
    layers[0] = (*layers[0][:-1], layers[0][-1] + deal.further)
    ranks = tuple(map(partial(_by_rank, on, p), (*layers, *ends)))
    inner = range(1, p - 1)
    even = len(kinds) == len({*counts}) == 1
    return StageTable(
        (*layers, *ends),
        ranks,
        tuple(tuple(kind[k + 1] - kind[k] for k in starts) for kind in kinds),
        least=float(min(sizes)),
        heavy=() if even else heaviest(counts, inner),
        early=fuller(counts, inner),
        late=fuller(counts, reversed(inner)),
    )


def _by_rank(
    on: Sequence[int], p: int, before: Sequence[float]
) -> tuple[float, ...]:
    """How much of a part lies on each rank. on: the rank of every stage; before: how much is before
    each stage and after all."""
    totals = [0.0] * p
    for rank, (start, end) in zip(on, pairwise(before), strict=True):
        totals[rank] += end - start
    return tuple(totals)


def heaviest(
    counts: Sequence[Sequence[float]], ranks: Iterable[int]
) -> tuple[int, ...]:
    """The last rank with each number of layers that no other exceeds."""
    last = {tuple(counts[rank]): rank for rank in ranks}
    return tuple(
        rank
        for count, rank in last.items()
        if not any(within(count, more) for more in last if more != count)
    )


def fuller(
    counts: Sequence[Sequence[float]], ranks: Iterable[int]
) -> tuple[int, ...]:
    """Ranks that hold more of some kind than each one before, in this order."""
    chosen: list[int] = []
    for rank in ranks:
        if not any(within(counts[rank], counts[one]) for one in chosen):
            chosen.append(rank)
    return tuple(chosen)


def within(count: Sequence[float], other: Sequence[float]) -> bool:
    """No kind has more layers."""
    return all(a <= b for a, b in zip(count, other, strict=True))


@dataclass(frozen=True, eq=False)
class StagePartition:
    """Layers dealt to p ranks with v chunks each. Numbers, or columns: a pipeline a row."""

    p: Num
    v: Num
    deal: LayerDeal

    @property
    def folded(self) -> bool:
        return both_ends(self.deal.stage_of, self.deal.copies)

    @cached_property
    def q(self) -> Num:
        """p - 1."""
        return self.p - 1.0

    @cached_property
    def stages(self) -> Num:
        return self.p * self.v

    @cached_property
    def _rows(self) -> tuple[list[StageTable], Any]:
        """(The pipelines that there are, the number of that of every row.)"""
        if isinstance(self.stages, SCALARS):
            return [stage_table(int(self.p), int(self.v), self.deal)], None
        import numpy as np

        p, v = (x.astype(int) for x in np.broadcast_arrays(self.p, self.v))
        wide = v.max(initial=1) + 1
        key = p * wide + v
        there = np.zeros(key.max(initial=wide + 1) + 1, dtype=bool)
        there[key] = True
        # of no rows any: without a sort of all rows, of which there may be a million
        pairs = np.flatnonzero(there) if key.size else np.array([wide + 1])
        pipelines = [
            stage_table(*divmod(pair, wide), self.deal)
            for pair in pairs.tolist()
        ]
        return pipelines, (np.cumsum(there) - 1)[key]

    def _of_row(self, values: Sequence[float]) -> Num:
        """A number of each pipeline, for every row."""
        _, number = self._rows
        return values[0] if number is None else at(values, number)

    @cached_property
    def _tables(self) -> dict[str, tuple[Floats, Num]]:
        """Name of a table -> those of all pipelines side by side, as wide as the widest, and where
        that of a row begins."""
        import numpy as np

        pipelines, number = self._rows
        named = {}
        for name in ("before", "ranks", "first"):
            tables = [getattr(pipeline, name) for pipeline in pipelines]
            width = max(len(rows[0]) for rows in tables)
            table = np.zeros((len(tables[0]), len(tables), width))
            for k, rows in enumerate(tables):
                table[:, k, : len(rows[0])] = rows
            flat = table.reshape(len(table), -1)
            named[name] = flat, 0 if number is None else number * width
        return named

    def _at(self, name: str, place: Num) -> Parts:
        pipelines, number = self._rows
        if number is None and isinstance(place, SCALARS):
            return tuple(
                row[int(place)] for row in getattr(pipelines[0], name)
            )
        table, begin = self._tables[name]
        index: Any = begin + place
        index = index.astype(int)
        return tuple(row[index] for row in table)

    def before(self, stage: Num) -> Parts:
        """Parts before a stage."""
        return self._at("before", minimum(stage, self.stages))

    def parts(self, a: Num, b: Num) -> Parts:
        """Parts in the stages from a up to b, without b; 0 <= a <= b <= p v."""
        if isinstance(a, float) and a == 0.0:
            return self.before(b)
        pairs = zip(self.before(b), self.before(a), strict=True)
        return tuple(end - start for end, start in pairs)

    @cached_property
    def every_stage(self) -> Floats:
        """Parts of each stage of one pipeline: (parts, stages)."""
        import numpy as np

        stages = np.arange(float(self.stages))
        return np.array(self.parts(stages, stages + 1.0))

    def on(self, rank: Num) -> Parts:
        """Parts on a rank."""
        return self._at("ranks", minimum(rank, self.q))

    def first_kind(self, rank: Num) -> Parts:
        """For each kind of layer, whether the first one of a rank is of it: 1 or 0."""
        return self._at("first", minimum(rank, self.q))

    @cached_property
    def chunk(self) -> Num:
        """Layers of a stage, on average."""
        return sum(self.before(self.stages)[:-2]) / self.stages

    @cached_property
    def least(self) -> Num:
        """Layers of the lightest stage."""
        return self._of_row([table.least for table in self._rows[0]])

    @cached_property
    def heavy(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one has the most work, of every row."""
        return self._candidates("heavy")

    @property
    def busiest(self) -> tuple[Num, ...]:
        """Ranks of which one has the most work, whatever the parts of the model take."""
        return (0.0, *self.heavy, self.q)

    @cached_property
    def early(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one needs the most memory, where earlier ones hold more
        microbatches."""
        return self._candidates("early")

    @cached_property
    def late(self) -> tuple[Num, ...]:
        """Ranks between the ends of which one needs the most memory, where later ones hold more
        microbatches."""
        return self._candidates("late")

    def _candidates(self, name: str) -> tuple[Num, ...]:
        """Candidates, as many in each row: one that is there twice, or the last rank, sets no other
        pace.
        """
        tables, _ = self._rows
        ranks = [getattr(table, name) for table in tables]
        most = max(map(len, ranks))
        again = [
            (*some, len(table.ranks[0]) - 1)[0]
            for some, table in zip(ranks, tables, strict=True)
        ]
        return tuple(
            self._of_row(
                [
                    float((*some, *[other] * most)[k])
                    for some, other in zip(ranks, again, strict=True)
                ]
            )
            for k in range(most)
        )
