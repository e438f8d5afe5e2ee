"""What crosses stage boundaries: PyTorch's pipeline runtime under a fake process group against
`step.stage_message` and the schedules.
"""

from __future__ import annotations

from typing import Any

import pytest

from meshwright import Layout, Model
from meshwright.count.microbatch import DeviceMicrobatch

torch = pytest.importorskip("torch")
import architectures as known  # noqa: E402
from fake_cluster import Record, fake_cluster  # noqa: E402
from messages import ENDS, job_of, operations, sent  # noqa: E402
from sharded import Stage, cross_entropy, tensor_parallel  # noqa: E402
from torch.distributed.pipelining import PipelineStage  # noqa: E402
from torch.distributed.pipelining.schedules import get_schedule_class  # noqa: E402
from torch.distributed.tensor.parallel import loss_parallel  # noqa: E402
from torch_models import flash  # noqa: E402

pytestmark = pytest.mark.oracle


def run(
    model: Model, name: str, rank: int, pp: int, m: int, v: int, sequence: bool
) -> Record:
    """One step of pipeline rank `rank` (tp = 2 inside a stage) under PyTorch's schedule `name`."""
    tp = 2
    with fake_cluster(rank * tp, pp=pp, tp=tp) as (mesh, record):
        n = model.layers // (pp * v)
        stages = [
            stage_of(
                model, range(i * n, (i + 1) * n), mesh, sequence, i, pp * v
            )
            for i in range(rank, pp * v, pp)
        ]
        schedule = get_schedule_class(name)(
            stages if v > 1 else stages[0], m, loss_fn=cross_entropy
        )
        tokens = torch.zeros(m, model.seq, dtype=torch.long)
        first, last = (
            (tokens,) if rank == 0 else (),
            {"target": tokens} if rank == pp - 1 else {},
        )
        with loss_parallel():
            schedule.step(*first, **last, return_outputs=False)
    return record


def stage_of(
    model: Model,
    layers: range,
    mesh: Any,
    sequence: bool,
    index: int,
    count: int,
) -> PipelineStage:
    stage = Stage(model, layers, flash)
    tensor_parallel(stage, model, mesh["tp"], sequence)
    hidden = torch.zeros(
        1,
        model.seq // (mesh["tp"].size() if sequence else 1),
        model.hidden,
        requires_grad=True,
    )
    tokens = torch.zeros(1, model.seq, dtype=torch.long)
    out = (
        hidden
        if layers.stop < model.layers
        else torch.zeros(1, model.seq, model.vocab)
    )
    inputs = (tokens,) if layers.start == 0 else (hidden,)
    return PipelineStage(
        stage,
        index,
        count,
        torch.device("cpu"),
        inputs,
        (out,),
        group=mesh.get_group("pp"),
    )


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize(
    ("name", "v"), [("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2)]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_boundaries(name: str, v: int, rank: int, sequence: bool) -> None:
    """Each microbatch crosses each boundary once forward and once backward; with sequence
    parallelism a rank sends 1/tp of it.
    """
    model, pp, m = known.LLAMA, 2, 4
    record = run(model, name, rank, pp, m, v, sequence)
    layout = Layout(
        tp=2, pp=pp, dp=1, interleave=v, sequence_parallel=sequence
    )
    job = job_of(model, layout, m)
    # of the 2 v stages' 2 v - 1 boundaries a rank sends forward over some, back over the others
    boundaries = 2 * v - 1
    assert record.over("pp") == {
        (
            "send",
            int(DeviceMicrobatch.from_layout(job, job.layout).stage_message),
        ): m * boundaries
    }
    ops = operations(job, model.layers // pp, [ENDS[rank]])
    assert record.over("tp") == {
        key: n * m for key, n in sent(ops, "tp").items()
    }
