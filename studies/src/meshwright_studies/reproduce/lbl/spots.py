"""Three configurations operation by operation: seconds, communication, saved bytes and weights, as
published.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from meshwright import catalog
from meshwright.cost.layer import Timer
from meshwright.count.model import layer
from meshwright.count.work import Op
from meshwright.describe.assumptions import LBL
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layers import Kind
from meshwright.describe.layout import AXES, Layout
from meshwright.prediction.prediction import Prediction
from meshwright.step import clock_of

from ... import shipped
from ..report import Check
from .saved import FP16
from .saved_checks import both_editions, published_numbers

OPERATIONS = {
    "fc1": "ffn/up",
    "fc1-bias": "ffn/up bias",
    "act1": "ffn/activation",
    "dpr1": "ffn/activation dropout",
    "fc2": "ffn/down",
    "fc2-bias": "ffn/bias",
    "dpr2": "ffn/dropout",
    "ln1": "attention/norm",
    "qkv": "attention/qkv",
    "fusedla": "attention/core",
    "vproj": "attention/out",
    "vproj-bias": "attention/bias",
    "dpr_v": "attention/dropout",
    "ln2": "ffn/norm",
}
"""Their operation -> ours. Their ln1 follows the feed-forward: it is the norm before the next
attention.
"""
GATHERED = {"attention/norm": "attention/qkv", "ffn/norm": "ffn/up"}
"""Norm -> the matrix after it whose input is gathered. We count the all-gather with the matrix that
needs it, the paper with the norm.
"""
COLUMNS = (
    "forward us",
    "forward comm us",
    "backward us",
    "backward comm us",
    "saved MB",
    "weights MB",
)
NAMES = {"t": "time", "mem": "memory"}
HALF_DIGIT = 0.501e-4
"""Operations are printed with four decimals (us, MB)."""
PRINTED = 1e-6
"""Beyond that, and for totals (nine digits printed), relative."""


@cache
def shipped_cases() -> dict[str, Any]:
    """The three cases as shipped."""
    table = shipped.shipped_table("published/lbl_spot_checks.json")
    return {k: v for k, v in table.items() if not k.startswith("_")}


def job_of(case: dict[str, Any]) -> Job:
    """The job of a case, under lbl-2024."""
    shape = dict(case["layout"])
    near = shape.pop("near")
    degrees = {a: shape.pop(a) for a in AXES}
    placement = {
        a: (near.get(a, 1), degrees[a] // near.get(a, 1)) for a in AXES
    }
    layout = Layout(**degrees, **shape, zero=1, placement=placement)
    net = catalog.network(case["network"])
    cluster = Cluster(catalog.chip(net.chip), net, case["gpus"])
    return Job(
        catalog.model(case["model"]),
        cluster,
        case["batch"],
        layout,
        precision=FP16,
        assumptions=LBL,
    )


def spot_checks() -> Iterator[Check]:
    """The numbers of the three cases."""
    for name, case in shipped_cases().items():
        operations = {
            f"spot-{name}/{op}/{column}": (f"{op}/{column}", x)
            for op, row in case["ops"].items()
            for column, x in zip(COLUMNS, row, strict=True)
        }
        totals = {
            f"spot-{name}/{key}": (NAMES.get(key, key), x)
            for key, x in case["totals"].items()
        }
        for sides, numbers, rounding in (
            (operations, operation_numbers, HALF_DIGIT),
            (totals, published_numbers, 0.0),
        ):
            yield from both_editions(
                job_of(case),
                sides,
                numbers,
                rounding=lambda _, half=rounding: half,  # type: ignore[misc]
                same=PRINTED,
            )


def operation_numbers(p: Prediction) -> dict[str, float]:
    """Every number of every operation of a layer, by "their operation/column"."""
    job = p.job
    timer = Timer(clock_of(job), job.layout)
    by_operation: dict[str, float] = {}
    weight = job.precision.weight_bytes
    by_name = gathered_by_norms(operations_of(job))
    for theirs, name in OPERATIONS.items():
        op = by_name[name]
        forward = timer.pass_cost(op, op.forward).time
        backward = timer.pass_cost(op, op.backward).time
        seconds = (
            x
            for s in (forward, backward)
            for x in (s.total, s.tp_comm + s.cp_comm)
        )
        row = (
            *(x * 1e6 for x in seconds),
            op.saved / 1e6,
            op.weights * weight / 1e6,
        )
        by_operation |= {
            f"{theirs}/{column}": float(x)
            for column, x in zip(COLUMNS, row, strict=True)
        }
    return by_operation


def operations_of(job: Job) -> dict[str, Op]:
    """Operations of one layer, by name."""
    return {op.name: op for op in layer(job, job.layout, Kind(None, False))}


def gathered_by_norms(by_name: dict[str, Op]) -> dict[str, Op]:
    """The operations of a layer with the all-gathers before its matrices where the paper counts
    them; SUMMA's panels stay.
    """
    moved = dict(by_name)
    for norm, matrix in GATHERED.items():
        before = by_name[norm]
        after = by_name[matrix]
        if after.panels == 0:
            comm = before.forward.comm + after.forward.comm
            moved[norm] = before._replace(
                forward=before.forward._replace(comm=comm)
            )
            moved[matrix] = after._replace(
                forward=after.forward._replace(comm=())
            )
    return moved
