"""The loss that a file means is that of its own program, whatever profile stands for its layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright import predict
from meshwright.formats import bridge, flags

AXOLOTL = """
base_model: Qwen/Qwen2.5-7B
datasets: [{path: a, type: completion}]
sequence_len: 16384
micro_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
flash_attention: true
optimizer: adamw_torch
fsdp_version: 2
fsdp_config: {reshard_after_forward: true, auto_wrap_policy: TRANSFORMER_BASED_WRAP}
"""
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
CUT = "cut_cross_entropy.CutCrossEntropy"
FUSED = "liger_fused_linear_cross_entropy: true\n"


def test_without_its_plugin_ligers_loss_is_said_to_be_off() -> None:
    file = bridge.read_file("a.yaml", AXOLOTL + FUSED)
    assert "without its plugin" in file.left[FUSED.partition(":")[0]]


ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
parallelism_config:
  parallelism_config_tp_size: 2
  parallelism_config_dp_shard_size: 4
"""
INDUCTOR = "dynamo_config: {dynamo_backend: INDUCTOR}\n"


TORCHTUNE = """
tokenizer: {{_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}}
model: {{_component_: torchtune.models.llama3_2.llama3_2_3b}}
dataset: {{packed: true}}
batch_size: 2
gradient_accumulation_steps: 1
optimizer: {{_component_: torch.optim.AdamW, lr: 2e-5}}
optimizer_in_bwd: false
loss: {{_component_: {}}}
compile: {}
enable_activation_checkpointing: {}
dtype: bf16
"""
OWN = "torchtune.modules.loss."


LOSSES: list[tuple[str, str | None]] = [
    *(
        (AXOLOTL + more, loss)
        for more, loss in (
            ("", None),  # FSDP's profile, which is eager
            ("context_parallel_size: 2\n", "eager"),
            ("tensor_parallel_size: 2\n", "eager"),
            ("context_parallel_size: 2\ntorch_compile: true\n", "compiled"),
            ("torch_compile: true\n", "compiled"),
            (LIGER + FUSED, "liger"),
            (LIGER + FUSED + "context_parallel_size: 2\n", "liger"),
            (LIGER + FUSED + "torch_compile: true\n", "liger"),
            (FUSED + "context_parallel_size: 2\n", "eager"),
            (
                LIGER.replace("liger.Liger", CUT)
                + "cut_cross_entropy: true\n",
                "cut",
            ),
            (LIGER + "liger_rms_norm: true\n", None),
        )
    ),
    (ACCELERATE, "eager"),
    (ACCELERATE + INDUCTOR, "compiled"),
    *(
        (TORCHTUNE.format(name, compiled, "true"), loss)
        for name, compiled, loss in (
            (OWN + "LinearCrossEntropyLoss", "false", "linear chunks"),
            (OWN + "CEWithChunkedOutputLoss", "false", "chunks"),
            (OWN + "LinearCrossEntropyLoss", "true", "compiled chunks"),
            (OWN + "CEWithChunkedOutputLoss", "true", "compiled chunks"),
            ("torch.nn.CrossEntropyLoss", "true", "compiled"),
            ("torch.nn.CrossEntropyLoss", "false", None),
        )
    ),
]
"""A file, and the loss that its job says; None: what its profile does by itself."""


@pytest.mark.parametrize(("text", "loss"), LOSSES)
def test_the_loss_that_a_file_means(text: str, loss: str | None) -> None:
    file = bridge.read_file("a.yaml", text)
    assert file.tables.get("software", {}).get("loss") == loss
    assert not [key for key in file.left if key.startswith("loss.")]


def test_torchtune_says_which_loss_it_does_not_count() -> None:
    other = TORCHTUNE.format("torchtune.rlhf.loss.DPOLoss", "true", "true")
    assert "loss._component_" in bridge.read_file("a.yaml", other).left
    chunked = TORCHTUNE.format(OWN + "LinearCrossEntropyLoss", "true", "true")
    of_4 = chunked.replace("Loss}", "Loss, num_output_chunks: 4}")
    assert "loss.num_output_chunks" in bridge.read_file("a.yaml", of_4).left
    cut = bridge.read_file("a.yaml", chunked + "tensor_parallel_dim: 2\n")
    assert "loss._component_" in cut.left


def test_torchtunes_table_with_compiled_chunks(tmp_path: Path) -> None:
    """Llama 3.2 3B on an A100 without recomputation: 42.9 GiB (pytorch/torchtune@bd2a0fc,
    README.md, Optimization flags). All gradients are counted beside all activations.
    """
    said = TORCHTUNE.format(OWN + "CEWithChunkedOutputLoss", "true", "false")
    (path := tmp_path / "a.yaml").write_text(said)
    job = flags.read_flags(str(path), {"on": "1xa100-80"})
    allocated = predict(job).memory_bytes["allocated"] / 2**30
    assert allocated == pytest.approx(42.9, rel=0.08)


def test_a_cut_layout_keeps_eager_logits(tmp_path: Path) -> None:
    """14 bytes of each of 8192 x 152064 logits of a rank; a compiled loss keeps 4."""

    def activations(more: str) -> float:
        path = tmp_path / "a.yaml"
        path.write_text(AXOLOTL + "context_parallel_size: 2\n" + more)
        job = flags.read_flags(str(path), {"on": "8xh100-sxm"})
        # what else is compiled is no matter here
        eager = replace(job.software, compiled=False, norm="torch")
        return predict(replace(job, software=eager)).memory_bytes[
            "activations"
        ]

    more = activations("") - activations("torch_compile: true\n")
    assert more == pytest.approx((14 - 4) * 8192 * 152064)
