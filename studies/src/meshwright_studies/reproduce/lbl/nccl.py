"""Figure A1: the formulas of collectives against NCCL tests on Perlmutter (A100, 4 GPUs and 4
network cards a node).

Where their notebook differs from their cost model: a rank reaches the g-1 other GPUs of its node
over 100 GB/s of NVLink each, and an all-reduce always moves its vector twice. 70 % of every link is
usable, in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import LBL
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput
from meshwright.formats.nccl_tests import Sample
from meshwright.units import MIB

from ... import shipped
from ...validate.collectives import (
    UNREAD,
    collective_name,
    predicted_s,
    read_collectives,
)
from ..report import Check, PaperTable, table_of

PERLMUTTER = shipped.DATA / "runs/perlmutter.csv"
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


def gpus(line: Sample) -> int:
    """Of the group."""
    return line.nodes * line.per_node


def large(line: Sample) -> bool:
    """Bandwidth decides."""
    return line.bytes >= LARGE and line.bytes / gpus(line) >= LARGE_STEP


def group_text(line: Sample) -> str:
    """The collective, its GPUs and those of a node."""
    return f"{collective_name(line)}/{gpus(line)} GPUs, {line.per_node} a node"


def read_nccl(file: Path = PERLMUTTER) -> tuple[Sample, ...]:
    """The measurements of a table; BadInput if a line is none."""
    samples, unread = read_collectives(file)
    if unread:
        raise BadInput(f"{unread} lines of {file.name[:80]} are {UNREAD}")
    return samples


def paper_seconds(row: Sample, share: float = SHARE) -> float:
    """Seconds by the formulas of the paper."""
    near = Dim(
        "nvlink",
        NVLINK * max(row.per_node - 1, 1),
        2.5e-6,
        row.per_node,
        efficiency=share,
    )
    far = Dim("slingshot", NIC, 5e-6, efficiency=share)
    network = Network("perlmutter", (near, far))
    return predicted_s(row, Fabric.from_network(network, LBL.network))


def time_ratio(row: Sample, share: float = SHARE) -> float:
    """Seconds by the formulas over those measured."""
    return paper_seconds(row, share) / row.seconds


def bandwidth_checks(rows: tuple[Sample, ...]) -> Iterator[Check]:
    """Median bandwidth of large messages, measured and predicted, for each collective and shape of
    group.
    """
    for name in dict.fromkeys(group_text(r) for r in rows):
        at = [r for r in rows if group_text(r) == name and large(r)]
        if at:
            yield _check(name, at)


def _check(name: str, rows: list[Sample]) -> Check:
    id = f"fig-A1/{name}/B_per_s of large messages"
    measured = median(r.bytes / r.seconds for r in rows)
    ours = median(r.bytes / paper_seconds(r) for r in rows)
    ratios = [time_ratio(r) for r in rows]
    if abs(median(ratios) - 1) <= CLOSE:
        note = "medians; time within 10 %"
        return Check(id, measured, computed=ours, status="match", note=note)
    reached = SHARE * median(ratios)
    rest = max(abs(time_ratio(r, reached) - 1) for r in rows)
    note = (
        f"the paper takes {SHARE:.0%} of a link, these reach {reached:.0%}; with that share all"
        f" times are within {rest:.0%}"
    )
    status = "explained" if rest <= 2 * CLOSE else "mismatch"
    return Check(id, measured, computed=ours, status=status, note=note)


def nccl_table(rows: tuple[Sample, ...]) -> PaperTable:
    """The measurements beside the formula."""
    return table_of(
        "lbl-fig-A1",
        "Figure A1: collectives on Perlmutter, NCCL tests and formula",
        (
            {
                "collective": collective_name(r),
                "GPUs": gpus(r),
                "GPUs a node": r.per_node,
                "bytes": int(r.bytes),
                "measured s": r.seconds,
                "predicted s": paper_seconds(r),
                "predicted / measured": time_ratio(r),
            }
            for r in rows
        ),
    )


def errors_text(rows: tuple[Sample, ...]) -> str:
    """Median error over all sizes, in a sentence."""
    off = [abs(time_ratio(r) - 1) for r in rows]
    errors = [e for e, r in zip(off, rows, strict=True) if large(r)]
    return (
        f"figure A1: median error of collective times {median(off):.1%} over {len(off)}"
        " measurements"
        + (f", {median(errors):.1%} of the large ones" if errors else "")
        + " (128 MiB and more); below, NCCL changes protocols, which the formulas leave out"
    )
