"""A plan: the best layouts that fit, by family too, the front of time against memory, what was
looked at, and what would help if nothing fits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import indent
from typing import Any

import numpy as np

from ..describe.display import Displayed
from ..describe.fields import FieldKind
from ..describe.job import Job, demand
from ..describe.slices import axes
from ..layout import practice
from ..prediction.certainty import resolution
from ..prediction.elastic import elasticities
from ..prediction.prediction import Prediction, predict
from ..step import room
from ..units import show
from .best import Best
from .cascade import search
from .described import described
from .evaluate import Progress
from .families import Family, parts
from .nearby import Row, better_batch, on_fewer, why_fewer
from .ranked import Placed, Ranked
from .recipes import published
from .several import several
from .space import Space, demand_space
from .strategies import strategies
from .unfit import nearest_fit, rejections

FRONT_STEP = 0.1
"""Each point of the front needs at least this share less memory than the one before."""
FRONT_POINTS = 8
NAMED = 4
"""Layouts outside published practice that are searched for at first."""


@dataclass(frozen=True)
class Plan(Displayed):
    """What a search found."""

    best: Prediction | None
    alternatives: tuple[Prediction, ...] = ()
    """The others, best first; some of them may be as good as `best`, which is the simplest."""
    families: tuple[Family, ...] = ()
    """The best of each family of layouts; empty under a paper's set."""
    pareto: tuple[Prediction, ...] | None = None
    """Layouts that nothing beats in both time and memory, thinned out: each needs a tenth less
    memory than the one before. None: not asked for."""
    searched: int = 0
    """Layouts covered: with every option and placement in a strict space, with every option in a
    relaxed one.
    """
    feasible: int = 0
    """Layouts that were evaluated and fit. Bounds spare most from being looked at, so more may
    exist; `search.brute` counts them all.
    """
    rejected: dict[str, int] | None = None
    """Rule -> how many combinations of degrees broke it (each counted once); "memory" and "bound":
    layouts too big, or ruled out by a bound.
    """
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    closest: Prediction | None = None
    """If nothing fits: the layout that needs the least memory."""
    idle: str = ""
    """Why the answer leaves chips idle although that was not asked for; empty if it does not."""
    tried: str = ""
    """Among which layouts these are the fastest."""
    untried: str = ""
    """What the space leaves out."""
    kept: tuple[str, ...] = ()
    """Conventions of published runs that these layouts keep."""
    asked: tuple[Job, Space] | None = field(
        default=None, compare=False, repr=False
    )
    """What was asked, where the answer keeps conventions; None: it need not."""

    def __repr__(self) -> str:
        found = f"best: {self.best!r}" if self.best else "no layout fits"
        counts = (
            f"{self.searched:,} layouts searched in {show(self.elapsed_s, 's')}, {self.feasible:,}"
            " seen to fit"
        )
        return f"Plan: {counts}; {len(self.alternatives)} alternatives\n{indent(found, '  ')}"

    @cached_property
    def outside(self) -> tuple[Family, ...]:
        """The best layout that breaks a convention, or that the framework's released version does
        not run, where it is faster by more than the model's resolution: another search, made when
        it is asked for.
        """
        return _outside(*self.asked, self) if self.asked else ()

    def slower(self, p: Prediction) -> float:
        """What a layout takes beside the best, over the chance to fit, less 1; negative: less."""
        return p.merit_s / self.best.merit_s - 1 if self.best else 0.0

    @property
    def fastest(self) -> Prediction | None:
        """The least time over the chance to fit of all that was found: `best`, unless that is as
        good as far as the model can tell, and simpler. Known from two layouts on (`top`).
        """
        every = filter(None, (self.best, *self.alternatives))
        return min(every, key=lambda p: p.merit_s, default=None)

    def tie(self, p: Prediction) -> bool:
        """As good as the best, as far as the model can tell."""
        least = self.fastest
        assert least is not None
        return bool(p.merit_s <= least.merit_s * (1.0 + resolution(p.job)))

    def to_dict(self) -> dict[str, Any]:
        """The fields of `plan --json`."""
        return {
            "best": self.best.to_dict() if self.best else None,
            "alternatives": [
                {**p.to_dict(), "slower": self.slower(p), "tie": self.tie(p)}
                for p in self.alternatives
            ],
            "families": [
                family.to_dict() for family in (*self.families, *self.outside)
            ],
            "elasticities": [e.to_dict() for e in elasticities(self.best)]
            if self.best and self.families
            else [],
            "pareto": None
            if self.pareto is None
            else [p.to_dict() for p in self.pareto],
            "searched": self.searched,
            "feasible": self.feasible,
            "rejected": dict(self.rejected or {}),
            "elapsed_s": self.elapsed_s,
            "notes": [*([self.idle] if self.idle else []), *self.notes],
            "space": {
                "tried": self.tried,
                "not_tried": self.untried,
                "kept": list(self.kept),
            },
            "closest": self.closest.to_dict() if self.closest else None,
        }


@dataclass(frozen=True)
class Closed:
    """The answer on all chips before pipelines are replayed: the first that a search knows."""

    job: Job
    ranked: Ranked
    slack: float

    @property
    def best(self) -> Prediction | None:
        """The simplest of those that the first does not clearly beat; None: nothing fits, as far
        as is known.
        """
        layout = self.ranked.closed(self.slack)
        found = predict(self.job, layout) if layout else None
        return found if found and found.fits else None


Steps = Generator[Closed, None, Plan]
"""What a search knows before its answer, and its answer."""


def finished(steps: Steps) -> Plan:
    """The answer alone."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: Plan = done.value
            return answer


def plan(
    job: Job,
    space: Space | None = None,
    top: int = 10,
    progress: Progress | None = None,
    pareto: bool = False,
    families: bool = True,
) -> Plan:
    """The `top` best layouts of the space that fit; the job's own layout is ignored.

    Layouts rank by the expected time over the chance to fit, exactly; of those that the model
    cannot tell apart (`certainty.resolution`) the simplest is the answer. What the space leaves
    open is as the job's set of assumptions or its framework searches it (`strategies`), and keeps
    the conventions of published runs. pareto: also the front of time against memory (a search for
    each of its points). families: also the best layout of each family, and what is faster outside
    published practice. Nothing that fits is not an error: `best` is None, `closest` and `notes` say
    what is missing.
    """
    return finished(
        planning(
            job,
            space,
            top,
            progress,
            pareto,
            families,
        )
    )


def planning(
    job: Job,
    space: Space | None = None,
    top: int = 10,
    progress: Progress | None = None,
    pareto: bool = False,
    families: bool = True,
) -> Steps:
    """`plan`, and in between what is the answer on all chips by lower bounds, before pipelines are
    replayed and fewer chips are tried.
    """
    demand(job)
    start = time.perf_counter()
    asked = Space() if space is None else demand_space(space)
    top = FieldKind(int).kept(top, "top")
    spaces, beyond = strategies(job, asked, proposals=resolution(job) > 0)
    question = Question(job, spaces, top, progress, pareto, families)
    if resolution(job):
        one = yield from _practised(question, asked)
    else:
        each = [replace(question, spaces=[space]) for space in spaces]
        found = [finished(_answered(one, job)) for one in each]
        schemes = [str(each.scheme) for each in spaces]
        one = found[0] if len(found) == 1 else _together(found, schemes, top)
        if one.best is None:
            one = _unfit(job, spaces[0], one)
    tried, untried = described(job, spaces)
    whose = f"{job.assumptions.name}: " if job.assumptions.choices else ""
    return replace(
        one,
        tried=whose + tried,
        untried=untried,
        notes=(*beyond, *one.notes) if one.best else (*one.notes, *beyond),
        elapsed_s=time.perf_counter() - start,
    )


def _practised(question: Question, asked: Space) -> Steps:
    """The plan that keeps the conventions of published runs, or, if none of its layouts fits, one
    of all layouts; and what is faster outside.
    """
    job = question.job
    conventions = practice.kept_conventions(job, asked.choices)
    usual = practice.keeping(job, conventions)
    one = yield from _answered(question, usual)
    if one.best:
        kept = tuple(each.words for each in conventions)
        if not question.split:
            return replace(one, kept=kept)
        recipe = [
            replace(row, tie=one.tie(row.prediction))
            if row.prediction
            else row
            for row in published(job, one.best.merit_s)
        ]
        return replace(
            one,
            kept=kept,
            families=(*one.families, *recipe),
            asked=(job, asked),
        )
    every, _ = strategies(job, asked, proposals=False)
    one = yield from _answered(replace(question, spaces=every), job)
    if one.best is None:
        return _unfit(job, every[0], one)
    broken = practice.broken(job, one.best.layout)
    said = (
        f"no layout like those of published runs fits: {'; '.join(broken)}"
        if broken
        else ""
    )
    return replace(one, notes=(*filter(None, [said]), *one.notes))


def _outside(job: Job, asked: Space, one: Plan) -> tuple[Family, ...]:
    """What `Plan.outside` says."""
    best = one.best
    if best is None or best.idle or axes(job.cluster.network):
        return ()
    every, _ = strategies(job, asked, proposals=False)
    relaxed = bool(every[0].relaxed)
    within = best.merit_s / (1.0 + resolution(job))
    found = [
        (space, search(job, space, NAMED, relaxed, within=within))
        for space in every
    ]
    fastest = Ranked(job, found, relaxed, within=within).best(1)
    if not fastest:
        return ()
    p = predict(job, fastest[0].layout)
    if p.merit_s > within:
        return ()
    why = [
        *practice.broken(job, p.layout),
        *practice.not_proposed(job, p.layout),
    ]
    return (
        Family(
            "outside published practice",
            p,
            one.slower(p),
            False,
            "; ".join(why),
        ),
    )


def _unfit(job: Job, space: Space, one: Plan) -> Plan:
    """A plan without a layout, with what would help."""
    relaxed = bool(space.relaxed)
    _, sentences = rejections(job, space, relaxed)
    closest, why = nearest_fit(job, space, relaxed, sentences)
    return replace(
        one, closest=closest, notes=(*why, *job.model.notes, *one.notes)
    )


@dataclass(frozen=True)
class Question:
    """What a plan is asked."""

    job: Job
    spaces: Sequence[Space]
    top: int
    progress: Progress | None
    pareto: bool
    families: bool
    """The best of each family too, and whether another batch would be better."""

    @property
    def relaxed(self) -> bool:
        """Its spaces are relaxed."""
        return bool(self.spaces[0].relaxed)

    @property
    def slack(self) -> float:
        """Layouts that the first beats by no more than this share are as good."""
        return resolution(self.job)

    @property
    def split(self) -> bool:
        """The best of each family is looked for; papers have no families."""
        return self.families and self.slack > 0

    def ranked(self, job: Job) -> Ranked:
        """The layouts of a job in these spaces."""
        found = several(
            job,
            self.spaces,
            self.top,
            self.relaxed,
            self.progress,
            self.slack,
            self.split,
        )
        return Ranked(job, found, self.relaxed)

    def quickest(self, job: Job, within: float) -> Row | None:
        """The best layout of other chips or another batch, within a limit."""
        found = several(job, self.spaces, 1, relaxed=False, within=within)
        return Ranked(job, found, False, within=within).first

    def shown(self, ranked: Ranked) -> list[Placed]:
        """The k best layouts; of those that the first does not clearly beat the simplest is
        first.
        """
        best = ranked.best(self.top)
        if not best or not self.slack:
            return best
        simplest = ranked.simplest(best[0].merit * (1.0 + self.slack))
        if simplest is None:
            return best
        others = (each for each in best if each.layout != simplest.layout)
        return [simplest, *others][: self.top]


def _answered(question: Question, usual: Job) -> Steps:
    """The plan of a question. usual: the job as it is searched, which may run less than the
    question's.
    """
    job, progress, relaxed = question.job, question.progress, question.relaxed
    spaces, notes = _placeable(job, question.spaces)
    question = replace(question, spaces=spaces)
    if progress:
        progress("layouts", 0.0)
    ranked = question.ranked(usual)
    yield Closed(job, ranked, question.slack)
    idle = ""
    if spaces[0].relaxed is None:
        ranked, idle = _on_chips(question, ranked)
    all_chips = ranked.job is usual
    used, found = ranked.job, [best for _, best in ranked.found]
    predicted = _predicted(job, question.shown(ranked), all_chips)
    seen = Plan(
        None,
        searched=sum(best.searched for best in found),
        feasible=sum(best.feasible for best in found) if predicted else 0,
        rejected=_rejected(job, spaces, found, relaxed),
        pareto=() if question.pareto else None,
        notes=tuple(notes),
    )
    if not predicted:
        return seen
    row = ranked.first
    if question.families and not relaxed and row:
        better = better_batch(usual, used, question.quickest, row)
        seen = replace(seen, notes=(*seen.notes, *filter(None, [better])))
    one = replace(
        seen,
        best=predicted[0],
        alternatives=predicted[1:],
        pareto=_front(used, spaces, predicted[0], relaxed)
        if question.pareto
        else None,
        idle=idle,
    )
    if not question.split:
        return one
    names = [name for name, _ in parts(job, [*spaces], True)]
    return replace(one, families=_families(one, ranked, names, all_chips))


def _placeable(
    job: Job, spaces: Sequence[Space]
) -> tuple[Sequence[Space], list[str]]:
    """The spaces as the job's network lets them be placed, with what there is to say of it."""
    if not (spaces[0].placements and axes(job.cluster.network)):
        return spaces, []
    return (
        [replace(space, placements=False) for space in spaces],
        [
            "on a torus only one placement is looked at: tp nearest, then cp, dp, pp, along the"
            " axes in order"
        ],
    )


def _on_chips(question: Question, all_chips: Ranked) -> tuple[Ranked, str]:
    """What was found on all chips, or, where that is faster, on a cleaner number of them; and why
    chips are idle.
    """
    row = all_chips.first
    used = on_fewer(all_chips.job, question.quickest, row)
    if used is all_chips.job:
        return all_chips, ""
    fewer = question.ranked(used)
    best = fewer.first
    return fewer, why_fewer(question.job, used, best, row) if best else ""


def _predicted(
    job: Job, found: Sequence[Placed], all_chips: bool
) -> tuple[Prediction, ...]:
    """Predictions of layouts that were found; on all chips of the job none is replayed again."""
    each = tuple(predict(job, one.layout) for one in found)
    for p, one in zip(each, found, strict=True):
        if all_chips and one.replayed_s is not None:
            p.__dict__["replayed_s"] = one.replayed_s
        if all_chips and one.peaks is not None:
            p.__dict__["peaks"] = one.peaks
    return each


def _families(
    one: Plan, ranked: Ranked, names: Sequence[str], all_chips: bool
) -> tuple[Family, ...]:
    """The best of each family, best first; the plan's own stands for its family."""
    best = one.best
    assert best is not None
    found: dict[str, Family] = {}
    for i, name in enumerate(names):
        for each in ranked.best(1, of=i):
            known = {p.layout: p for p in (one.best, *one.alternatives) if p}
            p = known.get(each.layout)
            p = p or _predicted(best.job, [each], all_chips)[0]
            mine = Family(name, p, one.slower(p), one.tie(p))
            if name not in found or (found[name].slower or 0.0) > (
                mine.slower or 0.0
            ):
                found[name] = mine
        if any(x.layout == best.layout for x in ranked.of(i)):
            found[name] = Family(name, best, 0.0, True)
    return tuple(
        sorted(found.values(), key=lambda family: family.slower or 0.0)
    )


def _rejected(
    job: Job,
    spaces: Sequence[Space],
    found: Sequence[Best],
    relaxed: bool,
) -> dict[str, int]:
    """Rule or bound -> how many layouts it left out."""
    counts: Counter[str] = Counter()
    for space in spaces:
        counts.update(rejections(job, space, relaxed)[0])
    for best in found:
        counts["memory"] += best.too_big
        counts["bound"] += max(best.searched - best.feasible - best.too_big, 0)
    return dict(counts)


def _together(plans: list[Plan], schemes: list[str], top: int) -> Plan:
    """One plan of those of several strategies, each with its scheme."""
    first = min(plans, key=_merit)
    every = sorted(
        (x for p in plans if p.best for x in (p.best, *p.alternatives)),
        key=lambda x: x.step_time_s,
    )
    layouts = {x.layout: x for x in every}  # strategies may overlap
    fastest: dict[str, float] = {}
    for scheme, p in sorted(
        zip(schemes, plans, strict=True), key=lambda item: _merit(item[1])
    ):
        if p.best:
            fastest.setdefault(scheme, p.best.step_time_s)
    each = ", ".join(
        f"{scheme} {show(seconds, 's', 4)}"
        for scheme, seconds in fastest.items()
    )
    rejected: Counter[str] = Counter()
    for p in plans:
        rejected.update(p.rejected or {})
    return replace(
        first,
        alternatives=tuple(layouts.values())[1:top],
        pareto=None if first.pareto is None else _thinned(plans),
        searched=sum(p.searched for p in plans),
        feasible=sum(p.feasible for p in plans),
        rejected=dict(rejected),
        notes=(
            *(
                [f"the fastest of each scheme: {each}"]
                if len(fastest) > 1
                else []
            ),
            *first.notes,
        ),
    )


def _merit(p: Plan) -> tuple[float, float]:
    """Plans in order: the fastest first, then what comes nearest to fitting."""
    return p.best.step_time_s if p.best else np.inf, (
        p.closest.memory_bytes["allocated"] if p.closest else np.inf
    )


def _thinned(plans: list[Plan]) -> tuple[Prediction, ...]:
    """Of the fronts of several plans, by time, the layouts that need less memory, by a step, than
    all before them.
    """
    kept: list[Prediction] = []
    for p in sorted(
        (x for plan in plans for x in plan.pareto or ()),
        key=lambda x: x.step_time_s,
    ):
        if not kept or p.memory_bytes["allocated"] <= kept[-1].memory_bytes[
            "allocated"
        ] * (1 - FRONT_STEP):
            kept.append(p)
    return tuple(kept[:FRONT_POINTS])


def _front(
    used: Job,
    spaces: Sequence[Space],
    best: Prediction,
    relaxed: bool,
) -> tuple[Prediction, ...]:
    """From the answer on, the fastest that needs at least a tenth less memory than the last; none
    that a later one beats in both.

    used: the job on the chips that the layouts use;  the job of `best` may have more.
    """
    job = best.job
    points = [best]
    while len(points) < FRONT_POINTS:
        limit = points[-1].memory_bytes["allocated"] * (1 - FRONT_STEP)
        tight = room.just_fitting(used, limit)
        found = [
            (space, search(tight, space, 1, relaxed, weigh=None))
            for space in spaces
        ]
        fastest = Ranked(tight, found, relaxed, by_time=True).best(1)
        if not fastest:
            break
        leaner = predict(job, fastest[0].layout)
        # what is shown first may be the simplest of a tie, and slower than a leaner point
        quicker = (p for p in points if p.step_time_s < leaner.step_time_s)
        points = [*quicker, leaner]
    return tuple(points)
