"""`Choices`: what a field of a layout may be, checked as the layout checks it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshwright import BadInput, Layout
from meshwright.describe.choices import FIELDS, Choices, refusal
from meshwright.describe.frozen import FrozenDict
from meshwright.describe.job import ONE_DEVICE


def test_a_field_that_is_not_named_may_be_anything() -> None:
    paper = Choices(schedule=("1f1b",), zero=(0, 1))
    assert paper.allows(Layout(zero=1, tp=7, recompute="full"))
    assert not paper.allows(Layout(zero=2)) and not paper.allows(
        Layout(schedule="gpipe")
    )
    assert Choices().allows(Layout(zero=3, schedule="zbv"))


def test_a_sentence_for_each_field_with_the_nearest_values() -> None:
    some = Choices(
        schedule=("1f1b", "gpipe"), zero=(0, 1), pp=tuple(range(1, 100))
    )
    schedule, zero, pp = some.refused(
        Layout(schedule="zbv", zero=3, pp=128), "torchtitan allows"
    )
    assert schedule == "torchtitan allows schedule 1f1b, gpipe, not zbv"
    assert zero == "torchtitan allows zero 0, 1, not 3"
    assert pp == "torchtitan allows pp 94, 95, 96, 97, 98, 99, not 128"
    assert some.refused(Layout(), "torchtitan") == ()


def test_one_change_that_would_do_of_several_is_named_with_the_others() -> (
    None
):
    with_pipelines, without = (
        Choices(zero=(0, 1)),
        Choices(pp=(1,), zero=(2, 3)),
    )
    both = (with_pipelines, without)
    assert refusal(both, Layout(pp=2, zero=3), "mine") == (
        "mine allows zero 0, 1, not 3, or pp 1, not 2",
    )
    assert refusal(both, Layout(zero=3), "mine") == ()
    assert refusal((), Layout(zero=3), "mine") == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"zeroo": (1,)},
            "layout: field 'zeroo' is not known; did you mean zero",
        ),
        ({"placement": ({},)}, "layout: field 'placement' is not known"),
        (
            {"schedule": ("1fb1",)},
            "schedule '1fb1' is not known; did you mean 1f1b",
        ),
        (
            {"scheme": ("sumna",)},
            "layout.scheme 'sumna' is not known; did you mean summa",
        ),
        ({"tp": (1, 2, 0)}, "layout.tp must be at least 1, not 0"),
        ({"tp": "x"}, "tp 'x' has no number in it; write it like '8'$"),
        ({"zero": "x"}, "zero 'x' has no number in it; write it like '3'$"),
        (
            {"sequence_parallel": ("maybe",)},
            "layout.sequence_parallel must be true or false",
        ),
        (
            {"zero": {"1": 1}},
            "layout.zero must be a value or a list of values, not a table",
        ),
        ({"zero": 4}, "layout.zero must be between 0 and 3, not 4"),
    ],
)
def test_what_no_layout_can_hold_is_refused(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        Choices(given)


def test_texts_and_numbers_of_a_file_are_what_a_layout_holds() -> None:
    assert Choices(
        zero=("1",),
        sequence_parallel=("true", False),
        tp=[8.0, 8],
        recompute="full",
    ) == Choices(
        zero=1, sequence_parallel=(True, False), tp=(8,), recompute=("full",)
    )


def test_both_is_what_each_allows() -> None:
    one, other = (
        Choices(zero=(0, 1, 3), pp=(1, 2)),
        Choices(zero=(1, 2, 3), tp=(8,)),
    )
    both = one & other
    assert both == Choices(zero=(1, 3), pp=(1, 2), tp=(8,))
    for layout in (
        Layout(tp=t, pp=p, zero=z)
        for t in (1, 8)
        for p in (1, 4)
        for z in range(4)
    ):
        assert both.allows(layout) == (
            one.allows(layout) and other.allows(layout)
        )
    assert not (one & Choices(zero=(2,))).allows(Layout(zero=2))


def test_it_is_a_frozen_description() -> None:
    some = Choices(zero=(0, 1), tp=range(1, 100))
    with pytest.raises(TypeError, match="cannot be changed"):
        some["zero"] = (3,)
    assert (
        repr(some)
        == "Choices(zero=(0, 1), tp=(1, 2, 3, 4, 5, 6, ... 99 in all))"
    )
    assert str(some) == "zero 0, 1; tp 1, 2, 3, 4, 5, 6, ..."
    assert some.but(tp=None, zero=(2,)) == Choices(zero=(2,))
    assert isinstance(some, FrozenDict)


def test_every_field_of_a_layout_can_be_chosen() -> None:
    """But the placement, which a search derives; so a new field needs no line here."""
    assert {*FIELDS} | {"placement"} == {
        f.name for f in dataclasses.fields(Layout)
    }
    for name in FIELDS:
        usual = getattr(ONE_DEVICE, name)
        assert Choices({name: (usual,)}).allows(ONE_DEVICE)
