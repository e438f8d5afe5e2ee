"""How sure a prediction is: where nine of ten runs of its kind lie around it, and on which
published runs that rests.

    s^2 = sum over parts of (share of the part in the step x how unsure the part is)^2
    interval = t exp(s low) to t exp(s high)

low and high are quantiles of ln(measured / predicted) / s over all runs, predicted with shared
numbers that were fitted without the laboratory that measured, and widened as for a further one; on
an installation whose steps were measured (`Installation`) those of a source's other runs after one
scale from three of them.
Every step is unsure by the same; more so are seconds that hang on a number which each installation
has for itself or at most one laboratory tells (`PARTS`). s grows with the distance from evidence:
chips, numbers or a sharding that no run used, more chips, longer sequences. What a program that
nobody knows adds lies on the slower side: it is predicted as the slower of what is known. Numbers:
catalog/evidence.toml, written by `meshwright fit`.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, get_type_hints

from ..count.model import parameters
from ..describe import shipped
from ..describe.assumptions import changed
from ..describe.families import framework_family
from ..describe.frozen import FrozenDict
from ..describe.job import Job
from ..describe.kernels import kernels
from ..describe.layout import Layout
from .classes import (
    DENSE,
    EXPERTS,
    chip_family,
    class_named,
    sharding,
    untested_mixers,
)
from .result import StepResult

PARTS = ("step", "host", "overhead", "fp4")
"""What a prediction can be unsure of: the whole step, and what hangs on one number that few runs
tell. host: seconds of its launches;  overhead: those of a step beside all layers;  fp4: its
products."""
BEYOND = (
    "chip",
    "share",
    "framework",
    "class",
    "experts",
    "numbers",
    "sharding",
    "chips",
    "tokens",
)
"""Distance from evidence: a family of chips that no run used, and one of which even the share of
the peak is assumed; a family of frameworks that no run used, and one that none used on such chips;
experts that few sources ran on such chips and programs; numbers that no run of these computed in;
a sharding that no run of its kind of model had; doublings of chips and of tokens in a sequence
beyond any run's."""
SLOWER = ("framework",)
"""Of these, what is predicted as the slower of what is known: it is hardly faster than that. A chip
is not: its kernels were measured, or a low share of its peak is assumed."""
TRACED = 0.12
"""What a model is unsure of that a trace counted: chosen just above the largest |ln(step / step)|,
0.112, of traced and hand-written counts of the same layers, 15 layouts, 2026-11-24
(docs/traced.md); families that no hand has counted may lie further off.
"""
TRUSTED = 3
"""A class with fewer sources may be off as a whole, which its own rows do not show."""
NEAREST = 3


class PublishedRun(NamedTuple):
    """A published run, as far as nearness goes; measured over predicted: `ratio`."""

    id: str
    source: str
    model: str
    chip: str
    family: str
    framework: str
    kind: str
    precision: str
    chips: int
    parameters: float
    tokens: int
    step_s: float = 0.0
    ratio: float = 1.0
    sharding: str = ""
    """`classes.sharding` of its layout."""

    @classmethod
    def of(
        cls, job: Job, id: str = "", source: str = "", **took: float
    ) -> PublishedRun:
        """Of a job; took: seconds of a step, and their ratio to those predicted."""
        chip = job.cluster.chip
        return cls(
            id,
            source,
            job.model.name,
            chip.name,
            chip_family(chip),
            job.profile.name if job.profile else "",
            EXPERTS if job.model.moe else DENSE,
            job.precision.compute,
            job.cluster.chips,
            float(parameters(job.model)),
            job.T,
            **took,
            sharding=sharding(job.layout),
        )

    @property
    def class_(self) -> str:
        """Its class (`kind` is that of its model)."""
        return class_named(
            self.family, self.framework, self.kind, self.precision
        )

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.chips} x {self.chip} in {self.precision} ({self.source}): took"
            f" {self.ratio:.2f} of what is predicted"
        )


class Certainty(NamedTuple):
    """How sure a prediction is."""

    low: float
    """Of the expected step time."""
    high: float
    width: float
    """s: relative width of one prediction."""
    kind: str
    """The class."""
    rows: int
    """Published runs of the class."""
    sources: tuple[str, ...]
    note: str
    """What makes it less sure than most; "" if nothing does."""
    precisions: Mapping[str, int] = FrozenDict()
    """In what numbers the runs of the class computed -> how many of them, most first."""


def certainty(of: StepResult) -> Certainty | None:
    """How sure a prediction is; None under a set of assumptions that was compared with no runs."""
    known = evidence_for(of.job)
    if not known or of.job.profile is None:
        return None
    kind = kind_of(of.job)
    mine = known["classes"].get(kind, {"rows": 0, "sources": ()})
    ends = known
    far = distance(of.job, known)
    if steps := of.job.cluster.installation.steps:
        ends = known["own"]
        far = dict.fromkeys(far, 0.0)
    unsure = {**known["unsure"], "traced": TRACED}
    shares = part_shares(of.job, of.time_s)
    shares["traced"] = float(of.job.model.traced is not None)
    s = uncertainty({**shares, **far}, unsure)
    sides = {**far, **dict.fromkeys(SLOWER, 0.0)}
    return Certainty(
        math.exp(uncertainty({**shares, **sides}, unsure) * ends["low"]),
        math.exp(s * ends["high"]),
        s,
        kind=kind,
        rows=int(mine["rows"]),
        sources=tuple(mine["sources"]),
        note=f"scaled by {steps} steps measured there"
        if steps
        else "; ".join(
            (
                *reasons_unsure(kind, mine, {**shares, **far}),
                *(f"no run has {x}" for x in untested_mixers(of.job.model)),
            )
        ),
        precisions=precisions(kind),
    )


@cache
def precisions(kind: str) -> FrozenDict[str, int]:
    """In what numbers the published runs of a class computed -> how many of them, most first."""
    count = Counter(
        run.precision for run in evidence_runs() if run.class_ == kind
    )
    return FrozenDict(dict(count.most_common()))


def kind_of(job: Job) -> str:
    """The class of a job."""
    return PublishedRun.of(job).class_


def part_shares(job: Job, time_s: Mapping[str, float]) -> dict[str, float]:
    """Part of a prediction -> its share of the step, or whether it is there."""
    whole = sum(time_s[cause] for cause in time_s if cause != "other") or 1.0
    by = job.profile
    return {
        "step": 1.0,
        "host": time_s["host"] / whole,
        # a tiny step may be shorter than the overhead alone: all of it, and no more
        "overhead": min(1.0, by.step_s / whole) if by else 0.0,
        "fp4": float(job.precision.compute == "fp4"),
    }


def distance(job: Job, known: Mapping[str, Any]) -> dict[str, float]:
    """How far a job is from any run: yes or no (1, 0), or doublings."""
    classes = known["classes"]
    kind = kind_of(job)
    software = framework_family(job.profile.name if job.profile else "")
    middle = (f", {software}, " in name for name in classes)
    family = f"{chip_family(job.cluster.chip)}, "
    chip = not any(name.startswith(family) for name in classes)
    new = {
        "chip": chip,
        "share": chip and chip_unmeasured(job),
        "framework": not any(middle),
    }
    most = known["most"]
    seen = kind in classes or any(new.values())
    without_numbers = kind.rpartition(", ")[0]
    alike = any(name.startswith(f"{without_numbers}, ") for name in classes)
    return {
        **{name: float(yes) for name, yes in new.items()},
        "class": float(not (seen or alike)),
        "experts": float(
            job.model.moe is not None
            and len(classes.get(kind, {"sources": ()})["sources"]) < TRUSTED
        ),
        "numbers": float(alike and not seen),
        "sharding": float(not has_precedent(job, job.layout)),
        # nearer runs than the largest measured are no extrapolation
        "chips": max(0.0, math.log2(job.cluster.chips / most["chips"])),
        # the same of sequences: shorter ones are inside the evidence
        "tokens": max(0.0, math.log2(job.T / most["tokens"])),
    }


def chip_unmeasured(job: Job) -> bool:
    """The share of the chip's peak is neither the set's nor measured, and its kernels were not
    measured either.
    """
    chip, how = job.cluster.chip, job.how.chip
    measured_kernels = how.model == "calibrated" and chip.kernels
    return (
        how.matrix_efficiency is None
        and chip.sustained is None
        and (not chip.kernel_law or kernels(chip.kernel_law).estimated)
        and not measured_kernels
    )


def has_precedent(job: Job, layout: Layout) -> bool:
    """Whether a published run of such a model, by such software, shards as the layout does."""
    how = sharding(layout)
    return not how or how in shardings(job)


def shardings(job: Job) -> frozenset[str]:
    """Shardings (`classes.sharding`) of the published runs of a job's kind of model by its family
    of frameworks; where no run is by that family, those by any.
    """
    software = framework_family(job.profile.name if job.profile else "")
    return _shardings(EXPERTS if job.model.moe else DENSE, software)


@cache
def _shardings(kind: str, software: str) -> frozenset[str]:
    alike = [run for run in evidence_runs() if run.kind == kind]
    own = (x for x in alike if framework_family(x.framework) == software)
    return frozenset(x.sharding for x in [*own] or alike)


def uncertainty(of: Mapping[str, float], unsure: Mapping[str, float]) -> float:
    """s: root of the squares of what each part is unsure by."""
    return math.sqrt(
        sum((share * unsure[name]) ** 2 for name, share in of.items())
    )


def reasons_unsure(
    kind: str, mine: Mapping[str, Any], far: Mapping[str, float]
) -> Iterator[str]:
    """Why a prediction is less sure than most."""
    if far["chip"]:
        yield "no published run used such chips"
    if far["share"]:
        yield "nobody measured what share of its peak such a chip reaches"
    if far["framework"]:
        yield "no published run used this framework"
    if far["class"]:
        yield f"no published run is of its class ({kind})"
    if far["numbers"]:
        yield f"no published run of its kind has this precision ({kind})"
    if far["sharding"]:
        yield "no published run is sharded like this"
    if mine["rows"] and len(mine["sources"]) < TRUSTED:
        n = len(mine["sources"])
        count = "one published source" if n == 1 else f"{n} published sources"
        yield f"only {count} of this kind ({', '.join(mine['sources'])})"
    if far["chips"]:
        yield "more chips than in any published run"
    if far["tokens"]:
        yield "longer sequences than in any published run"
    if far["traced"]:  # nobody has counted it by hand
        yield "its layers are counted by a trace, which no run has tested"


def ratio(one: StepResult, other: StepResult) -> tuple[float, float] | None:
    """Nine of ten: seconds of one step over those of the other, as factors on the predicted ratio.

    What both share they are unsure of together: under one class, parts count by how much their
    shares differ, and the rest by what rows of one workload differ by (`pair`); else each for
    itself.
    """
    a = certainty(one)
    b = certainty(other)
    if a is None or b is None:
        return None
    known = evidence_for(one.job)
    s = math.hypot(a.width, b.width)
    if (a.kind, one.job.assumptions.name) == (
        b.kind,
        other.job.assumptions.name,
    ):
        mine = part_shares(one.job, one.time_s)
        its = part_shares(other.job, other.time_s)
        differ = {name: mine[name] - its[name] for name in PARTS}
        unsure = {**known["unsure"], "step": known["pair"]}
        s = uncertainty({**differ, "step": 1.0}, unsure)
    wide = s * max(-float(known["low"]), float(known["high"]))
    return math.exp(-wide), math.exp(wide)


def resolution(job: Job) -> float:
    """Share by which predicted times of two layouts of one job must differ before the faster one is
    more often faster than not by a clear margin: below it they are ties. 0: the job's set was
    compared with no runs, so every difference counts.
    """
    return float(evidence_for(job).get("resolution", 0.0))


def evidence_for(job: Job) -> Mapping[str, Any]:
    """How measured step times compare with what the job's set predicts; empty for a set that was
    compared with no runs, or of which the job changes an option.
    """
    how = job.assumptions
    return {} if changed(how) else evidence().get(how.name, {})


def nearest_runs(job: Job, count: int = NEAREST) -> tuple[PublishedRun, ...]:
    """The published runs nearest to a job, one of each configuration."""
    return _nearest(PublishedRun.of(job), count)


@lru_cache(maxsize=64)
def _nearest(asked: PublishedRun, count: int) -> tuple[PublishedRun, ...]:
    nearest_runs: list[PublishedRun] = []
    for run in sorted(
        evidence_runs(), key=lambda run: (run_distance(asked, run), run.id)
    ):
        if not any(run[1:11] == other[1:11] for other in nearest_runs):
            nearest_runs.append(run)
        if len(nearest_runs) == count:
            break
    return tuple(nearest_runs)


def run_distance(asked: PublishedRun, run: PublishedRun) -> float:
    """How far a run is from a job: chips, software and kind of model first, then sizes."""
    distance = 3.0
    if run.family == asked.family:
        distance = 1.0
    if run.chip == asked.chip:
        distance = 0.0
    same = framework_family(run.framework) == framework_family(asked.framework)
    distance += 0.5 if same else 2.0
    distance -= 0.5 * (run.framework == asked.framework)
    distance += 3.0 * (run.kind != asked.kind)
    distance += 1.0 * (run.precision != asked.precision)
    sizes = (
        (asked.chips, run.chips),
        (asked.parameters, run.parameters),
        (asked.tokens, run.tokens),
    )
    return distance + sum(
        0.3 * abs(math.log2(mine / its)) for mine, its in sizes
    )


@cache
def evidence() -> dict[str, dict[str, Any]]:
    """Set of assumptions -> how measured step times compare with what it predicts."""
    return shipped.shipped_table("evidence.toml")


@cache
def evidence_runs() -> tuple[PublishedRun, ...]:
    """The published runs that the evidence is made of."""
    lines = csv.DictReader(
        line
        for line in shipped.text("runs/seen.csv").splitlines()
        if not line.startswith("#")
    )
    kinds = get_type_hints(PublishedRun)
    return tuple(
        PublishedRun(
            **{name: kinds[name](said) for name, said in line.items()}
        )
        for line in lines
    )
