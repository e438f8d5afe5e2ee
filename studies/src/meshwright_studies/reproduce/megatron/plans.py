"""Takeaway 1 (section 3.2): tensor parallelism up to the GPUs of a server, then pipelines. The ten
models of table 1 planned in the space the paper had, by the default set and by `megatron-2021`, and
table 1 under that set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from meshwright.describe.assumptions import MEGATRON
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.certainty import resolution
from meshwright.prediction.prediction import Prediction, predict
from meshwright.report.text import percent
from meshwright.search import Space, plan

from ...validate.jobs import job_and_notes
from ..report import Check, PaperTable, check, judged, table_of
from .figures import tflops
from .tables import PREDICTED_WITHIN, selene, table_runs

SERVER = 8
"""GPUs of a DGX A100."""
THEIRS = Space(recompute=("full",), sequence_parallel=(False,), zero=(0,))
"""What PTD-P could choose; the rest is the default space of the profile megatron-2021."""


class Planned(NamedTuple):
    """A model of table 1."""

    name: str
    printed: Layout
    """What the paper leaves open by the rule of `validate.silent`."""
    rate: float
    """TFLOP/s a GPU, printed."""
    job: Job
    best: Prediction
    theirs: Prediction
    """The printed layout."""

    @property
    def slower(self) -> float:
        """The printed layout, by this share of the planned one's time."""
        return self.theirs.step_time_s / self.best.step_time_s - 1


@cache
def planned_models() -> tuple[Planned, ...]:
    """The ten models, in the order of the table."""
    plans = []
    for row, layout, _ in table_runs():
        if "t1" not in row["id"]:
            continue
        model = job_and_notes(row).job.model
        job = selene(model, row["hardware"]["count"], row["global_batch"])
        best = plan(job, THEIRS).best
        assert best
        plans.append(
            Planned(
                model.name,
                printed=layout,
                rate=row["measured"]["tflops_per_gpu"],
                job=job,
                best=best,
                theirs=predict(job, layout),
            )
        )
    return tuple(plans)


def plan_checks() -> Iterator[Check]:
    """Does tensor parallelism stay in a server, and is it what they took?"""
    ten = planned_models()
    kept = sum(int(p.best.layout.tp) <= SERVER for p in ten)
    same = sum(p.best.layout.tp == p.printed.tp for p in ten)
    yield _counted(
        "takeaway 1/models whose plan keeps tensor parallelism in a server",
        kept,
        f"says little by itself: t 1 keeps it there too; {same} of {len(ten)} have the printed t: "
        + ", ".join(f"{p.name} t {p.best.layout.tp}" for p in ten),
    )
    alike = [
        p.name
        for p in ten
        if replace(p.best.layout, placement={})
        == replace(p.theirs.layout, placement={})
    ]
    lost = [p.slower for p in ten]
    yield _asked(
        "takeaway 1/models whose plan has the printed t",
        same,
        "the paper took its degrees by the heuristics of section 3, searched none and measured no"
        " other for these models (section 5.1); smaller models take more stages with chunks and"
        " less tensor parallelism here, where each layer waits for its all-reduces: as predicted"
        f" the printed layouts are {min(lost):.0%} to {max(lost):.0%} slower; the plan is theirs to"
        f" microbatch and chunks for {', '.join(alike)}",
    )
    yield from under_the_set()


def under_the_set() -> Iterator[Check]:
    """Table 1 under the set that holds the paper's analysis, and what that set plans by itself."""
    for p in planned_models():
        rate = analysed(p)
        yield check(
            f"under megatron-2021/table 1, {p.name}, TFLOP/s a GPU",
            published=p.rate,
            computed=rate,
            tolerance=PREDICTED_WITHIN,
            note="the set is the analysis of sections 2 and 3: kernels by their shape, bubbles of"
            " equal stages, and bytes at the rate of their links",
        )
    ten = planned_models()
    fastest = max(ten, key=analysed).name
    yield check(
        "under megatron-2021/table 1, 1T over 1.7B",
        published=ten[-1].rate / ten[0].rate,
        computed=analysed(ten[-1]) / analysed(ten[0]),
        tolerance=PREDICTED_WITHIN,
        note=f"the fastest is {fastest}",
    )
    for words, space, why in (
        ("", Space(), "everything recomputed, as in the paper: "),
        (
            ", recomputation free",
            Space(recompute=("none", "full")),
            "nothing in the paper to hold it against, which recomputes everything; a wider t can"
            " leave room to recompute nothing, which saves more than its messages cost: ",
        ),
    ):
        best = [plan(under(p), space).best for p in ten]
        judged = _asked if words else _counted
        yield judged(
            f"under megatron-2021/plans with t in a server{words}",
            sum(b is not None and int(b.layout.tp) <= SERVER for b in best),
            why
            + ", ".join(
                f"{p.name} t {b.layout.tp} p {b.layout.pp}"
                for p, b in zip(ten, best, strict=True)
                if b
            ),
        )


def under(p: Planned) -> Job:
    """The job under the set `megatron-2021`, which has the paper's software and numbers."""
    return replace(p.job, assumptions=MEGATRON, framework=None)


def analysed(p: Planned) -> float:
    """TFLOP/s a GPU under the set `megatron-2021`."""
    return tflops(predict(under(p), p.printed))


def _counted(id: str, ours: int, note: str) -> Check:
    """So many of the ten."""
    ten = len(planned_models())
    return judged(id, ten, computed=ours, good=ours == ten, note=note)


def _asked(id: str, ours: int, note: str) -> Check:
    """So many of the ten, of which the paper says nothing."""
    return Check(
        id,
        None,
        computed=ours,
        status="open",
        note=f"of {len(planned_models())}: {note}",
    )


def plans_table() -> PaperTable:
    """Printed and planned layouts."""
    ten = planned_models()
    tie = percent(resolution(ten[-1].job), 0)
    return table_of(
        "megatron-takeaway-1",
        "The models of table 1, planned in the space of PTD-P; below 0: a tie (within"
        f" {tie}), of which the simplest is planned",
        (
            {
                "model": p.name,
                "GPUs": p.job.cluster.chips,
                "t printed": p.printed.tp,
                "p printed": p.printed.pp,
                "t planned": p.best.layout.tp,
                "p planned": p.best.layout.pp,
                "d planned": p.best.layout.dp,
                "microbatch": p.best.layout.microbatch,
                "chunks": p.best.layout.interleave,
                "printed layout slower by [%]": 100 * p.slower,
            }
            for p in ten
        ),
    )
