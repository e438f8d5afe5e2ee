"""What ranks take beside their kernels: collectives, in seconds of the clock and of a rank's CPU;
and the engine run empty, in CPU seconds of steps of a model so small that nothing else takes time.

For each feature (tp, cp, ZeRO, a schedule, ...) four such models, of few and of more layers and
microbatches, give what the feature costs a rank once a step, for each microbatch, for each layer,
and for each layer and microbatch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..describe.assumptions import PYTORCH
from ..describe.cluster import Cluster
from ..describe.job import ONE_DEVICE, PRECISIONS, Job
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.training import Settings
from ..layout.placement import placed
from ..train.loop import Trainer
from . import low

LAYERS = (4, 8)
MICROBATCHES = (2, 6)
TINY = Model(
    "empty", layers=LAYERS[0], hidden=32, heads=4, ffn=64, vocab=64, seq=16
)
"""Its matrices are smaller than a microsecond's work."""
WARM = 2
"""Steps that are not counted: caches of shapes, first buffers."""


def engine_layouts(ranks: int) -> dict[str, Layout]:
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


Row = tuple[float, float]
"""(seconds of the clock, CPU seconds of a rank)."""
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
BYTES = (2**10, 2**14, 2**18, 2**21, 2**24)
QUICK_BYTES = (2**10, 2**16, 2**20)
FLOAT = 4


def operation(kind: str, size: int, device: torch.device) -> Callable[[], Any]:
    """The collective on a full vector of `size` bytes (send: a message of it goes to the other one
    of each pair of ranks).
    """
    n = dist.get_world_size()
    rank = dist.get_rank()
    full = torch.ones(max(size // FLOAT // n, 1) * n, device=device)
    part, other = full.chunk(n)[0].clone(), full.clone()
    if kind == "send":
        return lambda: _exchange(full, rank)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(full),
        "all_gather": lambda: dist.all_gather_into_tensor(full, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, full),
        "all_to_all": lambda: dist.all_to_all_single(full, other),
    }
    return calls[kind]


def _exchange(message: Tensor, rank: int) -> None:
    """The even ranks send, the odd ones receive; a rank without a partner does nothing."""
    other = rank ^ 1
    if other < dist.get_world_size():
        dist.recv(message, other) if rank % 2 else dist.send(message, other)


def timed(kind: str, size: int, device: torch.device, least_s: float) -> Row:
    """Lower quartile over blocks of calls, mean over ranks."""
    run = operation(kind, size, device)
    calls = 8
    for _ in range(3):
        run()
    walls, cpus = [], []
    until = time.monotonic() + 3 * least_s
    for block in range(30):
        synchronise(device)
        wall = time.perf_counter()
        cpu = time.process_time()
        for _ in range(calls):
            run()
        synchronise(device)
        spent = torch.tensor(
            [
                time.perf_counter() - wall,
                time.process_time() - cpu,
                time.monotonic(),
            ],
            dtype=torch.float64,
        )
        dist.all_reduce(spent)
        ranks = dist.get_world_size()
        walls.append(float(spent[0]) / ranks / calls)
        cpus.append(float(spent[1]) / ranks / calls)
        if block >= 4 and (
            sum(walls) * calls > least_s or float(spent[2]) / ranks > until
        ):
            break
    return low(walls), low(cpus)


def synchronise(device: torch.device) -> None:
    """Wait until all ranks can start together and the GPU has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
