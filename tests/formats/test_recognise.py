"""A file is read as what it is, by most of its keys, or it is refused."""

from __future__ import annotations

import pytest

from meshwright.formats import bridge, flags
from meshwright.formats.bridge import table
from refusals import refusal

VERL = """
optim: {optimizer: adam, clip_grad: 1.0, lr_decay_style: constant, min_lr: 0.0}
megatron:
  {param_offload: false, grad_offload: false, tensor_model_parallel_size: 1,
  pipeline_model_parallel_size: 1, sequence_parallel: true, use_distributed_optimizer: true,
  use_mbridge: false, seed: 42}
"""
"""Keys of verl (trainer/config/actor), most of which Megatron has too."""


def test_a_format_that_is_not_read_is_named() -> None:
    with refusal("is a verl configuration"):
        bridge.read_file("train.yaml", VERL)


@pytest.mark.parametrize(
    "text",
    [
        "parallelism: {tp: 2}\nthis: 1\nthat: 2\n",
        "train_batch_size: 8\nlayers: 3\nwidth: 4\n",
        "recipe: soup\nwater: 2\nsalt: 1\ncarrots: 5\n",
    ],
)
def test_a_single_key_makes_no_format(text: str) -> None:
    with refusal("keys are not known"):
        bridge.read_file("train.yaml", text)


def test_the_user_may_say_what_a_file_is() -> None:
    text = "train_batch_size: 8\nlayers: 3\nwidth: 4\n"
    assert bridge.read_file("a.yaml", text, named="deepspeed").tables[
        "job"
    ] == {
        "batch": "8seq",
        "framework": "deepspeed",
    }
    with refusal("--as 'deepsped'"):
        bridge.read_file("a.yaml", text, named="deepsped")
    with refusal("--as is for files of other tools"):
        flags.read_flags("llama3-8b", {"as_": "megatron", "on": "8xh100"})


LORA = [name for name in table.get("axolotl").harmless if "." not in name][:30]


def test_two_formats_that_explain_a_file_are_both_named() -> None:
    """Every key is axolotl's, and two are keys that only verl has."""
    text = "base_model: NousResearch/Meta-Llama-3-8B\n" + "".join(
        f"{name}: 1\n" for name in LORA
    )
    bridge.read_file("a.yaml", text)
    both = text + "ppo: {ppo_mini_batch_size: 4}\nparam_offload: false\n"
    with refusal("axolotl or of verl.*--as axolotl"):
        bridge.read_file("a.yaml", both)


def test_a_file_of_no_tool_has_no_name() -> None:
    """A pipeline of GitLab has a table of variables, as LLM Foundry's files do."""
    text = "variables: {A: 1, B: 2, C: 3}\nstages: [build]\n"
    with refusal("is no file of"):
        bridge.read_file(".gitlab-ci.yml", text)
