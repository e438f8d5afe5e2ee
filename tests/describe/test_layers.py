"""A model is a list of layers: patterns, and what they say in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import Model, MoE, catalog
from meshwright.describe.layers import Kind, kinds, leading, mix, sorts
from meshwright.describe.mixers import Linear, StateSpace
from meshwright.describe.pattern import shortest_pattern
from meshwright.describe.read import read
from refusals import refusal

PLAIN = Model("m", 8, 64, 4, 128, 100, 32)
HYBRID = replace(
    PLAIN,
    pattern=("3*linear", "full"),
    linear=Linear(4, 16, 16),
    moe=MoE(4, 2, 32, dense_layers=1),
)


SSM = StateSpace(64, 16, heads=4)


def test_a_pattern_is_repeated_and_leaves_the_feed_forward_to_the_model() -> (
    None
):
    linear, full = Kind(None, True, "linear"), Kind(None, True, "full")
    first = linear._replace(moe=False)
    assert kinds(HYBRID) == (
        first,
        linear,
        linear,
        full,
        linear,
        linear,
        linear,
        full,
    )
    assert leading(HYBRID) == 1
    # that of the last layer comes first
    assert sorts(HYBRID) == (full, first, linear)


def test_leading_layers_are_those_before_experts_in_all_others() -> None:
    every_second = replace(HYBRID, pattern=("full+dense", "full+experts"))
    assert leading(every_second) == 0
    assert leading(PLAIN) == 0


@given(st.lists(st.tuples(st.sampled_from(["full", "ssm&full", "none"]), st.just("dense")), min_size=1, max_size=30))  # fmt: skip
def test_a_pattern_says_what_it_was_written_from(
    every: list[tuple[str, str]],
) -> None:
    pattern = shortest_pattern(every)
    model = replace(PLAIN, layers=len(every), pattern=pattern, ssm=SSM)
    assert [(kind.mixer, "dense") for kind in kinds(model)] == every


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (["attention"], "'attention' is not a layer: write"),
        (["0*full"], "'0\\*full' is not a layer"),
        (["full+moe"], "feed-forward 'moe' is none of dense, experts, none"),
        (["full+experts"], "layers with experts, but moe is not given"),
        (["ssm"], "pattern has ssm layers, but ssm is not given"),
        (["sliding"], "pattern has sliding layers, but window is not given"),
    ],
)
def test_wrong_patterns_are_sentences(pattern: list[str], reason: str) -> None:
    table = {
        "layers": 4,
        "hidden": 64,
        "heads": 4,
        "ffn": 128,
        "vocab": 100,
        "seq": 32,
    }
    with refusal(reason):
        read(Model, {"name": "m", **table, "pattern": pattern})


def test_the_mix_is_said_in_natural_words() -> None:
    assert mix(catalog.model("qwen3-next-80b-a3b")) == {
        "linear attention (gated delta net) + experts": 36,
        "full attention + experts": 12,
    }
    assert mix(catalog.model("deepseek-v3")) == {
        "latent attention + experts": 58,
        "latent attention + dense feed-forward": 3,
    }
    assert mix(catalog.model("llama3-8b")) == {
        "full attention + dense feed-forward": 32
    }
