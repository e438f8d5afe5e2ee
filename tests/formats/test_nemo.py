"""NeMo 1: its words in Megatron's, and what is refused or said."""

from __future__ import annotations

from typing import Any

import pytest

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


def read(text: str = FILE) -> bridge.ForeignFile:
    return bridge.read_file("nemo.yaml", text)


def test_a_llama_of_nemo() -> None:
    file = read()
    model: Any = file.tables["model"]
    assert file.format.name == "nemo" and file.chips == 16
    assert model["gated"] and not model["bias"] and model["norm"] == "rmsnorm"
    assert not model["tied_embeddings"]
    assert file.tables["layout"]["zero"] == 1
    # apex's DistributedFusedAdam overlaps unless it is told not to, and gathers no parameters ahead
    assert file.tables["software"] == {"dp_overlap": "gradients"}
    assert not file.left


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fast-swiglu", "geglu"),
        ("rmsnorm", "low_precision"),
        ("distributed_fused_adam", "adafactor"),
        ("precision: bf16", "precision: bf8"),
        ("bias: false", "bias: maybe"),
    ],
)
def test_a_word_that_is_not_predicted_is_refused(old: str, new: str) -> None:
    word = new.rpartition(" ")[2]
    with refusal(f"{word} is not predicted: .* are"):
        read(FILE.replace(old, new))


def test_what_a_job_cannot_say_is_said() -> None:
    off = FILE.replace("megatron_amp_O2: true", "megatron_amp_O2: false")
    assert "32 bits" in read(off).left["megatron_amp_O2"]
    assert (
        "megatron_amp_O2"
        in read(FILE.replace("  megatron_amp_O2: true\n", "")).left
    )
    assert (
        "zz_nine" in read(FILE.replace("  bias: false", "  zz_nine: 3")).left
    )


def test_a_width_that_is_made_of_another() -> None:
    text = FILE.replace("11008", "${multiply:4, ${.hidden_size}}")
    assert read(text).tables["model"]["ffn"] == 16384
    text = FILE.replace("11008", "${other.width}")
    with refusal("ffn_hidden_size .*write its value"):
        read(text)


def test_its_log_begins_with_its_configuration() -> None:
    text = f"[NeMo I] \n\n************** Experiment configuration ***********\n{FILE}\n\n[NeMo I] start\n"
    found = dump(text)
    assert found and found.format == "nemo"
    assert found.said.keys["model.num_layers"] == 32


def test_weights_kept_in_8_bits_are_gathered_so() -> None:
    """`fp8_params` of NVIDIA's H100 recipes is Megatron's fp8_param_gather."""
    eight = "  fp8: true\n  fp8_hybrid: true\n"
    wide = read(FILE + eight)
    narrow = read(FILE + eight + "  fp8_params: true\n")
    assert wide.tables["job"]["precision"] == {
        "name": "fp8",
        "gather_bytes": 2.0,
    }
    assert narrow.tables["job"]["precision"] == "fp8"
    assert "fp8_params" not in str(narrow.left)
