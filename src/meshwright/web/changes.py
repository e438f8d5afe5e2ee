"""What if: the fastest layout of a job with one thing changed, beside the fastest as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import catalog
from ..describe.job import Job
from ..prediction.prediction import Prediction
from ..search import Progress, Space
from .answers import Answer, Body, best_of, best_row, varied
from .question import ask


@dataclass(frozen=True)
class ChangedJob:
    """A job with one thing changed, and the fields of a question that say so."""

    name: str
    path: str
    value: str | float
    says: Mapping[str, str]


def changes_of(job: Job) -> Iterator[ChangedJob]:
    """What people ask about a cluster and a job, most asked first."""
    cluster = job.cluster
    N = job.cluster.chips
    used = zip(cluster.network.dims, cluster.sizes, strict=True)
    joined = [dim for dim, size in used if size > 1 and dim.bandwidth]
    for name, dim, factor in (
        *(("twice", dim, 2.0) for dim in joined[::-1]),
        *(("half", dim, 0.5) for dim in joined[-1:]),
    ):
        yield ChangedJob(
            f"{name} {dim.name}",
            f"network.{dim.name}.bandwidth",
            float(dim.bandwidth) * factor,
            {},
        )
    for chip in NEXT_CHIPS:
        if chip != cluster.chip.name:
            at = f"{N}x{chip}"  # on its own network
            yield ChangedJob(chip, "on", at, {"on": at, "network": ""})
    for chips in (2 * N, N // 2):
        if chips:
            what = cluster.name and catalog.split_count(cluster.name)[1]
            says = {"on": f"{chips}x{what}"} if what else {}
            yield ChangedJob(f"{chips:,} chips", "chips", str(chips), says)
    if "fp8" in cluster.chip.matrix_flops and job.precision.compute != "fp8":
        yield ChangedJob("fp8", "precision", "fp8", {"precision": "fp8"})
    for seq in (job.T * 4, job.T * 2):
        yield ChangedJob(f"seq {seq:,}", "seq", str(seq), {"seq": str(seq)})
    bytes_ = cluster.chip.hbm_bytes
    yield ChangedJob("memory −10 %", "chip.hbm_bytes", float(bytes_) * 0.9, {})


NEXT_CHIPS = ("h200", "b200", "mi300x", "tpu-v5p")
"""Other chips that a plan is asked about."""


def what_if(body: Body, progress: Progress) -> Iterator[Answer]:
    """The fastest layout with one thing changed at a time, beside the fastest as it is; a line for
    each.
    """
    job, space = ask(body.get("question"), [])
    now = best_of(job, space, progress, top=2).fastest
    for change in changes_of(job):
        yield {
            "name": change.name,
            "set": change.says,
            **fastest_fields(job, space, change, progress=progress, now=now),
        }


def fastest_fields(
    job: Job,
    space: Space,
    change: ChangedJob,
    progress: Progress,
    now: Prediction | None,
) -> dict[str, Any]:
    """The fastest layout of a changed job in a few numbers.

    slower: its time of a token over the chance to fit, over that of `now`, less 1. The fastest of
    both, not their answers, which are chosen among ties: twice a bandwidth never costs time.
    """
    changed = varied(job, change.path, change.value)
    p, row = best_row(changed, space, progress, top=2)
    if p:
        row["slower"] = token_s(p) / token_s(now) - 1 if now else None
    return row


def token_s(p: Prediction) -> float:
    """Seconds of a token, over the chance that the step fits."""
    return p.merit_s / p.job.batch_tokens
