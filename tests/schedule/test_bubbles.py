"""Closed forms against the exact timeline: idle time and activations in flight."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.schedule import SCHEDULES, Timeline, get, timeline
from meshwright.schedule.timeline import step_in_run_s

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
]
ONE_CHUNK = [
    (p, m, 1) for p in range(1, 17) for m in [*range(1, 36), 64, 127, 128]
]
ROUNDS = [
    (p, k * p, v) for p in range(1, 17) for v in range(2, 9) for k in (1, 2, 3)
]
ROUNDS += [(p, 128 // p * p, v) for p in range(1, 17) for v in (2, 3, 8)]
ANY_M = [
    (p, m, 1)
    for p in (1, 2, 3, 4, 5, 8)
    for m in [*range(1, 2 * p + 3), 5 * p]
]
ANY_M += [(16, m, 1) for m in (1, 2, 15, 16, 17, 24, 30, 31, 32, 48)] + [
    (11, 21, 1),
    (12, 128, 1),
]
GRIDS = {
    "gpipe": [(grid, 1) for grid in ONE_CHUNK],
    "1f1b": [(grid, 1) for grid in ONE_CHUNK],
    "interleaved": [(grid, 1) for grid in ROUNDS],
    "interleaved-zb": [(grid, 1) for grid in ROUNDS if grid[1] <= 48],
    "zb-h1": [(grid, len(MIXES)) for grid in ANY_M],
    "zb-h2": [(grid, len(MIXES)) for grid in ANY_M],
    "zbv": [(grid, len(MIXES)) for grid in ANY_M],
    "dualpipev": [
        (grid, len(MIXES)) for grid in ANY_M if grid[1] >= 2 * grid[0]
    ],
    "dualpipe": [
        ((2 * p, 2 * m, v), len(MIXES))
        for p, m, v in ANY_M
        if 2 * p <= m <= 24
    ],
    "v-half": [(grid, 1) for grid in ANY_M if grid[0] <= 11],
    "v-min": [(grid, 1) for grid in ANY_M if grid[0] <= 11],
    "breadth-first": [(grid, 1) for grid in ROUNDS[::5] if grid[1] <= 32],
}


def rows(name: str) -> list[tuple[tuple[int, int, int], int]]:
    """((p, m, v), mixes of times) at which a schedule is replayed; of one that was added since,
    small ones that its own rules take.
    """
    return GRIDS.get(name) or [
        ((p, m, v), 1)
        for p, m, _ in ANY_M
        for v in (1, 2, 3)
        if p <= 8 and get(name).legal(p, m, v)
    ]


CLOSED = [name for name, schedule in SCHEDULES.items() if not schedule.costed]
"""Those with an order of their own, whatever passes take (`test_cost_aware` has the others)."""


def most(name: str) -> tuple[int, int, int]:
    """Rows, ranks and microbatches of a table: few where each order is replayed."""
    return (300, 7, 20) if get(name).replayed else (20000, 33, 200)


def in_run(name: str) -> list[tuple[tuple[int, int, int], int]]:
    """Of those the smaller ones: two steps are replayed for each."""
    return [row for row in rows(name) if row[0][0] <= 8 and row[0][1] <= 40]


def replay(
    name: str, p: int, m: int, v: int, mix: tuple[float, float, float]
) -> Timeline:
    """The timeline of equal stages, where a device takes `mix` seconds for (F, I, W) of a
    microbatch.
    """
    schedule = get(name)
    f, i, w = (seconds / schedule.chunks(v) for seconds in mix)
    return timeline(
        schedule.order(p, m, v),
        schedule.placement(p, v),
        [(f, i, w)] * int(schedule.stage_count(p, v)),
    )


def strip(name: str, p: int, m: int) -> bool:
    """Where ZB-V's bubble is a bound only."""
    return name == "zbv" and p < m < 2 * p - 1


@pytest.mark.parametrize("name", CLOSED)
def test_bubble_and_in_flight_are_exact(name: str) -> None:
    schedule = get(name)
    for at, ((p, m, v), mixes) in enumerate(rows(name)):
        assert schedule.legal(p, m, v), (p, m, v)
        for k in range(mixes):
            mix = MIXES[(at + k) % len(MIXES)]
            result = replay(name, p, m, v, mix)
            idle = result.makespan_s - schedule.rounds(m) * sum(mix)
            error = schedule.bubble(p, m, v, *mix) - idle
            allowed = (
                0.05 * result.makespan_s
                if strip(name, p, m)
                else 1e-9 * result.makespan_s
            )
            assert -allowed <= error <= 1e-9 * result.makespan_s, (
                p,
                m,
                v,
                mix,
                idle,
                error,
            )
            assert np.allclose(result.idle_s, idle), (
                "every device has the same work"
            )
        assert max(result.in_flight) == pytest.approx(
            schedule.in_flight(p, m, v), abs=1e-12
        ), (
            p,
            m,
            v,
        )


@pytest.mark.parametrize("name", CLOSED)
def test_bubble_in_a_run_is_what_a_second_step_adds(name: str) -> None:
    """Exact; a bound within 1 % for ZB-V where the pipeline fills but for a few microbatches."""
    schedule = get(name)
    for at, ((p, m, v), mixes) in enumerate(in_run(name)):
        for k in range(mixes):
            mix = MIXES[(at + k) % len(MIXES)]
            f, i, w = (seconds / schedule.chunks(v) for seconds in mix)
            passes = [(f, i, w)] * int(schedule.stage_count(p, v))
            exact = step_in_run_s(
                schedule.order(p, m, v), schedule.placement(p, v), passes
            )
            bubble = schedule.idle(p, m, v, *mix, barrier=False)
            closed = schedule.rounds(m) * sum(mix) + bubble
            allowed = 0.01 if strip(name, p, m) else 1e-9
            assert -allowed <= closed / exact - 1 <= 1e-9, (
                p,
                m,
                v,
                mix,
                closed,
                exact,
            )


def test_fewer_microbatches_than_the_published_law_asks_for() -> None:
    """p 8, m 8: max(0, (p-1)(f + i - 2w)) would give 27, 24 and 27.2; two steps less one take
    longer.
    """
    steps = [
        8 * (2 + w) + get("zb-h2").idle(8, 8, 1, 1.0, 1.0, w, barrier=False)
        for w in (0.5, 1.0, 1.4)
    ]
    assert steps == pytest.approx([30.5, 31.0, 34.2])


@pytest.mark.parametrize("name", CLOSED)
def test_more_work_is_never_faster(name: str) -> None:
    """Of a step in a run: longer passes, or one more round of microbatches; nor is a step by
    itself.
    """
    rng, schedule, (n, ranks, many) = (
        np.random.default_rng(4),
        get(name),
        most(name),
    )
    f, i, w = 10 ** rng.uniform(-1, 1, (3, n))
    p, v = rng.integers(1, ranks, n).astype(float), float(schedule.chunks(3))
    m = rng.integers(1, many // 2, n).astype(float)
    if name.startswith("interleaved"):
        m = p * np.ceil(m / p)
    legal = np.asarray(schedule.legal(p, m, v) & np.ones(n, dtype=bool))

    def step(m, f, i, w):
        bubble = schedule.idle(p, m, v, f, i, w, barrier=False)
        return schedule.rounds(m) * (f + i + w) + bubble

    # V-Half's authors order 8 microbatches of 6 ranks better than 7
    more = p if name.startswith("interleaved") else 1.0
    rounds = [] if schedule.replayed else [step(m + more, f, i, w)]
    for longer in (
        step(m, f * 1.1, i, w),
        step(m, f, i * 1.1, w),
        step(m, f, i, w * 1.1),
        *rounds,
    ):
        assert np.all((longer / step(m, f, i, w))[legal] >= 1 - 1e-9)
    alone = schedule.rounds(m) * (f + i + w)
    alone = alone + schedule.bubble(p, m, v, f, i, w)
    bound_only = (name == "zbv") & (p < m) & (m < 2 * p - 1)
    assert np.all((alone / step(m, f, i, w))[legal & ~bound_only] >= 1 - 1e-9)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("name", CLOSED)
def test_no_number_of_microbatches_beats_the_least_bubble_time(
    name: str, barrier: bool
) -> None:
    """What the relaxed search's bound of the bubble rests on."""
    rng, schedule, (n, ranks, many) = (
        np.random.default_rng(1),
        get(name),
        most(name),
    )
    f, i, w = 10 ** rng.uniform(-1, 1, (3, n))
    p, m = (
        rng.integers(1, ranks, n).astype(float),
        rng.integers(1, many, n).astype(float),
    )
    v = np.full(n, float(schedule.chunks(3)))
    short = schedule.idle(p, m, v, f, i, w, barrier) - schedule.least_bubble(
        p, v, f, i, w, barrier
    )
    assert np.all(
        short[schedule.legal(p, m, v)] >= -1e-9 * np.max(f + i + w) * 32
    )


def test_the_least_bubble_of_zbv_is_reached() -> None:
    """Forwards longer than the backwards of inputs and a little longer than those of weights, on
    five ranks: of six microbatches four half chunks of forwards, and no other number waits less."""
    kind, passes = get("zbv"), (1.0, 0.2, 0.9)
    idle = [float(kind.idle(5, m, 2, *passes, True)) for m in range(1, 31)]
    assert kind.least_bubble(5, 2, *passes, True) == min(idle) == idle[5]
    assert idle[5] == pytest.approx(4 * 1.0 / 2)


@pytest.mark.parametrize("name", CLOSED)
def test_a_table_gives_the_numbers_of_its_rows(name: str) -> None:
    schedule = get(name)
    grid = [
        (p, m, v)
        for p in (1, 2, 3, 8)
        for m in range(1, 24)
        for v in (1, 2, 3)
    ]
    rows = [(*layout, *MIXES[k % len(MIXES)]) for k, layout in enumerate(grid)]
    p, m, v, f, i, w = np.array(rows, dtype=float).T
    assert np.array_equal(
        schedule.bubble(p, m, v, f, i, w),
        [schedule.bubble(*row) for row in rows],
    )
    in_run = [schedule.idle(*row, barrier=False) for row in rows]
    assert np.array_equal(
        schedule.idle(p, m, v, f, i, w, barrier=False), in_run
    )
    assert np.array_equal(
        schedule.heads(p, m, v) + 0 * p,
        [schedule.heads(*row[:3]) for row in rows],
    )
    assert np.array_equal(
        schedule.in_flight(p, m, v) + 0 * p,
        [schedule.in_flight(*row[:3]) for row in rows],
    )
    assert np.array_equal(
        schedule.legal(p, m, v), [schedule.legal(*row[:3]) for row in rows]
    )


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
        assert get("zb-h1").idle(
            p, fewest, 1, f, i, w, barrier=False
        ) == pytest.approx((p - 1) * (f + i - w))
        assert get("zb-h2").idle(
            p, fewest, 1, f, i, w, barrier=False
        ) == pytest.approx((p - 1) * (f + i - 2 * w))
        for name in ("zb-h2", "zbv"):  # "zero bubble"
            assert get(name).idle(
                p, fewest, 1, 1.0, 1.0, 1.0, barrier=False
            ) == pytest.approx(0, abs=1e-12)
    assert get("zb-h2").in_flight(p, m, 1) == 2 * p - 1
    # DeepSeek's "PP + 1", of chunks over PP = 2p stages
    assert 2 * get("dualpipev").in_flight(p, m, 1) == 2 * p + 1


def test_zero_bubble_never_loses_to_its_ancestor() -> None:
    for f, i, w in MIXES:
        for p, m, _ in ANY_M:
            old, h1, h2 = (
                get(name).bubble(p, m, 1, f, i, w)
                for name in ("1f1b", "zb-h1", "zb-h2")
            )
            assert h1 <= old + 1e-9
            assert h2 <= old + 1e-9
            # with fewer, ZB-H2 runs ahead for nothing
            assert h2 <= h1 + 1e-9 or m < 2 * p - 1


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


@pytest.mark.parametrize(
    ("p", "m", "v"), [(4, 8, 2), (4, 2, 3), (8, 16, 4), (5, 1, 2), (1, 4, 2)]
)
def test_breadth_first(p: int, m: int, v: int) -> None:
    """The first microbatch waits for p - 1 ranks, and in every other chunk for those that the
    others do not fill."""
    f, i, w = 1.0, 1.3, 0.7
    expected = ((p - 1) + (v - 1) * max(p - m, 0)) * (f + i + w) / v
    found = get("breadth-first").bubble(p, m, v, f, i, w)
    assert found == pytest.approx(expected, abs=1e-12)
    assert get("breadth-first").in_flight(p, m, v) == m
