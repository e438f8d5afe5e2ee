"""A plan: which spaces a question is asked in, and what is said beside its answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..describe.fields import FieldKind
from ..describe.framework import USUAL, framework
from ..describe.frozen import FrozenDict
from ..describe.job import Job, demand_job
from ..describe.layout import Layout
from ..layout import practice, rules, setting_rules
from ..prediction.certainty import has_precedent, resolution
from ..prediction.classes import sharding
from ..prediction.runnable import not_there
from . import precedent
from .answer import Plan, Steps
from .evaluate import Progress
from .families import Family
from .joint_software import choose_settings
from .misfit import nearest_fit, space_fits
from .question import Question, answer_steps, final_plan
from .recipes import RISKY, recipe_families, shown_to_fit
from .software import with_settings
from .space import Space, constrain
from .strategies import strategies
from .summary import describe_search


def plan(
    job: Job,
    space: Space | None = None,
    top: int = 10,
    progress: Progress | None = None,
    pareto: bool = False,
    families: bool = True,
    **fields: Any,
) -> Plan:
    """The `top` best layouts of the space that fit; the job's own layout is ignored.

    >>> from meshwright import Job, plan
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512)
    >>> best = plan(job, tp=[1, 2], zero=3, framework="torchtitan").answer
    >>> best.layout.tp, best.layout.zero, best.fits
    (1, 3, True)

    Layouts rank by the expected time over the chance to fit, exactly; among ties
    (`certainty.resolution`) the answer has the least `merit.Complexity`. Fields that the space
    leaves open are searched as the job's assumption set or framework does (`strategies`), within
    the conventions of published runs. pareto: also the front of time against memory (a search for
    each of its points). families: also the best layout of each family, and what is faster outside
    published practice. fields: values of layout fields that the search may take, and values of
    other fields of the job (`Job.with_`). If nothing fits, that is no error: `best` is None, and
    `closest` and `notes` say what is missing.
    """
    demand_job(job)
    asked, among = constrain(job, space, fields)
    question = Question(
        asked, among, top, progress=progress, pareto=pareto, families=families
    )
    return final_plan(planning(question))


def planning(question: Question) -> Steps:
    """`plan`, and in between what is the answer on all chips by lower bounds, before pipelines are
    replayed and fewer chips are tried.
    """
    start = time.perf_counter()
    job, asked = question.job, question.asked
    if asked.software:
        settings, others = choose_settings(job, asked)
        job, asked = with_settings(job, settings), asked.without_software
        answer = yield from planning(replace(question, job=job, asked=asked))
        return replace(
            answer,
            families=(*answer.families, *others),
            settings=FrozenDict(settings),
            elapsed_s=time.perf_counter() - start,
        )
    spaces, beyond = strategies(job, asked, proposals=resolution(job) > 0)
    top = FieldKind(int).kept(question.top, "top")
    question = replace(question, spaces=spaces, top=top)
    if resolution(job):
        answer = yield from _plan_by_practice(question)
    else:
        answer = final_plan(answer_steps(question, job))
        if answer.best is None:
            answer = _explain_misfit(job, spaces[0], answer, asked)
    tried, untried = describe_search(job, spaces)
    beyond = [*beyond, *not_there(job)]
    whose = f"{job.assumptions.name}: " if job.assumptions.choices else ""
    return replace(
        answer,
        tried=whose + tried,
        untried=untried,
        # what was named beyond may be why nothing is legal
        notes=tuple(
            dict.fromkeys(
                (*beyond, *answer.notes)
                if answer.best
                else (*answer.notes, *beyond)
            )
        ),
        elapsed_s=time.perf_counter() - start,
    )


def _plan_by_practice(question: Question) -> Steps:
    """The plan that keeps the conventions of published runs, or, if none of its layouts fits, one
    of all layouts; and what is faster outside.
    """
    job, asked = question.job, question.asked
    conventions = practice.kept_conventions(job, asked.choices)
    usual = practice.keeping(setting_rules.keeping(job), conventions)
    answer = yield from answer_steps(question, usual)
    if answer.best and "zero" not in asked.choices:
        answer = _prefer_precedent(question, usual, answer)
    answer = _prefer_recipe(question, answer)
    if answer.best:
        kept = tuple(each.words for each in conventions)
        if not question.by_family:
            return replace(answer, kept=kept)
        return replace(
            answer,
            kept=kept,
            families=(*answer.families, *recipe_families(job)),
            asked=(job, asked),
        )
    every, _ = strategies(job, asked, proposals=False)
    answer = yield from answer_steps(replace(question, spaces=every), job)
    if answer.best is None:
        return _explain_misfit(job, every[0], answer, asked)
    layout = answer.best.layout
    broken = (
        *practice.unusual(job, layout),
        *setting_rules.broken_settings(job, layout),
    )
    said = (
        f"no layout like those of published runs fits: {'; '.join(broken)}"
        if broken
        else ""
    )
    return replace(answer, notes=(*filter(None, [said]), *answer.notes))


def _prefer_precedent(question: Question, usual: Job, answer: Plan) -> Plan:
    """The plan, or that of layouts that shard as published runs do, where its answer does not: what
    no run shows wins where it is better even at the slow end of its interval, and says so.
    """
    best = answer.best
    assert best is not None
    if has_precedent(best.job, best.layout):
        return answer
    spaces = precedent.precedent_spaces(usual, question.spaces)
    other = (
        final_plan(answer_steps(replace(question, spaces=spaces), usual))
        if spaces
        else Plan(None)
    )
    if other.best is None:
        return replace(
            answer,
            notes=(
                f"{precedent.SAID}, nor like any layout that fits",
                *answer.notes,
            ),
        )
    gain = best.merit_s / other.best.merit_s - 1.0
    if precedent.slow_end(best) <= other.best.merit_s:
        more = f"{-100 * gain / (1 + gain):+.0f} %"
        said = f"{precedent.SAID}; the best layout that runs show takes {more}"
        return replace(answer, notes=(said, *answer.notes))
    other = replace(other, searched=answer.searched, rejected=answer.rejected)
    if not question.by_family:
        said = f"{sharding(best.layout)} is faster by {-100 * gain:.0f} %, but {precedent.SAID}"
        return replace(other, notes=(said, *other.notes))
    known = {row.name for row in other.families}
    rest = (
        row
        for row in answer.families
        if row.name not in known
        and row.prediction
        and row.prediction.layout != best.layout
    )
    new = Family(precedent.NAME, best, precedent.SAID)
    return replace(other, families=(*other.families, *rest, new))


def _prefer_recipe(question: Question, answer: Plan) -> Plan:
    """The plan, or one whose answer is a published recipe that is known to fit, whatever its
    predicted risk, where that is faster by more than the model's resolution.
    """
    job = question.job
    known = shown_to_fit(job, question.asked.choices)
    if not known:
        return answer
    recipe, p = known[0]
    limit = answer.best.merit_s if answer.best else np.inf
    if p.step_time_s * (1.0 + resolution(job)) > limit:
        return answer
    said = f"the answer is a published recipe ({recipe.source})" + (
        "" if p.fits else f": {RISKY}"
    )
    others = (answer.best, *answer.alternatives) if answer.best else ()
    return replace(
        answer,
        best=p,
        alternatives=others[: question.top - 1],
        recipe=recipe.source,
        notes=(said, *answer.notes),
    )


def _explain_misfit(
    job: Job, space: Space, answer: Plan, asked: Space
) -> Plan:
    """A plan without a layout, with what would help; space: the first of what was asked for, as the
    framework searches it.
    """
    closest, (why, *ways) = nearest_fit(job, space)
    if closest:
        ways = [*_fits_with_another(job, asked), *ways]
    return replace(
        answer,
        closest=closest,
        notes=(why, *ways, *job.model.notes, *answer.notes),
    )


OTHERS = (
    (USUAL, "none", "tensor and pipeline parallelism"),
    ("automodel", "none", "NeMo AutoModel"),
    (
        "deepspeed",
        "optimizer",
        "DeepSpeed with optimizer state in host memory",
    ),
)
"""(framework, what is in host memory, in words): what people start on cards whose usual framework,
FSDP alone, has no room for a model; the first that fits is named."""


def _fits_with_another(job: Job, asked: Space) -> Iterator[str]:
    """The sentence on another framework, where nobody named one and the usual one of these chips
    stands for others (`Framework.otherwise`).
    """
    # a paper's set has no framework
    if not job.profile or job.framework or not job.profile.otherwise:
        return
    for name, away, words in OTHERS:
        if rules.host_unknown(job.cluster.chip, Layout(offload=away)):
            continue
        space = asked if away == "none" else asked.but(offload=(away,))
        other = replace(job, framework=framework(name))
        if any(space_fits(other, one) for one in strategies(other, space)[0]):
            flag = "" if away == "none" else f" --offload {away}"
            yield f"{words} (--framework {name}{flag}) would make it fit"
            return
