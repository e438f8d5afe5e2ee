"""Table 2's half of ZeRO-3 by a share of the links from another source than its six rows.

DeepSpeed of June 2021 waits for each gather (torch.cuda.synchronize after every all_gather) and
copies what it gathered (github.com/deepspeedai/DeepSpeed, issue 1174 and pull request 1188). A BERT
of 5.1e9 parameters on 8 A100 behind NVSwitch takes 480 ms forward with ZeRO-3 and 60 ms with
ZeRO-2: 7/8 of its 16-bit weights in 420 ms, 21 GB/s of the 234 that NVLink carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from meshwright import catalog
from meshwright.report.text import percent

from ...validate.jobs import job_and_notes
from ..report import Check, check, holds
from . import tables

PARAMETERS = 5.1e9
GATHERED_S = 0.480 - 0.060
"""Seconds of the forward pass with ZeRO-3 over those with ZeRO-2."""


def share() -> float:
    """Of the links' rate that those gathers reached: 0.09."""
    nvlink = catalog.network("dgx-a100").dims[0]
    rate = 2 * PARAMETERS * 7 / 8 / GATHERED_S
    return rate / (nvlink.bandwidth * (nvlink.efficiency or 1.0))


@cache
def rows() -> tuple[tuple[str, int, float, float, float], ...]:
    """(model, GPUs, printed TFLOP/s, ours with that share, PTD-P's as predicted) of the six."""
    other = share()
    zero3 = [
        row
        for row, _, _ in tables.table_runs()
        if "t2" in row["id"] and row["parallel"].get("zero_stage") == 3
    ]
    return tuple(
        (
            job_and_notes(row).job.model.name,
            line[4],
            line[5],
            line[6] * tables.gain(row, other),
            line[3],
        )
        for row, line in zip(
            zero3, tables.predicted_table_2().rows, strict=True
        )
    )


class Pair(NamedTuple):
    """PTD-P over ZeRO-3 on about as many GPUs, less one."""

    model: str
    printed: float
    ours: float


@cache
def leads() -> tuple[Pair, ...]:
    """Of the six pairs, in the order of table 2: each model on three numbers of GPUs, ascending."""
    return tuple(
        Pair(name.removeprefix("GPT "), line[8] - 1, ptd / ours - 1)
        for (name, *_, ours, ptd), line in zip(
            rows(), tables.predicted_table_2().rows, strict=True
        )
    )


def lead_checks() -> Iterator[Check]:
    """Section 5.2: PTD-P is 6 % and 24 % ahead at first, 70 % with twice as many GPUs, and more so
    beyond.
    """
    models = dict.fromkeys(pair.model for pair in leads())
    for model in models:
        few, twice, many = (p for p in leads() if p.model == model)
        for words, pair in (
            ("the fewest GPUs", few),
            ("twice as many", twice),
        ):
            yield check(
                f"fig-10/{model}, lead of PTD-P at {words}",
                published=pair.printed,
                computed=pair.ours,
                tolerance=LEAD_WITHIN,
                note="ZeRO-3 by a share of the links from elsewhere is too slow, most where it is"
                " fastest in the paper: a lead is a difference, which shows it",
            )
        yield holds(
            f"fig-10/{model}, the lead grows with the GPUs",
            few.ours < twice.ours < many.ours,
        )


LEAD_WITHIN = 0.25
"""Of a lead: as of the other gains that the paper prints."""


def sentence() -> str:
    """Figure 10 in words: in how many pairs, by how much, and how far the throughputs are off."""
    pairs = leads()
    ahead = sum(pair.ours > 0 for pair in pairs)
    ptd = max(abs(r[3] / r[2] - 1) for r in tables.predicted_table_2().rows)
    zero3 = max(abs(ours / printed - 1) for _, _, printed, ours, _ in rows())

    def both(which: int) -> str:
        ours, theirs = (
            " and ".join(percent(getattr(p, of), 0) for p in pairs[which::3])
            for of in ("ours", "printed")
        )
        return f"{ours} (paper {theirs})"

    return (
        f"PTD-P ahead in {ahead} of {len(pairs)} pairs, and the lead grows; but it leads by"
        f" {both(0)} at the fewest GPUs and by {both(1)} at twice as many; throughput of PTD-P"
        f" within {percent(ptd, 0)}, of ZeRO-3 within {percent(zero3, 0)}"
    )


def elsewhere() -> Iterator[Check]:
    """Throughput of the six rows with that share, and in how many pairs PTD-P is ahead: of these
    the difference between links used whole and what was measured.
    """
    six = rows()
    note = f"gathers at {share():.3f} of the links, measured on a BERT in one server, not here"
    for name, gpus, printed, ours, _ in six:
        yield check(
            f"table-2/{name}/ZeRO-3 by a share from elsewhere/{gpus} GPUs",
            published=printed,
            computed=ours,
            tolerance=tables.ZERO3_WITHIN,
            note=note,
        )
    ahead = sum(ptd > ours for *_, ours, ptd in six)
    yield check(
        "table-2/pairs in which PTD-P is ahead, ZeRO-3 by a share from elsewhere",
        published=len(six),
        computed=ahead,
        tolerance=0.0,
        note=note,
    )
    whole = sum(row[10] > 1 for row in tables.predicted_table_2().rows)
    yield Check(
        "table-2/pairs in which PTD-P is ahead, ZeRO-3 with whole links",
        published=len(six),
        computed=whole,
        status="explained" if ahead == len(six) else "mismatch",
        note="a defect of that DeepSpeed, which waits for each gather (its issue 1174): with the"
        f" share of the links that it left a BERT in one server it is {ahead} of {len(six)}",
    )
