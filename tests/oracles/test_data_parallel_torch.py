"""Weight and gradient collectives of a step: FSDP2 and replicate under a fake process group against
`step.sync.sync_wait`.

With nothing overlapped, and a network that takes a second a byte for one kind of collective and
none for the others, what shows are the bytes that kind moves in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from meshwright import Job, Layout, Model
from meshwright import step as ours
from meshwright.cost.load import Load
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import HidePass
from meshwright.step.sync import sync_wait

torch = pytest.importorskip("torch")
import architectures as known  # noqa: E402
from fake_cluster import Record, fake_cluster  # noqa: E402
from messages import job_of  # noqa: E402
from sharded import Stage, step  # noqa: E402
from torch.distributed._composable.replicate_with_fsdp import replicate  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch_models import flash  # noqa: E402

pytestmark = pytest.mark.oracle
MICROBATCHES = 3
KINDS = ("all_gather", "reduce_scatter", "all_reduce")


def predicted(job: Job, kind: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Bytes of the full vectors of one kind in a step."""
    monkeypatch.setattr(
        Fabric,
        "load",
        lambda self, k, V, *_: Load(V if k == kind else 0.0 * V),
    )
    at, layout = ours.clock_of(job), job.layout
    costs = ours.StepCosts(job, layout, ours.model_cost(job, layout, at), at)
    first = costs.microbatch.devices[0], costs.syncs[0]
    return float(
        sync_wait(*first, MICROBATCHES, layout.zero, at.overlap.dp).total
    )


def shard(stage: Stage, mesh: Any, zero: int) -> None:
    """Each block a unit of its own, the rest (embedding, final norm, head) another."""
    how = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        ),
    }
    wrap: Callable[..., Any] = replicate if zero == 0 else fully_shard
    if zero:
        how["reshard_after_forward"] = zero == 3
    for part in (*stage.layers, stage):
        wrap(part, **how)


def run(model: Model, dp: int, zero: int) -> Record:
    """A step of MICROBATCHES microbatches on one of dp ranks."""
    with fake_cluster(dp=dp) as (mesh, record):
        stage = Stage(model, range(model.layers), flash)
        if model.tied_embeddings:
            stage.head.logits.weight = stage.embedding.weight
        shard(stage, mesh["dp"], zero)
        stage.set_reshard_after_backward(zero == 3)
        for i in range(MICROBATCHES):
            if zero < 2:
                stage.set_requires_gradient_sync(i == MICROBATCHES - 1)
            step(stage, torch.zeros(1, model.seq, dtype=torch.long))
    return record


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "model",
    [known.GPT, known.LLAMA, known.GEMMA],
    ids=lambda m: m.name.split(":")[0],
)
def test_bytes_of_a_step(
    model: Model, zero: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run(model, 2, zero)
    job = job_of(model, Layout(dp=2, zero=zero), 2 * MICROBATCHES)
    silent = replace(
        job.assumptions,
        overlap=replace(job.assumptions.overlap, dp=HidePass()),
    )
    expected = {
        kind: predicted(replace(job, assumptions=silent), kind, monkeypatch)
        for kind in KINDS
    }
    assert {
        kind: record.volume("dp").get(kind, 0) for kind in KINDS
    } == expected
