"""GPT-3 175B on 1,024 ranks: what one rank of the real sharded program computes and sends, against
`count` and `step`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from meshwright import Layout, Model, catalog
from meshwright.count.microbatch import DeviceMicrobatch

torch = pytest.importorskip("torch")
from fake_cluster import Record, fake_cluster  # noqa: E402
from messages import ENDS, flops, job_of, operations, sent  # noqa: E402
from sharded import Stage, cross_entropy, step, tensor_parallel  # noqa: E402
from test_pipeline_torch import stage_of  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.pipelining.schedules import Schedule1F1B  # noqa: E402
from torch.distributed.tensor.parallel import loss_parallel  # noqa: E402
from torch_models import flash  # noqa: E402

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
GPT3 = replace(catalog.model("gpt3-175b"), vocab=51200, tied_embeddings=False)
"""The vocabulary padded as Megatron-LM pads it; embedding and head apart, as stages of a pipeline
hold them.
"""
TP = 8


def test_fully_sharded_over_128() -> None:
    """tp 8, dp 128 with ZeRO-3, one sequence a rank."""
    job = job_of(GPT3, Layout(tp=TP, dp=128, zero=3), 128)
    ops = operations(job)
    with fake_cluster(dp=128, tp=TP) as (mesh, record):
        stage = Stage(GPT3, range(96), flash)
        tensor_parallel(stage, GPT3, mesh["tp"], True)
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
        for part in (*stage.layers, stage):
            fully_shard(
                part,
                mesh=mesh["dp"],
                mp_policy=policy,
                reshard_after_forward=True,
            )
        step(stage, torch.zeros(1, GPT3.seq, dtype=torch.long))
    weights = sum(float(op.weights) for op in ops)
    assert record.flops == flops(ops) == pytest.approx(2.768063e14, rel=1e-6)
    # gradients of norm weights, whole on every tp rank: 9.5 MB, not counted
    norms = {("all_reduce", GPT3.hidden * 2): 2 * (2 * 96 + 1)}
    assert record.over("tp") == sent(ops, "tp") + Counter(norms)
    assert record.volume("dp")["all_gather"] == 2 * weights * 2
    assert record.volume("dp")["reduce_scatter"] == weights * 4


def run_stage(model: Model, rank: int, pp: int, m: int) -> Record:
    """A 1F1B step of one pipeline rank."""
    n = model.layers // pp
    with fake_cluster(rank * 16 * TP, pp=pp, dp=16, tp=TP) as (mesh, record):
        stage = stage_of(
            model, range(rank * n, (rank + 1) * n), mesh, True, rank, pp
        )
        tokens = torch.zeros(m, model.seq, dtype=torch.long)
        first, last = (
            (tokens,) if rank == 0 else (),
            {"target": tokens} if rank == pp - 1 else {},
        )
        with loss_parallel():
            Schedule1F1B(stage, m, loss_fn=cross_entropy).step(
                *first, **last, return_outputs=False
            )
    return record


@pytest.mark.parametrize(
    ("rank", "ends"), [(0, ENDS[:1]), (3, ()), (7, ENDS[1:])]
)
def test_pipeline_of_8(rank: int, ends: Any) -> None:
    """tp 8, pp 8, dp 16, 16 microbatches: the first, a middle and the last stage."""
    pp, m = 8, 16
    job = job_of(GPT3, Layout(tp=TP, pp=pp, dp=16), 16 * m)
    ops = operations(job, 96 // pp, ends)
    record = run_stage(GPT3, rank, pp, m)
    assert record.flops == m * flops(ops)
    assert record.over("tp") == {
        key: m * n for key, n in sent(ops, "tp").items()
    }
    neighbours = 1 if ends else 2
    assert record.over("pp") == {
        (
            "send",
            int(DeviceMicrobatch.from_layout(job, job.layout).stage_message),
        ): m * neighbours
    }
