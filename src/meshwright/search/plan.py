"""A plan: the fastest layouts that fit, the front of time against memory, what was looked at, and
what would help if nothing fits.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

import numpy as np

from ..describe.job import OPTIMIZERS, PRECISIONS, Job, demand
from ..describe.layout import Layout
from ..describe.recompute import RECOMPUTE
from ..describe.slices import axes
from ..layout import rules
from ..num import divisors
from ..prediction.prediction import Prediction, predict
from ..program import resident
from ..step import room
from ..units import show
from .cascade import search
from .evaluate import Progress, smallest
from .named import at_fault
from .nearby import better_batch, fewer_chips, on, on_fewer, why_fewer
from .ranked import ranked, wide
from .space import Column, Space, cross, described
from .strategies import strategies

WALK_ROOM = 0.95
"""Share of a chip's memory to plan with where the closed form took too little: it is within 5 % of
the walk.
"""
FRONT_STEP = 0.1
"""Each point of the front needs at least this share less memory than the one before."""
FRONT_POINTS = 8
MORE_CHIPS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Factors tried when nothing fits."""


LIGHTER = ("adamw-no-master", "adafactor")
"""Optimizers suggested when nothing fits, the lightest last."""
NOTHING = "no combination of degrees is legal"
UNEVEN = "batches cut unevenly and idle chips (--relaxed)"


@dataclass(frozen=True)
class Plan:
    """What a search found."""

    best: Prediction | None
    alternatives: tuple[Prediction, ...] = ()
    """The runners-up."""
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

    def __repr__(self) -> str:
        found = f"best: {self.best!r}" if self.best else "no layout fits"
        counts = (
            f"{self.searched:,} layouts searched in {show(self.elapsed_s, 's')}, {self.feasible:,}"
            " seen to fit"
        )
        return f"Plan: {counts}; {len(self.alternatives)} alternatives\n{indent(found, '  ')}"

    def to_dict(self) -> dict[str, Any]:
        """The fields of `plan --json`."""
        return {
            "best": self.best.to_dict() if self.best else None,
            "alternatives": [p.to_dict() for p in self.alternatives],
            "pareto": None if self.pareto is None else [p.to_dict() for p in self.pareto],
            "searched": self.searched,
            "feasible": self.feasible,
            "rejected": dict(self.rejected or {}),
            "elapsed_s": self.elapsed_s,
            "notes": [*([self.idle] if self.idle else []), *self.notes],
            "space": {"tried": self.tried, "not_tried": self.untried},
            "closest": self.closest.to_dict() if self.closest else None,
        }


def plan(
    job: Job,
    space: Space | None = None,
    top: int = 10,
    progress: Progress | None = None,
    pareto: bool = False,
) -> Plan:
    """The `top` fastest layouts of the space that fit, exactly; the job's own layout is ignored.

    What the space leaves open is as the job's set of assumptions searches it (`strategies`), else
    as `Space` says. pareto: also the front of time against memory (a search for each of its
    points). Nothing that fits is not an error: `best` is None, `closest` and `notes` say what is
    missing.
    """
    demand(job)
    start = time.perf_counter()
    spaces, beyond = strategies(job, space or Space())
    found = [_searched(job, each, top, progress, pareto) for each in spaces]
    one = found[0] if len(found) == 1 else _together(found, [each.scheme for each in spaces], top)
    tried, untried = described(job, spaces)
    whose = f"{job.assumptions.name}: " if job.assumptions.choices else ""
    return replace(
        one,
        tried=whose + tried,
        untried=untried,
        notes=(*beyond, *one.notes),
        elapsed_s=time.perf_counter() - start,
    )


def _together(plans: list[Plan], schemes: list[str], top: int) -> Plan:
    """One plan of those of several strategies, each with its scheme."""
    first = min(plans, key=_merit)
    every = sorted(
        (x for p in plans if p.best for x in (p.best, *p.alternatives)), key=lambda x: x.step_time_s
    )
    layouts = {x.layout: x for x in every}  # strategies may overlap
    fastest: dict[str, float] = {}
    for scheme, p in sorted(zip(schemes, plans, strict=True), key=lambda item: _merit(item[1])):
        if p.best:
            fastest.setdefault(scheme, p.best.step_time_s)
    each = ", ".join(f"{scheme} {show(seconds, 's', 4)}" for scheme, seconds in fastest.items())
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
            *([f"the fastest of each scheme: {each}"] if len(fastest) > 1 else []),
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
    for p in sorted((x for plan in plans for x in plan.pareto or ()), key=lambda x: x.step_time_s):
        if not kept or p.memory_bytes["allocated"] <= kept[-1].memory_bytes["allocated"] * (
            1 - FRONT_STEP
        ):
            kept.append(p)
    return tuple(kept[:FRONT_POINTS])


def _searched(job: Job, space: Space, top: int, progress: Progress | None, pareto: bool) -> Plan:
    """The plan of one strategy."""
    relaxed, idle, used = bool(space.relaxed), "", job
    notes: list[str] = []
    if space.placements and axes(job.cluster.network):
        space = replace(space, placements=False)
        notes.append(
            "on a torus only one placement is looked at: tp nearest, then cp, dp, pp, along the"
            " axes in order"
        )
    if progress:
        progress("layouts", 0.0)
    best = search(job, space, wide(top), relaxed, progress)
    if space.relaxed is None:
        all_chips = best
        used, best = on_fewer(job, space, wide(top), all_chips)
        idle = why_fewer(job, used, best.rows[0][0], all_chips) if used is not job else ""
    predicted = tuple(
        predict(job, layout) for layout in ranked(used, space, top, relaxed, best).layouts
    )
    found, fuller = walk_checked(predicted)
    if predicted and not found:  # with room for what the closed form may lack
        roomy = room.just_fitting(used, room.limit(job) * WALK_ROOM)
        best = search(roomy, space, wide(top), relaxed, progress)
        found, _ = walk_checked(
            tuple(
                predict(job, layout) for layout in ranked(roomy, space, top, relaxed, best).layouts
            )
        )
    notes += fuller
    broken, sentences = rejections(job, space, relaxed)
    rejected = broken | {
        "memory": best.too_big,
        "bound": max(best.searched - best.feasible - best.too_big, 0),
    }
    seen = Plan(
        None,
        searched=best.searched,
        feasible=best.feasible if found else 0,
        rejected=rejected,
        pareto=() if pareto else None,
    )

    def answer(**more: Any) -> Plan:
        return replace(seen, notes=tuple(notes), **more)

    if not found:
        closest, why = _nearest_fit(job, space, relaxed, sentences)
        notes[:0] = job.model.notes  # a prediction says them itself
        notes += why
        return answer(closest=closest)
    if not relaxed and (told := better_batch(job, space, best)):
        notes.append(told)
    front = _front(used, space, found[0], relaxed) if pareto else None
    return answer(best=found[0], alternatives=found[1:], pareto=front, idle=idle)


def walk_checked(found: tuple[Prediction, ...]) -> tuple[tuple[Prediction, ...], list[str]]:
    """The layouts from the first on that fits by a walk through its program too, and a sentence on
    those before it.
    """
    for i, p in enumerate(found):
        terms = resident.walked(p.job, p.layout)
        if terms is None or room.fits(p.job, sum(terms.values())):
            said = (
                f"{i} faster layouts are left out: by a walk through the program they need more"
                " than there is"
            )
            return found[i:], [said] if i else []
    said = (
        f"the {len(found)} fastest layouts are left out: by a walk through the program they need"
        " more than there is"
    )
    return (), [said] if found else []


def _front(used: Job, space: Space, best: Prediction, relaxed: bool) -> tuple[Prediction, ...]:
    """From the fastest layout on, the fastest that needs at least a tenth less memory than the
    last.

    used: the job on the chips that the layouts use;  the job of `best` may have more.
    """
    job = best.job
    points = [best]
    while len(points) < FRONT_POINTS:
        limit = points[-1].memory_bytes["allocated"] * (1 - FRONT_STEP)
        smaller = search(room.just_fitting(used, limit), space, 1, relaxed)
        if not smaller.rows:
            break
        points.append(predict(job, smaller.layouts(space.scheme, len(job.cluster.network.dims))[0]))
    return tuple(points)


def rejections(
    job: Job, space: Space, relaxed: bool = False
) -> tuple[dict[str, int], tuple[str, ...]]:
    """(rule -> combinations of (tp, cp, pp, dp[, ep]) that break it, the sentence of one of them
    for each rule); each counts for its first rule.

    Combinations: what the space allows, else the divisors of the chips; they use all chips, or
    (relaxed) at most all.
    """
    N, factors = job.cluster.chips, divisors(job.cluster.chips)

    def column(axis: str) -> Column:
        allowed = space.values(axis)
        return np.array(sorted(allowed)[:64] if allowed else factors, dtype=np.float64)

    table = cross(cross(cross({}, tp=column("tp")), cp=column("cp")), pp=column("pp"))
    ranks = table["tp"] * table["cp"] * table["pp"]
    fine = ranks <= N if relaxed else N % ranks == 0
    table = {k: c[fine] for k, c in table.items()}
    if job.model.moe or space.values("ep"):
        table = cross(table, ep=column("ep"))
    degrees: dict[str, Any] = table | {
        "dp": np.floor(N / (table["tp"] * table["cp"] * table["pp"]))
    }
    layout = Layout(**degrees, scheme=space.scheme, sequence_parallel=False)
    left, counts, sentences = np.ones(len(table["tp"]), dtype=bool), {}, []
    more = [rule for rule in rules.of_framework(job) if not rule.options and not rule.placed]
    for rule in dict.fromkeys((*rules.ALWAYS, rules.EVEN_BATCH, *more)):
        if rule is rules.EXPERT_SEQUENCE or (
            relaxed and rule is rules.EVEN_BATCH
        ):  # choices of the search, not of degrees
            continue
        broken = left & ~np.broadcast_to(rule.holds(job, layout), left.shape)
        if broken.any():
            counts[rule.name] = int(broken.sum())
            first: dict[str, Any] = {
                k: int(c[np.flatnonzero(broken)[0]]) for k, c in degrees.items()
            }
            sentences.append(
                rule.sentence(job, Layout(**first, scheme=space.scheme, sequence_parallel=False))
            )
        left &= ~broken
    return counts, tuple(sentences)


def _nearest_fit(
    job: Job, space: Space, relaxed: bool, broken: tuple[str, ...]
) -> tuple[Prediction | None, tuple[str, ...]]:
    """The layout that needs the least memory, and what would make one fit: options left out,
    constraints, more chips.
    """
    dims = len(job.cluster.network.dims)
    layouts = smallest(job, space, relaxed).layouts(space.scheme, dims)
    if not layouts and space.relaxed is None:
        fewer = (smallest(less, space).layouts(space.scheme, dims) for less in fewer_chips(job))
        layouts = next(filter(None, fewer), [])
    if not layouts:
        uneven = () if relaxed else (f"not tried: {UNEVEN}",)
        return None, (NOTHING, *at_fault(job, space, relaxed), *unfilled(job), *uneven, *broken[:6])
    closest = predict(job, layouts[0])
    note = "even the smallest layout does not fit: " + room.too_big(
        job, closest.memory_bytes["allocated"]
    )
    if terms := resident.walked(closest.job, closest.layout):
        note += f"; the trainer holds {resident.named(terms)}"
    return closest, (note, *_would_fit(job, space))


def unfilled(job: Job) -> list[str]:
    """The sentence for chips that leave a unit of the network partly used: strict layouts fill
    all.
    """
    N, unit = job.cluster.chips, 1
    for dim, size in zip(job.cluster.network.dims[:-1], job.cluster.sizes, strict=False):
        unit *= size
        if N % unit:
            near = ", ".join(f"{n:,}" for n in (N // unit * unit, -(-N // unit) * unit) if n)
            return [
                f"{N:,} chips do not fill units of {unit:,} ({dim.name}) evenly: {near} would, or"
                " --relaxed"
            ]
    return []


def _lighter(job: Job, space: Space) -> list[tuple[str, Job, Space]]:
    """Numbers and optimizers that keep fewer bytes for each parameter."""
    p, ways = job.precision, []
    pure = PRECISIONS.get(f"{p.compute}-pure")
    if pure and pure.gradient_bytes < p.gradient_bytes:
        ways.append(
            (
                f"2-byte gradients (--precision {p.compute}-pure)",
                replace(job, precision=pure),
                space,
            )
        )
    for name in LIGHTER:
        if OPTIMIZERS[name].state_bytes < job.optimizer.state_bytes:
            lighter = replace(job, optimizer=OPTIMIZERS[name])
            ways.append(
                (
                    (
                        f"{OPTIMIZERS[name].state_bytes:g} bytes of state a parameter (--optimizer"
                        f" {name})"
                    ),
                    lighter,
                    space,
                )
            )
    return ways


def _would_fit(job: Job, space: Space) -> list[str]:
    """Changes, one at a time, that make something fit, the least first."""
    ways: list[tuple[str, Job, Space]] = [*_lighter(job, space)]
    if not space.relaxed:
        ways.append((UNEVEN, job, replace(space, relaxed=True)))
    if "full" not in space.values("recompute"):
        ways.append(("full recomputation (--recompute full)", job, space.but(recompute=RECOMPUTE)))
    if 3 not in space.values("zero"):
        ways.append(("ZeRO-3 (--zero 3)", job, space.but(zero=(0, 1, 2, 3))))
    if min(space.values("microbatch") or (1,)) > 1:
        ways.append(("a microbatch of 1 (--microbatch 1)", job, space.but(microbatch=(1,))))
    for field in ("tp", "pp", "cp", "ep", "dp"):
        if space.values(field) is not None:
            ways.append((f"any {field} (without --{field})", job, space.but(**{field: None})))
    helpful = [
        f"{name} would make it fit" for name, j, s in ways if search(j, s, 1, bool(s.relaxed)).rows
    ]
    for factor in MORE_CHIPS:
        more = on(job, int(job.cluster.chips * factor))
        if search(more, space, 1, bool(space.relaxed)).rows:
            return [
                *helpful,
                (
                    f"{more.cluster.chips:,} chips of this kind ({factor:g} times as many) would"
                    " make it fit"
                ),
            ]
    need = (
        f"even {MORE_CHIPS[-1]} times the chips would not make it fit at this batch and sequence"
        " length"
    )
    return [*helpful, need]
