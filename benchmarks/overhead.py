"""What the trainer costs beside a plain PyTorch loop with the same parallel calls, in CPU seconds
of a step summed over ranks.

    python benchmarks/overhead.py [LAYOUT ...] [--pairs N] [-o benchmarks/overhead.md]

Both loops run in the same processes, a step of one after a step of the other: what disturbs one
disturbs both, and CPU seconds do not count waiting. Ours is everything `meshwright train` does in a
step: data, pipeline, gradients, norm over all ranks, clipping, AdamW, recording, metrics. The plain
loop is written out below for each layout with PyTorch's own calls; only the decoder's modules are
shared. The figure is the median over steps of one over that of the other.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from meshwright.describe.layout import Layout
from meshwright.describe.training import Settings
from meshwright.formats.toml import load_job
from meshwright.prediction.prediction import predict
from meshwright.train import feed
from meshwright.train.attempt import RunPlan
from meshwright.train.initial import initialise
from meshwright.train.launch import fork_ranks
from meshwright.train.log import RunLog, Spans, Stop, Usage, of_all
from meshwright.train.loop import Trainer
from meshwright.train.model import Decoder
from meshwright.train.record import Recording

JOB = Path(__file__).parents[1] / "examples" / "quickstart.toml"
LAYOUTS = {
    "1 process": Layout(microbatch=4, dp=1),
    "dp2 zero1": Layout(dp=2, zero=1, microbatch=4),
    "tp2": Layout(tp=2, microbatch=4, dp=1),
    "pp2 1f1b": Layout(pp=2, microbatch=4, dp=1),
}
WARM_UP = 3
LIMIT = 1.03
"""Ours may take this much of the plain loop's CPU seconds."""
Step = Callable[[], Any]


def plain(name: str, job: Any, settings: Settings, data: np.ndarray) -> Step:
    """The same training in plain PyTorch: a function that does one step."""
    m, rank, world = job.model, dist.get_rank(), dist.get_world_size()
    microbatches = job.batch // int(job.layout.dp * job.layout.microbatch)
    layers = range(m.layers)
    if name == "pp2 1f1b":
        layers = range(rank * m.layers // 2, (rank + 1) * m.layers // 2)
    model = Decoder(m, layers, job.T)
    initialise(model, m, settings.seed)
    mesh = init_device_mesh("cpu", (world,))
    if name == "tp2":
        sharded(model, mesh)
    if name == "dp2 zero1":
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=False)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in parameters if p.ndim > 1],
            "weight_decay": settings.weight_decay,
        },
        {
            "params": [p for p in parameters if p.ndim == 1],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=settings.lr,
        betas=(0.9, 0.95),
        foreach=False if name == "tp2" else None,
    )

    def criterion(logits: Any, target: Any) -> Any:
        if name == "tp2":
            logits = DTensor.from_local(
                logits, mesh, [Shard(-1)], run_check=False
            )
        return nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten()
        )

    schedule = None
    if name == "pp2 1f1b":
        stage = PipelineStage(
            model, rank, 2, torch.device("cpu"), group=mesh.get_group()
        )
        schedule = Schedule1F1B(stage, microbatches, loss_fn=criterion)
    rows = job.batch // 2 if name == "dp2 zero1" else job.batch
    count, steps = (len(data) - 1) // job.T, iter(range(10**9))

    def step() -> float:
        number = next(steps)
        first = number * job.batch + (
            rank * rows if name == "dp2 zero1" else 0
        )
        picked = [(first + i) % count * job.T for i in range(rows)]
        both = torch.from_numpy(
            np.stack([data[at : at + job.T + 1] for at in picked]).astype(
                np.int64
            )
        )
        x, y = both[:, :-1], both[:, 1:]
        optimizer.zero_grad()
        losses: list[Any] = []
        with loss_parallel() if name == "tp2" else nullcontext():
            if schedule is not None:
                if rank == 0:
                    schedule.step(x, return_outputs=False)
                else:
                    schedule.step(
                        target=y, losses=losses, return_outputs=False
                    )
            else:
                for i, (a, b) in enumerate(
                    zip(
                        x.chunk(microbatches),
                        y.chunk(microbatches),
                        strict=True,
                    )
                ):
                    if name == "dp2 zero1":
                        model.set_requires_gradient_sync(i == microbatches - 1)  # type: ignore[operator]
                        model.set_reshard_after_backward(i == microbatches - 1)  # type: ignore[operator]
                    loss = criterion(model(a), b)
                    (loss / microbatches).backward()
                    losses.append(loss.detach())
        norm = global_norm(name, parameters, mesh)
        nn.utils.clip_grads_with_norm_(
            parameters,
            settings.clip,
            norm,
            foreach=False if name == "tp2" else None,
        )
        for group in optimizer.param_groups:
            group["lr"] = (
                settings.lr * 0.5 * (1 + math.cos(math.pi * number / 1e6))
            )
        optimizer.step()
        mean = (
            torch.zeros(1)
            if not losses
            else torch.stack(
                [
                    v.detach().full_tensor() if name == "tp2" else v.detach()
                    for v in losses
                ]
            ).mean()
        )
        dist.all_reduce(mean)
        return float(mean)

    return step


def global_norm(name: str, parameters: list[Any], mesh: Any) -> Any:
    """Norm of all gradients, as torchtitan has it."""
    norm: Any
    if name == "tp2":  # two kinds of DTensor do not mix in one call
        for p in parameters:
            if p.grad.placements != p.placements:
                p.grad = p.grad.redistribute(placements=p.placements)
        norm = torch.stack(
            [p.grad.norm().full_tensor() for p in parameters]
        ).norm()
    else:
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    if name == "pp2 1f1b":
        norm = norm**2
        dist.all_reduce(norm, group=mesh.get_group())
        norm = norm**0.5
    return norm


def sharded(model: Decoder, tp: Any) -> None:
    """Tensor and sequence parallel, as in PyTorch's tutorial."""
    parallelize_module(
        model,
        tp,
        {
            "embedding": RowwiseParallel(
                input_layouts=Replicate(), output_layouts=Shard(1)
            ),
            "norm": SequenceParallel(use_local_output=True),
            "head": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=Shard(-1)
            ),
        },
    )
    for block in model.blocks:
        parallelize_module(
            block,
            tp,
            {
                "attention_norm": SequenceParallel(use_local_output=True),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1), None),
                    desired_input_layouts=(Replicate(), None),
                ),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(use_local_output=True),
                "ffn": PrepareModuleInput(
                    input_layouts=(Shard(1),),
                    desired_input_layouts=(Replicate(),),
                ),
                "ffn.gate": ColwiseParallel(),
                "ffn.up": ColwiseParallel(),
                "ffn.down": RowwiseParallel(output_layouts=Shard(1)),
            },
        )


def ours(plan: RunPlan, trainer: Trainer) -> Step:
    """One step of `meshwright train`, with all that `session.work` does around it."""
    usage, log = Usage(Stop(), trainer.device), RunLog(plan, 0)
    trainer.extra = usage.numbers
    log.begin()
    recording = Recording(plan.folder, trainer, 0)
    spans = Spans()
    coming = feed.prefetched(feed.batches(plan, trainer, 0))
    numbers = count()

    def step() -> float:
        recording.flush()
        began = time.perf_counter()
        number = next(numbers)
        with spans.span("data_s"), recording.data(number):
            x, y, documents = next(coming)
        with recording.step(number), usage.step():
            trainer.pack(documents)
            result = trainer.step(number, x, y)
        said = {**vars(result)}
        spent = of_all(said.pop("extra"))
        seconds = time.perf_counter() - began
        log.write(number + 1, said, seconds, spent, spans.taken())
        return result.loss

    return step


def measure(name: str, pairs: int, folder: Path) -> dict[str, Any]:
    """Medians of both loops' CPU seconds of a step, all ranks together, and of the ratio of
    neighbours.
    """
    job = replace(load_job(JOB), layout=LAYOUTS[name])
    job = replace(
        job, cluster=replace(job.cluster, chips=int(job.layout.chips))
    )
    settings = Settings(
        **{
            **tomllib.loads(JOB.read_text("utf-8"))["train"],
            "steps": 10**6,
            "output": str(folder / name),
        }
    )
    plan = RunPlan(job, settings, predict(job), None)
    plan.folder.mkdir(parents=True, exist_ok=True)
    feed.source(job, settings)
    work = partial(alternate, name, plan, pairs, folder / f"{name}.npy")
    fork_ranks(work, int(job.layout.chips))
    found = np.load(folder / f"{name}.npy")  # [pairs, 2]
    return {
        "ours_s": median(found[:, 0]),
        "plain_s": median(found[:, 1]),
        "ratio": median(found[:, 0]) / median(found[:, 1]),
    }


def alternate(
    name: str, plan: RunPlan, pairs: int, to: Path, device: torch.device
) -> None:
    """What a rank does: a step of ours, a step of the plain loop, and again, in changing order."""
    trainer = Trainer(plan.job, plan.settings, device)
    data = np.memmap(plan.folder / "corpus.bin", "<u2", "r")
    loops = [ours(plan, trainer), plain(name, plan.job, plan.settings, data)]
    found = torch.zeros(pairs + WARM_UP, 2, dtype=torch.float64)
    for pair in range(pairs + WARM_UP):
        for which in (0, 1) if pair % 2 else (1, 0):
            dist.barrier()
            began = time.process_time()
            loops[which]()
            found[pair, which] = time.process_time() - began
    dist.all_reduce(found)
    if dist.get_rank() == 0:
        np.save(to, found[WARM_UP:].numpy())


def main() -> int:
    """Measure, print and write the table; 1 if a layout is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "layout", nargs="*", choices=[[], *LAYOUTS], help="all by default"
    )
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            name: measure(name, given.pairs, Path(folder))
            for name in given.layout or LAYOUTS
        }
    lines = [
        "| layout | ours, CPU s a step | plain PyTorch | ours / plain |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {r['ours_s']:.4f} | {r['plain_s']:.4f} | {r['ratio']:.3f} |"
        for name, r in rows.items()
    ]
    text = (
        "# Overhead of the trainer\n\nWritten by `benchmarks/overhead.py` (which says what is"
        f" compared): the model of `examples/quickstart.toml`, {given.pairs} pairs of steps, CPU"
        f" seconds summed over ranks.\nPyTorch {torch.__version__}, {platform.machine()}, one"
        " thread a rank.\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if given.output:
        given.output.write_text(text, "utf-8")
    return int(any(row["ratio"] > LIMIT for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
