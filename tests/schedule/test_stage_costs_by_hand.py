"""What a dealt pipeline says of any stage, way and rank, against sums over the list of its stages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pytest

from meshwright.layout.stages import stage_layers
from meshwright.schedule import get
from meshwright.schedule.partition import StagePartition
from meshwright.schedule.stage_costs import Pass, StageCosts
from meshwright.schedule.timeline import timeline

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


def pipelines(
    ways: tuple[str, ...] = ("even", "slots", "given"), count: int = 60
) -> Iterator[Listed]:
    """Looped and folded, with one kind of layer, leading layers, or two kinds among the others."""
    rng = random.Random(str(ways))
    for k in range(count):
        p = rng.choice((1, 2, 3, 4, 5))
        folded = p > 1 and k % 3 == 0
        v = 2 if folded else rng.choice((1, 1, 2, 3))
        stages, way = p * v, rng.choice(ways)
        layers = stages * rng.randint(1, 2) + rng.randrange(stages)
        kinds = rng.choice((0, 0, 1, 2))
        of = [len(mine) for mine in stage_layers(layers, stages, "slots" if way == "slots" and stages > 2 else "even")]  # fmt: skip
        if way == "given":
            of = [rng.randint(1, 3) for _ in range(stages)]
        yield listed(rng, p, v, folded, way, of, kinds)


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
        for k in range(1, kinds + 1)
    )
    each = float(p), float(v), folded
    cut = (
        StagePartition.given(tuple(of), *each, among)
        if way == "given"
        else StagePartition.of(layers, *each, way == "slots", among)
    )
    crosses = folded and rng.random() < 0.5
    layer, first, last, *more = (
        Pass(*(rng.uniform(0.5, 2.0) for _ in range(3)))
        for _ in range(3 + kinds)
    )
    d = StageCosts(
        replace(cut, crosses=crosses), layer, first, last, tuple(more),
        rng.uniform(0.1, 1.0),
    )  # fmt: skip
    ends = [*accumulate(of, initial=0)]
    dealt = [words[a:b] for a, b in pairwise(ends)]
    kind = [layer, *(Pass(*map(sum, zip(layer, x, strict=True))) for x in more)]  # fmt: skip
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
        (k if k < p else 2 * p - 1 - k) if folded else k % p
        for k in range(stages)
    ]
    hops = [
        d.send if p > 1 and (a != b or crosses) else 0.0
        for a, b in pairwise(rank_of)
    ]
    return Listed(d, dealt, passes, rank_of, hops)


def close(found: Any, wanted: Any) -> bool:
    return bool(found == pytest.approx(wanted, rel=1e-12, abs=1e-12))


def test_stages_and_the_ways_to_ranks() -> None:
    """Ways of a microbatch down to the first chunk of each rank, and up from it."""
    for at in pipelines():
        d = at.d
        for k, mine in enumerate(at.passes):
            assert close(tuple(d.at(float(k))), mine)
        for rank in range(int(d.partition.p)):
            f, i, w = added(at.passes[:rank])
            hops = sum(at.hops[:rank])
            assert close(d.down(float(rank)), f + hops)
            assert close(d.up(float(rank)), i + w + hops)


def test_ranks_hold_their_stages() -> None:
    for at in pipelines():
        d, p = at.d, int(at.d.partition.p)
        cut, v = d.partition, int(at.d.partition.v)
        loads = []
        for rank in range(p):
            mine = [k for k, r in enumerate(at.rank_of) if r == rank]
            words = [word for k in mine for word in at.words[k]]
            loads.append(added([at.passes[k] for k in mine]))
            x = float(rank)
            assert float(cut.rank_layers(x)) == len(words)
            assert [*cut.rank_kinds(x)] == [
                words.count(k + 1) for k in range(len(cut.kinds))
            ]
            assert close(tuple(d.load(x)), loads[-1])
            assert close(d.load(x).total, sum(loads[-1]))
            assert close(d.load(x).b, sum(loads[-1][1:]))
        # of as slow ones any may be named
        if v == 1 or cut.folded:
            slowest = sum(loads[int(d.slowest)])
            assert slowest == pytest.approx(max(map(sum, loads)))


def test_the_fullest_and_the_lightest() -> None:
    for at in pipelines():
        cut, of = at.d.partition, [len(mine) for mine in at.words]
        p = int(cut.p)
        held = [float(cut.rank_layers(float(r))) for r in range(p)]
        assert float(cut.rank_layers(cut.fuller)) == max(held)
        if not (cut.folded or cut.first or cut.last):
            last = max(r for r in range(p) if held[r] == max(held))
            assert cut.fuller == last
        assert cut.most >= max(of)
        if not (cut.first or cut.last):
            assert cut.most == max(of)


def test_the_first_layer_of_a_stage() -> None:
    """Its kind, and those before it."""
    for at in pipelines(count=40):
        cut = at.d.partition
        for k, mine in enumerate(at.words):
            if cut.v == 1 and mine and cut.kinds:
                assert [*cut.first_kind(float(k))] == [
                    float(mine[0] == n + 1) for n in range(len(cut.kinds))
                ]
            flat = [word for words in at.words[:k] for word in words]
            assert [*cut.kinds_before(float(k))] == [
                flat.count(n + 1) for n in range(len(cut.kinds))
            ]


def replay(name: str, at: Listed, m: int) -> float:
    """Seconds of m microbatches in the order of a schedule."""
    kind, p, v = get(name), int(at.d.partition.p), int(at.d.partition.v)
    order = kind.order(p, m, v)
    place = kind.placement(p, v)
    return timeline(order, place, at.passes, at.d.send if p > 1 else 0.0).makespan_s  # fmt: skip


NAMES = ("gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_order_is_shorter_than_the_slowest_rank_and_the_ways_to_it(
    name: str,
) -> None:
    """Down to it, all its work, and up from it where backward passes are whole: a path of any
    order."""
    kind, seen = get(name), 0
    for at in pipelines(count=150):
        d = at.d
        p, v = int(d.partition.p), int(d.partition.v)
        if d.partition.folded or p == 1 or (kind.chunks(7) == 7) != (v > 1):
            continue
        m = p * (1 + seen % 3)
        if not kind.legal(p, m, v):
            continue
        seen += 1
        x = d.slowest
        least = m * d.load(x).total + d.down(x)
        least += 0.0 if kind.split_backward else d.up(x)
        assert least <= replay(name, at, m) * (1 + 1e-12)
    assert seen > 15


def test_a_slow_rank_sets_the_pace_of_1f1b() -> None:
    """Where one rank is far slower than all others, and sends take no time, nothing else counts."""
    layer, none = Pass(1.0, 1.5, 0.5), Pass(0.0, 0.0, 0.0)
    for heavy in (none, Pass(40.0, 60.0, 20.0)):
        cut = StagePartition.of(4, 4.0, 1.0, False)
        d = StageCosts(cut, layer, Pass(40.0, 60.0, 20.0), heavy, (), 0.0)
        passes = [tuple(map(float, d.at(float(k)))) for k in range(4)]
        at = Listed(d, [], passes, [0, 1, 2, 3], [])
        x = d.slowest
        assert x == (3.0 if heavy.f else 0.0)
        least = 9 * d.load(x).total + d.down(x) + d.up(x)
        assert replay("1f1b", at, 9) >= least
        if not heavy.f:  # it runs as many forwards ahead as others need
            assert replay("1f1b", at, 9) == least
