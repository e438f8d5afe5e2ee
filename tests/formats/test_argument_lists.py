"""What is called harmless is a name that a tool has, and that somebody looked at.

argument_lists.json holds the names of all settings of each tool (benchmarks/argument_lists.py). A
pattern such as `*rank*` hid keys that change a step's time: moe_expert_rank_capacity_factor.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.formats import bridge
from meshwright.formats.bridge import table
from meshwright.formats.bridge.reading import FileKeys

LISTS = json.loads(
    Path(__file__).with_name("argument_lists.json").read_text("utf-8")
)
ARGUMENTS = {
    name.replace("-", "_")
    for name in json.loads(
        Path(__file__).with_name("megatron_arguments.json").read_text("utf-8")
    )
}
TOOLS = {
    "megatron": ("megatron",),
    "megatron-bridge": ("megatron-bridge", "megatron"),
    "torchtitan": ("torchtitan", "torchtitan-toml"),
    "deepspeed": ("deepspeed",),
    "accelerate": ("accelerate", "axolotl"),
    "axolotl": ("axolotl", "accelerate"),
    "maxtext": ("maxtext",),
    "nanotron": ("nanotron",),
    "gpt-neox": ("gpt-neox", "deepspeed"),
    "llama-factory": (
        *("llama-factory", "transformers", "transformers 4"),
        *("accelerate", "axolotl"),
    ),
    "transformers": (
        *("transformers", "transformers 4", "accelerate", "axolotl"),
    ),
}
"""Format -> lists in which its names stand: accelerate and axolotl share FSDP's."""
ELSEWHERE = {
    *(
        "activations_checkpoint_granularity",
        "data_path2",
        "patch_tokenizer_type",
    ),
    *("rotary_scale_factor", "tokenizer_hf_include_special_tokens"),
    *("data_mode", "experiment", "file", "rotary_base_local"),
    *("fp16_weights_on_model_save", "weight_decay", "model_type", "eta_min"),
    *("base_model_ignore_patterns", "fsdp_config.forward_prefetch"),
}
"""Names of programs around a tool, of older releases or of `transformers`: no list
holds them."""


@pytest.mark.parametrize("name", TOOLS)
def test_what_is_harmless_is_a_name_of_the_tool(name: str) -> None:
    """Or a whole section, such as `checkpoint.*`."""
    known = {n for tool in TOOLS[name] for n in LISTS[tool]["names"].split()}
    if "megatron" in name:
        known |= ARGUMENTS
    own = set(table.get(name).harmless)
    if name == "megatron-bridge":
        own -= set(table.get("megatron").harmless)
    for pattern in own:
        assert "*" not in pattern.removesuffix(".*"), pattern
    names = {n for n in own if not n.endswith(".*")}
    strange = {n for n in names if n.rpartition(".")[2] not in known}
    assert strange <= ELSEWHERE, sorted(strange - ELSEWHERE)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("megatron", "moe_expert_rank_capacity_factor"),
        ("megatron", "overlap_p2p_comm_warmup_flush"),
        ("megatron", "fsdp_double_buffer"),
        ("megatron", "activation_offload_fraction"),
        ("megatron", "use_checkpoint_args"),
        ("megatron", "deterministic_mode"),
        ("megatron", "a_rank_of_somebody_s_own"),
        ("torchtitan", "optimizer.implementation"),
        ("torchtitan", "debug.detect_anomaly"),
        ("deepspeed", "bf16.bf16_master_weights_and_grads"),
        ("deepspeed", "activation_checkpointing.cpu_checkpointing"),
        ("axolotl", "use_onebitllms"),
        ("axolotl", "cut_cross_entropy"),
        ("maxtext", "share_kv_projections"),
        ("maxtext", "logical_axis_rules"),
    ],
)
def test_a_key_that_a_star_hid_is_said(name: str, key: str) -> None:
    found = bridge.understood_as(name, FileKeys({key: "3"}))
    assert key in found.left and key not in found.harmless


@pytest.mark.parametrize(
    ("name", "key", "usual", "other"),
    [
        ("megatron-bridge", "model.bias_dropout_fusion", True, False),
        ("megatron", "gradient_accumulation_fusion", True, False),
        ("accelerate", "fsdp_config.fsdp_limit_all_gathers", True, False),
        (
            "axolotl",
            "fsdp_config.backward_prefetch",
            "BACKWARD_PRE",
            "NO_PREFETCH",
        ),
    ],
)
def test_a_key_is_said_with_the_values_that_are_not_predicted(
    name: str, key: str, usual: object, other: object
) -> None:
    assert key in bridge.understood_as(name, FileKeys({key: usual})).harmless
    assert key in bridge.understood_as(name, FileKeys({key: other})).left
