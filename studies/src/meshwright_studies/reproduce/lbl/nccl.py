"""Figure A1: the formulas of collectives against NCCL tests on Perlmutter (A100, 4 GPUs and 4
network cards a node).

Where their notebook differs from their cost model: a rank reaches the g-1 other GPUs of its node
over 100 GB/s of NVLink each, and an all-reduce always moves its vector twice. 70 % of every link is
usable, in both.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import LBL
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput
from meshwright.num import Num
from meshwright.units import MIB

from ... import shipped
from ..report import Check, PaperTable
from ..sources import published_text

KINDS = {
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
}
SHARE = 0.7
"""Usable share of a link, all networks."""
NVLINK, NIC = 100e9, 25e9
"""Bytes per second of the NVLinks between two GPUs, and of a GPU's network card, one way."""
LARGE = 128 * MIB
LARGE_STEP = MIB
"""From this vector and this step of a ring (vector / GPUs) on, bandwidth decides; below, NCCL
changes protocols, which the formulas leave out."""
CLOSE = 0.1
"""The paper says "agree well" and prints no number: medians within 10 % count as that."""
MOST_ROWS = 100_000


@dataclass(frozen=True)
class NcclLine:
    """One line of NCCL tests."""

    collective: str
    nodes: int
    per_node: int
    bytes: float
    """The full vector."""
    seconds: float

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node

    @property
    def large(self) -> bool:
        """Bandwidth decides."""
        return (
            self.gpus > 1
            and self.bytes >= LARGE
            and self.bytes / self.gpus >= LARGE_STEP
        )

    @property
    def group(self) -> str:
        return f"{self.collective}/{self.gpus} GPUs, {self.per_node} a node"


def read_nccl(file: Path | None = None) -> tuple[NcclLine, ...]:
    """Measurements of a CSV file; None: those shipped. Raises BadInput."""
    text = (
        shipped.shipped_text("runs/perlmutter.csv")
        if file is None
        else published_text(file)
    )
    lines = [
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    ][:MOST_ROWS]
    return tuple(
        _row(i, row) for i, row in enumerate(csv.DictReader(lines), 1)
    )


def _row(i: int, row: dict[str, str]) -> NcclLine:
    kind = str(row.get("collective"))
    try:
        nodes = int(row["nodes"])
        per_node = int(row["gpus_per_node"])
        size = float(row["size_bytes"])
        seconds = float(row["time_mean_s"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            f"NCCL row {i}: nodes, gpus_per_node, size_bytes and time_mean_s must be numbers"
        ) from None
    fine = (
        nodes >= 1
        and per_node >= 1
        and nodes * per_node <= 1e7
        and 0 < size < 1e18
        and 0 < seconds < 1e9
    )
    if kind not in KINDS or not fine:
        raise BadInput(
            f"NCCL row {i}: {kind[:30]!r} of {size:g} B in {seconds:g} s on {nodes} x {per_node}"
            " GPUs makes no sense"
        )
    return NcclLine(
        kind, nodes=nodes, per_node=per_node, bytes=size, seconds=seconds
    )


def paper_seconds(row: NcclLine, share: float = SHARE) -> float:
    """Seconds by the formulas of the paper."""
    near = Dim(
        "nvlink",
        NVLINK * max(row.per_node - 1, 1),
        2.5e-6,
        row.per_node,
        efficiency=share,
    )
    far = Dim("slingshot", NIC, 5e-6, efficiency=share)
    group: tuple[Num, Num] = (float(row.per_node), float(row.nodes))
    return float(
        Fabric.of(Network("perlmutter", (near, far)), LBL.network).time(
            KINDS[row.collective], row.bytes, group
        )
    )


def bandwidth_checks(rows: tuple[NcclLine, ...]) -> Iterator[Check]:
    """Median bandwidth of large messages, measured and predicted, for each collective and shape of
    group.
    """
    for name in dict.fromkeys(r.group for r in rows):
        large = [r for r in rows if r.group == name and r.large]
        if large:
            yield _check(name, large)


def _check(name: str, rows: list[NcclLine]) -> Check:
    id = f"fig-A1/{name}/B_per_s of large messages"
    measured = median(r.bytes / r.seconds for r in rows)
    ours = median(r.bytes / paper_seconds(r) for r in rows)
    ratios = [paper_seconds(r) / r.seconds for r in rows]
    if abs(median(ratios) - 1) <= CLOSE:
        note = "medians; time within 10 %"
        return Check(id, measured, computed=ours, status="match", note=note)
    reached = SHARE * median(ratios)
    rest = max(abs(paper_seconds(r, reached) / r.seconds - 1) for r in rows)
    note = (
        f"the paper takes {SHARE:.0%} of a link, these reach {reached:.0%}; with that share all"
        f" times are within {rest:.0%}"
    )
    status = "explained" if rest <= 2 * CLOSE else "mismatch"
    return Check(id, measured, computed=ours, status=status, note=note)


def nccl_table(rows: tuple[NcclLine, ...]) -> PaperTable:
    """The measurements beside the formula."""
    columns = (
        "collective",
        "GPUs",
        "GPUs a node",
        "bytes",
        "measured s",
        "predicted s",
        "predicted / measured",
    )
    lines = tuple(
        (
            r.collective,
            r.gpus,
            r.per_node,
            int(r.bytes),
            r.seconds,
            paper_seconds(r),
            paper_seconds(r) / r.seconds,
        )
        for r in rows
    )
    return PaperTable(
        "lbl-fig-A1",
        "Figure A1: collectives on Perlmutter, NCCL tests and formula",
        columns,
        lines,
    )


def errors_text(rows: tuple[NcclLine, ...]) -> str:
    """Median error over all sizes, in a sentence."""
    off = [abs(paper_seconds(r) / r.seconds - 1) for r in rows]
    large = [e for e, r in zip(off, rows, strict=True) if r.large]
    return (
        f"figure A1: median error of collective times {median(off):.1%} over {len(off)}"
        " measurements"
        + (f", {median(large):.1%} of the large ones" if large else "")
        + " (128 MiB and more); below, NCCL changes protocols, which the formulas leave out"
    )
