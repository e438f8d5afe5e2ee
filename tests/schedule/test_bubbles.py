"""Closed forms of idle time against the exact timeline."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.schedule import SCHEDULES, Timeline, get, timeline_of_order
from run_of_steps import step_in_run_s

MIXES = [
    (1.0, 1.0, 1.0),
    (1.0, 2.0, 1.0),  # recomputation before I
    (1.0, 1.2, 0.8),
    (3.0, 1.0, 1.0),
    (1.0, 1.0, 3.0),
    (1.0, 3.0, 2.0),
    (1.0, 0.2, 0.1),
    (0.1, 1.0, 0.05),
    (0.1, 0.7, 0.8),
    (3.0, 2.0, 1.0),
    (2.0, 1.0, 1.5),  # I is the shortest, and W no longer than F
]
GRID = [
    (p, m) for p in (1, 2, 3, 4, 5, 8) for m in [*range(1, 2 * p + 3), 5 * p]
]
GRID += [(16, m) for m in (1, 2, 15, 16, 17, 24, 30, 31, 32, 48)]
GRID += [(11, 21), (12, 128)]
ORDERED = [name for name, kind in SCHEDULES.items() if not kind.costed]
"""Those with an order of their own, whatever passes take (`test_cost_aware` has the others)."""
CLOSED = [name for name in ORDERED if not get(name).replayed]


def rows(name: str, most: int = 16) -> list[tuple[int, int, int]]:
    """p, m and v that a schedule runs; of several ranks a stage as many more."""
    kind = get(name)
    return [
        (p * kind.copies, m * kind.copies, v)
        for p, m in GRID
        for v in ((2, 3, 8) if kind.chunks(7) == 7 else (1,))
        if p <= most
        and p * m * v <= 1600  # passes of a replay
        and kind.legal(p * kind.copies, m * kind.copies, v)
    ]


def replay(
    name: str, p: int, m: int, v: int, mix: tuple[float, float, float]
) -> Timeline:
    """The timeline of equal stages, where a device takes `mix` seconds for (F, I, W) of a
    microbatch.
    """
    schedule = get(name)
    f, i, w = (seconds / schedule.chunks(v) for seconds in mix)
    return timeline_of_order(
        schedule.order(p, m, v),
        schedule.placement(p, v),
        [(f, i, w)] * int(schedule.stage_count(p, v)),
    )


@pytest.mark.parametrize("name", CLOSED)
def test_the_bubble_is_what_a_replay_idles(name: str) -> None:
    """Every device waits as long as any other."""
    schedule = get(name)
    for at, (p, m, v) in enumerate(rows(name)):
        # the first mixes of few microbatches, all of them in turn of many
        for mix in MIXES if m <= 12 else MIXES[at % len(MIXES) :][:1]:
            result = replay(name, p, m, v, mix)
            idle = result.makespan_s - schedule.rounds(m) * sum(mix)
            error = (schedule.bubble(p, m, v, *mix) - idle) / result.makespan_s
            assert abs(error) <= 1e-9, (p, m, v, mix, idle, error)
            assert np.allclose(result.idle_s, idle), (p, m, v)


@pytest.mark.parametrize("name", CLOSED)
def test_the_bubble_in_a_run_is_what_a_second_step_adds(name: str) -> None:
    schedule = get(name)
    for at, (p, m, v) in enumerate(rows(name, 8)):
        for mix in MIXES if m <= 8 else MIXES[at % len(MIXES) :][:1]:
            f, i, w = (seconds / schedule.chunks(v) for seconds in mix)
            passes = [(f, i, w)] * int(schedule.stage_count(p, v))
            order, place = schedule.order(p, m, v), schedule.placement(p, v)
            step = step_in_run_s(order, place, passes)
            bubble = schedule.bubble(p, m, v, *mix, barrier=False)
            error = (schedule.rounds(m) * sum(mix) + bubble) / step - 1
            assert abs(error) <= 1e-9, (p, m, v, mix, error)


@pytest.mark.parametrize("name", ORDERED)
def test_more_work_is_never_faster(name: str) -> None:
    """Of a step in a run: longer passes, or one more round of microbatches; nor is a step by
    itself."""
    rng, schedule = np.random.default_rng(4), get(name)
    n, ranks, many = (300, 7, 20) if schedule.replayed else (20000, 33, 200)
    f, i, w = 10 ** rng.uniform(-1, 1, (3, n))
    p = rng.integers(1, ranks, n).astype(float)
    m = rng.integers(1, many // 2, n).astype(float)
    v = np.full(n, float(schedule.chunks(3)))
    if schedule.grouped:
        m = p * np.ceil(m / p)
    legal = np.flatnonzero(schedule.legal(p, m, v) & np.ones(n, dtype=bool))
    p, m, v, f, i, w = (x[legal] for x in (p, m, v, f, i, w))

    def step(m, f, i, w, barrier=False):
        bubble = schedule.bubble(p, m, v, f, i, w, barrier)
        return schedule.rounds(m) * (f + i + w) + bubble

    # V-Half's authors order 8 microbatches of 6 ranks better than 7
    more = p if schedule.grouped else 1.0
    rounds = [] if schedule.replayed else [step(m + more, f, i, w)]
    usual = step(m, f, i, w)
    for longer in (
        step(m, f * 1.1, i, w),
        step(m, f, i * 1.1, w),
        step(m, f, i, w * 1.1),
        *rounds,
    ):
        assert np.all(longer / usual >= 1 - 1e-9)
    assert np.all(step(m, f, i, w, True) / usual >= 1 - 1e-9)


@pytest.mark.parametrize("name", ORDERED)
def test_a_table_gives_the_numbers_of_its_rows(name: str) -> None:
    kind, ranks = get(name), (2, 3) if get(name).replayed else (1, 2, 3, 8)
    grid = [(p, m, v) for p in ranks for m in range(1, 24) for v in (1, 2, 3)]
    table = [
        (*layout, *MIXES[k % len(MIXES)]) for k, layout in enumerate(grid)
    ]
    columns = np.array(table, dtype=float).T
    at = columns[:3]
    for barrier in (True, False):
        found = [kind.bubble(*row, barrier) for row in table]
        assert np.array_equal(kind.bubble(*columns, barrier), found)
    for ask in (
        kind.in_flight,
        lambda *at: kind.in_flight(*at, at[0] - 1.0),
        lambda *at: kind.logits(*at)[0],
        lambda *at: kind.logits(*at)[1],
        kind.legal,
    ):
        found = [ask(*layout) for layout in grid]
        assert np.array_equal(ask(*at) + 0 * at[0], found)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_published_bubbles(p: int) -> None:
    m, (f, i, w) = 4 * p, (1.0, 1.2, 0.8)
    useful = m * (f + i + w)
    # Narayanan et al. 2021, 2.2.1
    assert get("gpipe").bubble(p, m, 1, f, i, w) / useful == pytest.approx(
        (p - 1) / m
    )
    # 2.2.2
    assert get("interleaved").bubble(
        p, m, 3, f, i, w
    ) / useful == pytest.approx((p - 1) / m / 3)
    # Qi et al. 2024, table 2: of steps back to back
    for fewest in (
        2 * p - 1,
        m,
    ):
        assert get("zb-h1").bubble(
            p, fewest, 1, f, i, w, barrier=False
        ) == pytest.approx((p - 1) * (f + i - w))
        assert get("zb-h2").bubble(
            p, fewest, 1, f, i, w, barrier=False
        ) == pytest.approx((p - 1) * (f + i - 2 * w))
        for name in ("zb-h2", "zbv"):  # "zero bubble"
            assert get(name).bubble(
                p, fewest, 1, 1.0, 1.0, 1.0, barrier=False
            ) == pytest.approx(0, abs=1e-12)
        # half of ZB-H1's (p - 1) f by itself
        zbv = get("zbv").bubble(p, fewest, 2, 1.0, 1.0, 1.0)
        assert zbv == pytest.approx((p - 1) / 2)
    assert get("zb-h2").in_flight(p, m, 1) == 2 * p - 1
    # DeepSeek's "PP + 1", of chunks over PP = 2p stages
    assert 2 * get("dualpipev").in_flight(p, m, 1) == 2 * p + 1


@pytest.mark.parametrize("p", [4, 8, 16])
def test_controllable_memory(p: int) -> None:
    """Qi et al. 2024 (arXiv 2405.15362): activations of half and of a third of 1F1B's microbatches,
    but for a constant; bubbles of about a half and two thirds of its (p-1)(f + i + w)."""
    m, alone = 4 * p, 3.0 * (p - 1)
    half, least = get("v-half"), get("v-min")
    assert p / 2 < half.in_flight(p, m, 2) <= p / 2 + 1
    assert p / 3 < least.in_flight(p, m, 2) <= p / 3 + 1.5
    assert 0.25 < half.bubble(p, m, 2, 1.0, 1.0, 1.0) / alone <= 0.5
    assert 0.55 < least.bubble(p, m, 2, 1.0, 1.0, 1.0) / alone <= 0.7
    # more microbatches hold no more
    for name in (half, least):
        assert name.in_flight(p, 8 * p, 2) == name.in_flight(p, m, 2)
