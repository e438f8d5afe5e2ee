"""What can only be checked on a GPU: run `python3 run.py gpu-check --chip h200-sxm --docs` where
one is at hand.

1. Strict semantics: losses of 20 steps under every layout the GPUs allow, in fp32, within 1e-5 of
   one process on the CPU; half of the steps are done by trainers that go on from the others'
   checkpoint. Context parallelism on GPUs runs in bf16, for flash attention has no fp32: within
   2^-8 of one process in bf16.
2. MFU of 1B- to 8B-shaped layers, beside the same decoder in a plain PyTorch loop with
   torch.compile and fused AdamW.
3. The step time predicted after `meshwright calibrate`, for twelve shapes: within 5 % each.

Each stage prints and saves what it found in --folder, what one GPU can do first; a start after an
interruption goes on behind it. Also times attention by each of PyTorch's kernels, and what
`gpu_parts.py` says: products, experts, memory, checkpoint, collectives and overlap, which have no
bounds.

Prints a section in Markdown; --docs writes it to docs/accuracy.md. Exit code 1 if something is out
of its bounds. --device cpu runs every layout on gloo within the same bounds, and the times at toy sizes
without bounds: those show that the command works, and mean nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpu_parts import one_device, several_devices, sizes_of_groups, table
from torch.nn.attention import SDPBackend, sdpa_kernel

from meshwright import catalog
from meshwright.count.model import model_flops
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.describe.training import Settings
from meshwright.formats.toml import dump_job
from meshwright.train import checkpoint, feed
from meshwright.train.data import Synthetic
from meshwright.train.initial import initialise
from meshwright.train.launch import fork_ranks
from meshwright.train.loop import Trainer
from meshwright.train.loss import loss
from meshwright.train.model import Decoder

DOCS = Path(__file__).parents[1] / "docs" / "accuracy.md"
HEADING = "## On a GPU"
CLOSE = 0.05
BOUNDS = {"fp32": 1e-5, "bf16": 2.0**-8}
"""Precision -> how far a loss may be from that of one process.

bf16 rounds a logit of size one by 2^-8 at most. A loss is the mean of 512 tokens, whose logits
have a spread of 0.3 and are rounded either way: the layouts, each in bf16, are 2.5e-4 to 7.0e-4
from one process on a CPU. cp ranks that are given each other's tokens are 2.6e-2 from it.
"""
STEPS, WARM_UP = 20, 4
TOY_RANKS = 8
"""On a CPU, ranks are processes: every layout runs."""


class Shape(NamedTuple):
    """Some layers of a model, as many as fit one GPU with their AdamW states in fp32."""

    like: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    seq: int
    microbatch: int
    microbatches: int = 1


SHAPES = [
    Shape("llama3.2-1b", 16, 2048, 32, 8, 8192, 2048, 4),
    Shape("llama3.2-1b", 16, 2048, 32, 8, 8192, 4096, 2),
    Shape("llama3.2-1b", 16, 2048, 32, 8, 8192, 8192, 1),
    Shape("llama3.2-1b", 16, 2048, 32, 8, 8192, 2048, 1, 4),
    Shape("llama3.2-3b", 14, 3072, 24, 8, 8192, 2048, 4),
    Shape("llama3.2-3b", 14, 3072, 24, 8, 8192, 4096, 2),
    Shape("llama3.2-3b", 14, 3072, 24, 8, 8192, 8192, 1),
    Shape("gpt3-2.7b", 16, 2560, 32, 32, 6912, 2048, 4),
    Shape("llama3-8b", 10, 4096, 32, 8, 14336, 2048, 4),
    Shape("llama3-8b", 10, 4096, 32, 8, 14336, 4096, 2),
    Shape("llama3-8b", 10, 4096, 32, 8, 14336, 8192, 1),
    Shape("llama2-7b", 12, 4096, 32, 32, 11008, 4096, 2),
]
COMPARED = (1, 5, 9)
"""The shapes that are also run in plain PyTorch."""
LAYOUTS = {
    "1": Layout(dp=1, microbatch=4),
    "dp2 zero1": Layout(dp=2, zero=1, microbatch=4),
    "dp2 zero3": Layout(dp=2, zero=3, microbatch=4),
    "tp2": Layout(tp=2, dp=1, microbatch=4),
    "cp2": Layout(cp=2, dp=1, microbatch=4),
    "pp2": Layout(pp=2, dp=1, microbatch=2),
    "tp2 pp2": Layout(tp=2, pp=2, dp=1, microbatch=2),
    "tp2 pp2 dp2": Layout(tp=2, pp=2, dp=2, zero=1, microbatch=2),
}
STRICT = Model("strict", 4, 128, 4, 352, 256, 64, kv_heads=2)


def job(s: Shape, chip: Chip, toy: bool) -> Job:
    """A job on one chip."""
    vocab, scale = (256, 32) if toy else (32768, 1)
    width = s.hidden // scale
    model = Model(
        s.like,
        min(s.layers, 2) if toy else s.layers,
        width,
        s.heads // (16 if toy else 1),
        s.ffn // scale,
        vocab,
        s.seq // scale,
        kv_heads=max(1, s.kv_heads // (16 if toy else 1)),
    )
    cluster = Cluster(chip, Network("one", (Dim("one", 1e11, 1e-5),)), 1)
    precision = PRECISIONS["fp32" if toy else "bf16"]
    return Job(
        model,
        cluster,
        s.microbatch * s.microbatches,
        Layout(dp=1, microbatch=s.microbatch),
        precision=precision,
    )


def batch(j: Job, step: int, device: torch.device) -> tuple[Any, Any]:
    """Inputs and targets of a step."""
    whole = torch.from_numpy(
        Synthetic(j.model.vocab, j.T, 1).samples(step * j.batch, j.batch)
    ).to(device)
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()


def timed(steps: Iterator[Any], device: torch.device) -> float:
    """Median seconds of a step."""
    found = []
    for _ in range(WARM_UP + 10):
        began = time.perf_counter()
        next(steps)
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return median(found[WARM_UP:])


def ours(j: Job, device: torch.device, compiled: bool) -> Iterator[Any]:
    """Steps of the trainer."""
    trainer = Trainer(j, Settings(compile=compiled), device)
    for step in range(10**6):
        yield trainer.step(step, *batch(j, step, device))


def plain(j: Job, device: torch.device, compiled: bool) -> Iterator[Any]:
    """The same in plain PyTorch: autocast, torch.compile, fused AdamW."""
    decoder = Decoder(j.model, range(j.model.layers), j.T).to(device)
    initialise(decoder, j.model, 1)
    run = torch.compile(decoder) if compiled else decoder
    optimizer = torch.optim.AdamW(
        decoder.parameters(),
        lr=3e-4,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )
    m = j.batch // int(j.layout.microbatch)
    for step in range(10**6):
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for x, y in zip(
            *(part.chunk(m) for part in batch(j, step, device)), strict=True
        ):
            with torch.autocast(
                device.type,
                torch.bfloat16,
                enabled=j.precision.compute == "bf16",
            ):
                value = loss(run(x), y)
            (value / m).backward()
            total += value.detach() / m
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        yield float(total)


def measured(j: Job, which: Any, device: str) -> float:
    """Seconds of a step, in a process of its own: its memory is free again afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "seconds.json"

        def work(place: torch.device) -> None:
            to.write_text(
                json.dumps(timed(which(j, place, device == "cuda"), place))
            )

        fork_ranks(work, 1, device)
        return float(json.loads(to.read_text()))


class Stages:
    """What the stages of a check found, a file each: a start after an interruption goes on behind
    them.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        """about: of the machine and what is asked; a folder holds one check."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, head = folder, folder / "about.json"
        text = json.dumps(about)
        if head.is_file() and head.read_text("utf-8") != text:
            raise SystemExit(
                f"{folder} holds a check of another machine, or that was asked"
                " for something else: take another with --folder"
            )
        head.write_text(text, "utf-8")

    def once(self, name: str, stage: Callable[[], Any]) -> Any:
        """The result of a stage, which is printed and saved, or that of an earlier start."""
        path = self.folder / f"{name.replace(' ', '-')}.json"
        if path.is_file():
            return json.loads(path.read_text("utf-8"))
        value = stage()
        if value is None:  # it could not be found, and may be another time
            return None
        part = path.with_suffix(".part")
        part.write_text(json.dumps(value), "utf-8")
        part.replace(path)
        print(f"{name}: {value}", file=sys.stderr, flush=True)
        return value


def attention_kernels(device: str) -> dict[str, float]:
    """Seconds of causal attention, forward and backward, by each kernel of PyTorch that takes it:
    4,096 tokens of 32 heads of 128 in bf16 on a GPU, 128 of 2 in fp32 on a CPU.
    """
    toy = device == "cpu"
    shape = (1, 2, 128, 64) if toy else (1, 32, 4096, 128)
    dtype = torch.float32 if toy else torch.bfloat16

    def steps(place: torch.device) -> Iterator[Any]:
        x = torch.randn(shape, dtype=dtype, device=place, requires_grad=True)
        while True:
            out = F.scaled_dot_product_attention(x, x, x, is_causal=True)
            yield out.sum().backward()

    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "seconds.json"

        def work(place: torch.device) -> None:
            seconds = {}
            for name, kernel in SDPBackend.__members__.items():
                with sdpa_kernel(kernel), suppress(RuntimeError):
                    seconds[name] = timed(steps(place), place)
            to.write_text(json.dumps(seconds))

        fork_ranks(work, 1, device)
        return dict(json.loads(to.read_text()))


class Sameness(NamedTuple):
    """The losses of a layout beside those of one process on the CPU in the same precision."""

    layout: str
    precision: str
    difference: float
    """The largest."""

    @property
    def fine(self) -> bool:
        """It is within its bound."""
        return self.difference <= BOUNDS[self.precision]


def now(name: str, stage: Callable[[], Any]) -> Any:
    """The result of a stage that is not saved."""
    return stage()


def strict(
    device: str,
    devices: int,
    steps: int = STEPS,
    once: Callable[[str, Callable[[], Any]], Any] = now,
) -> Iterator[Sameness]:
    """Of every layout that so many devices can run; once: of `Stages`."""
    alone: dict[str, list[float]] = {}
    for name, layout in LAYOUTS.items():
        if int(layout.chips) > devices:
            continue
        precision = precision_of(layout, device)
        if precision not in alone:
            alone[precision] = once(
                f"one process {precision}",
                partial(losses, LAYOUTS["1"], "cpu", precision, steps),
            )
        got = once(
            f"layout {name}",
            partial(losses, layout, device, precision, steps),
        )
        yield Sameness(
            name,
            precision,
            max(
                abs(a - b) for a, b in zip(alone[precision], got, strict=True)
            ),
        )


def precision_of(layout: Layout, device: str) -> str:
    """fp32, but where the trainer needs half precision (`train.attention.demand_half`)."""
    return "bf16" if device == "cuda" and layout.cp > 1 else "fp32"


def strict_job(layout: Layout, precision: str) -> Job:
    """What every layout trains: 8 sequences of 64 tokens a step."""
    chip = Chip("any", {"fp32": 1e11, "bf16": 1e11}, 1e10, 1e10, 1e10)
    cluster = Cluster(
        chip, Network("one", (Dim("one", 1e9, 1e-4),)), int(layout.chips)
    )
    return Job(STRICT, cluster, 8, layout, precision=PRECISIONS[precision])


def losses(
    layout: Layout, device: str, precision: str = "fp32", steps: int = STEPS
) -> list[float]:
    """Of so many steps."""
    j = strict_job(layout, precision)
    samples = Synthetic(j.model.vocab, j.T, 1)
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "losses.json"

        def work(place: torch.device) -> None:
            settings = Settings(steps=steps, lr=1e-3, warmup=3)
            trainer, found = Trainer(j, settings, place), []
            for step in range(steps):
                # as a run that was killed here: save, resume, step
                if step == steps // 2:
                    saved = checkpoint.save(
                        trainer, Path(folder), step, keep=1
                    )
                    trainer = Trainer(j, settings, place)
                    assert checkpoint.load(trainer, saved) == step
                x, y, _ = feed.batch(
                    trainer, samples, step * j.batch, j.batch, ends=None
                )
                found.append(trainer.step(step, x, y).loss)
            if dist.get_rank() == 0:
                to.write_text(json.dumps(found))

        fork_ranks(work, int(layout.chips), device)
        return list(json.loads(to.read_text()))


def predictions(
    jobs: list[Job], device: str, folder: Path
) -> list[float] | None:
    """Step times after `meshwright calibrate` of this machine; None where that verb is not
    there.
    """
    meshwright = [sys.executable, "-m", "meshwright"]
    precision = jobs[0].precision.compute
    made = subprocess.run(
        [
            *meshwright,
            "calibrate",
            "--device",
            device,
            "--precision",
            precision,
            "--ranks",
            "1",
            *(["--quick"] if device == "cpu" else []),
            "-o",
            "machine.toml",
        ],
        cwd=folder,
        check=False,
    )
    if made.returncode:
        return None
    found = []
    for j in jobs:
        (folder / "job.toml").write_text(dump_job(j), "utf-8")
        # exit code 1: it does not fit by the prediction, which is there all the same
        words = [
            "predict",
            "job.toml",
            "--on",
            "1x./machine.toml",
            "--assumptions",
            "pytorch",
            "--json",
        ]
        told = subprocess.run(
            [*meshwright, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        found.append(float(json.loads(told.stdout)["step_time_s"]))
    return found


def main() -> int:
    """Run all three checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--chip", default="h100-sxm", help="catalogue name, for MFU"
    )
    parser.add_argument(
        "--shapes",
        type=int,
        default=len(SHAPES),
        help="only the first of them",
    )
    parser.add_argument("--no-calibrate", action="store_true")
    parser.add_argument(
        "--folder",
        default="gpu-check",
        help="what each stage found; a start goes on behind it",
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="write the section of docs/accuracy.md",
    )
    given = parser.parse_args()
    toy = given.device == "cpu"
    if not toy and not nvidia_count():
        parser.error(
            "there is no GPU here; --device cpu shows that the command works"
        )
    if toy and given.docs:
        parser.error(
            "--docs needs a GPU: figures of toy sizes are not written down"
        )
    devices, title = (
        (TOY_RANKS, "a CPU, toy sizes: its times mean nothing")
        if toy
        else (nvidia_count(), nvidia_name())
    )
    chip = (
        Chip("toy", {"fp32": 1e11}, 1e10, 1e10, 1e10)
        if toy
        else catalog.chip(given.chip)
    )
    shapes = SHAPES[: given.shapes]
    jobs = [job(s, chip, toy) for s in shapes]
    about = {
        "device": title,
        "torch": torch.__version__,
        "asked": [given.chip, given.shapes],
    }
    folder = Path(given.folder)
    once = Stages(folder, about).once
    kernels = once("attention", partial(attention_kernels, given.device))
    seconds = [
        once(f"step {i}", partial(measured, j, ours, given.device))
        for i, j in enumerate(jobs)
    ]
    beside = {
        i: once(f"plain {i}", partial(measured, jobs[i], plain, given.device))
        for i in COMPARED
        if i < len(jobs)
    }
    # an 8B-shaped layer, where there is one among the shapes
    largest = max(jobs, key=lambda j: j.model.hidden, default=None)
    parts = [*one_device(largest, given.device, once)] if largest else []
    predicted = None
    if not given.no_calibrate:
        with tempfile.TemporaryDirectory() as place:
            predicted = once(
                "predictions",
                partial(predictions, jobs, given.device, Path(place)),
            )
    groups = sizes_of_groups(devices) if largest else []
    if groups:
        network = network_of(given.chip, groups[-1], toy)
        parts += several_devices(network, given.device, groups, folder, once)
    same = list(strict(given.device, devices, STEPS, once))
    text = (
        f"{HEADING}\n\nWritten by `benchmarks/gpu.py` on {title}, PyTorch {torch.__version__},"
        f" {time.strftime('%Y-%m')}.\n\n"
    )
    text += table(
        "layout (saved and resumed after 10 steps), precision, largest difference of a loss from"
        " one process on the CPU, bound",
        [
            (
                s.layout,
                s.precision,
                f"{s.difference:.1e}",
                f"{BOUNDS[s.precision]:.1e}",
            )
            for s in same
        ],
    )
    text += "\n" + table(
        "attention, ms forward and backward",
        [(name, f"{took * 1e3:.2f}") for name, took in kernels.items()],
    )
    text += "".join("\n" + part for part in parts)
    rows, fine = [], all(s.fine for s in same)
    for i, (s, j, took) in enumerate(zip(shapes, jobs, seconds, strict=True)):
        mfu = (
            model_flops(j.model, j.T)
            * j.batch_tokens
            / took
            / chip.peak(j.precision.compute)
        )
        error = predicted[i] / took - 1 if predicted else None
        fine &= toy or (error is not None and abs(error) <= CLOSE)
        rows.append(
            (
                f"{s.like}, {j.model.layers} layers",
                j.T,
                f"{s.microbatch} x {s.microbatches}",
                f"{took * 1e3:.1f}",
                f"{mfu:.1%}",
                f"{beside[i] / took:.3f}" if i in beside else "",
                f"{error:+.1%}" if error is not None else "not predicted",
            )
        )
    text += "\n" + table(
        "shape, tokens, batch, ms a step, MFU, plain PyTorch / ours, predicted / measured - 1",
        rows,
    )
    text += "\n" + table(
        "bf16 runs that torchtitan published of llama3-8b on 8 GPUs, layout, compiled, tokens/s a"
        " GPU, MFU",
        published(),
    )
    print(text)
    if given.docs:
        before = re.split(
            rf"^{HEADING}$", DOCS.read_text("utf-8"), flags=re.M
        )[0].rstrip()
        DOCS.write_text(f"{before}\n\n{text}", "utf-8")
    return 0 if fine else 1


PUBLISHED = (
    Path(__file__).parents[1]
    / "studies/src/meshwright_studies/data/runs/published.json"
)
PUBLISHER = "torchtitan", "llama3-8b", "h100-96-hbm2e", 8
"""Software, model, chip (torchtitan's: 96 GB of HBM2e, 500 W) and how many of them."""


def published() -> list[tuple[str, ...]]:
    """What stands beside the MFU of an 8B slice: whole runs of another trainer, by their source."""
    software, name, gpu, count = PUBLISHER
    chip, m = catalog.chip(gpu), catalog.model(name)
    rows = []
    for row in json.loads(PUBLISHED.read_text("utf-8"))["rows"]:
        kind = row["hardware"].get("gpu", "")
        if (
            (row["source"], row["model"].get("name")) != (software, name)
            or row["precision"] != "bf16"
            or row["hardware"].get("count") != count
            or not kind.startswith("H100-96GB")
        ):
            continue
        rate = row["measured"]["tokens_per_s_per_gpu"]
        mfu = rate * model_flops(m, row["model"]["seq_len"])
        cut = row["parallel"]
        rows.append(
            (
                f"{row['id']} ({row['source_ref']})",
                f"tp {cut['tp']} pp {cut['pp']} dp {cut['dp']}",
                "yes" if "compile" in json.dumps(row) else "no",
                f"{rate:,.0f}",
                f"{mfu / chip.peak('bf16'):.1%}",
            )
        )
    return rows


def network_of(chip: str, ranks: int, toy: bool) -> Network:
    """What connects so many of the chips, as they are usually sold."""
    if toy:
        return Network("gloo", (Dim("host", 1e9, 1e-4),))
    return catalog.cluster(f"{ranks}x{chip}").network


def nvidia_name() -> str:
    """The GPU, asked of the driver: this process must not start CUDA before it forks."""
    return nvidia("name")[0]


def nvidia_count() -> int:
    """GPUs of this machine."""
    return len(nvidia("index"))


def nvidia(what: str) -> list[str]:
    """A column of nvidia-smi; nothing where there is no driver."""
    if not shutil.which("nvidia-smi"):
        return []
    told = subprocess.run(
        ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.split("\n")[:-1]


if __name__ == "__main__":
    raise SystemExit(main())
