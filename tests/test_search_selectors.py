"""What each other choice costs: neighbours are predictions, pinned values are plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Space, plan, predict
from meshwright.describe.cluster import Installation
from meshwright.search import choices_of, neighbours, pin_values, with_choice

JOB = Job("llama3-8b", "8xh100-sxm", batch=32)
FOUND = plan(JOB, top=1).best
assert FOUND
BEST = FOUND.layout


def test_neighbours_are_the_predictions_of_the_changed_layouts() -> None:
    told: list[tuple[str, float]] = []
    found = neighbours(JOB, BEST, lambda *at: told.append(at))
    assert told and {*told} == {("neighbours", 0.0)}
    assert {c.field for c in found} >= {
        "tp",
        "cp",
        "pp",
        "microbatch",
        "schedule",
        "zero",
    }
    for choice in found:
        said = choice.to_dict()
        if choice.prediction:
            one = predict(JOB, with_choice(BEST, choice.field, choice.value))
            assert said["fits"] is one.fits
            assert said["needed_bytes"] == one.memory_bytes["needed"]
            assert said["step_time_s"] == one.step_time_s
            assert getattr(one.layout, choice.field) == choice.value
        else:
            assert choice.why, "what is not legal says why"
            assert said["fits"] is said["needed_bytes"] is None


def test_steps_measured_on_an_installation_scale_all_choices() -> None:
    """And what was left of the search: which layouts are found does not depend on it."""
    scale = 2.5
    on = replace(JOB.cluster, installation=Installation(scale, steps=3))
    measured = replace(JOB, cluster=on)
    found = plan(measured)
    plain = plan(JOB)
    for mine, its in zip(
        (
            found.best,
            *found.alternatives,
            *(f.prediction for f in found.outside),
        ),
        (
            plain.best,
            *plain.alternatives,
            *(f.prediction for f in plain.outside),
        ),
        strict=True,
    ):
        assert mine and its and mine.layout == its.layout
        assert mine.step_time_s == pytest.approx(scale * its.step_time_s)
        assert mine.replayed_s == mine.step_time_s
        assert mine.merit_s == pytest.approx(scale * its.merit_s)
    for choice in neighbours(measured, BEST):
        if choice.prediction:
            one = predict(JOB, choice.prediction.layout)
            said = choice.to_dict()["step_time_s"]
            assert said == pytest.approx(scale * one.step_time_s)


def test_replicas_take_the_chips_that_degrees_leave() -> None:
    for field in ("tp", "cp", "pp"):
        for value in (1, 2, 4):
            assert with_choice(BEST, field, value).chips == BEST.chips
    # and are one where a degree takes more than there are
    assert with_choice(Layout(tp=2, dp=4), "tp", 4).dp == 2
    assert with_choice(Layout(tp=2, dp=4), "tp", 16).dp == 1


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
    assert with_choice(one, "schedule", "interleaved").interleave == 2
    assert (
        with_choice(
            with_choice(one, "interleave", 4), "schedule", "1f1b"
        ).interleave
        == 1
    )
    assert with_choice(one, "interleave", 4).schedule == "interleaved"
    assert with_choice(one, "schedule", "zbv").interleave == 2

    # one that may have any keeps its name; a V has two
    for name, becomes in (
        ("interleaved-zb", "interleaved-zb"),
        ("1f1b", "interleaved"),
    ):
        at = Layout(pp=2, dp=1, schedule=name, interleave=2)
        for chunks in (2, 4):
            assert with_choice(at, "interleave", chunks).schedule == becomes
        assert with_choice(at, "interleave", 1).schedule == "1f1b"


def test_pinned_values_are_plans_with_that_value() -> None:
    space = Space(cp=1, pp=1, zero=1, recompute="none", schedule="1f1b")
    best = plan(JOB, space, top=1).best
    assert best
    found = {
        (c.field, c.value): c for c in pin_values(JOB, space, best.layout)
    }
    assert {field for field, _ in found} <= {
        "tp",
        "microbatch",
        "interleave",
        "sequence_parallel",
    }
    for value in (2, 4):
        if value != best.layout.tp:
            one = plan(JOB, space.but(tp=value)).fastest
            choice = found["tp", value]
            assert (choice.prediction and choice.prediction.layout) == (
                one and one.layout
            )


BIG = Job("llama3-70b", "1024xh100-sxm", batch=512, framework="unknown")
"""Under software without recipes, of ties the simplest is not the fastest."""
TIED = Job("llama3-70b", "256xh100-sxm", batch=256, framework="unknown")
"""So too, and the fastest has another ZeRO stage."""
FEW = Space(
    cp=(1, 2),
    microbatch=1,
    recompute="none",
    sequence_parallel=True,
)


def test_a_pinned_value_is_the_fastest_with_it_as_in_the_table() -> None:
    """Where the answer is not the fastest but the simplest of ties, the values that the fastest has
    cost what the fastest costs, and none less.
    """
    found = plan(TIED, FEW)
    best, fastest = found.best, found.fastest
    assert best and fastest and fastest.merit_s < best.merit_s
    assert found.tie(best) and found.tie(fastest)
    rows = [f.prediction for f in found.families if f.prediction]
    assert min(p.merit_s for p in rows) == fastest.merit_s
    asked = {"pp", "zero"}
    assert any(
        getattr(best.layout, f) != getattr(fastest.layout, f) for f in asked
    )
    seen = {
        (c.field, c.value): c
        for c in pin_values(TIED, FEW, best.layout)
        if c.field in asked
    }
    for field in asked:
        value = getattr(fastest.layout, field)
        if value != getattr(best.layout, field):
            assert (p := seen[field, value].prediction)
            assert p.step_time_s == fastest.step_time_s
    for choice in seen.values():
        if choice.prediction:
            assert choice.prediction.merit_s >= fastest.merit_s * (1 - 1e-12)


@pytest.mark.parametrize(
    ("job", "space", "axis", "fields"),
    [
        (BIG, FEW.but(tp=4, zero=(1, 3)), "pp", {"interleave", "schedule"}),
        (JOB, Space(pp=1, recompute="none"), "tp", {"sequence_parallel"}),
    ],
)
def test_what_several_ranks_choose_is_no_choice_of_one(
    job: Job, space: Space, axis: str, fields: set[str]
) -> None:
    """Of one rank it is not said to cost nothing; pinned, more ranks are searched, where there may
    be any."""
    said = f"nothing at {axis} 1"
    alone = space.but(**{axis: 1})
    best = plan(job, alone, top=1).best
    assert best and getattr(best.layout, axis) == 1
    near = [c for c in neighbours(job, best.layout) if c.field in fields]
    none = [
        c for c in pin_values(job, alone, best.layout) if c.field in fields
    ]
    for choice in (*near, *none):
        assert choice.prediction is None and said in choice.why
    more = space.but(**{axis: (1, 2, 4)})
    found = [
        c
        for c in pin_values(job, more, best.layout)
        if c.field in fields and c.prediction
    ]
    assert {c.field for c in near} == {c.field for c in found} == fields
    for choice in found:
        layout = choice.prediction.layout
        assert getattr(layout, axis) > 1
        assert getattr(layout, choice.field) == choice.value


def test_a_value_that_no_published_run_has_says_so() -> None:
    """Naming it decides the convention, which the plan keeps."""
    space = FEW.but(cp=(1, 2, 4), pp=1)
    best = plan(BIG, space, top=1).best
    assert best
    found = {
        c.value: c.to_dict()["note"]
        for c in pin_values(BIG, space, best.layout)
        if c.field == "cp"
    }
    assert found[2] == ""
    assert "leaves 2,048 tokens of a sequence on a rank" in found[4]


def test_the_values_hold_the_layouts_own() -> None:
    for field, values in choices_of(JOB, BEST).items():
        assert getattr(BEST, field) in values
        assert len(values) == len({*values})
    # six layers on eight stages have one chunk; on two, three too
    few = replace(JOB, model=replace(JOB.model, layers=6))
    for pp, chunks in ((8, (1,)), (2, (1, 3))):
        assert choices_of(few, Layout(pp=pp, dp=1))["interleave"] == chunks


def test_values_to_choose_from_are_those_near_a_layouts_own() -> None:
    """By the factor between them; and 1."""
    at = Job("llama3-70b", "4096xh100-sxm", batch=4096)
    found = choices_of(at, Layout(tp=64, dp=64))["tp"]
    every = [2**k for k in range(13)]

    def far(n: int) -> float:
        return max(n / 64, 64 / n)

    left = [far(n) for n in every if n not in found]
    assert {1, 64} <= {*found} < {*every}
    assert max(far(n) for n in found if n != 1) <= min(left)
