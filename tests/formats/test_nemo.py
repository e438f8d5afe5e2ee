"""NeMo 1: its words in Megatron's, and what is refused or said."""

from __future__ import annotations

from typing import Any

import pytest
from readings import demand_meaning

from meshwright.formats import bridge
from meshwright.formats.bridge.dumps import dump
from refusals import refusal

FILE = """
trainer: {devices: 8, num_nodes: 2, precision: bf16}
exp_manager: {name: megatron_gpt}
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  position_embedding_type: rope
  activation: fast-swiglu
  normalization: rmsnorm
  bias: false
  share_embeddings_and_output_weights: false
  transformer_engine: true
  megatron_amp_O2: true
  tokenizer: {library: megatron, type: GPT2BPETokenizer}
  optim: {name: distributed_fused_adam, lr: 1e-4}
  data: {data_prefix: [1.0, a]}
"""
EIGHT = "  fp8: true\n  fp8_hybrid: true\n"
READ: list[tuple[str, str, dict[str, Any]]] = [
    # apex's DistributedFusedAdam overlaps unless it is told not to, and gathers no parameters ahead
    (
        "",
        "",
        {
            "format": "nemo",
            "chips": 16,
            "gated": True,
            "bias": False,
            "norm": "rmsnorm",
            "tied_embeddings": False,
            "zero": 1,
            "dp_overlap": "gradients",
            "left": set(),
        },
    ),
    (
        "megatron_amp_O2: true",
        "megatron_amp_O2: false",
        {"left": {"megatron_amp_O2"}, "says": "32 bits"},
    ),
    ("  megatron_amp_O2: true\n", "", {"left": {"megatron_amp_O2"}}),
    ("  bias: false", "  bias: false\n  zz_nine: 3", {"left": {"zz_nine"}}),
    ("11008", "${multiply:4, ${.hidden_size}}", {"ffn": 16384}),
    # `fp8_params` of NVIDIA's H100 recipes is Megatron's fp8_param_gather
    (
        "  bias",
        EIGHT + "  bias",
        {"precision": {"name": "fp8", "gather_bytes": 2.0}},
    ),
    (
        "  bias",
        f"{EIGHT}  fp8_params: true\n  bias",
        {"precision": "fp8", "silent": "fp8_params"},
    ),
]
"""What stands in place of what, and what it means."""


@pytest.mark.parametrize(("old", "new", "fields"), READ)
def test_a_llama_of_nemo(old: str, new: str, fields: dict[str, Any]) -> None:
    demand_meaning(bridge.read_file("a.yaml", FILE.replace(old, new)), fields)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("fast-swiglu", "geglu", "geglu is not predicted: .* are"),
        ("rmsnorm", "low_precision", "low_precision is not predicted: .* are"),
        (
            "distributed_fused_adam",
            "adafactor",
            "adafactor is not predicted: .* are",
        ),
        ("precision: bf16", "precision: bf8", "bf8 is not predicted: .* are"),
        ("bias: false", "bias: maybe", "maybe is not predicted: .* are"),
        ("11008", "${other.width}", "ffn_hidden_size .*write its value"),
    ],
)
def test_a_word_that_is_not_predicted_is_refused(
    old: str, new: str, why: str
) -> None:
    with refusal(why):
        bridge.read_file("a.yaml", FILE.replace(old, new))


def test_its_log_begins_with_its_configuration() -> None:
    text = f"[NeMo I] \n\n************** Experiment configuration ***********\n{FILE}\n\n[NeMo I] start\n"
    found = dump(text)
    assert found and found.format == "nemo"
    assert found.said.keys["model.num_layers"] == 32
