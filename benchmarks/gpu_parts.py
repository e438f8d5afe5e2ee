"""Parts of a step on this machine beside the laws that predict them: stages of `benchmarks/gpu.py`.

Products, experts and collectives are timed by the functions of `meshwright calibrate`; its
`--read gpu-check/collectives.csv --on CHIP` makes a machine of what the collectives took.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from meshwright.cost.chip import pass_seconds, rates
from meshwright.cost.network import Fabric
from meshwright.count.blocks import Matrix, Numbers, matmul
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.network import Network
from meshwright.describe.training import Settings
from meshwright.formats.nccl_tests import COLUMNS
from meshwright.measure import engine, kernels
from meshwright.measure.engine import toy_batch
from meshwright.measure.run import (
    DTYPES,
    Wanted,
    measure_collective,
    on_ranks,
)
from meshwright.program.memory import peak
from meshwright.program.operations import carried_out
from meshwright.train import checkpoint, oracle
from meshwright.train.loop import Trainer
from meshwright.train.moe import ExpertRows, grouped, in_one, one_by_one

Row = tuple[Any, ...]
Once = Callable[[str, Callable[[], Any]], Any]
"""Of `gpu.Stages`."""
EXPERTS = 8
PRODUCTS = ((8192, 4096, 14336), (8192, 14336, 4096), (2048, 4096, 4096))
"""Tokens, inner, outer."""
TOY_PRODUCTS = ((64, 32, 64),)
RECOMPUTED = ("none", "op", "full")
OVERLAP = (2**28, 8192)
"""Bytes of the all-reduce, width of the square product beside it."""
TOY_OVERLAP = (2**16, 64)


def experts(
    make: kernels.Make, tokens: float, inner: float, outer: float
) -> Any:
    """The tokens in equal shares to each expert's matrix, as the trainer multiplies them."""
    count = int(tokens) // EXPERTS
    rows = ExpertRows(
        torch.full((EXPERTS,), count, device=make.device), [count] * EXPERTS
    )
    x, w = make(tokens, inner), make(EXPERTS, outer, inner)
    product = in_one if grouped(x) else one_by_one
    return (lambda x, w: product(x, w, None, rows)), [x, w]


def products(
    job: Job, device: str, build: kernels.Build, copies: int
) -> list[Row]:
    """(sizes, pass, seconds, seconds by the law) of matrix products of an 8B layer."""
    toy, precision = device == "cpu", job.precision.compute
    sizes = TOY_PRODUCTS if toy else PRODUCTS
    least_s = 0.002 if toy else 0.2

    def work(place: torch.device) -> Any:
        make = kernels.Make(place, DTYPES[precision])
        return [kernels.pass_seconds(build, s, make, least_s) for s in sizes]

    rows: list[Row] = []
    size = PRECISIONS[precision].activation_bytes
    chip = rates(job.cluster.chip, precision, REALISTIC.chip, size)
    numbers = Numbers(one=0.0, act=size, wgt=size, gradient=size)
    for s, took in zip(sizes, on_ranks(work, 1, device), strict=True):
        op = matmul("product", *s, numbers, Matrix(copies=copies))
        name = " x ".join(map(str, s))
        for way, seconds, of in zip(
            ("forward", "backward"),
            took,
            (op.forward, op.backward),
            strict=True,
        ):
            rows.append(
                (name, way, seconds, float(sum(pass_seconds(of, chip))))
            )
    return rows


def memory(job: Job, device: str) -> list[Row]:
    """(recomputation, bytes at the peak of a step, bytes by the walk)."""
    rows: list[Row] = []
    for how in RECOMPUTED:
        j = replace(job, layout=replace(job.layout, recompute=how))
        highest = (
            oracle.run(j, 0, Settings()).live.peak
            if device == "cpu"
            else on_ranks(partial(allocated, j), 1, device)
        )
        rows.append((how, highest, float(peak(carried_out(j), 0).highest)))
    return rows


def allocated(job: Job, device: torch.device) -> int:
    """Bytes at the peak of a second step on a GPU: the first one makes AdamW's moments."""
    trainer = Trainer(job, Settings(), device)
    batch = [x.to(device) for x in toy_batch(job, trainer)]
    trainer.step(0, *batch)
    torch.cuda.reset_peak_memory_stats(device)
    trainer.step(1, *batch)
    return torch.cuda.max_memory_allocated(device)


def stored(job: Job, device: str) -> dict[str, float]:
    """Bytes of a checkpoint, seconds to write and to read it, and how many of its tensors differ
    afterwards.
    """

    def work(place: torch.device) -> dict[str, float]:
        trainer = Trainer(job, Settings(), place)
        trainer.step(0, *(x.to(place) for x in toy_batch(job, trainer)))
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            path = checkpoint.save(trainer, Path(folder), 1, keep=1)
            written = time.perf_counter()
            other = Trainer(job, Settings(), place)  # no step yet
            ready = time.perf_counter()
            checkpoint.load(other, path)
            read = time.perf_counter()
            size = sum(
                f.stat().st_size for f in path.rglob("*") if f.is_file()
            )
        before, after = checkpoint.state(trainer), checkpoint.state(other)
        unequal = [
            n for n, x in before.items() if not torch.equal(x, after[n])
        ]
        return {
            "bytes": size,
            "write_s": written - began,
            "read_s": read - ready,
            "unequal": len(unequal),
        }

    return dict(on_ranks(work, 1, device))


def collective(
    network: Network, device: str, kind: str, ranks: int
) -> list[Row]:
    """(collective, ranks, bytes, seconds, seconds by the law) of each size."""
    wanted = Wanted(device, (), (ranks,), quick=device == "cpu")
    fabric = Fabric.from_network(network, REALISTIC.network)
    group = (float(ranks), *(1.0 for _ in network.dims[1:]))
    rows: list[Row] = []
    measure = partial(measure_collective, wanted, kind)
    for size, seconds, _ in on_ranks(measure, ranks, device):
        law = (
            fabric.load("send", size, group).seconds
            if kind == "send"
            else fabric.time(kind, size, group)
        )
        rows.append((kind, ranks, size, seconds, float(law)))
    return rows


def overlap(device: str, ranks: int) -> dict[str, float]:
    """Seconds of an all-reduce, of a product, and of both at once; the share of the shorter one
    that hides behind the other.
    """
    size, width = TOY_OVERLAP if device == "cpu" else OVERLAP

    def work(place: torch.device) -> dict[str, float]:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        x = torch.ones(width, width, device=place, dtype=dtype)
        full = torch.zeros(size // 4, device=place)

        def seconds(*, send: bool, multiply: bool) -> float:
            spent = []
            for _ in range(8):
                engine.synchronise(place)
                began = time.perf_counter()
                sent = dist.all_reduce(full, async_op=True) if send else None
                if multiply:
                    x @ x
                if sent:
                    sent.wait()
                if place.type == "cuda":
                    torch.cuda.synchronize(place)
                spent.append(time.perf_counter() - began)
            return median(spent[2:])

        a = seconds(send=True, multiply=False)
        b = seconds(send=False, multiply=True)
        both = seconds(send=True, multiply=True)
        hidden = (a + b - both) / min(a, b)
        return {
            "all_reduce_s": a,
            "product_s": b,
            "both_s": both,
            "hidden": hidden,
        }

    return dict(on_ranks(work, ranks, device))


def sizes_of_groups(devices: int) -> list[int]:
    """2, 4, 8, ... up to all devices."""
    return [2**i for i in range(1, devices.bit_length()) if 2**i <= devices]


def one_device(job: Job, device: str, once: Once) -> Iterator[str]:
    """Tables of what one GPU can show."""
    head = "{}, pass, ms, by the law, measured / law"
    every: dict[str, tuple[kernels.Build, int]] = {
        "products": (kernels.matmul, 1),
        f"products of {EXPERTS} experts": (experts, EXPERTS),
    }
    for name, (build, copies) in every.items():
        rows = once(name, partial(products, job, device, build, copies))
        yield table(
            head.format(name), [(*r[:2], *in_ms(*r[2:])) for r in rows]
        )
    rows = once("memory", partial(memory, job, device))
    yield table(
        "recomputation, GiB at the peak, by the walk, measured / walk",
        [
            (how, f"{a / 2**30:.3g}", f"{b / 2**30:.3g}", f"{a / b:.3f}")
            for how, a, b in rows
        ],
    )
    s = once("checkpoint", partial(stored, job, device))
    yield table(
        "checkpoint GB, GB/s written, GB/s read, tensors that differ",
        [
            (
                f"{s['bytes'] / 1e9:.3g}",
                *(
                    f"{s['bytes'] / s[k] / 1e9:.3g}"
                    for k in ("write_s", "read_s")
                ),
                s["unequal"],
            )
        ],
    )


def several_devices(
    network: Network,
    device: str,
    groups: Sequence[int],
    folder: Path,
    once: Once,
) -> Iterator[str]:
    """Tables of collectives and their overlap; writes `collectives.csv` into the folder."""
    rows: list[Row] = []
    for n in groups:
        for kind in engine.KINDS[: 5 if n == 2 else 4]:
            stage = partial(collective, network, device, kind, n)
            rows += once(f"{kind} {n}", stage)
    with (folder / "collectives.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        lines.writerows((kind, 1, n, int(V), s) for kind, n, V, s, _ in rows)
    yield table(
        "collective, ranks, bytes, ms, by the law, measured / law",
        [(*row[:2], int(row[2]), *in_ms(*row[3:])) for row in rows],
    )
    found = {
        n: once(f"overlap {n}", partial(overlap, device, n)) for n in groups
    }
    yield table(
        "overlap on ranks, all-reduce ms, product ms, both ms, hidden of the shorter",
        [
            (
                n,
                *(
                    f"{o[k] * 1e3:.3g}"
                    for k in ("all_reduce_s", "product_s", "both_s")
                ),
                f"{o['hidden']:.0%}",
            )
            for n, o in found.items()
        ],
    )


def in_ms(seconds: float, law: float) -> Row:
    return (f"{seconds * 1e3:.3g}", f"{law * 1e3:.3g}", f"{seconds / law:.2f}")


def table(head: str, rows: Sequence[Row]) -> str:
    """A table in Markdown."""
    names = head.split(", ")
    lines = [
        names,
        ["---"] * len(names),
        *([str(value) for value in row] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
