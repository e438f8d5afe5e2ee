"""Predicted against measured CPU seconds of training steps on this machine, layout by layout.

    meshwright calibrate -o machine.toml
    python benchmarks/prediction.py machine.toml measured.json          runs what measured.json lacks, then writes benchmarks/prediction.md

The machine file knows kernels, collectives and steps of an empty model; nothing in it comes from
the models measured here. Each layout is trained as `meshwright train` trains it, for a few steps;
CPU seconds are those of all ranks in `metrics.jsonl`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from meshwright.describe.assumptions import PYTORCH
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.training import Settings
from meshwright.formats.machine import load_machine
from meshwright.measure import low
from meshwright.prediction.prediction import predict
from meshwright.program.cpu import cpu_seconds
from meshwright.train.run import metrics, train
from meshwright_studies.validate.stats import spearman

HERE = Path(__file__).parent
STEPS, WARM = 6, 2
CORES, QUIET = os.cpu_count() or 1, 1.1
NOTHING = {"contention": float("inf")}
LLAMA = Model("llama, 8 layers of 256", 8, 256, 8, 704, 512, 128, kv_heads=4)
GPT = Model(
    "gpt, 6 layers of 320",
    6,
    320,
    4,
    1280,
    1024,
    192,
    gated=False,
    norm="layernorm",
    positions="learned",
    qkv_bias=True,
    bias=True,
)
SETS: dict[str, tuple[Model, int, list[Layout]]] = {
    "used while developing": (
        LLAMA,
        16,
        [
            Layout(microbatch=4, dp=1),
            Layout(microbatch=1, dp=1),
            Layout(microbatch=4, recompute="full", dp=1),
            Layout(dp=2, microbatch=4),
            Layout(dp=2, microbatch=4, zero=1),
            Layout(dp=2, microbatch=2, zero=2),
            Layout(dp=2, microbatch=2, zero=3),
            Layout(dp=4, microbatch=4, zero=3),
            Layout(tp=2, microbatch=4, dp=1),
            Layout(tp=2, microbatch=8, sequence_parallel=False, dp=1),
            Layout(cp=2, microbatch=4, dp=1),
            Layout(pp=2, microbatch=4, dp=1),
            Layout(pp=4, microbatch=2, schedule="gpipe", dp=1),
            Layout(
                pp=2, microbatch=2, schedule="interleaved", interleave=2, dp=1
            ),
            Layout(pp=2, microbatch=2, schedule="zbv", dp=1),
            Layout(tp=2, pp=2, microbatch=4, dp=1),
            Layout(tp=2, dp=2, microbatch=4),
            Layout(pp=2, dp=2, microbatch=2, zero=1),
            Layout(tp=4, microbatch=8, dp=1),
        ],
    ),
    "held out": (
        GPT,
        16,
        [
            Layout(microbatch=2, dp=1),
            Layout(microbatch=8, dp=1),
            Layout(microbatch=2, recompute="full", dp=1),
            Layout(dp=2, microbatch=8),
            Layout(dp=2, microbatch=4, zero=2),
            Layout(dp=2, microbatch=8, zero=3),
            Layout(dp=4, microbatch=2),
            Layout(dp=4, microbatch=4, zero=1),
            Layout(tp=2, microbatch=8, dp=1),
            Layout(cp=2, microbatch=2, dp=1),
            Layout(pp=2, microbatch=2, dp=1),
            Layout(pp=2, microbatch=4, schedule="gpipe", dp=1),
            Layout(pp=3, microbatch=2, dp=1),
            Layout(tp=2, pp=2, microbatch=4, dp=1),
            Layout(pp=2, dp=2, microbatch=2),
            Layout(cp=2, dp=2, microbatch=4, zero=1),
        ],
    ),
}


def job(machine: Cluster, model: Model, batch: int, layout: Layout) -> Job:
    cluster = replace(machine, chips=int(layout.chips))
    return Job(
        model,
        cluster,
        batch,
        layout,
        precision=PRECISIONS["fp32"],
        assumptions=PYTORCH,
    )


def name(layout: Layout) -> str:
    """The fields that are not the default."""
    plain = Layout(dp=1)
    return (
        ", ".join(
            f"{k} {v}"
            for k, v in vars(layout).items()
            if v != getattr(plain, k)
        )
        or "one process"
    )


def probe() -> float:
    """Clock over CPU time of a fixed piece of work: 1 if nobody else wants the core."""
    x = torch.ones(512, 512)
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(40):
        x @ x
    return (time.perf_counter() - wall) / (time.thread_time() - cpu)


def measure(wanted: Job) -> dict[str, Any]:
    """CPU and clock seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        train(
            wanted,
            Settings(
                steps=STEPS,
                clip=None,
                data="synthetic",
                output=folder + "/run",
            ),
        )
        rows = metrics(Path(folder) / "run" / "metrics.jsonl")[WARM:]
    return {
        "cpu_s": low([row["cpu_s"] for row in rows]),
        "step_time_s": low([row["step_time_s"] for row in rows]),
    }


def probed(ranks: int) -> float:
    """The probe's contention where it is worst, in as many processes at once as ranks want cores:
    forked, as ranks are.
    """
    from meshwright.measure.run import on_ranks

    def worst(device: torch.device) -> float:
        mine = torch.tensor(probe())
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        return float(mine)

    found: float = on_ranks(worst, min(ranks, os.cpu_count() or 1), "cpu")
    return found


def on_the_clock(wanted: Job) -> float:
    """Predicted seconds of a step where every rank has a core: the step's, with the engine's CPU
    seconds of a rank, and the optimizer tensor by tensor as those count it."""
    found = predict(wanted)
    cpu = {
        cause: float(seconds)
        for cause, seconds in cpu_seconds(wanted, found.layout).items()
    }
    own = (cpu["engine"] + cpu["accumulate"] + cpu["optimizer"]) / float(
        found.layout.chips
    )
    return found.step_time_s - found.time_s["optimizer"] + own


def report(machine: Cluster, found: dict[str, Any]) -> str:
    lines = ["# Predicted and measured CPU seconds of a training step", ""]
    lines += [
        (
            f"Machine: {machine.chip.name}, PyTorch {torch.__version__};"
            f" {machine.chip.sources['*']['date']}. Written by benchmarks/prediction.py."
        ),
        "",
    ]
    lines += [
        (
            "CPU seconds are summed over ranks, lower quartile of 4 steps; nothing of the"
            " predictions was fitted to a step of these models. Contention:"
        ),
        (
            "clock over CPU time of a fixed piece of work before and after each run, on as many"
            " cores as ranks want (1 = quiet)."
        ),
        "",
    ]
    for title, (model, batch, layouts) in SETS.items():
        rows = []
        for layout in layouts:
            if key_of(model, layout) in found:
                terms = cpu_seconds(
                    j := job(machine, model, batch, layout), predict(j).layout
                )
                rows.append(
                    (
                        name(layout),
                        {k: float(v) for k, v in terms.items()},
                        found[key_of(model, layout)],
                    )
                )
        if not rows:
            continue
        pairs = [(sum(terms.values()), got["cpu_s"]) for _, terms, got in rows]
        errors = [p / m - 1 for p, m in pairs]
        lines += [f"## {model.name} ({title})", ""]
        lines += [
            (
                f"{len(rows)} layouts, batch of {batch} sequences of {model.seq} tokens: median"
                f" error {median(map(abs, errors)):.1%}, largest {max(map(abs, errors)):.1%}, bias"
                f" {median(errors):+.1%}, Spearman {spearman(*zip(*pairs, strict=True)):.3f}."
            ),
            "",
        ]
        causes = list(rows[0][1])
        lines += [
            "| layout | predicted s | measured s | error | contention | "
            + " | ".join(causes)
            + " |",
            "|---|" + "--:|" * (4 + len(causes)),
        ]
        for (label, terms, got), (p, m) in zip(rows, pairs, strict=True):
            parts = " | ".join(f"{x:.3f}" for x in terms.values())
            lines.append(
                f"| {label} | {p:.3f} | {m:.3f} | {p / m - 1:+.1%} | {got['contention']:.2f} |"
                f" {parts} |"
            )
        lines += ["", *clock(machine, model, batch, layouts, found)]
    return "\n".join(lines)


def clock(
    machine: Cluster,
    model: Model,
    batch: int,
    layouts: list[Layout],
    found: dict[str, Any],
) -> list[str]:
    """Seconds on the clock, of layouts that have a core for every rank and ran while the machine
    was quiet.
    """
    rows = [
        (
            name(layout),
            on_the_clock(job(machine, model, batch, layout)),
            got["step_time_s"],
            got["contention"],
        )
        for layout in layouts
        if layout.chips <= CORES
        and (got := found.get(key_of(model, layout), NOTHING))["contention"]
        <= QUIET
    ]
    if len(rows) < 3:
        return []
    errors = [p / m - 1 for _, p, m, _ in rows]
    ranks = spearman([p for _, p, _, _ in rows], [m for _, _, m, _ in rows])
    return [
        (
            f"On the clock, {len(rows)} of these layouts: at most {CORES} ranks, contention at most"
            f" {QUIET}: median error {median(map(abs, errors)):.1%}, largest"
            f" {max(map(abs, errors)):.1%}, bias {median(errors):+.1%}, Spearman {ranks:.3f}."
        ),
        "",
        "| layout | predicted s | measured s | error | contention |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {label} | {p:.3f} | {m:.3f} | {p / m - 1:+.1%} | {c:.2f} |"
            for label, p, m, c in rows
        ),
        "",
    ]


def key_of(model: Model, layout: Layout) -> str:
    return f"{model.name}: {name(layout)}"


def main() -> None:
    machine, path = load_machine(sys.argv[1]), Path(sys.argv[2])
    limit = time.monotonic() + float(
        sys.argv[3] if len(sys.argv) > 3 else 3600
    )
    found: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {}
    )
    for model, batch, layouts in SETS.values():
        for layout in layouts:
            if key_of(model, layout) not in found and time.monotonic() < limit:
                print(key_of(model, layout), file=sys.stderr)
                before = probed(int(layout.chips))
                row = measure(job(machine, model, batch, layout))
                found[key_of(model, layout)] = {
                    **row,
                    "contention": max(before, probed(int(layout.chips))),
                }
                path.write_text(json.dumps(found, indent=1))
    (HERE / "prediction.md").write_text(report(machine, found) + "\n")


if __name__ == "__main__":
    main()
