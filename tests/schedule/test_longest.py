"""Replays of many layouts and of many microbatches, against the timeline of one; explained steps."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from meshwright.prediction.recorded import Recorded, contributions
from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.longest import longest, longest_path
from meshwright.schedule.partition import LayerDeal, StagePartition
from meshwright.schedule.replay_program import replay_program
from meshwright.schedule.replays import Paths, replayed
from meshwright.schedule.sends import StageSends
from meshwright.schedule.stage_costs import PassSeconds, StageCosts
from meshwright.schedule.timeline import timeline_of_order
from meshwright.schedule.types import Action, Costs, Order
from run_of_steps import step_in_run_s

ALL_HELD = [
    name for name, s in SCHEDULES.items() if s.in_flight(4, 960, 2, 0) == 960
]
"""A first rank holds all microbatches until the last of them is through."""


@pytest.mark.parametrize("name", SCHEDULES)
def test_many_microbatches_are_the_replay_of_all(name: str) -> None:
    """Groups that repeat are run again or multiplied, alone or beside other layouts."""
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
        sends = rng.uniform(0, 1, (12, count - 1))
        sends[:3] = np.array([[0.0], [0.01], [2.0]])  # all alike
        for barrier in (True, False):
            found = longest(kind, p, m, v, each, sends, barrier)
            for k in range(4):
                passes = [(float(f), float(i), float(w)) for f, i, w in each[k]]  # fmt: skip
                hops = tuple(map(float, sends[k]))
                from_costs = kind.timed(Costs(tuple(passes), hops))
                alone = step_in_run_s(
                    from_costs.order(p, m, v),
                    kind.placement(p, v),
                    passes,
                    hops,
                    barrier or not kind.split_backward,
                )
                assert found[k] == pytest.approx(alone, rel=1e-10)
                one_layout = each[k, None], sends[k, None], barrier
                assert longest(kind, p, m, v, *one_layout) == pytest.approx(found[k], rel=1e-12)  # fmt: skip


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
        found = longest(kind, p, m, 1, each, np.full((3, p - 1), 15.0))
        for k in range(3):
            passes = [tuple(map(float, row)) for row in each[k]]
            exact = timeline_of_order(
                order(p, m, 1), kind.placement(p, 1), passes, 15.0
            )
            assert found[k] == pytest.approx(exact.makespan_s, rel=1e-10)


def sends_of(seconds: Any, name: str) -> StageSends:
    """Three ranks, each on a node of its own."""
    return StageSends.over(
        (seconds, 3.0 * seconds), (1.0, 3.0), get(name).folded
    )


def test_an_explained_step_is_its_replay_to_the_last_bit() -> None:
    """What rounding leaves of the sum of its terms is added, not taken off."""
    rng = random.Random(3)
    for name in ("v-half", "zbv", "1f1b"):
        v = int(get(name).chunks(1))
        for _ in range(20):
            plain = [rng.uniform(0.01, 1.0) for _ in range(4)]
            layer = PassSeconds(*(Recorded.called(f"{k}", x) for k, x in enumerate(plain[:3])))  # fmt: skip
            none = PassSeconds(0.0, 0.0, 0.0)
            cut = StagePartition(
                3.0, float(v), LayerDeal(3 * v, get(name).stage_of)
            )
            named = StageCosts(
                cut,
                (layer, none, none),
                sends_of(Recorded.called("send", plain[3]), name),
            )
            alone = replace(
                named,
                parts=(PassSeconds(*plain[:3]), none, none),
                sends=sends_of(plain[3], name),
            )
            for barrier in (True, False):
                at = get(name), (3, 7, v)
                paths: Paths = {}
                exact = replayed(*at, alone, barrier, paths)
                for known in (paths, {}):
                    found = replayed(*at, named, barrier, known)
                    assert float(found) == exact
                # a path with sends is not that without
                free = replace(alone, sends=alone.sends.free)
                quiet = replayed(*at, free, barrier, paths)
                assert quiet == replayed(*at, free, barrier, {}) <= exact
                assert {*paths} == {True, False}


def test_an_explained_step_says_how_often_each_pass_is_on_its_path() -> None:
    """1F1B of four equal stages, two on each node, and eight microbatches: eleven forwards and
    backwards, and as many sends inside a node and beyond as the step is longer for them."""
    none = PassSeconds(0.0, 0.0, 0.0)
    layer = PassSeconds(*(Recorded.called(k, x) for k, x in zip("FIW", (1.0, 2.0, 0.5), strict=True)))  # fmt: skip
    cut = StagePartition(4.0, 1.0, LayerDeal(4))
    sends = StageSends.over(
        [Recorded.called(k, x) for k, x in (("near", 0.001), ("far", 0.003))],
        (2.0, 2.0),
        turns=False,
    )
    d = StageCosts(cut, (layer, none, none), sends)
    found = replayed(get("1f1b"), (4, 8, 1), d, True, {})
    shares, left = contributions(found)
    often = {name: times for name, (times, _) in shares.items()}
    assert left is None and [often[k] for k in "FIW"] == [11.0, 11.0, 11.0]
    least = 11 * 3.5 + often["near"] * 0.001 + often["far"] * 0.003
    assert float(found) == pytest.approx(least)
    # down and up the boundary between the nodes and those beside it, at least
    assert often["far"] >= 2 and often["near"] >= 4


@pytest.mark.parametrize("m", range(60, 65))
def test_a_loop_over_several_ranks_passes_several_microbatches(m: int) -> None:
    """1F1B whose sends wait: each fourth microbatch comes later by one time, not each. All that is
    run, or multiplied, lies on the path as often as it is paid."""
    kind, passes = get("1f1b"), np.tile([1.0, 1.1, 0.8], (5, 1))
    sends = np.array([0.017, 0.161, 0.047, 0.177])
    path = longest_path(kind, 5, m, 1, passes, sends)
    stages = [tuple(map(float, row)) for row in passes]
    hops = tuple(map(float, sends))
    order, lies = kind.order(5, m, 1), kind.placement(5, 1)
    exact = timeline_of_order(order, lies, stages, hops).makespan_s
    assert path.seconds == pytest.approx(exact, rel=1e-12)
    often, sent = path.often
    paid = (often * passes).sum() + (sent * sends).sum()
    assert paid == pytest.approx(exact, rel=1e-12)
    long = longest_path(kind, 5, m + 4 * 10**6, 1, passes, sends)
    more = longest_path(kind, 5, m + 4, 1, passes, sends).seconds - exact
    assert long.seconds == pytest.approx(exact + more * 10**6, rel=1e-9)


@pytest.mark.parametrize(
    "name",
    [n for n, s in SCHEDULES.items() if not s.costed and n not in ALL_HELD],
)
def test_ten_times_the_microbatches_are_no_more_actions(name: str) -> None:
    """The group that repeats is run again; where all microbatches are held there is none."""
    kind = get(name)
    v = min(int(kind.chunks(2)), 2)
    few, many = (replay_program(kind, 4, m, v)[0] for m in (96, 960))
    assert len(few.before) == len(many.before)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h2", "zbv", "dualpipe"])
def test_a_schedule_that_says_nothing_is_read_off_its_order(name: str) -> None:
    """However many microbatches: those of GPipe are all held, those of others as many as of few."""
    kind = get(name)
    bare = replace(kind, closed=None, closed_in_run=None, flight=None, heads=None)  # fmt: skip
    for p, m in ((2, 4), (4, 8), (4, 90)):
        for rank in (None, 0 if kind.folded else p - 1):
            at = p, m, 1, rank
            assert bare.in_flight(*at) == kind.in_flight(*at)
        assert bare.logits(p, m, 1) == kind.logits(p, m, 1)
        for barrier in (True, False):
            idle = kind.bubble(p, m, 1, 1.0, 1.5, 0.75, barrier)
            found = bare.bubble(p, m, 1, 1.0, 1.5, 0.75, barrier)
            assert found == pytest.approx(idle, abs=1e-9)
