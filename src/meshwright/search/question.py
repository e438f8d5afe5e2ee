"""What a plan is asked, and its answer: on all chips, then on a cleaner number of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from ..describe.job import Job
from ..describe.slices import axes
from ..prediction.certainty import resolution
from ..prediction.notes import part_of_units
from ..prediction.prediction import Prediction, predict
from ..units import show
from .answer import EarlyAnswer, Plan, Steps
from .evaluate import Progress
from .families import Family, families
from .fewer_chips import better_batch, on_fewer, why_fewer
from .front import front
from .misfit import rejections
from .ranked import RankedLayout, Ranking
from .space import Space
from .state import SearchState


def final_plan(steps: Steps) -> Plan:
    """The answer alone."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: Plan = done.value
            return answer


@dataclass(frozen=True)
class Question:
    """What a plan is asked."""

    job: Job
    asked: Space = Space()
    top: int = 10
    progress: Progress | None = None
    pareto: bool = False
    families: bool = True
    """The best of each family too, and whether another batch would be better."""
    spaces: Sequence[Space] = ()
    """Whose union is searched (`strategies`)."""

    @property
    def slack(self) -> float:
        """Layouts that the first beats by no more than this share are as good."""
        return resolution(self.job)

    @property
    def by_family(self) -> bool:
        """Each family is searched by itself, so that the best of each is known; papers, whose
        resolution is 0, have no families.
        """
        return self.families and self.slack > 0

    @property
    def searches(self) -> list[tuple[str, Space]]:
        """(family, space) of every search; "": all families."""
        if not self.by_family:
            return [("", space) for space in self.spaces]
        return [x for space in self.spaces for x in families(self.job, space)]

    def rank(self, job: Job) -> Ranking:
        """The layouts of a job in these spaces."""
        return Ranking(
            job,
            [space for _, space in self.searches],
            self.top,
            slack=self.slack,
            # a question by families shows the best of each, a paper the best of each scheme
            keep_first=self.by_family or not self.slack,
            progress=self.progress,
        )

    def top_layouts(self, ranked: Ranking) -> list[RankedLayout]:
        """The k best layouts; of those that the first does not clearly beat the preferred one is
        first.
        """
        best = ranked.best_layouts(self.top)
        if not best or not self.slack:
            return best
        preferred = ranked.preferred(best[0].merit * (1.0 + self.slack))
        if preferred is None:
            return best
        others = (each for each in best if each.layout != preferred.layout)
        return [preferred, *others][: self.top]


def answer_steps(question: Question, usual: Job) -> Steps:
    """The plan of a question: an early answer, then the replayed one on all chips or on fewer.

    usual: the job that is searched, whose framework may run only part of the question's layouts
    (`practice.keeping`).
    """
    job, progress = question.job, question.progress
    spaces, notes = _placeable(job, question.spaces)
    question = replace(question, spaces=spaces)
    if progress:
        progress("layouts", 0.0)
    ranked = question.rank(usual)
    yield EarlyAnswer(job, ranked, question.slack)
    idle = ""
    if spaces[0].relaxed is None:
        ranked, idle = _on_chips(question, ranked)
    uses_all_chips = ranked.job is usual
    used, searches = ranked.job, ranked.searches
    predicted = _predictions(job, question.top_layouts(ranked), uses_all_chips)
    notes += [said for p in predicted[:1] for said in part_of_units(p)]
    seen = Plan(
        None,
        searched=sum(best.searched for best in searches),
        feasible=sum(best.feasible for best in searches) if predicted else 0,
        rejected=_rejection_counts(job, spaces, searches),
        pareto=() if question.pareto else None,
        notes=(*notes, *(() if question.slack else _scheme_sentence(ranked))),
    )
    if not predicted:
        return seen
    row = ranked.best_row
    if question.families and not spaces[0].relaxed and row:
        better = better_batch(usual, used, spaces, row, progress=progress)
        seen = replace(seen, notes=(*seen.notes, *filter(None, [better])))
    answer = replace(
        seen,
        best=predicted[0],
        alternatives=predicted[1:],
        pareto=front(used, spaces, predicted[0]) if question.pareto else None,
        idle=idle,
    )
    if not question.by_family:
        return answer
    names = [name for name, _ in question.searches]
    return replace(
        answer, families=_families(answer, ranked, names, uses_all_chips)
    )


def _scheme_sentence(ranked: Ranking) -> list[str]:
    """The sentence on the fastest of each scheme, where a paper has several."""
    fastest: dict[str, float] = {}
    for number, one in enumerate(ranked.searches):
        for each in ranked.best_layouts(1, search_number=number):
            seconds = predict(ranked.job, each.layout).step_time_s
            scheme = one.space.scheme
            least = fastest.get(scheme, np.inf)
            fastest[scheme] = min(seconds, least)
    words = (
        f"{scheme} {show(seconds, 's', 4)}"
        for scheme, seconds in sorted(fastest.items(), key=itemgetter(1))
    )
    return (
        [f"the fastest of each scheme: {', '.join(words)}"]
        if len(fastest) > 1
        else []
    )


def _placeable(
    job: Job, spaces: Sequence[Space]
) -> tuple[Sequence[Space], list[str]]:
    """The spaces as the job's network lets them be placed, with what there is to say of it."""
    if not (spaces[0].placements and axes(job.cluster.network)):
        return spaces, []
    return (
        [replace(space, placements=False) for space in spaces],
        [
            "on a torus only one placement is tried: tp nearest, then cp, dp, pp, along the"
            " axes in order"
        ],
    )


def _on_chips(question: Question, ranked: Ranking) -> tuple[Ranking, str]:
    """What was found on all chips, or, where that is faster, on a cleaner number of them; and why
    chips are idle.
    """
    row = ranked.best_row
    used = on_fewer(ranked.job, question.spaces, row, question.progress)
    if used is ranked.job:
        return ranked, ""
    fewer = question.rank(used)
    best = fewer.best_row
    return fewer, why_fewer(question.job, used, best, row) if best else ""


def _predictions(
    job: Job, layouts: Sequence[RankedLayout], uses_all_chips: bool
) -> tuple[Prediction, ...]:
    """Predictions of layouts that were found; on all chips of the job none is replayed again."""
    each = []
    for one in layouts:
        p = predict(job, one.layout)
        if uses_all_chips and one.replayed_s is not None:
            scale = job.cluster.installation.scale
            p = p.with_results(step_time_s=one.replayed_s * scale)
        if uses_all_chips and one.peaks is not None:
            p = p.with_results(peaks=one.peaks)
        each.append(p)
    return tuple(each)


def _families(
    answer: Plan, ranked: Ranking, names: list[str], uses_all_chips: bool
) -> tuple[Family, ...]:
    """The best of each family, best first; the plan's own stands for its family. names: the family
    of each search.
    """
    best = answer.best
    assert best is not None
    known = {p.layout: p for p in (best, *answer.alternatives)}
    best_of: dict[str, Prediction] = {}
    for number, name in enumerate(names):
        for each in ranked.best_layouts(1, search_number=number):
            p = known.get(each.layout)
            p = p or _predictions(best.job, [each], uses_all_chips)[0]
            other = best_of.get(name, p)
            best_of[name] = min(p, other, key=answer.slower)
    for number, name in enumerate(names):
        if any(
            x.layout == best.layout for x in ranked.replayed_layouts(number)
        ):
            best_of[name] = best
    rows = sorted(best_of.items(), key=lambda row: answer.slower(row[1]))
    return tuple(Family(*row) for row in rows)


def _rejection_counts(
    job: Job, spaces: Sequence[Space], searches: Sequence[SearchState]
) -> dict[str, int]:
    """Rule or bound -> how many layouts it left out."""
    counts: Counter[str] = Counter()
    for space in spaces:
        counts.update(rejections(job, space))
    for best in searches:
        counts["memory"] += best.too_big
        # counts of several rounds: their difference is no less than none
        counts["bound"] += max(best.searched - best.feasible - best.too_big, 0)
    return dict(counts)
