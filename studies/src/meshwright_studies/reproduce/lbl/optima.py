"""The search beside the published optima: no slower where costs agree, the same optimum with the
code's defects on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial

from meshwright.describe.assumptions import LBL
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.prediction import Prediction
from meshwright.search import Space, search, strategies
from meshwright.step import step_time
from meshwright.step.oom import capacity
from meshwright.units import GB

from ..report import Check
from .defects import LBL_CODE, touching
from .saved import SCHEME, SavedCase

EQUAL = 1e-9
"""Relative difference within which two optima are one."""


def space(strategy: str, job: Job, **chosen: tuple[int, ...]) -> Space:
    """The layouts the authors search with a strategy: those of the set `lbl-2024` for its scheme.

    chosen: ranges of degrees that are held fixed, such as pp=(64,).
    """
    (theirs,), _ = strategies(
        replace(job, assumptions=LBL), Space(scheme=SCHEME[strategy])
    )
    return theirs.but(**chosen)


def optimum(
    strategy: str, job: Job, **chosen: tuple[int, ...]
) -> Prediction | None:
    """The fastest layout that fits, or None."""
    layout = _fastest(strategy, question(job), tuple(sorted(chosen.items())))
    return Prediction(replace(job, layout=layout), layout) if layout else None


def question(job: Job) -> Job:
    """The job without what its optimum does not depend on: names and sources, rates of other
    precisions, the link to the host. Saved results and figures ask many questions twice.
    """
    chip, network = job.cluster.chip, job.cluster.network
    compute = job.precision.compute
    plain = replace(
        chip,
        name="",
        vendor="",
        network="",
        sources={},
        matrix_flops={compute: chip.peak(compute)},
        host_bandwidth=0.0,
        host_memory_bandwidth=0.0,
    )
    links = replace(network, name="", chip="", sources={})
    return replace(
        job,
        model=replace(job.model, name="", sources={}),
        cluster=replace(job.cluster, name="", chip=plain, network=links),
    )


@cache
def _fastest(
    strategy: str, job: Job, chosen: tuple[tuple[str, tuple[int, ...]], ...]
) -> Layout | None:
    """The optimum; of the repaired model from that of the authors' code, whose optimum, where it
    still fits, no optimum exceeds.

    The one defect of 1D and 2D TP only takes time away, so that repaired no layout is faster and
    none holds another size: what fits nowhere fits nowhere, and an optimum that the defect does not
    touch stays the optimum.
    """
    within = math.inf
    if job.assumptions == LBL:
        theirs = _fastest(strategy, replace(job, assumptions=LBL_CODE), chosen)
        cheaper = SCHEME[strategy] in ONLY_CHEAPER
        if theirs is None and cheaper:
            return None
        if theirs and Prediction(job, theirs).fits:
            if cheaper and not touching(theirs):
                return theirs
            within = float(step_time(job, theirs))
    best = search(job, space(strategy, job, **dict(chosen)), 1, within=within)
    return next(iter(best.layouts), None)


ONLY_CHEAPER = ("megatron", "context")
"""Schemes whose defects change no bytes and only take time away: free hops."""


def optimum_check(case: SavedCase) -> Check:
    """The optimum of one case beside the published one; where the authors found nothing that fits,
    the number of layouts that do: 0.
    """
    repaired, theirs = (
        optimum(case.strategy, replace(case.job, assumptions=a))
        for a in (LBL, LBL_CODE)
    )
    return (_feasible if case.saved else _infeasible)(case, repaired, theirs)


def _feasible(
    case: SavedCase, ours: Prediction | None, theirs: Prediction | None
) -> Check:
    saved = case.saved[0]
    published, layout = saved.said.iteration_time_s, saved.job.layout
    about = partial(Check, f"{case.id}/search", published)
    if ours is None:
        note = "the search finds no layout that fits"
        return about(None, "mismatch", note)
    seconds = ours.step_time_s
    at_theirs = Prediction(case.job, layout)
    repaired = at_theirs.step_time_s
    within = published * (1 + EQUAL)
    if seconds <= within and abs(repaired / published - 1) <= EQUAL:
        return about(seconds, "match", layout_in_a_line(ours.layout))
    room = capacity(case.job)
    need = float(at_theirs.memory_use.total)
    defects = touching(layout)
    good = (
        theirs is not None
        and theirs.step_time_s <= within
        and bool(defects)
        and (seconds <= repaired * (1 + EQUAL) or need > room)
    )
    names = ", ".join(d.name for d in defects)
    size = f" but {need / GB:.5g} GB of {room / GB:g}" if need > room else ""
    return about(
        seconds,
        "explained" if good else "mismatch",
        f"{names or 'nothing'} repaired: the published optimum"
        f" ({layout_in_a_line(layout)}) takes {repaired:.6g} s{size}, the search finds"
        f" {timed(ours)}; with the defects it finds {timed(theirs)}",
    )


def _infeasible(
    case: SavedCase, ours: Prediction | None, theirs: Prediction | None
) -> Check:
    about = partial(Check, f"{case.id}/infeasible", 0.0)
    if ours is None:
        return about(0.0, "match", "nothing fits")
    return about(
        1.0,
        "mismatch" if theirs else "explained",
        f"with the defects repaired the search finds {timed(ours)}; with them {timed(theirs)}",
    )


def timed(p: Prediction | None) -> str:
    """The time of an optimum, and its layout."""
    if p is None:
        return "nothing"
    return f"{p.step_time_s:.6g} s ({layout_in_a_line(p.layout)})"


def layout_in_a_line(l: Layout) -> str:
    """A layout in a line: degrees, microbatch, and in brackets how many ranks of each axis share a
    fast domain.
    """
    near = "x".join(str(int(l.group(a)[0])) for a in ("tp", "cp", "dp", "pp"))
    panels = f", {int(l.panels)} panels" if l.scheme == "summa" else ""
    return f"tp {l.tp} cp {l.cp} dp {l.dp} pp {l.pp}, microbatch {l.microbatch}{panels} [{near}]"
