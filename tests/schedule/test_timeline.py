"""The timeline: by hand, against an event simulation, and what must hold of any of them."""

from __future__ import annotations

import pytest

from meshwright.schedule import (
    SCHEDULES,
    Action,
    Order,
    get,
    timeline_of_order,
)
from refusals import refusal
from run_of_steps import step_in_run_s


def test_a_rank_that_never_waits_is_idle_for_nothing_at_all() -> None:
    """Tenths of a second are no binary numbers: their sums differ by how they are made."""
    alone = timeline_of_order(
        get("gpipe").order(1, 7, 1), lambda *at: 0, [(0.1, 0.2, 0.1)]
    )
    assert alone.makespan_s - alone.busy_s[0] != 0.0
    assert alone.idle_s == [0.0]


def test_two_ranks_two_microbatches_by_hand() -> None:
    result = timeline_of_order(
        get("gpipe").order(2, 2, 1),
        lambda rank, chunk: rank,
        [(1, 2, 3), (2, 1, 1)],
        send_s=0.5,
    )
    assert result.start_s == [[0, 1, 8, 13], [1.5, 3.5, 5.5, 7.5]]
    assert result.end_s == [[1, 2, 13, 18], [3.5, 5.5, 7.5, 9.5]]
    assert (result.makespan_s, result.busy_s, result.idle_s) == (
        18,
        [12, 8],
        [6, 10],
    )
    assert result.bubble_fraction == pytest.approx(16 / 36)
    assert result.in_flight == [2, 2]
    assert result.sends == [
        (0, 1, "F", 0, 0, 1, 1.5),
        (0, 1, "F", 0, 1, 2, 2.5),
        (1, 0, "I", 1, 0, 7.5, 8),
        (1, 0, "I", 1, 1, 9.5, 10),
    ]


def test_an_empty_order_takes_no_time() -> None:
    result = timeline_of_order([[], []], lambda rank, chunk: rank, [])
    assert (result.makespan_s, result.bubble_fraction, result.in_flight) == (
        0,
        0,
        [0, 0],
    )
    assert step_in_run_s([[], []], lambda rank, chunk: rank, []) == 0


F, B, I, W = (Action(kind, 0, 0) for kind in "FBIW")


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (
            [[B, F]],
            (
                "rank 0 cannot run B of stage 0, microbatch 0: it needs F of .* which comes later"
                " on rank 0"
            ),
        ),
        (
            [[F], [B]],
            (
                "rank 1 cannot run B of stage 1, microbatch 0: it needs F of stage 1, .* which no"
                " rank runs"
            ),
        ),
        (
            [[F, W, I]],
            (
                "deadlock: rank 0 cannot run W .* needs I of stage 0, microbatch 0, which comes"
                " later on rank 0"
            ),
        ),
        ([[F, F]], "runs F of stage 0, microbatch 0, twice"),
    ],
)
def test_impossible_orders_are_explained(order: Order, sentence: str) -> None:
    with refusal(sentence):
        timeline_of_order(order, lambda rank, chunk: rank, [(1, 1, 1)] * 2)


def event_simulation(
    order: Order, stage_of, durations, send_s: float
) -> float:
    """The makespan by SimPy: ranks are processes, outputs are events that fire when they arrive."""
    simpy = pytest.importorskip("simpy")
    env = simpy.Environment()
    last = max(
        stage_of(rank, a.chunk)
        for rank, actions in enumerate(order)
        for a in actions
    )
    here = {
        (part, stage, k): env.event()
        for part in "FI"
        for stage in range(last + 1)
        for k in range(1000)
    }
    there = {key: env.event() for key in here}
    # a stage may lie on several ranks, each with microbatches of its own
    owner = {
        (stage_of(rank, a.chunk), a.microbatch): rank
        for rank, actions in enumerate(order)
        for a in actions
    }
    ends = []

    def deliver(key):
        here[key].succeed()
        yield env.timeout(send_s)
        there[key].succeed()

    def device(rank, actions):
        for kind, chunk, k in actions:
            stage = stage_of(rank, chunk)
            f, i, w = durations(stage)
            needs = [("F", stage, k)] * (kind in "IB") + [("I", stage, k)] * (
                kind == "W"
            )
            needs += [("F", stage - 1, k)] * (kind == "F" and stage > 0)
            needs += [("I", stage + 1, k)] * (kind in "IB" and stage < last)
            for key in needs:
                yield here[key] if owner[key[1:]] == rank else there[key]
            yield env.timeout({"F": f, "I": i, "W": w, "B": i + w}[kind])
            if kind != "W":
                env.process(deliver(("I" if kind == "B" else kind, stage, k)))
        ends.append(env.now)

    for rank, actions in enumerate(order):
        env.process(device(rank, actions))
    env.run()  # until the last, unread message has arrived: later than the makespan
    assert len(ends) == len(order)
    return max(ends)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("send_s", [0.0, 0.3, 4.0])
def test_an_event_simulation_agrees(name: str, send_s: float) -> None:
    p, m, v = 4, 8, 3 if get(name).chunks(7) == 7 else 1
    schedule = get(name)
    order, place = schedule.order(p, m, v), schedule.placement(p, v)

    def uneven(stage: int) -> tuple[float, float, float]:
        return (1 + stage % 3 / 4, 1.5 - stage % 2 / 3, 0.8 + stage / 20)

    assert timeline_of_order(
        order,
        place,
        [uneven(stage) for stage in range(int(schedule.stage_count(p, v)))],
        send_s,
    ).makespan_s == pytest.approx(
        event_simulation(order, place, uneven, send_s), rel=1e-12
    )


def test_two_steps_of_two_ranks_by_hand() -> None:
    """ZB-H2, passes of 1 s: rank 0 is done with the first step at 9, rank 1 at 10. Without a
    barrier rank 0 begins the second at 9, its first output is there at 10, and all repeats 9 s
    later: two steps end at 19. With one they end at 20.
    """
    order, place = get("zb-h2").order(2, 3, 1), get("zb-h2").placement(2, 1)
    assert step_in_run_s(order, place, [(1, 1, 1)] * 2) == 9
    assert step_in_run_s(order, place, [(1, 1, 1)] * 2, barrier=True) == 10
