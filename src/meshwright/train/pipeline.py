"""The order of the microbatches of one step: PyTorch's pipeline schedules, or plain accumulation
where there is one stage.

An engine is called with this rank's tokens and targets, [m b, T] each; afterwards the gradients of
its stages are those of the mean loss over the replica's batch, averaged over replicas. It returns
the loss of each microbatch where the last stage is, else nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    get_schedule_class,
)

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import stage_count as stage_count
from ..layout.stages import stage_numbers as stage_numbers
from ..program.messages import reduced_at_once
from ..schedule import get as schedule_named
from .loss import Columns, loss
from .model import Decoder
from .parallel import RankMesh
from .record import Recorder
from .scaling import Criterion, Scaler
from .stage import LateBufferStage, Packed

Engine = Callable[[Tensor, Tensor], list[Tensor]]


def criterion(
    job: Job, layout: Layout, mesh: RankMesh, scaler: Scaler, z: float = 0.0
) -> Criterion:
    """The loss of one microbatch (times the scale of fp16), from logits whose vocabulary is cut
    over tp. z: as in `Columns`.
    """
    tp = int(layout.tp)
    m = job.model
    here = m.padded_vocab // tp
    first = mesh.index("tp") * here
    group = mesh.group("tp") if tp > 1 else None
    columns = Columns(first, min(max(m.vocab - first, 0), here), group, z)
    return scaler.scaled(lambda logits, target: loss(logits, target, columns))


def engine(
    of: Criterion,
    stages: dict[int, Decoder],
    layout: Layout,
    mesh: RankMesh,
    microbatches: int,
    device: torch.device,
    recorder: Recorder,
    documents: Packed,
) -> Engine:
    """What runs the microbatches of a step through this rank's stages. Losses and gradients are
    times the scale.
    """
    if layout.pp == 1:
        return accumulation(
            stages[0],
            layout=layout,
            of=of,
            microbatches=microbatches,
            recorder=recorder,
            documents=documents,
        )
    return pipeline(
        stages, layout, mesh, of, microbatches, device, recorder, documents
    )


def accumulation(
    stage: Decoder,
    layout: Layout,
    of: Criterion,
    microbatches: int,
    recorder: Recorder,
    documents: Packed,
) -> Engine:
    """Microbatches one after the other. Gradients are reduced after the last one, or (ZeRO 2 and 3)
    after each.
    """

    def run(tokens: Tensor, targets: Tensor) -> list[Tensor]:
        losses = []
        for i, (x, y) in enumerate(
            zip(
                tokens.chunk(microbatches),
                targets.chunk(microbatches),
                strict=True,
            )
        ):
            last = i == microbatches - 1
            if isinstance(stage, FSDPModule):
                stage.set_requires_gradient_sync(
                    last or reduced_at_once(layout)
                )
                stage.set_reshard_after_backward(last or layout.zero == 3)
            stage.documents = documents(i)
            with recorder.part("F", 0, i):
                value = of(stage(x), y)
            with recorder.part("B", 0, i):
                (value / microbatches).backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
        return losses

    return run


def ends(stage: Decoder, layout: Layout) -> tuple[Tensor, Tensor]:
    """(input, output) of a stage for one microbatch, without storage: so stages need not find out
    by a trial run.
    """
    b = int(layout.microbatch)
    T = stage.length
    tp = int(layout.tp)
    shard = T // (tp if layout.sequence_parallel else 1)
    tokens = torch.empty(b, T, dtype=torch.int64, device="meta")
    hidden = torch.empty(
        b,
        shard,
        stage.m.hidden,
        dtype=stage.dtype,
        device="meta",
        requires_grad=True,
    )
    logits = torch.empty(
        b,
        T,
        stage.m.padded_vocab // tp,
        dtype=stage.dtype,
        device="meta",
        requires_grad=True,
    )
    return (
        hidden if stage.embedding is None else tokens,
        hidden if stage.head is None else logits,
    )


def pipeline(
    stages: dict[int, Decoder],
    layout: Layout,
    mesh: RankMesh,
    of: Criterion,
    microbatches: int,
    device: torch.device,
    recorder: Recorder,
    documents: Packed,
) -> Engine:
    """The schedule of the layout, as PyTorch carries it out."""
    count = stage_count(layout)
    group = mesh.group("pp")
    wrapped = [
        LateBufferStage(
            stage, number, count, device, *ends(stage, layout), group=group
        )
        for number, stage in stages.items()
    ]
    for stage in wrapped:
        stage.documents = documents
        stage.sharded = reduced_at_once(layout)
        recorder.watch(stage)
    schedule_class: Any = get_schedule_class(
        str(schedule_named(layout.schedule).torch_name)
    )
    single = issubclass(schedule_class, PipelineScheduleSingle)
    whole = wrapped[0] if single else wrapped
    schedule = schedule_class(
        whole, microbatches, loss_fn=recorder.longer(of), scale_grads=True
    )
    first = 0 in stages
    last = count - 1 in stages

    def run(tokens: Tensor, targets: Tensor) -> list[Tensor]:
        losses: list[Tensor] = []
        inputs = (tokens,) if first else ()
        if last:
            schedule.step(
                *inputs, target=targets, losses=losses, return_outputs=False
            )
        else:
            schedule.step(*inputs, return_outputs=False)
        return [value.detach() for value in losses]

    return run
