"""The words of a row to the job they describe."""

from __future__ import annotations

from typing import Any

import pytest
from validate_rows import row

from meshwright.errors import BadInput
from meshwright.validate import words
from meshwright.validate.hardware import chip, network
from meshwright.validate.jobs import job


def test_a_row_becomes_its_job() -> None:
    j = job(row())
    l = j.layout
    assert (j.model.layers, j.model.K, j.T, j.batch) == (32, 8, 8192, 128)
    assert (l.tp, l.pp, l.interleave, l.dp, l.zero, l.schedule, l.recompute) == (4, 4, 2, 4, 1, "interleaved", "none")
    assert l.sequence_parallel
    assert j.cluster.chip.name == "h100-sxm"
    near, far = j.cluster.network.dims
    assert (near.size, near.bandwidth, far.bandwidth) == (8, 450e9, 50e9)
    assert (j.precision.compute, j.precision.gradient_bytes) == ("bf16", 4.0)


@pytest.mark.parametrize(
    ("far", "per_node", "gigabit"),
    [
        ("8x200Gb HDR InfiniBand per node", 8, 200),
        ("4x200Gb HDR (800 Gb/s) per node", 8, 100),
        ("4 x 100gb omni-path per node", 4, 100),
        ("1600 Gb/s per node RoCE", 8, 200),
        ("200Gb/s HDR InfiniBand (DGX A100)", 8, 200),
        ("400 Gb/s per GPU RDMA", 8, 400),
        ("per-GPU 800Gb (assumed)", 8, 800),
        ("NDR InfiniBand", 8, 400),
        ("RoCE RDMA", 8, 400),  # says nothing: the usual network of the chip
        ("single node", 8, 400),
    ],
)
def test_bandwidth_between_nodes(far: str, per_node: int, gigabit: float) -> None:
    assert network("H100-80GB-SXM", per_node, "nvlink4", far.lower()).dims[-1].bandwidth == gigabit * 1e9 / 8


@pytest.mark.parametrize(
    ("near", "bandwidth", "size"),
    [
        ("nvlink3 600gb/s", 300e9, 8),
        ("nvlink5 1.8tb/s, nvl72 domain", 900e9, 72),
        ("nvlink2", 150e9, 8),
        ("pcie gen4", 32e9, 8),
        ("nvlink", 450e9, 8),
    ],
)
def test_bandwidth_inside_a_node(near: str, bandwidth: float, size: int) -> None:
    dim = network("H100-80GB-SXM", 8, near, "").dims[0]
    assert (dim.bandwidth, dim.size) == (bandwidth, size)


def test_a_torus_is_cut_to_its_slice() -> None:
    dims = network("TPUv5p", 512, "ici 3d torus", "dcn between slices").dims
    assert [d.size for d in dims] == [8, 8, 8, None]


def test_the_name_of_a_chip_states_its_memory() -> None:
    assert chip("A100-80GB-SXM").name == "a100-80"
    assert chip("A100-40GB-SXM").name == "a100-40"
    assert chip("V100-16GB-SXM2").hbm_bytes == 16e9
    special = chip("H100-96GB (HBM2e 2.4TB/s, 500W)")
    assert (special.hbm_bytes, special.hbm_bandwidth, special.power_w) == (96e9, 2.4e12, 500)
    with pytest.raises(BadInput, match="not in the catalogue"):
        chip("Abacus 3000")


@pytest.mark.parametrize(
    ("text", "compute"),
    [
        ("bf16, fp32 grad accumulation", "bf16"),
        ("fp16 mixed", "fp16"),
        ("mxfp8", "fp8"),
        ("nvfp4", "fp4"),
        ("fp8 linear (torchao) + bf16", "fp8"),
        ("", "bf16"),
    ],
)
def test_precision(text: str, compute: str) -> None:
    assert words.precision(text, "", chip("B200-180GB")).compute == compute


def test_chips_without_bf16_train_in_fp16() -> None:
    assert words.precision("", "", chip("V100-32GB-SXM2")).compute == "fp16"


def test_sixteen_bit_gradients() -> None:
    a100 = chip("A100-80GB")
    assert words.precision("bf16 (FSDP PURE)".lower(), "", a100).gradient_bytes == 2
    assert words.precision("fp16", "megatron-deepspeed", a100).gradient_bytes == 2
    assert words.precision("bf16 with fp32 grad accumulation", "megatron-deepspeed", a100).gradient_bytes == 4


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", "none"),
        ("full (every layer)", "full"),
        ("selective (attention core)", "selective"),
        ("selective modules ['moe_act', 'layernorm']", "selective"),
        ("selective modules ['mla_up_proj', 'mlp']", "full"),
        ("full, first 5 layers per (virtual) stage [block]", "full"),
        ("full, first 2 layers per stage", "none"),
    ],
)
def test_recomputation(text: str, mode: str) -> None:
    assert words.recompute(text, 8.0) == mode


@pytest.mark.parametrize(
    ("text", "pp", "v", "expected"),
    [
        ("1f1b", 4, 1, ("1f1b", 1)),
        ("", 4, 2, ("interleaved", 2)),
        ("zb-2p", 8, 1, ("zb-h2", 1)),
        ("zb-1p", 8, 1, ("zb-h1", 1)),
        ("zb-v", 8, 1, ("zbv", 2)),
        ("dualpipev", 8, 1, ("dualpipev", 2)),
        ("gpipe", 4, 1, ("gpipe", 1)),
        ("interleaved", 1, 4, ("1f1b", 1)),
    ],
)
def test_schedules(text: str, pp: int, v: int, expected: tuple[str, int]) -> None:
    assert words.schedule(text, pp, v) == expected


@pytest.mark.parametrize(
    ("stage", "sharding", "fsdp", "zero"),
    [
        (1, "", "", 1),
        (None, "zero-3", "", 3),
        (None, "fsdp full_shard", "", 3),
        (None, "distributed optimizer", "", 1),
        (None, "", "megatron-fsdp", 3),
        (None, "none (replicated adam)", "", 0),
        (None, "fsdp shard_grad_op", "", 2),
    ],
)
def test_zero_stage(stage: int | None, sharding: str, fsdp: str, zero: int) -> None:
    assert words.zero(stage, sharding, fsdp) == zero


@pytest.mark.parametrize(
    ("named", "text", "year", "kernel"),
    [
        ("flash_attention2", "", 2021, "flash"),
        ("torch", "", 2024, "unfused"),
        ("", "x kernel=flash_attention2", 2021, "flash"),
        ("", "fused softmax, no flashattention", 2024, "unfused"),
        ("", "megatron-lm, flashattention unstated", 2024, "unfused"),
        ("", "megatron-lm (te 2.11)", 2024, "flash"),
        ("", "maxtext", 2024, "flash"),
        ("", "x", 2022, "unfused"),
        ("", "x", None, "flash"),
    ],
)
def test_attention_kernel(named: str, text: str, year: int | None, kernel: str) -> None:
    assert words.attention_kernel(named, text, year) == kernel


def test_latent_attention_and_experts() -> None:
    moe = {
        "arch": "moe-mla",
        "experts": 256,
        "top_k": 8,
        "expert_ffn": 2048,
        "shared_expert_ffn": 2048,
        "dense_layers": 3,
    }
    m = job(row(model={**moe, "mla": {"q_lora_rank": 1536, "kv_lora_rank": 512}, "kv_heads": 32})).model
    assert m.moe is not None and (m.moe.experts, m.moe.dense_layers) == (256, 3)
    assert m.mla is not None and (m.mla.q_lora_rank, m.mla.qk_nope_head_dim) == (1536, 128)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {"arch": "hybrid-mamba"}}, "state-space"),
        ({"model": {"layers": None}}, "layers is not given"),
        ({"model": {"layers": 10**9}}, "at most"),
        ({"model": {"heads": 7, "kv_heads": 7}}, "7 heads"),
        ({"hardware": {"gpu": "?"}}, "not in the catalogue"),
        ({"global_batch": 1.5}, "whole number"),
        ({"micro_batch": -1}, "at least 1"),
    ],
)
def test_what_cannot_be_described_is_refused_with_a_sentence(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        job(row(**changes))
