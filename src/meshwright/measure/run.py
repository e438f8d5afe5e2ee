"""`meshwright calibrate`: one item after the other is measured in processes of its own, and kept as
soon as it is there.

An interrupted calibration leaves FILE.part and goes on from it. Kernels come first: what the engine
costs is what steps of an empty model take beyond its kernels and collectives.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..cost.fit import alpha_beta, bilinear
from ..describe.chip import Chip
from ..describe.cluster import Cluster
from ..describe.measured import MeasuredTable, Overhead
from ..describe.network import Dim, Network
from ..describe.read import read, to_dict
from ..formats import parse_json, read_text, write_whole
from ..formats.nccl_tests import collective_table
from ..program.cpu import CPU, cpu_seconds
from ..train.launch import fork_ranks
from ..train.record import peak_bytes
from . import engine, kernels, low

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FLAT = (2**10, 2**14, 2**16, 2**17, 2**18, 2**20, 2**23)
QUICK_FLAT = (2**10, 2**15, 2**20)
CONTEXT = "context"
"""Item of what a process holds before it has a model."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is to be measured."""

    device: str
    precisions: tuple[str, ...]
    ranks: tuple[int, ...]
    """Sizes of the groups of collectives and features, 1 not among them."""
    quick: bool

    @property
    def least_s(self) -> float:
        """Seconds that a number is measured for."""
        return 0.02 if self.quick else 0.05


Measured = dict[str, Any]
"""item -> its plain result, as the .part file keeps it."""


def items(
    w: Wanted,
) -> Iterator[tuple[str, int, Callable[[torch.device], Any]]]:
    """(name, ranks, what every rank does) of everything that can be measured without knowing the
    rest.
    """
    for precision in w.precisions:
        for kernel in kernels.KERNELS:
            yield (
                f"{precision}/{kernel.name}",
                1,
                partial(measure_kernel, w, precision, kernel),
            )
        for name in kernels.SINGLE:
            yield (
                f"{precision}/{name}",
                1,
                partial(measure_single, w, precision, name),
            )
    for ranks in w.ranks:
        for kind in engine.KINDS if ranks == 2 else engine.KINDS[:-1]:
            yield (
                f"{kind}/{ranks}",
                ranks,
                partial(measure_collective, w, kind),
            )
    for ranks in (1, *w.ranks):
        for feature in engine.engine_layouts(ranks):
            yield (
                f"engine/{feature}/{ranks}",
                ranks,
                partial(measure_engine, w, feature, ranks),
            )
    if (
        w.device == "cpu"
    ):  # of a GPU it would hold the context, which torch does not count
        yield CONTEXT, max((1, *w.ranks)), measure_context


def measure_context(device: torch.device) -> int:
    """Bytes of memory that a rank has before it has a model: PyTorch itself, what a first product
    and a first collective load, and what the process holds that the rank was forked from, as in a
    run.
    """
    x = torch.ones(8, 8, device=device)
    dist.all_reduce(x @ x)
    return peak_bytes(device)


def measure_kernel(
    w: Wanted,
    precision: str,
    kernel: kernels.MeasuredKernel,
    device: torch.device,
) -> dict[str, Any]:
    make = kernels.Make(device, DTYPES[precision])
    points = kernel.quick if w.quick else kernel.points
    return {
        name: to_dict(table)
        for name, table in kernels.tables(kernel, points, make, w.least_s)
    }


def measure_single(
    w: Wanted, precision: str, name: str, device: torch.device
) -> dict[str, Any]:
    """Kernels without a backward pass; weights, gradients and optimizer are fp32 in every
    precision.
    """
    make = kernels.Make(device, torch.float32)
    return {
        name: to_dict(
            kernels.single(
                make, name, QUICK_FLAT if w.quick else FLAT, w.least_s
            )
        )
    }


def measure_collective(
    w: Wanted, kind: str, device: torch.device
) -> list[list[float]]:
    """[bytes, seconds of the clock, CPU seconds of a rank] for each size."""
    sizes = engine.QUICK_BYTES if w.quick else engine.BYTES
    return [
        [size, *engine.timed(kind, size, device, w.least_s)] for size in sizes
    ]


def measure_engine(
    w: Wanted, feature: str, ranks: int, device: torch.device
) -> list[list[float]]:
    """[layers, microbatches, CPU seconds of a step over all ranks] of four empty models."""
    rows = []
    layout = engine.engine_layouts(ranks)[feature]
    blank = Cluster(
        Chip(
            "",
            matrix_flops={"fp32": 1.0},
            vector_flops=1.0,
            hbm_bytes=1.0,
            hbm_bandwidth=1.0,
        ),
        Network("", (Dim("", 1.0, 0.0),)),
        ranks,
    )
    for layers in engine.LAYERS:
        for m in engine.MICROBATCHES:
            wanted = engine.job(blank, layout, layers, m)
            rows.append(
                [
                    layers,
                    m,
                    low(
                        engine.cpu_seconds(
                            wanted, device, 3 if w.quick else 5, 8 * w.least_s
                        )
                    ),
                ]
            )
    return rows


def measured(w: Wanted, part: Path, say: Say) -> Measured:
    """Every item, those in the .part file as they are there. Interrupted, it has lost no finished
    item.
    """
    kept: Measured = (
        parse_json(read_text(part), str(part)) if part.exists() else {}
    )
    settings = [w.device, list(w.precisions), list(w.ranks), w.quick]
    if kept.get("settings") != settings:
        kept = {"settings": settings}
    every = list(items(w))
    for i, (name, ranks, work) in enumerate(every):
        if name not in kept:
            say(f"[{i + 1}/{len(every)}] {name}")
            kept[name] = on_ranks(work, ranks, w.device)
            write_whole(part, json.dumps(kept))
    return kept


def on_ranks(
    work: Callable[[torch.device], Any], ranks: int, device: str
) -> Any:
    """What rank 0 of so many new processes returns."""
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        answer = Path(folder) / "answer.json"

        def rank(here: torch.device) -> None:
            result = work(here)
            if dist.get_rank() == 0:
                answer.write_text(json.dumps(result), "utf-8")

        fork_ranks(rank, ranks, device, timeout_s=120.0)
        return json.loads(answer.read_text("utf-8"))


def origin(w: Wanted) -> dict[str, Any]:
    """Source and date of everything that is measured now."""
    what = (
        f"meshwright calibrate{' --quick' if w.quick else ''}, PyTorch {torch.__version__},"
        f" {w.device}, one thread a rank, on {processor(w.device)}"
    )
    return {"*": {"source": what, "date": datetime.date.today().isoformat()}}


def processor(device: str) -> str:
    """What computes here."""
    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [
        line.split(":", 1)[1].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or "CPU"


def machine(w: Wanted, measured: Measured) -> Cluster:
    """The calibrated machine: one rank's chip, the network of its ranks, its engine."""
    from_here = origin(w)
    tables = {
        f"{precision}/{name}": replace(
            read(MeasuredTable, plain_table, name), sources=from_here
        )
        for precision in w.precisions
        for item, value in measured.items()
        if item.startswith(precision + "/")
        for name, plain_table in value.items()
    }
    base = Cluster(
        replace(
            chip(w, tables, from_here), context_bytes=measured.get(CONTEXT)
        ),
        network(w, measured, from_here),
        max((1, *w.ranks)),
    )
    for ranks in (1, *w.ranks):
        for feature in engine.engine_layouts(ranks):
            if rows := measured.get(f"engine/{feature}/{ranks}"):
                base = with_feature(
                    base, feature, ranks, rows, sources=from_here
                )
    return base


def chip(
    w: Wanted, tables: dict[str, MeasuredTable], sources: dict[str, Any]
) -> Chip:
    """One rank's device: its rates are the best of its tables."""
    matrix = {}
    for precision in w.precisions:
        table = tables[f"{precision}/matmul forward"]
        t, k, n = (axis[-1] for axis in table.points)
        matrix[precision] = 2 * t * k * n / table.seconds[-1]
    first = w.precisions[0]
    add = tables[f"{first}/add forward"]
    copy = tables[f"{first}/copy"]
    name = processor(w.device) + (", one core" if w.device == "cpu" else "")
    return Chip(
        name,
        matrix,
        vector_flops=add.points[0][-1] / add.seconds[-1],
        hbm_bytes=_memory(w.device),
        hbm_bandwidth=2 * 4 * copy.points[0][-1] / copy.seconds[-1],
        sustained=1.0,
        kernels=tables,
        sources=sources,
    )


def _memory(device: str) -> float:
    """Bytes of a GPU, or of a core's share of the machine."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    return (
        float(os.sysconf("SC_PAGE_SIZE"))
        * os.sysconf("SC_PHYS_PAGES")
        / (os.cpu_count() or 1)
    )


def network(w: Wanted, measured: Measured, sources: dict[str, Any]) -> Network:
    """The ranks of this machine as one dimension. Latency and bandwidth: a line through the
    all-gather of two.
    """
    tables = {}
    for kind in engine.KINDS:
        rows = {
            n: measured[f"{kind}/{n}"]
            for n in w.ranks
            if f"{kind}/{n}" in measured
        }
        for column, name in ((1, kind), (2, kind + CPU)):
            groups = {
                n: [(row[0], row[column]) for row in of]
                for n, of in rows.items()
            }
            if table := collective_table(groups, sources):
                tables[name] = table
    if not tables:
        return Network(
            "alone", (Dim("alone", 1e9, 0.0, efficiency=1.0),), sources=sources
        )
    gather = tables["all_gather"]
    n = gather.points[0][0]
    line = alpha_beta(
        gather.points[1], gather.seconds[: len(gather.points[1])]
    )
    # finite, however noisy
    rate = min(
        line.rate,
        n
        / (n - 1)
        * gather.points[1][-1]
        / min(gather.seconds[: len(gather.points[1])]),
    )
    dim = Dim(
        "host",
        rate * (n - 1) / n,
        line.latency / (n - 1),
        efficiency=1.0,
        collectives=tables,
    )
    return Network(
        "nccl" if w.device == "cuda" else "gloo", (dim,), sources=sources
    )


def with_feature(
    base: Cluster,
    feature: str,
    ranks: int,
    rows: Sequence[Sequence[float]],
    sources: dict[str, Any],
) -> Cluster:
    """The machine with what one more feature costs in groups of so many ranks: what is left of the
    empty steps, for one rank.
    """
    layout = engine.engine_layouts(ranks)[feature]
    known = {name: of for name, of in base.engine.items() if name != feature}
    left = []
    for layers, m, seconds in rows:
        job = engine.job(
            replace(base, engine=known), layout, int(layers), int(m)
        )
        rest = seconds - sum(
            float(value) for value in cpu_seconds(job, job.layout).values()
        )
        left.append((layers / float(layout.pp), m, rest / ranks))
    numbers, error = bilinear(left)
    before = base.engine.get(feature)
    values = {
        "ranks": float(ranks),
        **dict(zip(NUMBERS, numbers, strict=True)),
    }
    columns: dict[str, Any] = {
        name: (*(getattr(before, name) if before else ()), x)
        for name, x in values.items()
    }
    worst = max(error, before.residual or 0.0) if before else error
    return replace(
        base,
        engine={
            **known,
            feature: Overhead(**columns, residual=worst, sources=sources),
        },
    )


NUMBERS = ("step", "microbatch", "layer", "layer_microbatch")


def calibrate(w: Wanted, output: Path) -> Cluster:
    """Measure what is not in OUTPUT.part yet, and the machine of it all. The caller writes it and
    removes the .part file.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    output.parent.mkdir(parents=True, exist_ok=True)
    return machine(
        w,
        measured(
            w,
            part_of(output),
            lambda text: print(text, file=sys.stderr, flush=True),
        ),
    )


def part_of(output: Path) -> Path:
    """Where unfinished measurements are."""
    return output.with_name(output.name + ".part")
