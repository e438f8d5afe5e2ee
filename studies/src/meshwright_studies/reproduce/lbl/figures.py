"""The data behind figures 1 to 5 and A2 to A6: layouts with their predictions, each computed once
when first asked for.

A figure fixes some degrees and searches the rest, placements always included. `lbl-2024`
throughout: defects repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from meshwright import catalog
from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.prediction.prediction import Prediction
from meshwright.units import DAY_S

from ..report import PaperTable
from .optima import optimum
from .saved import FP16, SAMPLES

BATCH = 4096
SIZES = tuple(2**i for i in range(5, 15))
"""GPUs: 32 to 16384."""
GPT = ("gpt3_1T", "gpt3-1t")
VIT = ("vit_era5", "vit-era5")
"""(their name of a model, ours)."""
GPT_LAYERS = 128
"""Depth of GPT3-1T, as deep as a pipeline can be."""
SYSTEMS = tuple(
    (gpu, nvs) for gpu in ("a100", "h200", "b200") for nvs in (4, 8, 64)
)
GIB = 2.0**30
ANYTHING = 1e18
"""Bytes of memory of a GPU on which every layout fits."""
FLOP_SHARES = (0.125, 0.25, 0.5, 1.0, 1.5)
"""Of the B200's arithmetic, in figure A5 (the A100 has 1/8, the H200 0.4)."""
EXTREMES = ((32, 1, 8), (8, 128, 1))
"""(nt, pp, microbatch): much data parallelism, and little (figures 3 and A2a)."""
SPLITS = {32: (1, 2, 4, 8, 16), 8: (1, 2, 4, 8)}
"""nt -> values of n2."""
MEMORY_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""Of the B200's memory bandwidth, and of its capacity, in figures A5 and A6."""


@dataclass(frozen=True)
class FigurePoint:
    """One bar or mark of a figure; no prediction where nothing fits."""

    label: str
    n: int
    prediction: Prediction | None
    fits: bool = True

    @property
    def days(self) -> float | None:
        """Days of the whole training run."""
        if self.prediction is None:
            return None
        known = {ours: SAMPLES[theirs] for theirs, ours in (GPT, VIT)}
        job = self.prediction.job
        return (
            known[job.model.name]
            / job.batch
            * self.prediction.step_time_s
            / DAY_S
        )


def paper_job(
    model: tuple[str, str], gpu: str, nvs: int, n: int, a: Assumptions = LBL
) -> Job:
    """A training job of the paper."""
    cluster = Cluster(
        catalog.chip(f"lbl-{gpu}"), catalog.network(f"lbl-{gpu}-nvs{nvs}"), n
    )
    return Job(
        catalog.model(model[1]), cluster, BATCH, precision=FP16, assumptions=a
    )


def fastest_that_fits(
    strategy: str, job: Job, label: str = "", **fixed: tuple[int, ...]
) -> FigurePoint:
    """The fastest layout that fits."""
    fastest = optimum(strategy, job, **fixed)
    prediction = (
        Prediction(replace(job, layout=fastest[1]), fastest[1])
        if fastest
        else None
    )
    return FigurePoint(
        label or str(job.cluster.chips),
        job.cluster.chips,
        prediction,
        bool(fastest),
    )


def at(strategy: str, job: Job, label: str, **fixed: int) -> FigurePoint:
    """The fastest placement of given degrees, whether it fits or not."""
    roomy = replace(
        job.cluster, chip=replace(job.cluster.chip, hbm_bytes=ANYTHING)
    )
    fastest = optimum(
        strategy,
        replace(job, cluster=roomy),
        **{k: (v,) for k, v in fixed.items()},
    )
    if fastest is None:
        return FigurePoint(label, job.cluster.chips, None, False)
    prediction = Prediction(replace(job, layout=fastest[1]), fastest[1])
    return FigurePoint(label, job.cluster.chips, prediction, prediction.fits)


@cache
def figure_1(a: Assumptions = LBL) -> tuple[FigurePoint, ...]:
    """GPT3-1T, 1D, 16384 B200 in domains of 8, pp 64, microbatch 1: tensor against data
    parallelism.
    """
    j = paper_job(GPT, gpu="b200", nvs=8, n=16384, a=a)
    return tuple(
        at("1d_tp", j, f"tp {tp}\ndp {256 // tp}", tp=tp, pp=64, microbatch=1)
        for tp in (1, 2, 4, 8, 16, 32)
    )


@cache
def figure_2(nvs: int, a: Assumptions = LBL) -> tuple[FigurePoint, ...]:
    """GPT3-1T, 1D, 16384 B200, tp 8, the fastest microbatch: pipeline against data parallelism."""
    j = paper_job(GPT, gpu="b200", nvs=nvs, n=16384, a=a)
    depths = (128, 64, 32, 16, 8, 4, 2, 1)
    return tuple(
        at("1d_tp", j, f"pp {p}\ndp {2048 // p}", tp=8, pp=p) for p in depths
    )


def grids(
    strategy: str,
    job: Job,
    cases: Iterable[tuple[int, int, int]],
    splits: Mapping[int, Sequence[int]],
) -> tuple[FigurePoint, ...]:
    """Every split of nt = n1 n2, for each (nt, pp, microbatch); splits: nt -> values of n2."""
    return tuple(
        at(
            strategy,
            job,
            f"{nt // n2}x{n2}\npp {pp}",
            tp=nt // n2,
            cp=n2,
            pp=pp,
            microbatch=b,
        )
        for nt, pp, b in cases
        for n2 in splits[nt]
    )


@cache
def figure_3(nvs: int, a: Assumptions = LBL) -> tuple[FigurePoint, ...]:
    """GPT3-1T, SUMMA, 16384 B200: n1 x n2 at (nt, pp) = (32, 1) with one microbatch of 8, then at
    (8, 128).
    """
    j = paper_job(GPT, gpu="b200", nvs=nvs, n=16384, a=a)
    return grids("2d_tp_summa", j, EXTREMES, SPLITS)


@cache
def figure_a2(
    model: tuple[str, str], a: Assumptions = LBL
) -> tuple[FigurePoint, ...]:
    """2D TP (context), 16384 B200: GPT3-1T in domains of 64 as in figure 3; ViT in domains of 8, nt
    16, pp 1 and 16.
    """
    if model == GPT:
        return grids(
            "2d_tp_context",
            paper_job(GPT, gpu="b200", nvs=64, n=16384, a=a),
            EXTREMES,
            SPLITS,
        )
    return grids(
        "2d_tp_context",
        paper_job(VIT, gpu="b200", nvs=8, n=16384, a=a),
        ((16, 1, 1), (16, 16, 1)),
        {16: (1, 2, 4, 8, 16)},
    )


@cache
def optima_by_gpus(
    strategy: str,
    model: tuple[str, str],
    gpu: str,
    nvs: int,
    a: Assumptions = LBL,
) -> tuple[FigurePoint, ...]:
    """The optimum for each number of GPUs (figures 4, 5, A3, A4); points where nothing fits are
    left out.
    """
    points = (
        fastest_that_fits(strategy, paper_job(model, gpu, nvs, n=n, a=a))
        for n in SIZES
    )
    return tuple(p for p in points if p.prediction)


@cache
def days_by_chip(
    model: tuple[str, str],
    strategy: str,
    compute: bool,
    a: Assumptions = LBL,
) -> tuple[tuple[float, ...], ...]:
    """Days on 8192 B200 in domains of 8 with changed chips (inf: nothing fits).

    compute: rows scale the arithmetic, columns memory bandwidth and capacity together (figure A5);
    else rows scale the capacity, columns the bandwidth (A6).
    """
    rows = FLOP_SHARES if compute else MEMORY_SHARES
    return tuple(
        tuple(
            _days(model, strategy, *((r, c, c) if compute else (1.0, c, r)), a)
            for c in MEMORY_SHARES
        )
        for r in rows
    )


def _days(
    model: tuple[str, str],
    strategy: str,
    flops: float,
    bandwidth: float,
    capacity: float,
    a: Assumptions = LBL,
) -> float:
    base = paper_job(model, "b200", 8, n=8192, a=a)
    chip = base.cluster.chip
    changed = replace(
        chip,
        matrix_flops={k: v * flops for k, v in chip.matrix_flops.items()},
        vector_flops=chip.vector_flops * flops,
        hbm_bandwidth=chip.hbm_bandwidth * bandwidth,
        hbm_bytes=chip.hbm_bytes * capacity,
    )
    point = fastest_that_fits(
        strategy, replace(base, cluster=replace(base.cluster, chip=changed))
    )
    return point.days or float("inf")


def generations() -> dict[str, tuple[float, float]]:
    """GPU -> (memory bandwidth, arithmetic) as shares of the B200, as figure A5 marks them. Their
    capacities are not in the same proportion: 80, 141 and 192 GB.
    """
    of = {g: catalog.chip(f"lbl-{g}") for g in ("a100", "h200", "b200")}
    whole = of["b200"]
    return {
        name.upper(): (
            chip.hbm_bandwidth / whole.hbm_bandwidth,
            chip.peak("fp16") / whole.peak("fp16"),
        )
        for name, chip in of.items()
    }


COLUMNS = (
    "GPUs",
    "tp (n1)",
    "cp (n2)",
    "dp (nd)",
    "pp (np)",
    "microbatch",
    "microbatches",
    "panels",
    "in a domain: tp",
    "cp",
    "dp",
    "pp",
    "memory GiB",
    "fits",
    "step s",
    "compute s",
    "memory s",
    "tp and cp s",
    "dp s",
    "pp s",
    "bubble s",
    "days",
)


def figure_row(point: FigurePoint) -> tuple[object, ...]:
    """A point under COLUMNS."""
    p = point.prediction
    if p is None:
        return (point.n, *("" for _ in COLUMNS[1:]))
    l, t = p.layout, p.time_s
    near = (int(l.group(a)[0]) for a in ("tp", "cp", "dp", "pp"))
    times = (
        t["compute"],
        t["memory"],
        t["tp_comm"] + t["cp_comm"],
        t["dp_comm"],
        t["pp_comm"],
        t["bubble"],
    )
    return (
        point.n,
        l.tp,
        l.cp,
        l.dp,
        l.pp,
        l.microbatch,
        p.microbatches,
        l.panels,
        *near,
        p.memory_bytes["allocated"] / GIB,
        point.fits,
        p.step_time_s,
        *times,
        point.days,
    )


def points_table(
    name: str, title: str, groups: dict[str, Sequence[FigurePoint]]
) -> PaperTable:
    """Points under COLUMNS, after the name of their group."""
    return PaperTable(
        name,
        title,
        ("", *COLUMNS),
        tuple(
            (group, *figure_row(p))
            for group, points in groups.items()
            for p in points
        ),
    )


def grid_table(
    name: str,
    title: str,
    rows: Sequence[float],
    values: Sequence[Sequence[float]],
    of: str,
) -> PaperTable:
    """Days by two shares."""
    columns = (of, *(f"{c:g}" for c in MEMORY_SHARES))
    return PaperTable(
        name,
        title,
        columns,
        tuple((r, *line) for r, line in zip(rows, values, strict=True)),
    )
