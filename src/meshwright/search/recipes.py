"""Published layouts: what the makers of a model or of its software train it with
(catalog/recipes.csv), laid over a job's chips.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from math import log2
from typing import Any, NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout import rules
from ..prediction.classes import chip_family
from ..prediction.prediction import predict
from .families import Family

WHOLE = (
    "chips",
    "seq",
    "tp",
    "cp",
    "pp",
    "ep",
    "etp",
    "v",
    "microbatch",
    "zero",
)
NAME = "a published recipe"
MOST_APART = 6.0
"""Doublings of chips and tokens beyond which a recipe says nothing."""


class Recipe(NamedTuple):
    """One row."""

    model: str
    chip: str
    chips: int
    seq: int
    precision: str
    tp: int
    cp: int
    pp: int
    ep: int
    etp: int
    v: int
    microbatch: int
    zero: int
    recompute: str
    source: str


@cache
def recipes() -> tuple[Recipe, ...]:
    """All of the catalogue."""
    text = (resources.files("meshwright.catalog") / "recipes.csv").read_text(
        "utf-8"
    )
    lines = csv.DictReader(
        line for line in text.splitlines() if not line.startswith("#")
    )
    return tuple(_read(line) for line in lines)


def _read(line: dict[str, str]) -> Recipe:
    fields: dict[str, Any] = {
        k: int(v) if k in WHOLE else v for k, v in line.items()
    }
    return Recipe(**fields)


def nearest(job: Job) -> Recipe | None:
    """The recipe of the job's model on chips of its family that is nearest to it: in precision,
    then in the kind of chip, then in their number and in the sequence.
    """
    family = chip_family(job.cluster.chip)
    kind = job.precision.compute
    chip = job.cluster.chip.name
    fitting = [
        r
        for r in recipes()
        if r.model == job.model.name and _family(r.chip) == family
    ]

    def apart(r: Recipe) -> float:
        return abs(log2(job.cluster.chips / r.chips)) + 2 * abs(
            log2(job.T / r.seq)
        )

    near = [r for r in fitting if apart(r) <= MOST_APART]
    return min(
        near,
        key=lambda r: (r.precision != kind, r.chip != chip, apart(r)),
        default=None,
    )


@cache
def _family(chip: str) -> str:
    from .. import catalog

    return chip_family(catalog.chip(chip))


def layout(job: Job, r: Recipe) -> Layout:
    """The recipe on the job's chips: replicas fill them."""
    return Layout(
        tp=r.tp,
        cp=r.cp,
        pp=r.pp,
        ep=r.ep,
        etp=r.etp,
        interleave=r.v,
        schedule="interleaved" if r.v > 1 else "1f1b",
        microbatch=r.microbatch,
        zero=r.zero,
        recompute=r.recompute,
        sequence_parallel=r.tp > 1,
    ).filling(job.cluster.chips)


def published(job: Job, best_s: float) -> list[Family]:
    """The nearest published recipe as a row of a plan; best_s: what the plan's best takes.

    One that cannot be laid over these chips is named with the reason.
    """
    recipe = nearest(job)
    if recipe is None:
        return []
    there = f"{recipe.source}: {recipe.chips:,} x {recipe.chip}, {recipe.precision}"
    one = layout(job, recipe)
    if why := rules.broken(job, one, (*rules.ALWAYS, rules.EVEN_BATCH)):
        return [
            Family(NAME, None, None, False, f"{there}; not here: {why[0]}")
        ]
    p = predict(job, one)
    short = "" if p.fits else f"; {p.verdict} here"
    return [
        Family(
            NAME,
            p,
            p.merit_s / best_s - 1.0,
            False,
            there + short,
        )
    ]
