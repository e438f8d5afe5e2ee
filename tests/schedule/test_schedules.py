"""The registry, what each schedule may run, and the orders as such."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import BadInput
from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.order import held_rank, in_flight_rank


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """A schedule with p, m, v that it can run."""
    name = draw(st.sampled_from(list(SCHEDULES)))
    p, m, v = (
        draw(st.integers(1, 6)),
        draw(st.integers(1, 14)),
        draw(st.integers(2, 4)),
    )
    if get(name).chunks(7) == 7:
        return name, p, p * min(m, 4), v
    if name == "dualpipe":
        return name, 2 * p, 4 * p + 2 * m, 1
    return name, p, max(m, 2 * p) if name == "dualpipev" else m, 1


@settings(deadline=None, max_examples=150)
@given(layouts())
def test_every_stage_sees_every_microbatch_once(
    layout: tuple[str, int, int, int],
) -> None:
    name, p, m, v = layout
    schedule = get(name)
    assert schedule.legal(p, m, v) and schedule.rules(p, m, v) == []
    passes: Counter[tuple[str, int, int]] = Counter()
    for rank, actions in enumerate(schedule.order(p, m, v)):
        for kind, chunk, microbatch in actions:
            stage = schedule.stage_of(rank, chunk, p, v)
            passes.update(
                (part, stage, microbatch)
                for part in ("IW" if kind == "B" else kind)
            )
    stages = int(schedule.stage_count(p, v))
    assert passes == Counter(
        (part, s, k) for part in "FIW" for s in range(stages) for k in range(m)
    )


@settings(deadline=None, max_examples=150)
@given(layouts())
def test_no_rank_holds_more_than_it_was_said_to(
    layout: tuple[str, int, int, int],
) -> None:
    name, p, m, v = layout
    order = get(name).order(p, m, v)
    most = max(in_flight_rank(order, r) for r in range(p))
    if get(name).costed:  # what it may hold
        assert most <= get(name).in_flight(p, m, v)
        return
    assert most == pytest.approx(get(name).in_flight(p, m, v))
    last = 0 if get(name).folded else p - 1
    assert in_flight_rank(order, last) == pytest.approx(
        get(name).in_flight_last(p, m, v)
    )
    head, chunks = get(name).stage_count(p, v) - 1, get(name).chunks(v)
    at_head = [
        float(get(name).stage_of(last, chunk, p, v) == head)
        for chunk in range(int(chunks))
    ]
    # logits of 7, half of it from the gradient of the input on; all are at their most at once: a
    # device needs their sum
    together = held_rank(
        order,
        last,
        lambda c: 1 / chunks + 7 * at_head[c],
        lambda c: 1 / chunks + 3.5 * at_head[c],
    )
    expected = 7 * get(name).heads(p, m, v) + 3.5 * get(name).heads_late(
        p, m, v
    )
    assert together == pytest.approx(
        get(name).in_flight_last(p, m, v) + expected
    )
    assert get(name).split_backward == any(
        action.kind == "W" for actions in order for action in actions
    )


def test_logits_between_head_forward_and_head_backward() -> None:
    """GPipe runs all forwards first, others go straight back; zero bubble keeps what its weight
    gradients wait for.
    """
    heads = {name: get(name).heads(4, 16, 2) for name in SCHEDULES}
    assert heads.pop("gpipe") == heads.pop("breadth-first") == 16
    assert set(heads.values()) == {1}
    late = {
        name: get(name).heads_late(4, 16, 2)
        for name in SCHEDULES
        if get(name).heads_late(4, 16, 2)
    }
    assert late.pop("zb-1p") == 3 and late.pop("zb-2p") == 7
    assert late == {"zb-h1": 3, "zb-h2": 6, "interleaved-zb": 3}


def test_breadth_first_holds_every_microbatch() -> None:
    """All go through a chunk before the next has its turn, however many there are."""
    at = get("breadth-first")
    held = [
        max(in_flight_rank(at.order(2, m, 2), rank) for rank in range(2))
        for m in (12, 13, 20, 100)
    ]
    assert held == [12, 13, 20, 100]
    assert [at.in_flight(2, m, 2) for m in (12, 13, 20, 100)] == held
    assert [at.heads(2, m, 2) for m in (12, 13, 20, 100)] == held


def test_a_rank_of_1f1b_holds_what_lies_below_it() -> None:
    order = get("1f1b").order(4, 8, 1)
    assert [in_flight_rank(order, rank) for rank in range(4)] == [4, 3, 2, 1]
    assert (
        " ".join(f"{kind}{k}" for kind, _, k in order[2])
        == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7"
    )


def test_placements() -> None:
    loop, fold = get("interleaved"), get("zbv")
    assert [[loop.stage_of(r, c, 4, 2) for c in (0, 1)] for r in range(4)] == [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
    ]
    assert [[fold.stage_of(r, c, 4, 2) for c in (0, 1)] for r in range(4)] == [
        [0, 7],
        [1, 6],
        [2, 5],
        [3, 4],
    ]
    two = {"zbv", "dualpipev", "dualpipe", "v-half", "v-min"}
    assert all(get(name).folded for name in two)
    free = {"interleaved", "interleaved-zb", "breadth-first"}
    plain = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}
    assert not any(get(name).folded for name in plain | free)
    for names, chunks in ((plain, 1), (two, 2), (free, 3)):
        assert {get(name).chunks(3) for name in names} == {chunks}
    # further ones may be added: theirs are a number of their own, or as many as asked
    assert {*SCHEDULES} >= plain | two | free
    assert {get(name).chunks(3) for name in SCHEDULES} == {1, 2, 3}


def test_rules_are_sentences_with_valid_values() -> None:
    assert get("interleaved").rules(4, 9, 2) == [
        "interleaved runs its microbatches (9) in 2 groups of one size, each at least pp (4): their"
        " number may be 8 or 10"
    ]
    grouped = get("interleaved").grouped
    assert grouped and grouped(5).rules(4, 12, 2)[0].endswith(
        "the rest is 0 or at least 4"
    )
    assert len(get("interleaved-zb").rules(4, 9, 1)) == 2
    assert get("dualpipev").rules(4, 7, 2) == [
        "dualpipev needs at least 2 pp = 8 microbatches, not 7"
    ]
    assert "interleave must be 1" in get("1f1b").rules(4, 8, 2)[0]
    assert "interleave must be 2" in get("zbv").rules(4, 8, 3)[0]


def test_an_unknown_schedule_is_told_its_neighbours() -> None:
    with pytest.raises(BadInput, match="did you mean zb-h2 or zb-h1"):
        get("zb-h3")
