"""What each other choice costs: neighbours are predictions, pinned values are plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Space, plan, predict
from meshwright.search.selectors import changed, choices_of, neighbours, pinned

JOB = Job("llama3-8b", "8xh100-sxm", batch=32)
FOUND = plan(JOB, top=1).best
assert FOUND
BEST = FOUND.layout


def test_neighbours_are_the_predictions_of_the_changed_layouts() -> None:
    found = neighbours(JOB, BEST)
    assert {c.field for c in found} >= {
        "tp",
        "cp",
        "pp",
        "microbatch",
        "schedule",
        "zero",
    }
    for choice in found:
        if choice.prediction:
            one = predict(JOB, changed(BEST, choice.field, choice.value))
            assert choice.seconds == pytest.approx(
                one.replayed_s or one.step_time_s, rel=1e-12
            )
            assert getattr(one.layout, choice.field) == choice.value
        else:
            assert choice.why, "what is not legal says why"


def test_no_neighbour_that_fits_is_faster_than_the_best() -> None:
    """The search is exact: whatever is one step away was looked at."""
    own = FOUND.replayed_s or FOUND.step_time_s
    searched = [
        c for c in neighbours(JOB, BEST) if c.prediction and c.prediction.fits
    ]
    assert searched
    assert min(c.seconds for c in searched if c.seconds) >= own * (1 - 1e-9)


def test_replicas_take_the_chips_that_degrees_leave() -> None:
    for field in ("tp", "cp", "pp"):
        for value in (1, 2, 4):
            assert changed(BEST, field, value).chips == BEST.chips


def test_chunks_go_with_the_schedule() -> None:
    one = replace(
        BEST,
        tp=1,
        cp=1,
        pp=4,
        dp=2,
        schedule="1f1b",
        interleave=1,
        placement={},
    )
    assert changed(one, "schedule", "interleaved").interleave == 2
    assert (
        changed(changed(one, "interleave", 4), "schedule", "1f1b").interleave
        == 1
    )
    assert changed(one, "interleave", 4).schedule == "interleaved"
    assert changed(one, "schedule", "zbv").interleave == 2


def test_pinned_values_are_plans_with_that_value() -> None:
    space = Space(
        cp=(1,), pp=(1,), zero=(1,), recompute=("none",), schedule=("1f1b",)
    )
    best = plan(JOB, space, top=1).best
    assert best
    found = {(c.field, c.value): c for c in pinned(JOB, space, best.layout)}
    assert {field for field, _ in found} <= {
        "tp",
        "microbatch",
        "interleave",
        "sequence_parallel",
    }
    for value in (2, 4):
        if value != best.layout.tp:
            one = plan(JOB, space.but(tp=(value,)), top=1).best
            choice = found["tp", value]
            assert (choice.prediction and choice.prediction.layout) == (
                one and one.layout
            )


def test_a_choice_costs_at_most_what_the_neighbour_costs() -> None:
    """Searching the rest again never makes it slower than keeping the rest."""
    near = {(c.field, c.value): c for c in neighbours(JOB, BEST)}
    fixed = ("cp", "pp", "microbatch", "schedule", "interleave", "recompute")
    space = Space(**{field: (getattr(BEST, field),) for field in fixed})
    for choice in pinned(JOB, space, BEST):
        other = near.get((choice.field, choice.value))
        if (
            other
            and other.prediction
            and other.prediction.fits
            and choice.seconds
            and other.seconds
        ):
            assert choice.seconds <= other.seconds * (1 + 1e-9)


def test_the_values_hold_the_layouts_own() -> None:
    for field, values in choices_of(JOB, BEST).items():
        assert getattr(BEST, field) in values
        assert len(values) == len({*values})
