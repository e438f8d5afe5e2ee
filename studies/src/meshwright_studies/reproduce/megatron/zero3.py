"""Table 2's half of ZeRO-3 by a share of the links from another source than its six rows.

DeepSpeed of June 2021 waits for each gather (torch.cuda.synchronize after every all_gather) and
copies what it gathered (github.com/deepspeedai/DeepSpeed, issue 1174 and pull request 1188). A BERT
of 5.1e9 parameters on 8 A100 behind NVSwitch takes 480 ms forward with ZeRO-3 and 60 ms with
ZeRO-2: 7/8 of its 16-bit weights in 420 ms, 21 GB/s of the 234 that NVLink carries.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright import catalog

from ...validate.jobs import job_and_notes
from ..report import Check, check
from . import tables

PARAMETERS = 5.1e9
GATHERED_S = 0.480 - 0.060
"""Seconds of the forward pass with ZeRO-3 over those with ZeRO-2."""


def share() -> float:
    """Of the links' rate that those gathers reached: 0.09."""
    nvlink = catalog.network("dgx-a100").dims[0]
    rate = 2 * PARAMETERS * 7 / 8 / GATHERED_S
    return rate / (nvlink.bandwidth * (nvlink.efficiency or 1.0))


def elsewhere() -> Iterator[Check]:
    """Throughput of the six rows with that share, and in how many pairs PTD-P is ahead."""
    other = share()
    note = f"gathers at {other:.3f} of the links, measured on a BERT in one server, not here"
    zero3 = [
        row
        for row, _, _ in tables.table_runs()
        if "t2" in row["id"] and row["parallel"].get("zero_stage") == 3
    ]
    ahead = 0
    for row, line in zip(zero3, tables.predicted_table_2().rows, strict=True):
        of_prior = tables.gain_unfitted(row)
        ours = line[7] / of_prior * tables.gain_unfitted(row, other)
        ahead += line[3] > ours
        name = job_and_notes(row).job.model.name
        yield check(
            f"table-2/{name}/ZeRO-3 by a share from elsewhere/{line[4]} GPUs",
            published=line[5],
            computed=ours,
            tolerance=tables.ZERO3_WITHIN,
            note=note,
        )
    yield check(
        "table-2/pairs in which PTD-P is ahead, ZeRO-3 by a share from elsewhere",
        published=len(zero3),
        computed=ahead,
        tolerance=0.0,
        note=note,
    )
