"""Which ranks may have the most work, orders of few microbatches word by word, and replays of many
and of explained ones.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from meshwright.prediction.recorded import Recorded, contributions
from meshwright.schedule import SCHEDULES, get, held
from meshwright.schedule.controllable import half, least
from meshwright.schedule.longest import longest
from meshwright.schedule.order import in_flight_rank
from meshwright.schedule.partition import StagePartition
from meshwright.schedule.replays import itemised, one
from meshwright.schedule.stage_costs import Pass, StageCosts
from meshwright.schedule.timeline import step_in_run_s, timeline
from meshwright.schedule.types import Action, Costs, Order


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
        assert {*held._heavy(counts, inner)} == heavy
        early = [
            r for r in inner if not any(within(r, o) for o in inner if o < r)
        ]
        assert held._early(counts, inner) == early


WRITTEN = {
    # the first and the last rank: kind, chunk, microbatch
    "gpipe 2 2 1": ("F0.0 F0.1 B0.0 B0.1", "F0.0 F0.1 B0.0 B0.1"),
    "1f1b 3 4 1": (
        "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3",
        "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3",
    ),
    "zb-h1 2 3 1": (
        "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2",
        "F0.0 I0.0 F0.1 I0.1 W0.0 F0.2 I0.2 W0.1 W0.2",
    ),
    "zb-h2 2 4 1": (
        "F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3",
        "F0.0 I0.0 F0.1 I0.1 F0.2 I0.2 W0.0 F0.3 I0.3 W0.1 W0.2 W0.3",
    ),
    "interleaved 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1",
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1",
    ),
    "interleaved-zb 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 I1.0 W1.0 I1.1 W1.1 I0.0 W0.0 I0.1 W0.1",
        "F0.0 F0.1 F1.0 I1.0 F1.1 I1.1 W1.0 I0.0 W1.1 I0.1 W0.0 W0.1",
    ),
    "breadth-first 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 B1.1 B1.0 B0.1 B0.0",
        "F0.0 F0.1 F1.0 F1.1 B1.1 B1.0 B0.1 B0.0",
    ),
    "zbv 2 3 2": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 I0.0 W0.0 F1.2 I1.2 W1.2"
        " I0.1 W0.1 I0.2 W0.2",
        "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 I0.1 I1.2"
        " I0.2 W0.1 W1.2 W0.2",
    ),
    "dualpipev 2 4 2": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 F0.3 B1.1 F1.2 B0.0 B1.2 F1.3 B0.1"
        " B1.3 I0.2 W0.2 I0.3 W0.3",
        "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 F1.2 B0.0 F0.3 B1.1 F1.3 B0.1 B1.2 B0.2"
        " I1.3 I0.3 W1.3 W0.3",
    ),
    "v-half 2 3": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I0.0 I1.1 W1.1 F1.2 I1.2 I0.1 W1.2 I0.2 W0.0 W0.1 W0.2",
        "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 I0.0 W0.0 F0.2 F1.2 I1.1 I0.1 I1.2 I0.2 W1.1 W1.2 W0.1 W0.2",
    ),
    "v-min 2 3": (
        "F0.0 F0.1 F1.0 I1.0 W1.0 I0.0 W0.0 F1.1 I1.1 W1.1 F0.2 I0.1 W0.1 F1.2 I1.2 W1.2 I0.2 W0.2",
        "F0.0 F1.0 I1.0 I0.0 F0.1 F1.1 W1.0 W0.0 I1.1 I0.1 F0.2 F1.2 W1.1 W0.1 I1.2 I0.2 W1.2 W0.2",
    ),
    "v-half 3 7": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 I0.0 W0.0 F0.3 F1.2 I1.2 W1.2 I0.1 W0.1 F0.4 F1.3 I1.3 W1.3 I0.2 W0.2 F0.5 F1.4 I1.4 W1.4 I0.3 W0.3 F0.6 F1.5 I1.5 W1.5 I0.4 W0.4 F1.6 I1.6 I0.5 W1.6 W0.5 I0.6 W0.6",
        "F0.0 F0.1 F1.0 F1.1 I1.0 W1.0 F0.2 I0.0 I1.1 W1.1 F1.2 W0.0 F0.3 I0.1 I1.2 W1.2 F1.3 W0.1 F0.4 I0.2 I1.3 W1.3 F1.4 W0.2 F0.5 I0.3 I1.4 W1.4 F1.5 W0.3 F0.6 I0.4 I1.5 W1.5 F1.6 W0.4 I0.5 I1.6 W1.6 W0.5 I0.6 W0.6",
        "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 I0.0 W0.0 F0.2 F1.2 I1.1 W1.1 I0.1 W0.1 F0.3 F1.3 I1.2 W1.2 I0.2 W0.2 F0.4 F1.4 I1.3 W1.3 I0.3 W0.3 F0.5 F1.5 I1.4 I0.4 W1.4 F0.6 W0.4 F1.6 I1.5 I0.5 W1.5 W0.5 I1.6 I0.6 W1.6 W0.6",
    ),
    "v-min 3 7": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I0.0 I1.1 W1.1 W0.0 F1.2 F0.3 I0.1 I1.2 W1.2 W0.1 F1.3 F0.4 I0.2 I1.3 W1.3 W0.2 F1.4 F0.5 I0.3 I1.4 W1.4 W0.3 F1.5 F0.6 I0.4 I1.5 W1.5 W0.4 F1.6 I1.6 I0.5 W1.6 W0.5 I0.6 W0.6",
        "F0.0 F0.1 F1.0 F1.1 I1.0 W1.0 I0.0 F0.2 W0.0 I1.1 F1.2 W1.1 I0.1 F0.3 W0.1 I1.2 F1.3 W1.2 I0.2 F0.4 W0.2 I1.3 F1.4 W1.3 I0.3 F0.5 W0.3 I1.4 F1.5 W1.4 I0.4 F0.6 W0.4 I1.5 F1.6 W1.5 I0.5 I1.6 W1.6 W0.5 I0.6 W0.6",
        "F0.0 F1.0 F0.1 F1.1 I1.0 I0.0 W1.0 W0.0 F0.2 F1.2 I1.1 I0.1 W1.1 W0.1 F0.3 F1.3 I1.2 I0.2 W1.2 W0.2 F0.4 F1.4 I1.3 I0.3 W1.3 W0.3 F0.5 F1.5 I1.4 I0.4 W1.4 W0.4 F0.6 F1.6 I1.5 I0.5 W1.5 W0.5 I1.6 I0.6 W1.6 W0.6",
    ),
}
"""Of one and of both by the rules of the module's docstring; V-Half and V-Min by their authors'
program."""


@pytest.mark.parametrize("case", WRITTEN)
def test_orders_word_by_word(case: str) -> None:
    name, p, m, *v = case.split()
    rows = get(name).order(int(p), int(m), int(*v or (2,)))
    found = [
        " ".join(f"{a.kind}{a.chunk}.{a.microbatch}" for a in row)
        for row in rows
    ]
    wanted = WRITTEN[case]
    assert len(rows) == int(p)
    assert [found[0], found[-1]] == [wanted[0], wanted[-1]]
    assert len(wanted) == 2 or tuple(found) == wanted


@pytest.mark.parametrize("p", [2, 3, 4, 6, 9])
def test_building_blocks(p: int) -> None:
    """A microbatch goes down and up the V and, backwards, down and up again; two passes of a rank
    never meet in one of the six slots that are repeated, and three places are left for W."""
    for block, down in ((half, 2), (least, 1)):
        slots = np.array([block(p, r) for r in range(p)])
        assert slots[0, 0] == 0
        # hops of the way down, of the way up, of I down and of I up
        assert np.all(np.diff(slots[:, 0]) == down)
        assert np.all(np.diff(slots[:, 1]) == -1)
        assert np.all(np.diff(slots[:, 2]) == down)
        assert np.all(np.diff(slots[:, 3]) == -1)
        # the turns, at both ends
        assert slots[-1, 1] == slots[-1, 0] + 1
        assert slots[0, 2] > slots[0, 1]
        assert slots[-1, 3] == slots[-1, 2] + down
        for row in slots % 6:
            assert len({*row.tolist()}) == 4
        late = {half: 3 * (p % 2 == 0), least: 2 * (p % 3 == 0)}[block]
        assert slots[0, 2] == slots[0, 1] + 1 + late


@pytest.mark.parametrize("name", SCHEDULES)
def test_many_microbatches_are_the_replay_of_all(name: str) -> None:
    """Groups that repeat are run again or multiplied, alone or beside other layouts; what is held
    does not grow with more of them."""
    kind, rng = get(name), np.random.default_rng(8)
    v = int(kind.chunks(2))
    for p, times, rest in product((2, 3, 4), (5, 9), (0, 1)):
        m = times * p + rest * (0 if name.startswith("inter") else kind.copies)
        if not kind.legal(p, m, v if v > 1 else 1):
            continue
        count = int(kind.stage_count(p, v))
        each = rng.uniform(0.2, 1.0, (12, count, 3))
        each[0] = each[0, :1]  # equal stages
        each[1] = (
            1.0 + each[1] / 99
        )  # ranks run ahead for long before all repeats
        each[2, :, 2] *= 9
        sends = np.array([0.0, 0.01, 2.0, *rng.uniform(0, 1, 9)])
        for barrier in (True, False):
            found = longest(kind, p, m, v, each, sends, barrier)
            for k in range(4):
                passes = [(float(f), float(i), float(w)) for f, i, w in each[k]]  # fmt: skip
                send = float(sends[k])
                from_costs = kind.timed(Costs(tuple(passes), send))
                alone = step_in_run_s(
                    from_costs.order(p, m, v),
                    kind.placement(p, v),
                    passes,
                    send,
                    barrier or not kind.split_backward,
                )
                assert found[k] == pytest.approx(alone, rel=1e-10)
                one_layout = each[k, None], sends[k, None], barrier
                assert longest(kind, p, m, v, *one_layout) == pytest.approx(found[k], rel=1e-12)  # fmt: skip
        if kind.costed:
            continue
        order = kind.order(p, m, v)
        ranks = [in_flight_rank(order, r) for r in range(p)]
        assert float(kind.in_flight(p, m, v)) == pytest.approx(max(ranks))


@pytest.mark.parametrize(
    "ahead", [lambda p, m, r: 5 * (p - 1 - r), lambda p, m, r: p - 1 - r + m % 3]
)  # fmt: skip
def test_orders_that_look_far_back_or_depend_on_the_microbatches(
    ahead: Any,
) -> None:
    """Ranks run far ahead of the next one, or as far as the number of microbatches says: groups look
    the same, but are not run once more."""

    def order(p: int, m: int, v: int) -> Order:
        rows = []
        for r in range(p):
            first = min(ahead(p, m, r), m)
            rows.append([Action("F", 0, k) for k in range(first)])
            for k in range(m):
                rows[-1] += [Action("F", 0, first + k)] * (first + k < m)
                rows[-1].append(Action("B", 0, k))
        return rows

    kind = replace(get("1f1b"), name="far ahead", order=order)
    rng = np.random.default_rng(4)
    for p, m in ((2, 40), (3, 61)):
        each = 1.0 + rng.uniform(0.0, 0.05, (3, p, 3))
        found = longest(kind, p, m, 1, each, np.full(3, 15.0))
        for k in range(3):
            passes = [tuple(map(float, row)) for row in each[k]]
            exact = timeline(
                order(p, m, 1), kind.placement(p, 1), passes, 15.0
            )
            assert found[k] == pytest.approx(exact.makespan_s, rel=1e-10)


def test_an_explained_step_is_its_replay_to_the_last_bit() -> None:
    """What rounding leaves of the sum of its terms is added, not taken off."""
    rng = random.Random(3)
    for name in ("v-half", "zbv", "1f1b"):
        v = int(get(name).chunks(1))
        for _ in range(20):
            plain = [rng.uniform(0.01, 1.0) for _ in range(4)]
            layer = Pass(*(Recorded.called(f"{k}", x) for k, x in enumerate(plain[:3])))  # fmt: skip
            none = Pass(0.0, 0.0, 0.0)
            cut = StagePartition.of(3 * v, 3.0, float(v), get(name).folded)
            named = StageCosts(cut, layer, none, none, (), Recorded.called("send", plain[3]))  # fmt: skip
            alone = named._replace(layer=Pass(*plain[:3]), send=plain[3])
            for barrier in (True, False):
                at = get(name), (3, 7, v)
                (found,) = itemised(*at, [named], barrier)
                exact = one(*at, alone, barrier)
                assert float(found) == exact


def test_an_explained_step_says_how_often_each_pass_is_on_its_path() -> None:
    """1F1B of three equal stages and eight microbatches: ten forwards and ten backwards, four sends."""
    none = Pass(0.0, 0.0, 0.0)
    layer = Pass(*(Recorded.called(k, x) for k, x in zip("FIW", (1.0, 2.0, 0.5), strict=True)))  # fmt: skip
    cut = StagePartition.of(3, 3.0, 1.0, False)
    d = StageCosts(cut, layer, none, none, (), Recorded.called("send", 0.001))
    (found,) = itemised(get("1f1b"), (3, 8, 1), [d], True)
    often = {name: times for name, (times, _) in contributions(found).items()}
    assert [often[k] for k in "FIW"] == [10.0, 10.0, 10.0]
    assert float(found) == pytest.approx(10 * 3.5 + often["send"] * 0.001)
