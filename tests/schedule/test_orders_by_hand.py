"""Orders followed action by action with plain counters: what each device holds, groups of
microbatches, and which numbers a schedule can run.
"""

from __future__ import annotations

import pytest

from meshwright.schedule import SCHEDULES, get, groups
from meshwright.schedule.timeline import step_in_run_s, timeline
from meshwright.schedule.types import Schedule

FACTS = {
    # chunks of v = 1 and 3, whether backward passes are cut in two, PyTorch's class
    "gpipe": (1, 1, False, "GPipe"),
    "1f1b": (1, 1, False, "1F1B"),
    "interleaved": (1, 3, False, "Interleaved1F1B"),
    "zb-h1": (1, 1, True, None),
    "zb-h2": (1, 1, True, None),
    "interleaved-zb": (1, 3, True, "InterleavedZeroBubble"),
    "zbv": (2, 2, True, "ZBVZeroBubble"),
    "dualpipev": (2, 2, True, "DualPipeV"),
    "dualpipe": (2, 2, True, None),
}


@pytest.mark.parametrize("name", FACTS)
def test_what_a_schedule_is(name: str) -> None:
    at = get(name)
    found = (at.chunks(1), at.chunks(3), at.split_backward, at.torch_name)
    assert found == FACTS[name]
    assert at.folded == (name in ("zbv", "dualpipev", "dualpipe"))
    assert at.copies == (2 if name == "dualpipe" else 1)
    assert (at.stages, at.group) == ("even", 0)


def legal(name: str, p: int, m: int, v: int) -> bool:
    """interleaved: two chunks or more, in groups of one size of at least p; V's: two, or v left at
    one; DualPipeV: 2 p microbatches or more; DualPipe: that, and both even."""
    if name.startswith("interleaved"):
        return v >= 2 and m % max(m // p, 1) == 0
    if name == "zbv":
        return v in (1, 2)
    if name == "dualpipev":
        return v in (1, 2) and (m >= 2 * p)
    if name == "dualpipe":
        return v in (1, 2) and m >= 2 * p and m % 2 == p % 2 == 0
    return v == 1


@pytest.mark.parametrize("name", FACTS)
def test_numbers_that_a_schedule_runs(name: str) -> None:
    at = get(name)
    for p in (2, 3, 4):
        for m in range(1, 14):
            for v in (1, 2, 3):
                fine = bool(at.legal(p, m, v))
                assert fine == legal(name, p, m, v), (p, m, v)
                assert bool(at.rules(p, m, v)) is not fine


def followed(
    at: Schedule, p: int, m: int, v: int
) -> tuple[list[float], int, int]:
    """(most microbatches held by each rank, most logits, most gradients of logits beside them)."""
    chunks = int(at.chunks(v))
    order, last = at.order(p, m, v), at.stage_count(p, v) - 1
    held, heads, late = [], 0, 0
    for rank, actions in enumerate(order):
        here = most = 0.0
        waiting = weights = 0
        for kind, chunk, _ in actions:
            end = at.stage_of(rank, chunk, p, v) == last
            if kind == "F":
                here += 1 / chunks
                waiting += end
            elif kind in "BW":
                here -= 1 / chunks
            if kind == "I":
                weights += end
            if kind in "IB":
                waiting -= end
            if kind == "W":
                weights -= end
            most, heads = max(most, here), max(heads, waiting)
            if waiting:
                late = max(late, weights)
        held.append(most)
    return held, heads, late


REPLAYED = ("v-half", "v-min", "breadth-first")


@pytest.mark.parametrize("name", (*FACTS, *REPLAYED))
def test_devices_hold_what_their_order_leaves(name: str) -> None:
    """In flight on the fullest device, those between and the one with the last stage; logits; the
    gradients of logits that wait for their weights."""
    at = get(name)
    for p in (1, 2, 3, 4, 5):
        for m in (1, 2, 3, 4, 6, 8, 9, 12, 15, 20):
            for v in (1, 2, 3):
                if not at.legal(p, m, v) or (p == 1 and at.chunks(v) > 1):
                    continue
                held, heads, late = followed(at, p, m, v)
                where = (p, m, v)
                assert at.in_flight(p, m, v) == pytest.approx(max(held)), where
                assert at.heads(p, m, v) == heads, where
                if name != "interleaved-zb":
                    assert at.heads_late(p, m, v) == late, where
                assert at.heads_late(p, m, v) >= late, where
                end = held[0] if at.folded else held[-1]
                assert at.in_flight_last(p, m, v) >= end - 1e-9, where
                inner = range(1, p - 1)
                between = [at.in_flight_second(p, m, v, r) for r in inner]
                for found, mine in zip(between, held[1:-1], strict=True):
                    assert found >= mine - 1e-9, where
                if name == "1f1b":
                    assert at.in_flight_last(p, m, v) == held[-1] == 1
                    assert between == held[1:-1]
                if name == "interleaved" and p > 2 and m % p == 0:
                    assert between == pytest.approx(held[1:-1])
                    assert at.in_flight_last(p, m, v) == pytest.approx(
                        held[-1]
                    )


def test_the_second_device_of_two_is_the_first() -> None:
    at = get("1f1b")
    assert [at.in_flight_second(p, 8, 1) for p in (1, 2, 3, 4)] == [1, 2, 2, 3]


# Groups.


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_groups_of_microbatches(p: int) -> None:
    """Without a number: m // p of one size; of g: the last one the rest, none smaller than p."""
    for m in range(1, 20):
        count = max(m // p, 1)
        assert bool(groups.holds(p, m, 0)) is (m % count == 0)
        assert groups.size(p, m, 0) == m / count
        usual = m % p == 0
        if groups.holds(p, m, 0):
            assert bool(groups.usual(p, m, 0)) is usual
            assert groups.last(p, m, 0) == m / count
        for g in range(1, 21):
            sizes = [min(g, m - i) for i in range(0, m, g)]
            fine = g <= m and min(sizes) >= p
            assert bool(groups.holds(p, m, g)) is fine, (m, g)
            assert groups.size(p, m, g) == min(g, m)
            assert groups.last(p, m, g) == sizes[-1]
            assert bool(groups.usual(p, m, g)) is (
                min(g, m) == p and m % p == 0
            )
            assert groups.ahead(p, m, 3, g, 5.0) == pytest.approx(
                min(m, (2 * min(g, m) + 5) / 3)
            )


def test_sentences_name_the_nearest_numbers() -> None:
    assert "their number may be 8 or 10" in groups.sentence("s", 4, 9, 0)
    assert "in 2 groups of one size" in groups.sentence("s", 4, 9, 0)
    assert "may be 9 or 12" in groups.sentence("s", 3, 10, 0)
    assert "it may be 4 to 9" in groups.sentence("s", 4, 9, 5)
    table = groups.table(5, 2, 3)
    assert table == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
        (0, 3), (0, 4), (1, 3), (1, 4),
    ]  # fmt: skip


# Seconds.


def test_two_devices_two_microbatches() -> None:
    """F of 1 s and B of 2 s: the second device ends at 1 + 6 s, the first 2 s later; each computes
    6 s of 9."""
    at = get("1f1b")
    order, place = at.order(2, 2, 1), at.placement(2, 1)
    passes = [(1.0, 1.5, 0.5)] * 2
    found = timeline(order, place, passes)
    assert found.makespan_s == 9.0
    assert found.busy_s == [6.0, 6.0] and found.idle_s == [3.0, 3.0]
    assert found.bubble_fraction == pytest.approx(1 / 3)
    assert timeline([], place, passes).bubble_fraction == 0.0
    assert timeline([[]], place, passes).bubble_fraction == 0.0
    assert step_in_run_s(order, place, passes) == 9.0
    assert step_in_run_s(order, place, passes, barrier=True) == 9.0
    slow = timeline(order, place, passes, 0.5)
    assert slow.makespan_s == 10.0
    assert [send.end_s - send.start_s for send in slow.sends] == [0.5] * 4

    def by_number(kind: str, stage: int, k: int) -> float:
        return {"F": 1.0, "B": 2.0}[kind] * (k + 1)

    once = timeline(order, place, by_number).makespan_s
    # microbatches of the second step are as long as those of the first
    assert step_in_run_s(order, place, by_number) == once


@pytest.mark.parametrize("name", sorted({*SCHEDULES} & {*FACTS}))
def test_bounds_of_the_idle_time_hold_for_every_number(name: str) -> None:
    at, passes = get(name), (1.0, 1.3, 0.8)
    v = 2 if at.chunks(3) == 3 else 1
    for p in (2, 4) if at.copies > 1 else (2, 3, 4):
        for barrier in (True, False):
            least = at.least_bubble(p, v, *passes, barrier)
            every = [
                at.idle(p, m, v, *passes, barrier)
                for m in range(1, 5 * p)
                if at.legal(p, m, v)
            ]
            assert least <= min(every) + 1e-9
            assert at.idle(p, 4 * p, v, *passes) == at.idle(
                p, 4 * p, v, *passes, True
            ), "with a barrier, unless said otherwise"
