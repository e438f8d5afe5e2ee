"""In how many pipelines a closed form is the replay itself, over durations that differ by a factor of
a hundred, so that each path of each closed form is the longest somewhere; and that it is above none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from meshwright.layout.stages import stage_layers
from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.dealt import Dealt, Pass
from meshwright.schedule.longest import longest

Column = NDArray[np.float64]
ROWS = 24
RANKS = (1, 2, 3, 4, 6)


class Pipeline(NamedTuple):
    """Many of one shape; layers: of each stage."""

    p: int
    m: int
    v: int
    layers: list[range]
    dealt: Dealt


def wide(rng: np.random.Generator) -> Column:
    """From a tenth of a millisecond to ten: a second would be longer than most steps."""
    found: Column = 10.0 ** rng.uniform(-4.0, -2.0, ROWS)
    return found


def pipelines(name: str) -> Iterator[Pipeline]:
    """Of one and two rounds and more, with layers that divide or do not, in slots or stage by
    stage; ends and sends in half of them, leading layers in some.
    """
    schedule, rng = get(name), np.random.default_rng(3)
    chunked = schedule.chunks(7) == 7
    for p in RANKS:
        for m in sorted({1, 2, p, p + 1, 2 * p - 1, 2 * p + 1, 3 * p, 5 * p}):
            v = int(rng.integers(2, 4)) if chunked else 1
            if schedule.legal(p, m, v):
                for deal in ("even", "uneven", "slots", "given"):
                    yield drawn(rng, name, (p, m, v), deal)


def drawn(
    rng: np.random.Generator, name: str, at: tuple[int, int, int], deal: str
) -> Pipeline:
    p, m, v = at
    schedule = get(name)
    n = int(schedule.chunks(v))
    count = int(schedule.stage_count(p, v))
    layers = count * int(rng.integers(1, 4))
    how, ranks, chunks = "even", float(p), float(n)
    if deal in ("uneven", "slots"):
        layers += int(rng.integers(1, count)) if count > 1 else 0
    if deal == "given":
        each = tuple(int(x) for x in rng.integers(1, 4, count))
        cut = schedule.cut(each, ranks, chunks, False)
        ends = np.cumsum((0, *each))
        stages = [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]
        layers = sum(each)
    else:
        how = "slots" if deal == "slots" and count > 2 else "even"
        cut = schedule.cut(layers, ranks, chunks, how == "slots")
        stages = stage_layers(layers, count, how)
    big = layers / p

    def some(size: float) -> Column:
        return wide(rng) * rng.integers(0, 2, ROWS) * size

    layer = Pass(*(wide(rng) for _ in range(3)))
    first, last = (Pass(*(some(big) for _ in range(3))) for _ in range(2))
    lead = int(rng.integers(1, 4)) if deal == "uneven" and m % 2 else 0
    more = Pass(*(x * rng.uniform(-0.9, 2, ROWS) * (lead > 0) for x in layer))
    if lead:
        among = tuple(float(min(n, lead)) for n in range(layers + 1))
        cut = replace(cut, kinds=(among,))
    others = (more,) if lead else ()
    rounds = schedule.rounds(float(m))
    d = Dealt(cut, rounds, layer, first, last, others, some(big / n))
    return Pipeline(p, m, v, stages, d)


def passes(at: Pipeline) -> Column:
    """F, I and W of each stage, layer by layer."""
    d = at.dealt
    found = np.zeros((ROWS, len(at.layers), 3))
    for i in range(3):
        for k, mine in enumerate(at.layers):
            found[:, k, i] = len(mine) * np.asarray(d.layer[i])
            for among, more in zip(d.cut.kinds, d.more, strict=True):
                early = sum(among[n + 1] - among[n] for n in mine)
                found[:, k, i] += early * np.asarray(more[i])
        found[:, 0, i] += np.asarray(d.first[i])
        found[:, -1, i] += np.asarray(d.last[i])
    return found


EXACT = {
    "1f1b": 5680,
    "interleaved": 3954,
    "zb-h1": 5640,
    "zb-h2": 5779,
    "interleaved-zb": 2186,
    "zbv": 4236,
    "dualpipev": 1796,
    "dualpipe": 588,
}
"""Schedule -> in how many of its draws the closed form is the replay; those not listed: in all."""


CLOSED = [
    name
    for name, schedule in SCHEDULES.items()
    if not (schedule.replayed or schedule.costed)
]


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_that_are_the_replay(name: str) -> None:
    schedule, exact, draws = get(name), 0, 0
    for at in pipelines(name):
        seconds = passes(at)
        for barrier in (True, False):
            whole = longest(
                schedule, at.p, at.m, at.v, seconds, np.asarray(at.dealt.send), barrier
            )  # fmt: skip
            closed = np.broadcast_to(schedule.span(at.dealt, barrier), ROWS)
            assert np.all(closed <= whole * (1 + 1e-9)), (at.p, at.m, at.v)
            exact += int(np.count_nonzero(closed >= whole * (1 - 1e-9)))
            draws += ROWS
    assert exact >= EXACT.get(name, draws), f"{exact} of {draws}"


LAWS = {"zb-h2": 16660, "interleaved-zb": 14237, "zbv": 16413}
"""The same of bubbles of equal stages."""


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipev"])  # fmt: skip
def test_bubbles_that_are_the_replays(name: str) -> None:
    """F, I and W of equal stages, each up to a hundred times the other."""
    kind, rng, rows = get(name), np.random.default_rng(4), 300
    v = 2 if kind.chunks(7) > 1 else 1
    exact = draws = 0
    for p in (2, 3, 4, 5):
        for m in sorted(
            {1, p - 1, p, p + 1, 2 * p - 2, 2 * p - 1, 2 * p, 3 * p}
        ):
            if not kind.legal(p, m, v):
                continue
            f, i, w = 10.0 ** rng.uniform(-4.0, -2.0, (3, rows))
            n = int(kind.chunks(v))
            seconds = np.repeat(np.stack([f, i, w], 1)[:, None] / n, p * n, 1)
            for barrier in (True, False):
                took = longest(kind, p, m, v, seconds, np.zeros(rows), barrier)
                law = m * (f + i + w) + kind.idle(p, m, v, f, i, w, barrier)
                assert np.all(law <= took * (1 + 1e-9)), (p, m, barrier)
                exact += int(np.count_nonzero(law >= took * (1 - 1e-9)))
                draws += rows
    assert exact >= LAWS.get(name, draws), f"{exact} of {draws}"
