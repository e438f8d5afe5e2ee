"""The data behind figures 1 to 5 and A2 to A6 (`published/lbl_figures.toml`): layouts with their
predictions, each computed once when first asked for.

A figure fixes some degrees and searches the rest, placements always included. `lbl-2024`
throughout: defects repaired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from meshwright import catalog
from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.describe.cluster import Cluster
from meshwright.describe.frozen import put, scaling
from meshwright.describe.job import Job
from meshwright.describe.model import Model
from meshwright.prediction.prediction import Prediction

from ... import shipped
from ..report import PaperTable, table_of
from .optima import optimum
from .saved import FP16, run_days

BATCH = 4096
LARGEST = 16384
SIZES = tuple(2**i for i in range(5, 15))
"""GPUs: 32 to 16384."""
GPT = "gpt3-1t"
VIT = "vit-era5"
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
MEMORY_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""Of the B200's memory bandwidth, and of its capacity, in figures A5 and A6."""


@dataclass(frozen=True)
class LblFigure:
    """A figure of the paper; the fields are told in the head of the file."""

    number: str
    kind: str
    what: str
    strategy: str = ""
    model: str = ""
    nvs: int = 0
    """GPUs of a fast domain."""
    label: str = ""
    degrees: Sequence[str] = ()
    layouts: Sequence[Sequence[int]] = ()
    rows: str = ""
    columns: str = ""


@cache
def paper_figures() -> dict[str, LblFigure]:
    """number -> figure, in the order of the paper."""
    every = shipped.shipped_table("published/lbl_figures.toml")
    return {number: LblFigure(number, **of) for number, of in every.items()}


Points = Mapping[Any, Prediction]
"""Label of a bar, or number of GPUs -> the layout that it shows."""


def paper_job(
    model: Model | str,
    gpu: str,
    nvs: int,
    n: int,
    a: Assumptions = LBL,
    batch: int = BATCH,
) -> Job:
    """A training job of the paper."""
    cluster = Cluster(
        catalog.chip(f"lbl-{gpu}"), catalog.network(f"lbl-{gpu}-nvs{nvs}"), n
    )
    return Job(model, cluster, batch, precision=FP16, assumptions=a)


@cache
def bars(number: str, a: Assumptions = LBL) -> Points:
    """The layouts of figure 1, 2, 3 or A2, whether they fit or not."""
    of = paper_figures()[number]
    job = paper_job(of.model, "b200", of.nvs, n=LARGEST, a=a)
    roomy = put("cluster.chip.hbm_bytes", ANYTHING)(job)
    points = {}
    for values in of.layouts:
        given = dict(zip(of.degrees, values, strict=True))
        ranks = math.prod(given.get(axis, 1) for axis in ("tp", "cp", "pp"))
        label = of.label.format(**given, dp=LARGEST // ranks)
        fixed = {axis: (value,) for axis, value in given.items()}
        fastest = optimum(of.strategy, roomy, **fixed)
        assert fastest
        points[label] = Prediction(
            replace(job, layout=fastest.layout), fastest.layout
        )
    return points


@cache
def optima_by_gpus(
    strategy: str, model: str, gpu: str, nvs: int, a: Assumptions
) -> Points:
    """The optimum for each number of GPUs (figures 4, 5, A3, A4); points where nothing fits are
    left out.
    """
    every = {
        n: optimum(strategy, paper_job(model, gpu, nvs, n=n, a=a))
        for n in SIZES
    }
    return {n: p for n, p in every.items() if p}


def points_of(number: str, a: Assumptions) -> Points:
    """The bars of figure 1 to 4, A2 or A3."""
    of = paper_figures()[number]
    if of.layouts:
        return bars(number, a)
    return optima_by_gpus(of.strategy, of.model, "b200", of.nvs, a)


@cache
def days_by_chip(number: str, a: Assumptions = LBL) -> list[list[float]]:
    """Days on 8192 B200 in domains of 8 with changed chips (inf: nothing fits).

    Figure A5: rows scale the arithmetic, columns memory bandwidth and capacity together; A6: rows
    scale the capacity, columns the bandwidth.
    """
    of = paper_figures()[number]

    def days(row: float, column: float) -> float:
        shares = (
            (row, column, column)
            if of.rows == "arithmetic"
            else (1.0, column, row)
        )
        return _days(of.model, of.strategy, *shares, a=a)

    return [[days(r, c) for c in MEMORY_SHARES] for r in chip_rows(number)]


def chip_rows(number: str) -> tuple[float, ...]:
    """The shares of the B200 down a map."""
    arithmetic = paper_figures()[number].rows == "arithmetic"
    return FLOP_SHARES if arithmetic else MEMORY_SHARES


def _days(
    model: str,
    strategy: str,
    flops: float,
    bandwidth: float,
    capacity: float,
    a: Assumptions = LBL,
) -> float:
    job = paper_job(model, "b200", 8, n=8192, a=a)
    for field, share in (
        ("matrix_flops", flops),
        ("vector_flops", flops),
        ("hbm_bandwidth", bandwidth),
        ("hbm_bytes", capacity),
    ):
        job = scaling(f"cluster.chip.{field}", share)(job)
    fastest = optimum(strategy, job)
    return run_days(fastest) if fastest else math.inf


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


def figure_row(p: Prediction) -> dict[str, object]:
    """A point in a table."""
    l, t = p.layout, p.time_s
    near = {axis: int(l.group(axis)[0]) for axis in ("tp", "cp", "dp", "pp")}
    return {
        "GPUs": p.job.cluster.chips,
        "tp (n1)": l.tp,
        "cp (n2)": l.cp,
        "dp (nd)": l.dp,
        "pp (np)": l.pp,
        "microbatch": l.microbatch,
        "microbatches": p.microbatches,
        "panels": l.panels,
        "in a domain: tp": near.pop("tp"),
        **near,
        "memory GiB": p.memory_bytes["allocated"] / GIB,
        "fits": p.fits,
        "step s": p.step_time_s,
        "compute s": t["compute"],
        "memory s": t["memory"],
        "tp and cp s": t["tp_comm"] + t["cp_comm"],
        "dp s": t["dp_comm"],
        "pp s": t["pp_comm"],
        "bubble s": t["bubble"],
        "days": run_days(p),
    }


def points_table(
    name: str, title: str, groups: Mapping[str, Points]
) -> PaperTable:
    """Points after the name of their group."""
    return table_of(
        name,
        title,
        (
            {"": group, **figure_row(p)}
            for group, points in groups.items()
            for p in points.values()
        ),
    )
