"""What a dealt pipeline says of any stage, way and rank, against sums over the list of its stages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from meshwright.layout.stages import stage_layers
from meshwright.schedule.partition import (
    LayerDeal,
    StagePartition,
    fuller,
    heaviest,
)
from meshwright.schedule.sends import NO_SENDS, StageSends
from meshwright.schedule.stage_costs import PassSeconds, StageCosts
from meshwright.schedule.types import folded_stage, looped_stage

Three = tuple[float, float, float]


class Listed(NamedTuple):
    """A pipeline, and its stages one by one."""

    d: StageCosts
    words: list[list[int]]
    """The kind of each layer, stage by stage."""
    passes: list[Three]
    """F, I and W of each stage."""
    rank_of: list[int]
    hops: list[float]
    """Seconds from each stage to the next."""


def added(passes: list[Three]) -> Three:
    f, i, w = (
        sum(each) for each in zip(*passes, (0.0, 0.0, 0.0), strict=True)
    )
    return f, i, w


def pipelines() -> Iterator[Listed]:
    """Looped, folded and in two waves, with one kind of layer, leading layers, or two kinds among
    the others.
    """
    ways = ("even", "slots", "rest", "given")
    rng = random.Random(str(ways))
    for k in range(60):
        p = rng.choice((1, 2, 3, 4, 5))
        folded = p > 1 and k % 3 == 0
        v = rng.choice((2, 2, 4)) if folded else rng.choice((1, 1, 2, 3))
        stages, way = p * v, rng.choice(ways)
        layers = stages * rng.randint(1, 2) + rng.randrange(stages)
        kinds = rng.choice((0, 0, 1, 2))
        rule = "even" if way == "given" else way
        of = [len(mine) for mine in stage_layers(layers, stages, rule)]
        if way == "given":
            of = [rng.randint(1, 3) for _ in range(stages)]
        yield listed(rng, p, v, folded, way, of, kinds)


def wave_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Down the ranks and up again, as often as there are chunks: a placement of nobody here."""
    return p * chunk + (p - 1 - rank if chunk % 2 else rank)


def listed(
    rng: random.Random,
    p: int,
    v: int,
    folded: bool,
    way: str,
    of: list[int],
    kinds: int,
) -> Listed:
    stages, layers = p * v, sum(of)
    words = [rng.randint(0, kinds) for _ in range(layers)]
    among = tuple(
        tuple(accumulate((float(x == k) for x in words), initial=0.0))
        for k in range(kinds + 1)
    )
    deal = LayerDeal(
        tuple(of) if way == "given" else layers,
        wave_stage if folded else looped_stage,
        way,
        among,
    )
    crosses = folded and v == 2 and rng.random() < 0.5
    cut = StagePartition(float(p), float(v), deal)
    *kind, first, last = (
        PassSeconds(*(rng.uniform(0.5, 2.0) for _ in range(3)))
        for _ in range(3 + kinds)
    )
    ranks = 2 * p if crosses else p
    near = rng.choice([k for k in range(1, ranks + 1) if ranks % k == 0])
    group, seconds = (
        (float(near), float(ranks // near)),
        (rng.uniform(0.1, 0.5), rng.uniform(0.5, 1.0)),
    )
    sends = StageSends.over(seconds, group, turns=folded)
    d = StageCosts(cut, (*kind, first, last), sends)
    ends = [*accumulate(of, initial=0)]
    dealt = [words[a:b] for a, b in pairwise(ends)]
    passes = [
        added(
            [
                *(kind[word] for word in mine),
                *([first] if k == 0 else []),
                *([last] if k == stages - 1 else []),
            ]
        )
        for k, mine in enumerate(dealt)
    ]
    rank_of = [
        p - 1 - k % p if folded and k // p % 2 else k % p
        for k in range(stages)
    ]
    hops = [
        0.0 if a == b else seconds[a // near != b // near]
        # ranks of the pipeline, of which the way up has its own where it crosses
        for a, b in pairwise(range(stages) if crosses else rank_of)
    ]
    return Listed(d, dealt, passes, rank_of, hops)


def close(found: Any, wanted: Any) -> bool:
    return bool(found == pytest.approx(wanted, rel=1e-12, abs=1e-12))


def test_stages_and_the_ways_to_ranks() -> None:
    """What lies in a stage; ways of a microbatch down to the first chunk of each rank, and up from
    it."""
    for at in pipelines():
        d = at.d
        cut, kinds = d.partition, range(len(d.partition.deal.kinds))
        for k, (words, seconds) in enumerate(
            zip(at.words, at.passes, strict=True)
        ):
            assert close(tuple(d.at(float(k))), seconds)
            found = cut.parts(float(k), k + 1.0)
            ends = [k == 0, k == cut.stages - 1]
            assert [*found] == [*map(words.count, kinds), *ends]
            if cut.v == 1 and words:
                kind = [float(words[0] == n) for n in kinds]
                assert [*cut.first_kind(float(k))] == kind
        assert cut.least == min(map(len, at.words))
        for rank in range(int(cut.p)):
            f, i, w = added(at.passes[:rank])
            hops = sum(at.hops[:rank])
            down, up = d.ways(float(rank))
            assert close(down, f + hops) and close(up, i + w + hops)
            if cut.v == 1:  # from the other end it is the same
                assert close(d.sends.first(cut.q - rank), sum(at.hops[rank:]))
        assert close(d.sends.first(cut.stages - 1.0), sum(at.hops))
        assert close(d.sends.each(len(at.hops)), at.hops)


def test_ranks_hold_their_stages() -> None:
    for at in pipelines():
        d, cut, loads = at.d, at.d.partition, []
        for rank in range(int(cut.p)):
            own = [k for k, r in enumerate(at.rank_of) if r == rank]
            words = [word for k in own for word in at.words[k]]
            loads.append(added([at.passes[k] for k in own]))
            counts = map(words.count, range(len(cut.deal.kinds)))
            ends = [0 in own, int(cut.stages) - 1 in own]
            assert [*cut.on(float(rank))] == [*counts, *ends]
            assert close(tuple(d.load(float(rank))), loads[-1])
        # of as slow ones any may be named
        slowest = sum(loads[int(d.slowest)])
        assert slowest == pytest.approx(max(map(sum, loads)))


def test_a_column_of_pipelines_is_each_by_itself() -> None:
    """Ranks and chunks that come twice, and a list of stages that is not theirs."""
    p, v = np.array([4.0, 2.0, 2.0, 2.0]), np.array([1.0, 1.0, 2.0, 1.0])
    every = (0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    rest = tuple(n - k for n, k in enumerate(every))
    for layers in (8, (1, 3, 2, 2)):
        for stage_of in (looped_stage, folded_stage):
            deal = LayerDeal(layers, stage_of, "slots", (rest, every))
            column = StagePartition(p, v, deal)
            alone = [
                StagePartition(float(a), float(b), deal)
                for a, b in zip(p, v, strict=True)
            ]
            for ask in (
                lambda cut: cut.on(cut.q),
                lambda cut: cut.parts(1.0, cut.stages),
                lambda cut: cut.first_kind(0.0),
                lambda cut: (cut.least,),
                lambda cut: (min_of((*cut.heavy, cut.q)),),
                lambda cut: (min_of((*cut.late, cut.q)),),
            ):
                for found, *wanted in zip(
                    ask(column), *map(ask, alone), strict=True
                ):
                    assert np.asarray(found).tolist() == wanted
    none = StagePartition(p[:0], v[:0], LayerDeal(8))
    assert [len(x) for x in none.on(none.q)] == [0] * 3


def min_of(ranks: Any) -> Any:
    return reduce(np.minimum, ranks)


def test_ranks_that_no_other_exceeds() -> None:
    """Of equal ones the last; early: those that hold more of some kind than each before."""
    rng = random.Random(2)
    for _ in range(200):
        kinds = rng.choice((1, 2, 3))
        counts = [
            tuple(float(rng.randint(0, 3)) for _ in range(kinds))
            for _ in range(rng.randint(2, 7))
        ]
        inner = range(rng.randint(0, 1), len(counts))

        def within(a: int, b: int) -> bool:
            return all(x <= y for x, y in zip(counts[a], counts[b], strict=True))  # noqa: B023  # fmt: skip

        heavy = {
            r
            for r in inner
            if not any(
                within(r, o) and (counts[r] != counts[o] or o > r)
                for o in inner
            )
        }
        assert {*heaviest(counts, inner)} == heavy
        early = [
            r for r in inner if not any(within(r, o) for o in inner if o < r)
        ]
        assert [*fuller(counts, inner)] == early


def test_the_slowest_rank_is_the_last_of_those_as_slow() -> None:
    """Four ranks of one layer: alike, with a heavy embedding, with a heavy head, with both."""
    cut = StagePartition(4.0, 1.0, LayerDeal(4))
    layer, none, more = (PassSeconds(x, x, x) for x in (1.0, 0.0, 2.0))
    for first, last, slow in (
        (none, none, 3.0),
        (more, none, 0.0),
        (none, more, 3.0),
        (more, more, 3.0),
    ):
        d = StageCosts(cut, (layer, first, last), NO_SENDS)
        for swapped in (d, replace(d, sends=StageSends.alike(1.0, 4.0))):
            assert float(swapped.slowest) == slow
