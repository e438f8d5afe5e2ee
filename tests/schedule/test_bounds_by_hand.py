"""What a schedule waits at least, what no order within a limit undercuts, and which ranks may have
the most work: as sums over lists of stages. Orders of few microbatches, word by word.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from meshwright.num import Item
from meshwright.schedule import SCHEDULES, get, held, waits
from meshwright.schedule.controllable import half, least
from meshwright.schedule.cut import Cut
from meshwright.schedule.dealt import Dealt, Pass
from meshwright.schedule.longest import GROUPS, longest
from meshwright.schedule.order import in_flight_rank
from meshwright.schedule.replays import seconds
from meshwright.schedule.timeline import step_in_run_s
from meshwright.schedule.types import Costs
from meshwright.schedule.waits import Wait

Three = tuple[float, float, float]


def equal(p: int, layers: int, m: int, send: float = 0.0) -> tuple[Dealt, list[Three]]:  # fmt: skip
    """Even layers, a light embedding and a head; and each stage's F, I and W."""
    layer, first, last = (
        Pass(1.0, 1.5, 0.75),
        Pass(0.25, 0.125, 0.5),
        Pass(2.0, 1.0, 3.0),
    )
    cut = Cut.of(layers, float(p), 1.0, False)
    d = Dealt(cut, float(m), layer, first, last, (), send)
    stages = []
    for k in range(p):
        each = (layers / p, float(k == 0), float(k == p - 1))
        stages.append(
            tuple(
                sum(
                    a * b[i]
                    for a, b in zip(each, (layer, first, last), strict=True)
                )  # fmt: skip
                for i in range(3)
            )
        )
    return d, stages


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("send", [0.0, 0.7])
def test_no_order_within_the_limit_undercuts(times: int, send: float) -> None:
    """Of the first and the last rank: down to it, to the end and back less the forwards that the
    limit lets it run, and all its work; or all but W of as many as it may hold, and up."""
    kind = get(f"zb-{times}p")
    for p, m in product((2, 3, 5), (1, 2, 3, 7, 20)):
        d, stages = equal(p, 2 * p, m, send)
        limit = min(times * p, m)
        alone, run = [], []
        for x in (0, p - 1):
            f, i, w = stages[x]
            way = sum(a + b for a, b, _ in stages[x + 1 :])
            turned = max(way + 2 * (p - 1 - x) * send - (limit - 1) * f, 0.0)
            up = sum(b for _, b, _ in stages[:x]) + x * send
            late = m * (f + i) + (m - limit) * w + up + stages[0][2]
            down = sum(a for a, _, _ in stages[:x]) + x * send
            alone.append(down + turned + max(m * (f + i + w), late))
            run.append(m * (f + i + w) + (turned if x == 0 else 0.0))
        assert float(kind.span(d, True)) == pytest.approx(max(alone))
        assert float(kind.span(d, False)) == pytest.approx(max(run))
        # what it waits at least of a run, all sends free
        assert kind.waits
        slowest = max(map(sum, stages))
        (wait,) = kind.waits(d, slowest)
        sooner = slowest - sum(stages[0])
        below = sum(a + b for a, b, _ in stages[1:])
        most = times * p - 1 if sooner <= 0 else np.inf
        less = (stages[0][0] + sooner) * min(most, m - 1)
        assert float(wait.of(float(m))) == pytest.approx(
            max(below - sooner - less, 0.0)
        )


def test_a_wait_falls_with_the_number_of_microbatches() -> None:
    wait, other = Wait(7.0, 2.0, 2.0), Wait(5.0, 3.0, 1.0)
    assert [wait.of(m) for m in (1.0, 2.0, 3.0, 4.0)] == [7.0, 5.0, 3.0, 3.0]
    assert [other.of(m) for m in (1.0, 2.0, 9.0)] == [5.0, 2.0, 2.0]
    assert (
        Wait(4.0, 3.0, waits.ALL).of(3.0) == 0.0 and Wait(4.0).of(9.0) == 4.0
    )
    assert wait.under(other) == Wait(5.0, 3.0, 2.0)
    assert other.under(wait) == Wait(5.0, 3.0, 2.0)
    assert (
        wait.where(True, other) == wait and wait.where(False, other) == other
    )
    both = wait.where(np.array([True, False]), other)
    assert [x.tolist() for x in both] == [[7, 5], [2, 3], [2, 1]]


@pytest.mark.parametrize(("head", "x"), [(0.0, 0), (9.0, 4)])
def test_waits_of_the_slowest_rank(head: float, x: int) -> None:
    """Five ranks, the first or the last with the most work: the ways before it, below it, and what
    it does meanwhile."""
    layer, first = Pass(2.0, 3.0, 1.0), Pass(0.25, 0.5, 0.125)
    last = Pass(head, head / 2, head / 4)
    d = Dealt(Cut.of(5, 5.0, 1.0, False), 1.0, layer, first, last, (), 0.0)
    loads = [list(layer) for _ in range(5)]
    for i in range(3):
        loads[0][i] += first[i]
        loads[4][i] += last[i]
    f, i, w = (sum(each) for each in zip(*loads[:x], [0.0] * 3, strict=True))
    below = [sum(each) for each in zip(*loads[x + 1 :], [0.0] * 3, strict=True)]  # fmt: skip
    mine = loads[x]
    assert waits.slowest(d) == x
    to, turned = waits.one_f_one_b(d)
    assert tuple(to) == (f + i + w, 0.0, 0.0)
    assert tuple(turned) == (sum(below), mine[0], 4 - x)
    for h in (1.0, 2.0):
        around, turned = waits.zero_bubble(d, h)
        assert tuple(around) == (
            f + i + loads[0][2] - mine[2],
            mine[2],
            h * x,
        )
        assert tuple(turned) == (below[0] + below[1], mine[0], h * (4 - x))


@pytest.mark.parametrize(("head", "x"), [(0.0, 0), (9.0, 2)])
def test_waits_of_chunks(head: float, x: int) -> None:
    """Three ranks with three chunks of one layer each."""
    layer, first = Pass(2.0, 3.0, 1.0), Pass(0.25, 0.5, 0.125)
    last = Pass(head, head / 2, head / 4)
    d = Dealt(Cut.of(9, 3.0, 3.0, False), 1.0, layer, first, last, (), 0.0)
    stages = [list(layer) for _ in range(9)]
    for i in range(3):
        stages[0][i] += first[i]
        stages[8][i] += last[i]

    def through(a: int, b: int, kinds: Sequence[int]) -> float:
        return sum(stages[k][i] for k in range(a, b) for i in kinds)

    early = [sum(stages[k][i] for k in (x, x + 3)) for i in range(3)]
    top = x + 6
    once, to, back, end = waits.interleaved(d)
    assert tuple(once) == (through(0, x, (0, 1, 2)), 0.0, 0.0)
    assert tuple(to) == (through(x, top, (0,)) - early[0], early[0], waits.ALL)
    behind = early[1] + early[2]
    assert tuple(back) == (
        through(x, top, (1, 2)) - behind, behind, waits.ALL,
    )  # fmt: skip
    ahead = max(stages[x][0], stages[top][0])
    assert tuple(end) == (through(top + 1, 9, (0, 1, 2)), ahead, 2 * (2 - x))


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
    """Groups that repeat are multiplied, those that do not are replayed; what is held does not grow
    with more of them."""
    kind, rng = get(name), np.random.default_rng(8)
    v = int(kind.chunks(2))
    for p, rest in product((2, 3, 4), (0, 1)):
        m = (GROUPS + 3) * p + rest * (0 if name.startswith("inter") else 1)
        if not kind.legal(p, m, v if v > 1 else 1):
            continue
        count = int(kind.stage_count(p, v))
        each = rng.uniform(0.2, 1.0, (4, count, 3))
        each[0] = each[0, :1]  # equal stages
        each[1, :, 2] *= 9
        sends = np.array([0.0, 0.3, 2.0, 0.1])
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
        if kind.costed:
            continue
        order = kind.order(p, m, v)
        ranks = [in_flight_rank(order, r) for r in range(p)]
        assert float(kind.in_flight(p, m, v)) == pytest.approx(max(ranks))


def test_what_is_left_at_the_end_of_a_step_within_a_limit() -> None:
    """Three ranks, ZB-1p, seven microbatches with short weight gradients: on the last rank all but
    W of three, then up and the first rank's own."""
    layer, none = Pass(1.0, 2.0, 0.25), Pass(0.0, 0.0, 0.0)
    d = Dealt(Cut.of(3, 3.0, 1.0, False), 7.0, layer, none, none, (), 0.5)
    found = float(get("zb-1p").span(d, True))
    down, up = 2 * (1.0 + 0.5), 2 * (2.0 + 0.5)
    assert found == pytest.approx(down + 7 * 3.0 + 4 * 0.25 + up + 0.25)


def test_an_explained_step_is_its_replay_to_the_last_bit() -> None:
    """What rounding leaves of the sum of its terms is added, not taken off."""
    rng = random.Random(3)
    for name in ("v-half", "zbv", "1f1b"):
        v = float(get(name).chunks(1))
        for _ in range(20):
            plain = [rng.uniform(0.01, 1.0) for _ in range(4)]
            layer = Pass(*(Item.called(f"{k}", x) for k, x in enumerate(plain[:3])))  # fmt: skip
            none = Pass(0.0, 0.0, 0.0)
            cut = Cut.of(int(3 * v), 3.0, v, get(name).folded)
            told = Dealt(cut, 7.0, layer, none, none, (), Item.called("send", plain[3]))  # fmt: skip
            alone = told._replace(layer=Pass(*plain[:3]), send=plain[3])
            for barrier in (True, False):
                args = get(name), (3.0, 7.0, v)
                found = seconds(*args, told.at, told.send, barrier)
                exact = seconds(*args, alone.at, alone.send, barrier)
                assert float(found) == exact
