"""Collectives inside a layer: what real sharded modules send under a fake process group against the
messages of `count`.

Compared are kind, full-vector bytes and number of every collective of one microbatch, forward and
backward. PyTorch's choice of keeping gathered inputs is `Counting.gathered_inputs = "kept"`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from layouts import cut
from meshwright import Layout, Model
from meshwright.count.work import Op

torch = pytest.importorskip("torch")
import architectures as known  # noqa: E402
from fake_cluster import Record, fake_cluster  # noqa: E402
from messages import flops, job_of, operations, sent  # noqa: E402
from sharded import (  # noqa: E402
    Stage,
    context_parallel,
    expert_parallel,
    step,
    tensor_parallel,
)  # noqa: E402
from torch_models import flash  # noqa: E402

pytestmark = pytest.mark.oracle


def whole(model: Model) -> Stage:
    return Stage(model, range(model.layers), flash)


def tokens(b: int, T: int) -> torch.Tensor:
    return torch.zeros(b, T, dtype=torch.long)


def run_tp(model: Model, tp: int, b: int, sequence: bool) -> Record:
    """One microbatch of b sequences on a tp group."""
    with fake_cluster(tp=tp) as (mesh, record):
        stage = whole(model)
        tensor_parallel(stage, model, mesh["tp"], sequence)
        step(stage, tokens(b, model.seq))
    return record


def agrees(record: Record, ops: list[Op], *axes: str) -> None:
    """Messages over these axes and FLOPs are as counted."""
    assert {axis: record.over(axis) for axis in axes} == {
        axis: sent(ops, axis) for axis in axes
    }
    assert record.flops == flops(ops)


DENSE = [known.GPT, known.LLAMA, known.FALCON, known.GEMMA, known.BLOOM]
LATENT = [
    replace(m, moe=None, mtp_layers=0)
    for m in (known.DEEPSEEK, known.DEEPSEEK_LITE)
]
NAME = {
    "ids": lambda m: m.name.split(":")[0] if isinstance(m, Model) else str(m)
}


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize(
    ("model", "tp", "b"),
    [(m, 2, 1) for m in [*DENSE, *LATENT]]
    + [(known.GPT, 2, 3), (LATENT[0], 4, 2)],
    **NAME,
)
def test_tensor_parallel(
    model: Model, tp: int, b: int, sequence: bool
) -> None:
    model = replace(model, kv_heads=max(model.K, tp))
    layout = Layout(tp=tp, dp=1, microbatch=b, sequence_parallel=sequence)
    record = run_tp(model, tp, b, sequence)
    agrees(record, operations(job_of(model, layout, b)), "tp")


@pytest.mark.parametrize("ep", [2, 4])
@pytest.mark.parametrize(
    "model", [known.MIXTRAL, known.QWEN, known.GPT_OSS], **NAME
)
def test_experts_over_data_parallel_ranks(model: Model, ep: int) -> None:
    layout = Layout(dp=ep, ep=ep, microbatch=2)
    with fake_cluster(dp=ep) as (mesh, record):
        stage = whole(model)
        expert_parallel(stage, model, mesh.get_group("dp"))
        step(stage, tokens(2, model.seq))
    agrees(record, operations(job_of(model, layout, 2 * ep)), "ep")


@pytest.mark.parametrize(
    "model", [known.DEEPSEEK, known.QWEN2_MOE, known.MIXTRAL], **NAME
)
def test_experts_over_tensor_parallel_ranks(model: Model) -> None:
    """Each tp rank sends the tokens of its own shard of the sequence; shared experts are cut like a
    dense feed-forward.
    """
    model = replace(model, mtp_layers=0)
    ops = operations(job_of(model, cut("tp2 ep2"), 1))
    with fake_cluster(tp=2) as (mesh, record):
        stage = whole(model)
        expert_parallel(stage, model, mesh.get_group("tp"))
        tensor_parallel(stage, model, mesh["tp"], True)
        step(stage, tokens(1, model.seq))
    # exchanges of rows count as ep's, on whatever ranks they run
    agrees(record, ops, "tp", "ep")


def test_experts_cut_in_two() -> None:
    """etp: the ranks of an expert gather each other's tokens and reduce-scatter the results."""
    model = known.MIXTRAL
    ops = operations(job_of(model, cut("dp4 ep2 etp2"), 4))
    with fake_cluster(ep=2, etp=2) as (mesh, record):
        stage = whole(model)
        expert_parallel(
            stage, model, mesh.get_group("ep"), mesh.get_group("etp")
        )
        step(stage, tokens(1, model.seq))
    agrees(record, ops, "ep", "etp")


@pytest.mark.parametrize("model", [known.GPT, known.LLAMA, LATENT[0]], **NAME)
def test_context_parallel(model: Model) -> None:
    """Each rank computes on T/cp tokens; keys and values travel, twice."""
    layout = cut("tp2 cp2")
    with fake_cluster(cp=2, tp=2) as (mesh, record):
        stage = whole(model)
        context_parallel(stage, mesh.get_group("cp"))
        tensor_parallel(stage, model, mesh["tp"], True)
        step(stage, tokens(1, model.seq // 2))
    ops = operations(job_of(model, layout, 1))
    assert record.over("cp") == sent(ops, "cp")
    assert record.over("tp") == sent(ops, "tp")
