"""What a schedule waits at least, against replays: never more, and the whole bubble where stages
are equal.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from test_spans import draw, pattern

from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.cut import Cut
from meshwright.schedule.dealt import Dealt, Pass
from meshwright.schedule.longest import longest

WAITING = [name for name in SCHEDULES if get(name).waits]


def of_kinds(rng: random.Random, d: Dealt) -> Dealt:
    """With layers of two further kinds among them."""
    words = pattern(rng, int(d.cut.layers(0.0, d.stages)))
    kinds = tuple(
        tuple(accumulate((float(w == k) for w in words), initial=0.0))
        for k in (1, 2)
    )
    more = tuple(
        Pass(*(rng.uniform(-each, 1.5) for each in d.layer)) for _ in kinds
    )
    return d._replace(cut=replace(d.cut, uneven=True, kinds=kinds), more=more)


def waited(name: str, d: Dealt, m: float) -> float:
    """Seconds of m microbatches on the slowest rank and of the waits."""
    ranks = range(int(d.p))
    loads = [d._replace(send=0.0).load(float(rank)).total for rank in ranks]
    waits = get(name).waits
    assert waits
    return m * max(loads) + sum(
        wait.of(m) for wait in waits(d._replace(m=1.0, send=0.0), max(loads))
    )


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("uneven", [False, True])
def test_no_step_of_a_run_takes_less(name: str, uneven: bool) -> None:
    """By replay and, since the search compares with that, by closed form."""
    rng = random.Random(f"{name} {uneven}")
    for _ in range(150):
        one = draw(rng, name, uneven=uneven and get(name).chunks(1) == 1)
        passes = np.array(one.passes)[None]
        exact = longest(
            get(name),
            one.p,
            one.m,
            one.v,
            passes,
            np.array([one.dealt.send]),
            barrier=False,
        )[0]
        closed = get(name).span(one.dealt, False)
        assert waited(name, one.dealt, one.m) <= min(exact, closed) * (
            1 + 1e-12
        )


@pytest.mark.parametrize(
    ("name", "m", "idle"),
    [
        ("1f1b", 8, 7 * 3),
        ("interleaved", 16, 7 * 3 / 2),
        ("interleaved", 3, 7 * 3 - 2 * 3 / 2),
        ("zb-h1", 8, 7),
        ("zb-h2", 15, 0),
        ("zb-h2", 1, 14),
        ("zbv", 1, 14),
    ],
)
def test_equal_stages_by_hand(name: str, m: int, idle: float) -> None:
    """p = 8, f = i = w = 1: (p-1)(f + i + w); over v = 2 chunks, unless few microbatches go through
    all of them, two half a device's work behind the first; (p-1)(f + i - w); zero from m = 2p - 1
    on; one microbatch goes down and up.
    """
    schedule = get(name)
    v = float(schedule.chunks(2))
    nothing, each = Pass(0.0, 0.0, 0.0), Pass(1.0 / v, 1.0 / v, 1.0 / v)
    cut = Cut.of(int(8 * v), 8.0, v, schedule.folded)
    d = Dealt(cut, 1.0, each, nothing, nothing, (), 0.0)
    assert waited(name, d, float(m)) == pytest.approx(3 * m + idle)


@pytest.mark.parametrize("name", ["interleaved", "zbv"])
def test_uneven_chunks_wait_no_longer_than_the_closed_form(name: str) -> None:
    """Light ends, slots and sends; one microbatch goes through all layers whatever holds them."""
    rng, others = random.Random(name), random.Random(f"kinds {name}")
    schedule = get(name)
    once = 0
    for _ in range(400):
        p, v = (
            float(rng.randint(2, 9)),
            float(schedule.chunks(rng.choice([2, 3]))),
        )
        layers, slots = rng.randint(int(p * v) - 2, 60), rng.random() < 0.5
        cut = Cut.of(layers, p, v, schedule.folded, slots)
        m = float(rng.randint(1, 25))
        if cut.least < (not slots) or not schedule.legal(p, m, v):
            continue
        layer, first, last = (
            Pass(*(rng.random() * a for _ in range(3))) for a in (1, 2, 3)
        )
        d = Dealt(cut, m, layer, first, last, (), rng.random() / 9)
        more = of_kinds(others, d)
        assert waited(name, more, m) <= schedule.span(more, False) * (
            1 + 1e-12
        )
        least = waited(name, d, m)
        assert least <= schedule.span(d, False) * (1 + 1e-12)
        # of even ones ZB-V counts layers only, and no ends
        if m == 1 and (name != "zbv" or not cut.alike):
            once += 1
            work = layers * (layer.f + layer.i) + first.f + last.f
            assert least >= (work + first.i + last.i) * (1 - 1e-12)
    assert once > 5
