"""What a layer costs the host under tensor parallelism: CPU seconds of its forward and backward
pass, tp 2 beside tp 1 in one run, operation by operation (eager) and under torch.compile.

    python benchmarks/layer_host.py [--rounds N] [-o benchmarks/layer_host.md]

One process is a rank of PyTorch's fake process group, where collectives return at once, and matrices
are so small (64 wide, 16 tokens) that next to nothing is computed: what is left is Python, autograd
and dispatch, which a GPU waits for. A layer's seconds are those of eight layers less those of two,
over six. Rounds of all kinds alternate; the figure is the median. Beside them stands the same layer
cut by PyTorch's own `parallelize_module`, whose weights and norms compute as DTensors.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from meshwright import Job, Layout, Model, cluster
from meshwright.describe.training import Settings
from meshwright.train import parallel
from meshwright.train.loop import Trainer
from meshwright.train.model import AttentionContext, rotation
from meshwright.train.oracle import fake_world

SMALL = Model("small", 2, 64, 4, 160, 256, 16, kv_heads=2, dropout=False)
FEW, MANY = 2, 8
"""Layers."""
WARM_UP = 5
LAYOUTS = {
    "tp 1": Layout(microbatch=1, dp=1),
    "tp 2, sequence parallel": Layout(tp=2, microbatch=1, dp=1),
    "tp 2": Layout(tp=2, microbatch=1, sequence_parallel=False, dp=1),
}
PYTORCHS = "PyTorch's "
"""What a row begins with whose layers PyTorch cuts."""
LAYOUTS |= {
    PYTORCHS + name: layout
    for name, layout in LAYOUTS.items()
    if layout.tp > 1
}
LIMITS = {"eager": 2.5, "compiled": 2.5}
"""A layer under our tp may take so many times that of tp 1."""
Kind = tuple[str, str]
"""Layout, eager or compiled."""


def passes(layout: Layout, way: str, layers: int) -> Callable[[], float]:
    """A function that runs the layers of a stage forward and backward; CPU seconds."""
    m = replace(SMALL, layers=layers)
    machine = cluster(f"{int(layout.chips)}xh100-sxm")
    job = Job(m, machine, 1, layout, precision="fp32")
    settings = Settings(compile=way == "compiled")
    trainer = Trainer(job, settings, torch.device("cpu"))
    (stage,) = trainer.stages.values()
    cut = int(layout.tp) if layout.tp > 1 and layout.sequence_parallel else 1
    by = rotation(m, stage.at, torch.device("cpu"), stage.dtype)
    seen = AttentionContext(by, stage.scores())
    x = torch.randn(1, m.seq // cut, m.hidden, requires_grad=True)

    def run() -> float:
        began = time.process_time()
        y = x
        for block in stage.blocks:
            y = block(y, seen)
        y.sum().backward()
        return time.process_time() - began

    return run


def by_pytorch(block: Any, tp: Any, sequence: bool) -> None:
    """A layer cut by PyTorch, in place of `tensor_parallel.layer`."""
    cut: Any = Shard(1) if sequence else Replicate()
    whole = Replicate()
    plan: dict[str, Any] = {
        "attention": PrepareModuleInput(
            input_layouts=(cut, None), desired_input_layouts=(whole, None)
        ),
        "ffn": PrepareModuleInput(
            input_layouts=(cut,), desired_input_layouts=(whole,)
        ),
    }
    for name in ("attention.wq", "attention.wk", "attention.wv"):
        plan[name] = ColwiseParallel()
    for name in ("ffn.up", "ffn.gate"):
        plan[name] = ColwiseParallel()
    for name in ("attention.wo", "ffn.down"):
        plan[name] = RowwiseParallel(output_layouts=cut)
    if sequence:
        for name in ("attention_norm", "ffn_norm"):
            plan[name] = SequenceParallel(use_local_output=True)
    parallelize_module(block, tp, plan)


def measure(rounds: int) -> dict[Kind, float]:
    """Seconds of a layer, by kind."""
    torch.set_num_threads(1)
    seconds: dict[Kind, list[float]] = {}
    with fake_world(0, 2):
        ours, runs = parallel.layer, {}
        for name, layout in LAYOUTS.items():
            parallel.layer = by_pytorch if name.startswith(PYTORCHS) else ours
            for way in LIMITS:
                both = [passes(layout, way, n) for n in (FEW, MANY)]
                runs[name, way] = both
        for number in range(rounds + WARM_UP):
            for kind, (few, many) in runs.items():
                each = (many() - few()) / (MANY - FEW)
                if number >= WARM_UP:
                    seconds.setdefault(kind, []).append(each)
    return {kind: median(each) for kind, each in seconds.items()}


def main() -> int:
    """Measure, print, write; 1 if a kind is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    seconds = measure(given.rounds)
    times = {
        (name, way): each / seconds["tp 1", way]
        for (name, way), each in seconds.items()
    }
    breaks = sum(counters["graph_break"].values())
    lines = [
        "| a layer, forward and backward | eager, CPU ms | times tp 1 | compiled, CPU ms | times tp"
        " 1 |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {name} | "
            + " | ".join(
                f"{1e3 * seconds[name, way]:.2f} | {times[name, way]:.2f}"
                for way in LIMITS
            )
            + " |"
            for name in LAYOUTS
        ),
        "",
        f"Graphs that were compiled: {counters['stats']['unique_graphs']} for the layers of"
        f" {2 * len(LAYOUTS)} stages; breaks of a graph: {breaks}.",
    ]
    text = (
        "# Host time of a layer under tensor parallelism\n\nWritten by `benchmarks/layer_host.py`"
        f" (which says what is measured); medians of {given.rounds} rounds, PyTorch"
        f" {torch.__version__}, {platform.machine()}.\n\n"
        + "\n".join(lines)
        + "\n"
    )
    print(text)
    if given.output:
        given.output.write_text(text, "utf-8")
    slow = any(
        of > LIMITS[way]
        for (name, way), of in times.items()
        if not name.startswith(PYTORCHS)
    )
    return int(slow or breaks > 0)


if __name__ == "__main__":
    raise SystemExit(main())
