"""The registry, what each schedule may run, and what its order holds, by plain counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedule import SCHEDULES, get, groups
from meshwright.schedule.schedule import Schedule
from refusals import refusal


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """A schedule with p, m, v that it can run."""
    name = draw(st.sampled_from(list(SCHEDULES)))
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    free = get(name).chunks(7) == 7
    v = draw(st.integers(2, 4)) if free else 1
    p, m = p * get(name).copies, m * get(name).copies
    while not get(name).legal(p, m, v):
        m += get(name).copies
    return name, p, m, v


def runs(
    at: Schedule, ranks: int, most: int
) -> Iterator[tuple[int, int, int]]:
    """Small p, m, v that a schedule can run; a device that is alone has one stage."""
    for p in range(1, ranks + 1):
        for m in range(1, most + 1):
            for v in (1, 2, 3):
                if at.legal(p, m, v) and (p > 1 or at.chunks(v) == 1):
                    yield p, m, v


@settings(deadline=None, max_examples=150)
@given(layouts())
def test_every_stage_sees_every_microbatch_once(
    layout: tuple[str, int, int, int],
) -> None:
    name, p, m, v = layout
    schedule = get(name)
    assert schedule.rules(p, m, v) == []
    passes: Counter[tuple[str, int, int]] = Counter()
    kinds = set[str]()
    for rank, actions in enumerate(schedule.order(p, m, v)):
        for kind, chunk, microbatch in actions:
            kinds.add(kind)
            stage = schedule.stage_of(rank, chunk, p, v)
            passes.update(
                (part, stage, microbatch)
                for part in ("IW" if kind == "B" else kind)
            )
    stages = int(schedule.stage_count(p, v))
    assert passes == Counter(
        (part, s, k) for part in "FIW" for s in range(stages) for k in range(m)
    )
    assert ("W" in kinds) is schedule.split_backward


def followed(
    at: Schedule, p: int, m: int, v: int
) -> tuple[list[float], int, int]:
    """(most microbatches that each rank holds, most logits, most gradients of logits that wait for
    their weights when there are any logits)."""
    chunks, last = int(at.chunks(v)), at.stage_count(p, v) - 1
    held, heads, late = [], 0, 0
    for rank, actions in enumerate(at.order(p, m, v)):
        now = most = 0.0
        logits = weights = 0
        for kind, chunk, _ in actions:
            head = at.stage_of(rank, chunk, p, v) == last
            now += ((kind == "F") - (kind in "BW")) / chunks
            logits += head * ((kind == "F") - (kind in "IB"))
            weights += head * ((kind == "I") - (kind == "W"))
            most, heads = max(most, now), max(heads, logits)
            if logits:
                late = max(late, weights)
        held.append(most)
    return held, heads, late


@pytest.mark.parametrize("name", SCHEDULES)
def test_devices_hold_what_was_said_of_them(name: str) -> None:
    """The fullest and the one with the last stage exactly, all others at most, or, of plain and
    interleaved pipelines, exactly; where the order follows from costs, what it may hold."""
    at = get(name)
    for p, m, v in runs(at, 6, 16):
        held, heads, late = followed(at, p, m, v)
        where = (p, m, v)
        end = 0 if at.folded else p - 1
        for rank in range(p):
            said = at.in_flight(p, m, v, rank)
            assert said >= held[rank] - 1e-9, where
            if name in ("1f1b", "interleaved"):
                assert said == pytest.approx(held[rank]), where
        if not at.costed:
            assert at.in_flight(p, m, v) == pytest.approx(max(held)), where
            found = at.in_flight(p, m, v, end)
            assert found == pytest.approx(held[end]), where
        # interleaved zero bubble says what its last rank may hold back
        assert at.logits(p, m, v)[0] == heads, where
        assert at.logits(p, m, v)[1] >= late, where
        if not (at.costed or name == "interleaved-zb"):
            assert at.logits(p, m, v)[1] == late, where


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "breadth-first", "zbv"])
@pytest.mark.parametrize("m", [2, 4, 60])
def test_an_order_without_laws_is_read(name: str, m: int) -> None:
    """Where each microbatch takes the place of another, and where all are held."""
    at, v = get(name), int(get(name).chunks(2))
    read = replace(at, flight=None, heads=None)
    assert read.in_flight(2, m, v) == at.in_flight(2, m, v)
    assert read.logits(2, m, v) == at.logits(2, m, v)


@pytest.mark.parametrize("name", ["v-half", "v-min"])
@pytest.mark.parametrize("p", [7, 8, 9, 12, 17])
def test_controllable_memory_holds_what_its_law_says(
    name: str, p: int
) -> None:
    """Where all microbatches are held, where the pipeline fills, and with many of them; of 17 ranks
    and 16 microbatches V-Half keeps five of the last stage's weight gradients for the end."""
    at = get(name)
    for m in (1, p // 3 + 1, p // 2, p - 1, p, p + 1, 2 * p, 3 * p):
        held, heads, late = followed(at, p, m, 2)
        assert at.in_flight(p, m, 2) == max(held)
        assert at.in_flight(p, m, 2, 0) == held[0]
        assert at.logits(p, m, 2) == (heads, late)
    if (name, p) == ("v-half", 17):
        assert at.logits(17, 16, 2) == (1, 5)


# Rules.


def legal(name: str, p: int, m: int, v: int) -> bool:
    """interleaved: two chunks or more, in groups of one size of at least p; V's: two, or v left at
    one; DualPipeV: 2 p microbatches or more; DualPipe: that, and both even."""
    at = get(name)
    if name.startswith("interleaved"):
        return v >= 2 and m % max(m // p, 1) == 0
    if name == "dualpipe":
        return v in (1, 2) and m >= 2 * p and m % 2 == p % 2 == 0
    if name == "dualpipev":
        return v in (1, 2) and (m >= 2 * p)
    if at.folded:
        return v in (1, 2)
    return v >= 2 if name == "breadth-first" else v == 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_numbers_that_a_schedule_runs(name: str) -> None:
    at = get(name)
    for p in (2, 3, 4):
        for m in range(1, 14):
            for v in (1, 2, 3):
                fine = bool(at.legal(p, m, v))
                assert fine == legal(name, p, m, v), (p, m, v)
                assert bool(at.rules(p, m, v)) is not fine


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
    (few,) = get("dualpipe").rules(4, 6, 2)
    assert few.endswith("at least 2 pp = 8, not 6")
    (odd,) = get("dualpipe").rules(3, 8, 2)
    assert odd.endswith("pp must be even, not 3")
    assert "interleave must be 1" in get("1f1b").rules(4, 8, 2)[0]
    assert "interleave must be 2" in get("zbv").rules(4, 8, 3)[0]


def test_an_unknown_schedule_is_told_its_neighbours() -> None:
    with refusal("did you mean zb-h2, zb-h1 or zb-2p"):
        get("zb-h3")


# Groups.


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_groups_of_microbatches(p: int) -> None:
    """Without a number: m // p of one size; of g: the last one the rest, none smaller than p."""
    for m in range(1, 20):
        count = max(m // p, 1)
        assert bool(groups.in_groups(p, m, 0)) is (m % count == 0)
        assert groups.group_size(p, m, 0) == m / count
        for g in range(1, 21):
            sizes = [min(g, m - i) for i in range(0, m, g)]
            fine = g <= m and min(sizes) >= p
            assert bool(groups.in_groups(p, m, g)) is fine, (m, g)
            assert groups.group_size(p, m, g) == min(g, m)


def test_sentences_name_the_nearest_numbers() -> None:
    assert "may be 12 or 15" in groups.sentence("s", 4, 13, 0)
    assert "may be 9 or 12" in groups.sentence("s", 3, 10, 0)
    assert "it may be 4 to 9" in groups.sentence("s", 4, 9, 5)
    table = groups.group_order(5, 2, 3)
    assert table == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
        (0, 3), (0, 4), (1, 3), (1, 4),
    ]  # fmt: skip
