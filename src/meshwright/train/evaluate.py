"""The loss on text that is not trained on, under the layout of the run: forward passes only.

Microbatches go through the stages one after the other; where a rank has one stage, it takes the
next microbatch while the others work on this one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ..layout.stages import stage_numbers
from ..program.tiles import Documents
from . import heartbeat
from .loop import Trainer
from .model import Decoder
from .pipeline import criterion, ends
from .scaling import Scaler

Batch = tuple[Tensor, Tensor, tuple[Documents, ...]]
"""Inputs, targets, and where documents begin, of one rank."""


@torch.no_grad()
def evaluate(trainer: Trainer, batches: Iterable[Batch]) -> float:
    """Mean loss over batches of the job's size, of which each rank gives its part; the same on
    every rank.
    """
    layout = trainer.layout
    of = criterion(trainer.job, layout, trainer.mesh, Scaler(False))
    total = torch.zeros((), dtype=torch.float64, device=trainer.device)
    count = 0
    for tokens, targets, documents in batches:
        heartbeat.beat("evaluating")
        trainer.pack(documents)
        both = (
            torch.split(
                x.to(trainer.device, non_blocking=True),
                int(layout.microbatch),
            )
            for x in (tokens, targets)
        )
        for i, (x, y) in enumerate(zip(*both, strict=True)):
            for stage in trainer.stages.values():
                stage.documents = trainer.of_microbatch(i)
            logits = through(trainer, x)
            if logits is not None:
                total += of(logits, y).double()
            count += 1
    for stage in trainer.stages.values():
        let_go(stage)
    dist.all_reduce(total)
    return (
        float(total) / max(count, 1) / float(layout.tp * layout.cp * layout.dp)
    )


def through(trainer: Trainer, tokens: Tensor) -> Tensor | None:
    """One microbatch through the stages of this rank; the logits where the last one is."""
    group = trainer.mesh.group("pp")
    pp = int(trainer.layout.pp)
    owner = {
        n: rank
        for rank in range(pp)
        for n in stage_numbers(trainer.layout, rank)
    }
    x: Tensor | None = None
    sent = []
    for number in sorted(trainer.stages):
        stage = trainer.stages[number]
        if number == 0:
            x = tokens
        elif number - 1 not in trainer.stages:
            x = torch.empty_like(
                ends(stage, trainer.layout)[0], device=trainer.device
            )
            x.requires_grad_(False)
            dist.recv(x, group=group, group_src=owner[number - 1])
        x = stage(x)
        if stage.head is not None:
            return x
        if number + 1 not in trainer.stages:
            sent.append(
                dist.isend(x, group=group, group_dst=owner[number + 1])
            )
    for work in sent:
        if work is not None:
            work.wait()
    return None


def let_go(stage: Decoder) -> None:
    """Weights that were gathered are shards again, as between steps."""
    for module in stage.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
