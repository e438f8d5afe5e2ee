"""The engine run empty: CPU seconds of steps of a model so small that nothing but the engine takes
time.

For each feature (tp, cp, ZeRO, a schedule, ...) four such models, of few and of more layers and
microbatches, give what the feature costs a rank once a step, for each microbatch, for each layer,
and for each layer and microbatch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from ...describe.assumptions import PYTORCH
from ...describe.cluster import Cluster
from ...describe.job import ONE_DEVICE, PRECISIONS, Job
from ...describe.layout import Layout
from ...describe.model import Model
from ...layout.placement import placed
from ..loop import Trainer
from ..settings import Settings

LAYERS = (4, 8)
MICROBATCHES = (2, 6)
TINY = Model(
    "empty", layers=LAYERS[0], hidden=32, heads=4, ffn=64, vocab=64, seq=16
)
"""Its matrices are smaller than a microsecond's work."""
WARM = 2
"""Steps that are not counted: caches of shapes, first buffers."""


def layouts(ranks: int) -> dict[str, Layout]:
    """Feature -> a layout of so many ranks that has it and no other."""
    if ranks == 1:
        once = {
            f"recompute {how}": replace(ONE_DEVICE, recompute=how)
            for how in ("selective", "full")
        }
        return {"plain": ONE_DEVICE, **once}
    layouts = {"tp": Layout(tp=ranks, dp=1), "cp": Layout(cp=ranks, dp=1)}
    layouts |= {
        f"zero{stage}": Layout(dp=ranks, zero=stage) for stage in range(4)
    }
    if ranks == 2:
        chunks = {"1f1b": 1, "gpipe": 1, "interleaved": 2, "zbv": 1}
        layouts |= {
            name: Layout(pp=2, dp=1, schedule=name, interleave=v)
            for name, v in chunks.items()
        }
    return layouts


def job(
    machine: Cluster, layout: Layout, layers: int, microbatches: int
) -> Job:
    """The empty model under a layout."""
    where = replace(machine, chips=int(layout.chips))
    model = replace(TINY, layers=layers)
    full = placed(layout, where.sizes)
    return Job(
        model,
        where,
        microbatches * int(layout.dp),
        full,
        precision=PRECISIONS["fp32"],
        assumptions=PYTORCH,
    )


def cpu_seconds(
    wanted: Job, device: torch.device, least: int, least_s: float
) -> list[float]:
    """CPU seconds of each of several steps, summed over the ranks of the process group; the first
    ones do not count.
    """
    trainer = Trainer(wanted, Settings(clip=None), device)
    tokens = toy_batch(wanted, trainer)
    seconds: list[float] = []
    while len(seconds) < least + WARM or (
        sum(seconds) < least_s and len(seconds) < 60
    ):
        dist.barrier()
        start = time.process_time()
        trainer.step(0, *tokens)
        spent = torch.tensor(
            [time.process_time() - start], dtype=torch.float64
        )
        dist.all_reduce(spent)
        seconds.append(float(spent))
    return seconds[WARM:]


def toy_batch(wanted: Job, trainer: Trainer) -> tuple[Any, Any]:
    """This rank's (inputs, targets) of a batch of one sequence over and over: numbers do not matter
    here.
    """
    layout = trainer.layout
    length = wanted.T // int(trainer.layout.cp)
    whole = (
        torch.arange(wanted.batch // int(layout.dp) * length).reshape(
            -1, length
        )
        % wanted.model.padded_vocab
    )
    return whole, whole.clone()
