"""What a search tells before its answer: the best by closed forms, of all chips."""

from __future__ import annotations

from meshwright import Job, Space, predict
from meshwright.prediction.certainty import resolution
from meshwright.search import (
    EarlyAnswer,
    Question,
    brute,
    complexity,
    plan,
    planning,
)

NARROW = {"interleave": (1, 2), "recompute": ("none",), "zero": (0, 1, 3)}


def first(asked: Job, space: Space) -> EarlyAnswer:
    return next(planning(Question(asked, space, families=False)))


def test_it_is_the_simplest_of_the_ties_of_all_closed_forms() -> None:
    """By brute force: every layout that keeps the conventions, none replayed."""
    asked = Job("llama3-8b", "16xh100-sxm", 36)
    space = Space(**NARROW)
    closed = first(asked, space)
    found = closed.best
    every = [
        (row.merit, row, layout)
        for each in closed.ranked.searches
        for best in [brute(closed.ranked.job, each.space, 100_000)]
        for row, layout in zip(best.rows, best.layouts, strict=True)
    ]
    assert len(every) > 100
    within = min(every)[0] * (1.0 + resolution(asked))
    ties = [
        (complexity(asked, layout), row, layout)
        for merit, row, layout in every
        if merit <= within * (1.0 + 1e-9)
    ]
    assert len(ties) > 1
    least = min(ties, key=lambda each: each[:2])[2]
    assert found.layout == predict(asked, least).layout
    assert found.step_time_s == predict(asked, least).step_time_s
    assert found.layout != min(every)[2], "not simply the fastest"


def test_fewer_chips_are_tried_afterwards() -> None:
    """224 of 256 chips divide 112 sequences seven times as well."""
    asked = Job("llama3-8b", "256xh100-sxm", 112)
    one = plan(asked, families=False)
    before = first(asked, Space()).best
    assert one.idle and one.best.layout.chips < 256
    assert before.layout.chips == 256
    assert before.merit_s > one.best.merit_s


def test_what_fits_nowhere_tells_nothing_before() -> None:
    asked = Job("llama3-405b", "8xh100-sxm", 64)
    told = [
        closed.best for closed in planning(Question(asked, families=False))
    ]
    assert told == [None] * len(told)
    assert plan(asked, families=False).best is None


def test_a_paper_has_its_own_closed_form() -> None:
    """Which is the answer, so that nothing changes it."""
    asked = Job("gpt3-175b", "256xa100-80gb", 256, assumptions="lbl-2024")
    found = plan(asked, families=False).best
    for closed in planning(Question(asked, families=False)):
        assert closed.best.step_time_s == found.step_time_s
