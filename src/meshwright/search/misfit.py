"""Why nothing fits, or is legal, and what would help: the counts of each rule, the layout that
needs the least memory, changes that make one fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..count.model import parameters
from ..describe.framework import USUAL
from ..describe.job import OPTIMIZERS, PRECISIONS, Job
from ..describe.layout import Layout
from ..describe.recompute import RECOMPUTE
from ..layout import rules, schemes
from ..layout.clean import fewer_chips, on_chips
from ..num import divisors
from ..prediction.prediction import Prediction, predict
from ..program import resident
from ..step import holding, oom
from .cascade import fits, smallest
from .misfit_values import at_fault
from .options import common_fields
from .space import Space
from .table import Column, Table, cross, keep

MORE_CHIPS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Factors tried when nothing fits."""
LIGHTER = ("adamw-no-master", "adafactor")
"""Optimizers suggested when nothing fits, the lightest last."""
OFFLOADED = ("optimizer", "optimizer+weights")
"""Parts in host memory suggested when nothing fits; a framework refuses what it cannot run."""
NO_LEGAL_DEGREES = "no combination of degrees is legal"
UNEVEN = "uneven batches and idle chips (--relaxed)"


def rejections(job: Job, space: Space) -> dict[str, int]:
    """Rule -> combinations of (tp, cp, pp, dp[, ep]) that break it; each counts for its first
    rule.
    """
    degrees: dict[str, Any] = _combinations(job, space)
    layout = Layout(
        **degrees, **common_fields(job, space), sequence_parallel=False
    )
    left = np.ones(len(degrees["tp"]), dtype=bool)
    counts = {}
    for rule in rules_of_degrees(job, space):
        broken = left & ~np.asarray(rule.holds(job, layout), dtype=bool)
        if broken.any():
            counts[rule.name] = int(broken.sum())
        left &= ~broken
    return counts


def _combinations(job: Job, space: Space) -> Table:
    """Degrees that the space allows, else divisors of the chips, with dp: they use all chips, or
    (relaxed) at most all. Of more than 64 values named the smallest.
    """
    N = job.cluster.chips
    factors = divisors(N)

    def column(axis: str) -> Column:
        allowed = space.values(axis)
        return np.array(
            sorted(allowed)[:64] if allowed else factors, dtype=np.float64
        )

    table = cross(
        cross(cross({}, tp=column("tp")), cp=column("cp")), pp=column("pp")
    )
    ranks = table["tp"] * table["cp"] * table["pp"]
    table = keep(table, ranks <= N if space.relaxed else N % ranks == 0)
    if job.model.moe or space.values("ep"):
        table = cross(table, ep=column("ep"))
    ranks = table["tp"] * table["cp"] * table["pp"]
    return table | {"dp": np.floor(N / ranks)}


def rules_of_degrees(job: Job, space: Space) -> list[rules.LayoutRule]:
    """The rules that look at degrees alone, in the order in which they are asked."""
    own = [
        rule
        for rule in rules.of_framework(job)
        if {*rule.reads} <= {"pp", "dp"}
    ]
    # choices of the search, not of degrees
    aside = [rules.EXPERT_SEQUENCE, schemes.HIDDEN_SHARDED]
    if space.relaxed:
        aside.append(rules.EVEN_BATCH)
    every = dict.fromkeys((*rules.ALWAYS, rules.EVEN_BATCH, *own))
    return [rule for rule in every if rule not in aside]


def nearest_fit(
    job: Job, space: Space
) -> tuple[Prediction | None, tuple[str, ...]]:
    """The layout that needs the least memory, and what would make one fit: options left out,
    constraints, more chips.
    """
    layouts = smallest(job, space).layouts
    if not layouts and space.relaxed is None:
        fewer = (smallest(less, space).layouts for less in fewer_chips(job))
        layouts = next(filter(None, fewer), [])
    if not layouts:
        uneven = () if space.relaxed else (f"not tried: {UNEVEN}",)
        reasons = at_fault(job, space)
        first = ": ".join((NO_LEGAL_DEGREES, *reasons[:1]))
        return None, (first, *uneven, *reasons[1:])
    closest = predict(job, layouts[0])
    note = "even the smallest layout does not fit: " + oom.shortage(
        job, closest.memory_bytes["allocated"]
    )
    if closest.peaks:
        terms = resident.fullest(closest.peaks)
        note += f"; the trainer holds {resident.largest_terms(terms)}"
    return closest, (note, *_would_fit(job, space))


def space_fits(job: Job, space: Space) -> bool:
    """Whether some layout of the space fits: a search, where the states alone leave room."""
    roomy = least_states(job, space) <= oom.limit(job)
    return roomy and fits(job, space)


def least_states(job: Job, space: Space) -> float:
    """Bytes of weights and of optimizer state that the fullest chip holds at least: P (w + s) / N,
    what each of N chips holds on average if nothing is kept twice; what is offloaded does not
    count.
    """
    away = space.host_memory
    least = min(holding.layer_weight_bytes(job), job.precision.weight_bytes)
    # a shard that is the master counts among the state
    weight = 0.0 if away.weights or job.master_is_weight else least
    state = job.state_bytes * (1.0 - away.optimizer)
    P = parameters(job.model)
    return P * (weight + state) / job.cluster.chips


def _would_fit(job: Job, space: Space) -> list[str]:
    """Changes, one at a time, that make something fit, the least first."""
    helpful = [
        f"{words} would make it fit"
        for words, changed, wider in _changes(job, space)
        if space_fits(changed, wider)
    ]
    for grows in (False, True):  # the batch with the chips: where it bounds dp
        for factor in MORE_CHIPS:
            more = on_chips(job, int(job.cluster.chips * factor))
            if grows:
                more = replace(more, batch=int(job.batch * factor))
            if space_fits(more, space):
                return [*helpful, _more_chips(job, more, factor)]
    need = (
        f"even {MORE_CHIPS[-1]} times the chips would not make it fit{_under(job)} at this batch"
        " and sequence length"
    )
    return [*helpful, need]


def _under(job: Job) -> str:
    """The words " under fsdp": who named no framework may not know which one is meant."""
    usual = job.profile and not job.framework and job.profile.name
    return f" under {usual}" if usual and usual != USUAL else ""


def _more_chips(job: Job, more: Job, factor: float) -> str:
    """The sentence for a job that fits on so many times the chips, or with more sequences there."""
    chips = (
        f"{more.cluster.chips:,} chips of this kind ({factor:g} times as many)"
    )
    if more.batch == job.batch:
        return f"{chips} would make it fit"
    return (
        f"more chips would not make it fit{_under(job)} with a batch of {job.batch:,}, which limits"
        f" dp; {chips} would with a batch of {more.batch:,}"
    )


def _changes(job: Job, space: Space) -> Iterator[tuple[str, Job, Space]]:
    """Numbers and optimizers that keep fewer bytes for each parameter, then spaces that leave more
    to the search, each with what has to be said for it.
    """
    p = job.precision
    pure = PRECISIONS.get(f"{p.compute}-pure")
    if pure and pure.gradient_bytes < job.gradient_bytes:
        words = f"2-byte gradients (--precision {p.compute}-pure)"
        yield words, replace(job, precision=pure), space
    for name in LIGHTER:
        lighter = OPTIMIZERS[name]
        if lighter.state_bytes < job.optimizer.state_bytes:
            words = f"{lighter.state_bytes:g} bytes of state a parameter (--optimizer {name})"
            yield words, replace(job, optimizer=lighter), space
    for words, wider in _wider(job, space):
        yield words, job, wider


def _wider(job: Job, space: Space) -> Iterator[tuple[str, Space]]:
    """Spaces that leave more to the search, each with what has to be said for it."""
    for parts in OFFLOADED if space.host_memory.text == "none" else ():
        # a chip whose host nobody measured has no price for it
        if rules.host_unknown(job.cluster.chip, Layout(offload=parts)):
            continue
        yield (
            f"host memory (--offload {parts})",
            space.but(offload=(parts,)),
        )
    if not space.relaxed:
        yield UNEVEN, replace(space, relaxed=True)
    if "full" not in space.values("recompute"):
        full = space.but(recompute=RECOMPUTE)
        yield "full recomputation (--recompute full)", full
    if 3 not in space.values("zero"):
        yield "ZeRO-3 (--zero 3)", space.but(zero=(0, 1, 2, 3))
    if min(space.values("microbatch") or (1,)) > 1:
        yield "a microbatch of 1 (--microbatch 1)", space.but(microbatch=(1,))
    profile = job.profile
    runs = (profile.proposes or profile.choices) if profile else ()
    for field in ("tp", "pp", "cp", "ep", "dp"):
        # a degree that the framework holds fast nobody gave
        if space.values(field) and not any(field in each for each in runs):
            free: dict[str, None] = {field: None}
            yield f"any {field} (without --{field})", space.but(**free)
