"""Corners of orders and of what is said of them: nothing to do, few microbatches, groups, folds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from meshwright.schedule import SCHEDULES, get, groups
from meshwright.schedule.held import _distinct
from meshwright.schedule.longest import longest
from meshwright.schedule.order import in_flight_rank
from meshwright.schedule.partition import StagePartition
from meshwright.schedule.stage_costs import Pass, StageCosts
from meshwright.schedule.timeline import step_in_run_s, timeline
from meshwright.schedule.types import folded_stage, looped_stage


def test_a_pipeline_that_does_nothing_is_not_idle() -> None:
    """No seconds at all: no share of them is lost."""
    nothing = get("1f1b")
    order = nothing.order(2, 2, 1)
    at = timeline(order, nothing.placement(2, 1), [(0.0, 0.0, 0.0)] * 2)
    assert at.makespan_s == 0.0 and at.bubble_fraction == 0.0
    busy = timeline(order, nothing.placement(2, 1), [(1.0, 2.0, 0.0)] * 2)
    assert busy.makespan_s == 9.0 and busy.bubble_fraction == pytest.approx(1 / 3)  # fmt: skip


def test_a_run_of_steps_of_gpipe_costs_what_each_costs() -> None:
    """Two ranks, two microbatches of 1 s and 2 s: 9 s, and as much again with a barrier; without,
    the first rank begins while the last one ends, which saves nothing here."""
    kind = get("gpipe")
    order, place = kind.order(2, 2, 1), kind.placement(2, 1)
    each = [(1.0, 2.0, 0.0)] * 2
    assert step_in_run_s(order, place, each, barrier=True) == 9.0
    assert step_in_run_s(order, place, each) == 9.0


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_where_stages_lie(p: int) -> None:
    """Chunk 1 follows chunk 0 round the ranks, or comes back from the last to the first."""
    for rank in range(p):
        assert [looped_stage(rank, c, p, 3) for c in range(3)] == [
            rank,
            p + rank,
            2 * p + rank,
        ]
        assert folded_stage(rank, 0, p, 2) == rank
        assert folded_stage(rank, 1, p, 2) == 2 * p - 1 - rank


def test_numbers_of_microbatches_that_are_named() -> None:
    """13 microbatches on 4 ranks are no three groups of one size: 12 or 15 would be; 1 is one
    group."""
    said = groups.sentence("interleaved", 4, 13, 0)
    assert "(13) in 3 groups" in said and said.endswith("may be 12 or 15")
    assert groups.holds(4, 12, 0) and groups.holds(4, 15, 0)
    assert not groups.holds(4, 13, 0) and not groups.holds(4, 14, 0)
    assert groups.holds(4, 3, 0)
    asked = groups.sentence("interleaved", 4, 13, 6)
    assert "may be 4 to 13" in asked


def test_rounds_of_a_table() -> None:
    """Five microbatches in groups of two, chunk by chunk."""
    assert groups.table(5, 2, 2) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 4),
    ]  # fmt: skip


REPLAYED = {"v-half", "v-min", "breadth-first"}
CLOSED = [n for n, s in SCHEDULES.items() if n not in REPLAYED and not s.costed]  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_microbatches_in_flight_are_counted(name: str) -> None:
    """On the rank that holds most, on that of the last stage, and on each rank, in its order."""
    kind = get(name)
    for p, m, v in product(range(1, 7), range(1, 14), (1, 2, 3)):
        if (kind.chunks(7) == 7) != (v > 1) or not kind.legal(p, m, v):
            continue
        order = kind.order(p, m, v)
        held = [in_flight_rank(order, rank) for rank in range(p)]
        assert float(kind.in_flight(p, m, v)) == pytest.approx(max(held))
        if kind.in_flight_on_last:
            end = 0 if kind.folded else p - 1
            found = float(kind.in_flight_on_last(p, m, v))
            assert found == pytest.approx(held[end]), (p, m, v)
        for rank in range(p if kind.in_flight_on else 0):
            found = float(kind.in_flight_on(p, m, v, rank))
            assert found == pytest.approx(held[rank]), (p, m, v, rank)


@pytest.mark.parametrize("name", ["v-half", "v-min", "breadth-first", "zb-1p"])
def test_a_column_of_replays_is_each_by_itself(name: str) -> None:
    """Rows of several shapes at once: what is held, and how long it takes."""
    kind = get(name)
    v = 2.0
    p, m = np.array([2.0, 3.0, 2.0, 4.0]), np.array([6.0, 7.0, 5.0, 8.0])
    each = Pass(np.array([1.0, 2.0, 3.0, 4.0]), 2.0, 1.5)
    held = kind.in_flight(p, m, v + 0.0 * p)
    idle = kind.idle(p, m, v + 0.0 * p, *each)
    for k in range(4):
        at = float(p[k]), float(m[k]), v
        assert held[k] == pytest.approx(float(kind.in_flight(*at)))
        one = kind.idle(*at, float(each.f[k]), each.i, each.w)
        assert idle[k] == pytest.approx(float(one))


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("v", [2, 3])
def test_fewer_microbatches_than_ranks_in_chunks(
    v: int, barrier: bool
) -> None:
    """The law is never above the replay, and the replay of one microbatch: down and up all stages,
    and the first one's weight gradient."""
    kind, rng = get("interleaved-zb"), np.random.default_rng(5)
    for p in (2, 3, 5):
        for m in range(1, p):
            f, i, w = rng.uniform(0.5, 2.0, (3, 8))
            stage = np.stack([f, i, w], 1)[:, None] / v
            seconds = np.repeat(stage, p * v, 1)
            took = longest(kind, p, m, v, seconds, np.zeros(8), barrier)
            law = m * (f + i + w) + kind.idle(p, m, v, f, i, w, barrier)
            assert np.all(law <= took * (1 + 1e-9))
            if m == 1:
                short = w <= i  # done while I is on its way through the others
                assert law[short] == pytest.approx(took[short])
                assert law == pytest.approx(p * (f + i) + w / v)


@pytest.mark.parametrize("name", SCHEDULES)
def test_orders_split_backward_passes_where_they_say_so(name: str) -> None:
    kind = get(name)
    p, m, v = 4, 8, 2 if kind.chunks(7) > 1 else 1
    kinds = {a.kind for row in kind.order(p, m, v) for a in row}
    assert ({"I", "W"} <= kinds) is kind.split_backward
    assert kind.split_backward or kinds == {"F", "B"}


def test_what_dualpipe_asks_for_is_named() -> None:
    """Four ranks want eight microbatches, in pairs; three ranks are no pairs."""
    said = get("dualpipe").rules(4, 6, 2)
    assert len(said) == 1 and said[0].endswith("at least 2 pp = 8, not 6")
    assert get("dualpipe").rules(4, 8, 2) == []
    (odd,) = get("dualpipe").rules(3, 8, 2)
    assert odd.endswith("pp must be even, not 3")


def test_pipelines_that_differ_are_dealt_once() -> None:
    """Each place of a column finds a pipeline of its own ranks and chunks."""
    p, v = np.array([4.0, 2.0, 2.0, 2.0]), np.array([1.0, 1.0, 2.0, 1.0])
    first, which = _distinct(p, v)
    assert len(first) == 3
    assert p[first][which].tolist() == p.tolist()
    assert v[first][which].tolist() == v.tolist()


def test_kinds_that_lie_among_each_other() -> None:
    """Two leading layers of four come before the others; every second one, or two kinds, do not."""
    cut = StagePartition.of(4.0, 2.0, 1.0, False)
    assert not cut.mixed
    for kinds, mixed in (
        (((0, 1, 2, 2, 2),), False),
        (((0, 1, 2, 3, 4),), False),
        (((0, 0, 1, 1, 2),), True),
        (((0, 0, 0, 1, 2),), True),
        (((0, 1, 1, 1, 1), (0, 0, 1, 1, 1)), True),
    ):
        assert replace(cut, kinds=kinds).mixed is mixed, kinds


def test_the_slowest_rank_is_the_last_of_those_as_slow() -> None:
    """Four ranks of one layer: alike, with a heavy embedding, with a heavy head, with both."""
    cut = StagePartition.of(4.0, 4.0, 1.0, False)
    layer, none, more = (Pass(x, x, x) for x in (1.0, 0.0, 2.0))
    for first, last, slow in (
        (none, none, 3.0),
        (more, none, 0.0),
        (none, more, 3.0),
        (more, more, 3.0),
    ):
        d = StageCosts(cut, layer, first, last, (), 0.0)
        for swapped in (d, d._replace(send=1.0)):
            assert float(swapped.slowest) == slow


def test_many_microbatches_are_as_many_rounds_more() -> None:
    """(m + p - 1)(F + B) of equal stages, for numbers that no order is replayed in full for."""
    seconds = np.array([[[1.0, 2.0, 0.0]] * 3])
    for m in (50, 301, 1000):
        found = longest(get("1f1b"), 3, m, 1, seconds, np.zeros(1))
        assert found == pytest.approx((m + 2) * 3.0)


def test_layers_given_one_by_one() -> None:
    """1, 3, 2 and 2 of eight: no stage has more than three, which leaves room for four."""
    cut = StagePartition.given((1, 3, 2, 2), 4.0, 1.0, False)
    assert (cut.most, cut.spare) == (3.0, 4.0)
    assert [float(cut.layers(s, s + 1.0)) for s in range(4)] == [1, 3, 2, 2]
