"""Formats that name a model: its sizes decide which, and what else differs is written or said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model, model
from meshwright.formats import bridge
from meshwright.formats.bridge import launch
from refusals import refusal

PLACE = launch.Place(1, 8)
NAMED = {
    "torchtitan": "--config qwen3_14b",
    "torchtitan-toml": 'flavor = "14B"',
    "maxtext": "model_name: qwen3-14b",
    "megatron-bridge": "--recipe qwen3_14b_pretrain_config",
    "axolotl": 'base_model: "Qwen/Qwen3-14B"',
}
"""Format -> how it names the model."""
OF_A_FOLDER = replace(
    model("qwen3-14b"),
    name="my folder",
    sources={},
    seq=8192,
    notes=("not read: something",),
)
"""The same sizes, as a config.json in a folder of one's own has them."""


def written(own: Model, to: str) -> tuple[str, list[str]]:
    """The file, and what the training script must say."""
    job = Job(own, "8xh100-sxm", 64, Layout(dp=8, zero=3, recompute="full"))
    if to == "megatron-bridge":
        job = replace(job, layout=Layout(dp=8, zero=1, recompute="full"))
    return bridge.write(job, to, PLACE)


@pytest.mark.parametrize("to", NAMED)
def test_a_model_is_found_by_its_sizes(to: str) -> None:
    text, told = written(OF_A_FOLDER, to)
    assert NAMED[to] in text
    assert not [word for word in told if "qwen" in word]


@pytest.mark.parametrize("to", NAMED)
def test_another_base_of_positions_is_written_or_said(to: str) -> None:
    text, told = written(replace(OF_A_FOLDER, rope_base=5e5), to)
    assert NAMED[to] in text
    if to == "megatron-bridge":
        assert "model.rotary_base=500000" in text
    else:
        assert "rope_base = 500000 (qwen3-14b has 1e+06)" in told


def test_a_near_model_is_named_with_what_it_has_otherwise() -> None:
    other = replace(OF_A_FOLDER, vocab=151680)
    for to in ("torchtitan", "maxtext", "megatron-bridge"):
        with refusal("its qwen3-14b has vocab 151936, not 151680"):
            written(other, to)


@pytest.mark.parametrize("to", ["megatron", *NAMED])
def test_a_file_says_what_it_was_made_of_and_what_it_lacks(to: str) -> None:
    job = Job(
        OF_A_FOLDER, "8xh100-sxm", 64, Layout(dp=8, zero=3, recompute="full")
    )
    if "megatron" in to:
        job = replace(job, layout=Layout(dp=8, zero=1, recompute="full"))
    place = replace(PLACE, path="plan\n.toml")
    head = bridge.write(job, to, place)[0].splitlines()[:6]
    told = next(line for line in head if "my folder on 8 x h100-sxm" in line)
    assert told.startswith("# ") and "dp 8" in told
    assert told.endswith("from plan?.toml")  # a name cannot end the comment
    assert any(line.startswith("# not in the plan: ") for line in head)
    # Megatron stops where it looks for a number of steps that nobody said
    length = "# not in the plan: how long to train (plan with --tokens)"
    text = bridge.write(job, to, place)[0]
    assert length in text.splitlines()
    timed = bridge.write(replace(job, tokens=1e12), to, place)[0]
    assert length not in timed


@pytest.mark.parametrize("to", ["megatron", "torchtitan", "megatron-bridge"])
def test_a_script_hands_its_own_arguments_on(to: str) -> None:
    """Behind all of its flags, but before torchtitan's subcommand."""
    text, _ = written(OF_A_FOLDER, to)
    last = text.replace("\\\n", " ").strip().splitlines()[-1].split()
    assert '"$@"' in last
    assert last.index('"$@"') > max(
        i for i, word in enumerate(last) if word.startswith("--")
    )


@pytest.mark.parametrize(
    "name, routed", [("deepseek-v3", True), ("llama3-8b", False)]
)
def test_a_file_says_that_its_router_is_the_authors(
    name: str, routed: bool
) -> None:
    """A model says how many experts there are, not how a router scores and balances them, and
    Megatron's own ways are another model's than DeepSeek's.
    """
    text = bridge.write(
        Job(name, "8xh100-sxm", 64, Layout(dp=8)), "megatron", PLACE
    )[0]
    assert ("(--moe-router-score-function" in text) is routed
