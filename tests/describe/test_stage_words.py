"""Layers of each stage as people write them: rules, numbers, Megatron Core's words."""

from __future__ import annotations

import pytest

from meshwright import Layout
from meshwright.describe.stages import read_stages
from meshwright.layout.stages import stage_layers
from refusals import refusal


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("7,8*2,7", (7, 8, 8, 7)),
        ("Et|(tt|)*3L", (1, 2, 2, 2, 0)),
        ("Et*3|t*4|tttL", (3, 4, 3)),
        ("E|t|mL", (0, 1, 0)),
        # Megatron-Bridge, glm5.py: two stages in a row may be empty of layers
        ("Et|t||tt|tL", (1, 1, 0, 2, 1)),
    ],
)
def test_words_and_numbers_say_the_same(
    text: str, layers: tuple[int, ...]
) -> None:
    assert read_stages(text).layers == layers
    assert read_stages(read_stages(text).text) == read_stages(text)
    assert [
        len(of) for of in stage_layers(sum(layers), len(layers), text)
    ] == list(layers)


@pytest.mark.parametrize(
    "text", ["", "7;8", "tt|tL", "Et|t", "E|xL", "evn", "1,,2", "-1,2"]
)
def test_what_names_no_stages_is_refused_in_a_sentence(text: str) -> None:
    with refusal("layout.stages"):
        Layout(stages=text)


def test_slots_are_those_of_megatron() -> None:
    """`account_for_embedding_in_pipeline_split` and `..._loss_...`: (layers + 2) / stages slots
    each, of which the first and the last stage give one to embedding and loss."""
    for layers, stages_ in (
        (126, 128),
        (126, 32),
        (30, 8),
        (62, 16),
        (78, 20),
    ):
        slots = (layers + 2) // stages_
        expected = [slots - 1, *[slots] * (stages_ - 2), slots - 1]
        assert [
            len(of) for of in stage_layers(layers, stages_, "slots")
        ] == expected


def test_slots_keep_all_layers_and_order() -> None:
    for layers in range(1, 40):
        for count in range(1, layers + 3):
            dealt = [len(of) for of in stage_layers(layers, count, "slots")]
            assert (
                sum(dealt) == layers
                and min(dealt) >= 0
                and max(dealt[1:-1] or [0]) >= max(dealt[0], dealt[-1])
                or count < 3
            )
