"""Published layouts: what the makers of a model or of its software train it with
(catalog/recipes.csv), laid over a job's chips.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from math import log2
from typing import Any, NamedTuple, get_type_hints

from .. import catalog
from ..describe.choices import Choices
from ..describe.families import framework_family
from ..describe.framework import USUAL
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.stages import RULES
from ..layout import practice, rules, setting_rules
from ..layout.practice import MOST_CHUNKS
from ..layout.rule import broken_sentences
from ..prediction.classes import chip_family
from ..prediction.prediction import Prediction, predict
from .families import Family

RECIPE_FIELDS = (
    "tp",
    "cp",
    "pp",
    "ep",
    "etp",
    "microbatch",
    "schedule",
    "interleave",
    "zero",
    "recompute",
    "offload",
)
NAME = "a published recipe"
RISKY = "it has been run, so it fits whatever its predicted risk"
RAN_BY = "Megatron Core"
"""Family of the frameworks that the recipes are run by, or nearest to (Llama 3's and DeepSeek's
own)."""
ROUNDED = 1e-9
"""Share of a memory that is rounding."""
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
    offload: str
    source: str

    @property
    def framework(self) -> str:
        """That of its source; those of other software are taken as Megatron Core's."""
        theirs = self.source.startswith("Megatron-Bridge")
        return "megatron-bridge" if theirs else USUAL


@cache
def recipes() -> tuple[Recipe, ...]:
    """All of the catalogue."""
    text = (resources.files("meshwright.catalog") / "recipes.csv").read_text(
        "utf-8"
    )
    lines = csv.DictReader(
        line for line in text.splitlines() if not line.startswith("#")
    )
    kinds = get_type_hints(Recipe)
    return tuple(
        Recipe(**{name: kinds[name](said) for name, said in line.items()})
        for line in lines
    )


def nearest_recipe(job: Job) -> Recipe | None:
    """The recipe of the job's model on chips of its family that is nearest to it: in precision,
    then in the kind of chip, then in their number and in the sequence.
    """
    family = chip_family(job.cluster.chip)
    kind = job.precision.compute
    chip = job.cluster.chip.name
    fitting = [
        r
        for r in recipes()
        if is_model(job.model, r.model) and _family(r.chip) == family
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


def is_model(model: Model, name: str) -> bool:
    """Whether a model is the catalogue's of that name, whatever its own file calls it."""
    known = catalog.model(name)
    return model.name == name or layer_shape(model) == layer_shape(known)


def layer_shape(model: Model) -> tuple[Any, ...]:
    """What tells one model's layers from another's."""
    m = model.moe
    experts = (m.experts, m.top_k, m.expert_ffn) if m else ()
    return (
        model.layers,
        model.hidden,
        model.heads,
        model.kv_heads,
        model.ffn,
        *experts,
    )


@cache
def _family(chip: str) -> str:
    return chip_family(catalog.chip(chip))


def layouts_of_recipes(job: Job, r: Recipe) -> list[Layout]:
    """The recipe on the job's chips, whose replicas fill them; several where it does not say how
    many chunks a device has, or how layers are dealt that stages do not divide; in a pipeline
    gradients are whole too, for a framework that does not shard them there.
    """
    most = job.model.layers // r.pp
    chunks = [r.v] if r.v else range(1, min(most, MOST_CHUNKS) + 1)
    one = Layout(
        tp=r.tp,
        cp=r.cp,
        pp=r.pp,
        ep=r.ep,
        etp=r.etp,
        microbatch=r.microbatch,
        zero=r.zero,
        recompute=r.recompute,
        offload=r.offload,
        sequence_parallel=r.tp > 1,
    ).filling(job.cluster.chips)
    # pipelines shard no gradients: a recipe's ZeRO-2 or 3 is also tried as ZeRO-1 there
    stages_of_zero = (r.zero, min(r.zero, 1)) if r.pp > 1 else (r.zero,)
    dealt = ("even",) if job.model.layers % r.pp == 0 else RULES
    return [
        replace(
            one,
            interleave=v,
            schedule="interleaved" if v > 1 else "1f1b",
            stages=stages,
            zero=zero,
        )
        for zero in dict.fromkeys(stages_of_zero)
        for v in chunks
        for stages in dealt
    ]


def recipe_fields(layout: Layout) -> tuple[Any, ...]:
    """The fields of a layout that a recipe states, in the order of `RECIPE_FIELDS`; how layers are
    dealt and where ranks lie, no recipe says.
    """
    return tuple(getattr(layout, name) for name in RECIPE_FIELDS)


@lru_cache(maxsize=64)
def published_fields(job: Job) -> frozenset[tuple[Any, ...]]:
    """`recipe_fields` of the layouts that the nearest published recipe may have on the job's chips;
    empty where it is of another precision, or of other software than the job's.
    """
    recipe = nearest_recipe(job) if _is_theirs(job) else None
    if recipe is None or recipe.precision != job.precision.compute:
        return frozenset()
    return frozenset(map(recipe_fields, layouts_of_recipes(job, recipe)))


def recipe_layouts(job: Job, r: Recipe) -> tuple[list[Prediction], str]:
    """(the recipe's layouts on the job's chips, fastest first; if there are none, why)."""
    every = layouts_of_recipes(job, r)
    why = [
        rules.broken(job, one, (*rules.ALWAYS, rules.EVEN_BATCH))
        or setting_rules.broken_settings(job, one)
        for one in every
    ]
    legal = [one for one, no in zip(every, why, strict=True) if not no]
    legal = [
        x for x in legal if not practice.not_proposed(job.profile, x)
    ] or legal
    fastest = sorted(
        (predict(job, one) for one in legal), key=lambda p: p.step_time_s
    )
    return fastest, "" if fastest else why[0][0]


def ran(job: Job, r: Recipe) -> bool:
    """A run of the recipe shows that its layout fits these chips: the same model, numbers and kind
    of program, on chips with no more memory, with no longer sequences here and no fewer replicas
    to shard over.
    """
    chip = catalog.chip(r.chip)
    there = r.chips // (r.tp * r.cp * r.pp)
    own = job.cluster.chips // (r.tp * r.cp * r.pp)
    return (
        is_model(job.model, r.model)
        and chip_family(chip) == chip_family(job.cluster.chip)
        and chip.hbm_bytes <= job.cluster.chip.hbm_bytes
        and r.precision == job.precision.compute
        and r.seq >= job.T
        and own >= there
        and _is_theirs(job)
    )


def shows(job: Job, r: Recipe, p: Prediction) -> bool:
    """A run of the recipe shows that this layout of it fits: by our count it needs no more here
    than there, in the program that ran it. Gradients twice as wide, say, have not been run.
    """
    return ran(job, r) and (
        p.memory_bytes["needed"]
        <= _there(job, r, p).memory_bytes["needed"] * (1 + ROUNDED)
    )


def _there(job: Job, r: Recipe, p: Prediction) -> Prediction:
    """The recipe's layout where it ran, with as many microbatches as here."""
    layout = p.layout.refilling(r.chips)
    return predict(
        Job(
            job.model,
            f"{r.chips}x{r.chip}",
            p.microbatches * int(layout.dp or 1) * int(layout.microbatch),
            layout,
            seq=r.seq,
            precision=r.precision,
            framework=r.framework,
        )
    )


def _is_theirs(job: Job) -> bool:
    """The job's framework is of the family that the recipes are of."""
    name = job.profile.name if job.profile else ""
    return framework_family(name) == RAN_BY


def shown_to_fit(job: Job, asked: Choices) -> list[tuple[Recipe, Prediction]]:
    """Of each recipe that is known to fit the fastest layout within what was asked, fastest
    first. Each keeps the conventions of published runs here too: cp 16, run with 131,072 tokens,
    leaves 512 of 8,192 on a rank.
    """
    fitting = []
    conventions = practice.kept_conventions(job, asked)
    kept = [rule for each in conventions for rule in each.rules]
    for r in recipes():
        if ran(job, r):
            each = [
                p
                for p in recipe_layouts(job, r)[0]
                if asked.allows(p.layout)
                and shows(job, r, p)
                and not broken_sentences(job, p.layout, kept)
            ]
            fitting += [(r, p) for p in each[:1]]
    return sorted(fitting, key=lambda one: one[1].step_time_s)


def recipe_families(job: Job) -> list[Family]:
    """The nearest published recipe as a row of a plan; one that cannot be laid over the job's chips
    is named with the reason.
    """
    recipe = nearest_recipe(job)
    if recipe is None:
        return []
    there = f"{recipe.source}: {recipe.chips:,} x {recipe.chip}, {recipe.precision}"
    every, why = recipe_layouts(job, recipe)
    if not every:
        return [Family(NAME, None, f"{there}; not here: {why}")]
    p, fits_there = every[0], shows(job, recipe, every[0])
    short = RISKY if fits_there else f"{p.verdict} here"
    note = there if p.fits else f"{there}; {short}"
    return [Family(NAME, p, note, fits_there)]
