"""Linear attention, state spaces, convolutions and sparse attention, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, catalog, predict
from meshwright.count.megatron import megatron_layer
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import operations, parameters
from meshwright.count.work import Op
from meshwright.describe.layers import Kind, kinds
from meshwright.describe.mixers import Convolution, Indexer, Linear, StateSpace
from meshwright.describe.model import MLA, Model
from meshwright.layout.placement import placed
from meshwright.layout.rules import demand_legal
from refusals import refusal

D, T = 64, 128
PLAIN = Model("m", 1, D, 4, 256, 0, T)
MODELS = {
    "delta": replace(
        PLAIN,
        pattern=("linear+none",),
        linear=Linear(8, 16, 32, key_heads=4, conv=4, vectors=16),
    ),
    "lightning": replace(
        PLAIN,
        pattern=("linear+none",),
        linear=Linear(
            4,
            16,
            16,
            "lightning",
            decay="fixed",
            write_gate=False,
            norm="whole",
        ),
    ),
    "mamba2": replace(
        PLAIN,
        pattern=("ssm+none",),
        ssm=StateSpace(128, 16, heads=8, groups=4, chunk=32),
    ),
    "mamba": replace(
        PLAIN,
        pattern=("ssm+none",),
        ssm=StateSpace(128, 16, "mamba", dt_rank=4),
    ),
    "conv": replace(PLAIN, pattern=("conv+none",), conv=Convolution(3)),
    "sparse": replace(
        PLAIN,
        pattern=("sparse+none",),
        mla=MLA(24, 16, 8, 16, q_lora_rank=40),
        sparse=Indexer(2, 8, 16),
    ),
}
NORM = D
WEIGHTS = {
    # q, k of 4 x 16, v and gate of 8 x 32, decay and strength a head; taps; norm; out
    "delta": D * (2 * 64 + 2 * 256 + 2 * 8)
    + 4 * (2 * 64 + 256)
    + 16
    + 32
    + 256 * D,
    "lightning": D * 4 * 64 + 64 + 64 * D,
    # x and its gate, B and C of 4 groups, a step a head; taps and bias; A, D, dt; norm; out
    "mamba2": D * (2 * 128 + 2 * 64 + 8)
    + 5 * (128 + 128)
    + 3 * 8
    + 128
    + 128 * D,
    "mamba": D * 256
    + 5 * 128
    + 128 * (4 + 32)
    + 4 * 128
    + 128
    + 128 * 17
    + 128 * D,
    "conv": D * 3 * D + 3 * D + D * D,
    "sparse": (D * 40 + 40 + 40 * 4 * 24)
    + (D * 32 + 24 + 24 * 4 * 32)
    + 4 * 16 * D
    + (40 * 16 + D * 8 + 16 + D * 2),
}
SCAN = {
    # chunks of 64 and 8 heads: 2 C^2 (2 k + v) + 6 C k v
    "delta": 2 * 8 * (2 * 64**2 * (2 * 16 + 32) + 6 * 64 * 16 * 32),
    "lightning": 2 * 4 * (2 * 64**2 * 32 + 4 * 64 * 16 * 16),
    # 4 chunks of 32: scores of 4 groups, 8 heads of 16 channels
    "mamba2": 4
    * (2 * 32**2 * 16 * 4 + 8 * (2 * 32**2 * 16 + 4 * 32 * 16 * 16)),
    "mamba": 0,
    "sparse": 2 * T * T * 2 * (8 + 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_by_hand(name: str) -> None:
    assert parameters(MODELS[name]) == WEIGHTS[name] + NORM


@pytest.mark.parametrize("name", SCAN)
def test_products_of_a_scan_by_hand(name: str) -> None:
    """They grow with T, but the indexer's scores with its square."""

    def scan(tokens: int) -> float:
        ops = operations(MODELS[name], tokens)
        return sum(op.forward.matrix for op, _ in ops if op.kind == "scan")

    assert scan(T) == SCAN[name]
    assert scan(2 * T) == SCAN[name] * (4 if name == "sparse" else 2)


def ops(name: str, **degrees: int) -> list[Op]:
    job = Job(MODELS[name], "8xh100-sxm", 8)
    layout = placed(Layout(**{"dp": 1, **degrees}), job.cluster.sizes)
    return megatron_layer(
        DeviceMicrobatch.from_layout(job, layout), kinds(job.model)[0]
    )


@pytest.mark.parametrize("name", ["delta", "mamba2"])
def test_tp_and_cp_share_the_work(name: str) -> None:
    """tp 2 x cp 2 does a quarter of every product and of the scan; cp hands over whole sequences of
    some heads, there and back.
    """
    whole, part = ops(name), ops(name, tp=2, cp=2, sequence_parallel=True)
    for a, b in zip(whole, part, strict=True):
        assert b.forward.matrix == pytest.approx(a.forward.matrix / 4), a.name
        assert b.backward.matrix == pytest.approx(a.backward.matrix / 4), (
            a.name
        )
    kinds_ = [m.kind for op in part for m in op.forward.comm if m.axis == "cp"]
    assert kinds_ == ["all_to_all", "all_to_all"]


def test_sparse_attention_reads_the_chosen_keys_only() -> None:
    """With fused kernels the core's work is that of a window of top_k keys."""
    model = replace(MODELS["sparse"], seq=1024)
    job = Job(model, "8xh100-sxm", 8)
    at = placed(Layout(dp=1), job.cluster.sizes)
    core = {
        op.name: op
        for op in megatron_layer(
            DeviceMicrobatch.from_layout(job, at),
            Kind(None, False, "sparse", False),
        )
    }
    near = {
        op.name: op
        for op in megatron_layer(
            DeviceMicrobatch.from_layout(job, at),
            Kind(16, False, "full", False),
        )
    }
    assert (
        core["attention/core"].forward.matrix
        == near["attention/core"].forward.matrix
    )


@pytest.mark.parametrize(
    ("name", "degrees", "reason"),
    [
        (
            "mamba",
            {"tp": 2},
            "no framework trains Mamba layers of the first kind with tp 2 or cp 1",
        ),
        (
            "conv",
            {"cp": 2},
            "no framework trains convolution layers with tp 1 or cp 2",
        ),
        ("lightning", {"tp": 2}, "no framework trains lightning attention"),
        (
            "delta",
            {"tp": 8},
            "linear.key_heads 4 cannot be split 8 ways: tp may be 1, 2, 4",
        ),
        ("delta", {"tp": 2, "cp": 4}, "tp x cp may be 1, 2, 4"),
    ],
)
def test_layouts_that_nothing_runs_are_refused_by_name(
    name: str, degrees: dict[str, int], reason: str
) -> None:
    job = Job(replace(MODELS[name], vocab=1000), "8xh100-sxm", 8)
    with refusal(reason):
        demand_legal(
            job, placed(Layout(**{"dp": 1, **degrees}), job.cluster.sizes)
        )


def test_a_hybrid_is_cheaper_on_long_sequences_than_full_attention() -> None:
    """Three of four of Qwen3-Next's layers are linear: a token takes no more than a quarter as much
    longer in sequences twice as long (less where gathers hide it) as with full attention in all.
    """
    model = catalog.model("qwen3-next-80b-a3b")
    full = replace(model, pattern=())
    layout = Layout(dp=64, zero=3, recompute="full")

    def seconds(m: Model, seq: int) -> float:
        return predict(Job(m, "64xh100-sxm", 64, seq=seq), layout).step_time_s

    def more(m: Model) -> float:
        return seconds(m, 65536) - 2 * seconds(m, 32768)

    assert seconds(model, 65536) < 0.6 * seconds(full, 65536)
    assert 0 < more(model) <= more(full) / 4
