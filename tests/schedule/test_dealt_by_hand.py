"""What a dealt pipeline says of any stage, way and rank, against sums over the list of its stages;
and a table of pipelines against each by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from meshwright.layout.stages import stage_layers
from meshwright.schedule import get
from meshwright.schedule.cut import Cut
from meshwright.schedule.dealt import Dealt, Pass

Three = tuple[float, float, float]


class Listed(NamedTuple):
    """A pipeline, and its stages one by one."""

    d: Dealt
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
        Cut.given(tuple(of), *each, among)
        if way == "given"
        else Cut.of(layers, *each, way == "slots", among)
    )
    crosses = folded and rng.random() < 0.5
    layer, first, last, *more = (
        Pass(*(rng.uniform(0.5, 2.0) for _ in range(3)))
        for _ in range(3 + kinds)
    )
    d = Dealt(
        replace(cut, crosses=crosses), float(rng.randint(1, 9)), layer, first,
        last, tuple(more), rng.uniform(0.1, 1.0),
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


def test_stages_and_the_ways_between_them() -> None:
    for at in pipelines():
        d, passes = at.d, at.passes
        n = len(passes)
        for a in range(n + 1):
            for b in range(a, n + 1):
                f, i, w = added(passes[a:b])
                x, y = float(a), float(b)
                assert close(d.f(x, y), f) and close(d.i(x, y), i)
                assert close(d.w(x, y), w)
                assert close(tuple(d.passes(x, y)), (f, i, w))
                if b == n:
                    continue
                hops = sum(at.hops[a:b])
                assert close(d.hops(x, y), hops)
                assert close(d.down(x, y), f + hops)
                assert close(d.up(y, x), i + hops)
                assert close(d.up_whole(y, x), i + w + hops)
                f, i, w = added(passes[a + 1 : b + 1])
                here, there = d.place(x), d.place(y)
                assert close(d.below(x, y), f + i + 2 * hops)
                assert close(here.below(there), f + i + 2 * hops)
                assert close(here.below_whole(there), f + i + w + 2 * hops)


def test_places_begin_at_the_first_stage() -> None:
    for at in pipelines():
        d, passes = at.d, at.passes
        for k, mine in enumerate(passes):
            f, i, w = added(passes[:k])
            hops, here = sum(at.hops[:k]), d.place(float(k))
            assert close(tuple(here.at), mine) and here.stage == k
            assert close(tuple(d.at(float(k))), mine)
            assert close((here.down, here.up), (f + hops, i + hops))
            assert close(tuple(here.before), (f, i, w))
            assert close(here.back, i + w + hops)
            silent = here.silent
            assert close((silent.down, silent.up, silent.back), (f, i, i + w))
            assert silent.at is here.at and silent.stage == k
        f, i, w = added(passes)
        assert close(d.through, f + i + 2 * sum(at.hops))
        for r in range(len(passes) + 1):
            f, i, _ = added(passes[len(passes) - r :])
            hops = sum(at.hops[len(passes) - r :]) if r else 0.0
            assert close(d.last_ranks(float(r)), f + i + 2 * hops)


def test_ranks_hold_their_stages() -> None:
    for at in pipelines():
        d, p = at.d, int(at.d.p)
        cut, v = d.cut, int(at.d.v)
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
            assert close(d.busy(x), d.m * sum(loads[-1]))
            if not cut.folded:
                early = added([at.passes[k] for k in mine[:-1]])
                # the last stage is the last chunk of its rank
                assert close(tuple(d.earlier(x)), early) or v == 1
        # any ranks' work is that of one that may set the pace
        most = [max(load[i] for load in loads) for i in range(3)]
        if v == 1 or cut.folded:
            slow = [d.load(x) for x in d.slow]
            assert max(sum(x) for x in slow) == pytest.approx(
                max(map(sum, loads))
            )
            assert all(
                max(x[i] for x in slow) <= most[i] + 1e-9 for i in range(3)
            )


def test_the_fullest_and_the_lightest() -> None:
    for at in pipelines():
        cut, of = at.d.cut, [len(mine) for mine in at.words]
        p = int(cut.p)
        held = [float(cut.rank_layers(float(r))) for r in range(p)]
        assert float(cut.rank_layers(cut.fuller)) == max(held)
        if not (cut.folded or cut.first or cut.last):
            last = max(r for r in range(p) if held[r] == max(held))
            assert cut.fuller == last
        alike = len({tuple(sorted(mine)) for mine in at.words}) == 1
        assert bool(cut.alike) is alike
        assert cut.most >= max(of) and cut.least <= min(of)
        if not (cut.first or cut.last):
            assert (cut.most, cut.least) == (max(of), min(of))
        found = at.d.lightest
        total = added(at.passes)
        ends = added([tuple(at.d.first), tuple(at.d.last)])
        for i in range(3):
            mean = (total[i] - ends[i]) / sum(of)
            assert found[i] <= mean + 1e-12
            if alike:
                assert close(found[i], mean)


def test_the_first_layer_of_a_stage() -> None:
    """Its kind, and those before it."""
    for at in pipelines(count=40):
        cut = at.d.cut
        for k, mine in enumerate(at.words):
            if cut.v == 1 and mine and cut.kinds:
                assert [*cut.first_kind(float(k))] == [
                    float(mine[0] == n + 1) for n in range(len(cut.kinds))
                ]
            flat = [word for words in at.words[:k] for word in words]
            assert [*cut.kinds_before(float(k))] == [
                flat.count(n + 1) for n in range(len(cut.kinds))
            ]


def test_without_sends_nothing_else_changes() -> None:
    """Whether ranks and places were asked for before or not."""
    for at in pipelines(count=30):
        d, none = at.d, at.d._replace(send=0.0)
        for _ in range(2):
            silent = d.silent
            assert silent.through == none.through
            assert silent.ranks == none.ranks
            assert silent.place(float(d.q)) == none.place(float(d.q))
            assert d.ranks  # known from now on


NAMES = ("1f1b", "interleaved", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipev", "zb-1p")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kinds", [False, True])
def test_a_table_is_each_of_its_rows(name: str, kinds: bool) -> None:
    """Pipelines of any ranks and microbatches, with layers that divide and that do not."""
    rng, kind = random.Random(name), get(name)
    v = float(kind.chunks(2))
    among = (tuple(float(min(n, 3)) for n in range(31)),) if kinds else ()
    rows = []
    while len(rows) < 60:
        p, m = rng.randint(1, 7), rng.randint(1, 25)
        if not kind.legal(p, m, v):
            continue
        layers = int(p * v) * rng.choice((1, 2, 3)) + (
            rng.randrange(int(p * v)) if rng.random() < 0.6 else 0
        )
        layers = 30 if kinds else layers  # of one model
        one = Pass(*(10 ** rng.uniform(-2.0, 0.0) for _ in range(3)))
        ends = [Pass(*(rng.choice((0.0, 10 ** rng.uniform(-2, 1))) for _ in range(3))) for _ in range(2)]  # fmt: skip
        more = (Pass(*(x * rng.uniform(-0.5, 2.0) for x in one)),)
        rows.append((float(p), float(m), layers, one, *ends, more, rng.choice((0.0, 0.1, 1.0))))  # fmt: skip

    def dealt(p: Any, m: Any, layers: Any, one: Any, *rest: Any) -> Dealt:
        first, last, more, send = rest
        cut = Cut.of(30 if kinds else layers, p, v, kind.folded, False, among)
        return Dealt(cut, m, one, first, last, more if kinds else (), send)

    def column(values: list[Any]) -> Any:
        if isinstance(values[0], Pass):
            return Pass(*map(np.array, zip(*values, strict=True)))
        if isinstance(values[0], tuple):
            return (column([x for (x,) in values]),)
        return np.array(values, dtype=float)

    table = dealt(*map(column, map(list, zip(*rows, strict=True))))
    waits = kind.waits
    for barrier in (True, False):
        alone = [float(kind.span(dealt(*row), barrier)) for row in rows]
        assert kind.span(table, barrier) == pytest.approx(alone, rel=1e-12)
    loose = np.broadcast_to(kind.loose(table) if kind.loose else False, 60)
    for k, row in enumerate(rows):
        d = dealt(*row)
        assert bool(kind.loose(d) if kind.loose else False) == loose[k]
        if waits:
            most = max(d.load(float(r)).total for r in range(int(d.p)))
            some = np.full(60, most)
            for a, b in zip(waits(d, most), waits(table, some), strict=False):
                of = np.broadcast_to(b.of(table.m), 60)[k]
                assert float(a.of(d.m)) == pytest.approx(float(of))
