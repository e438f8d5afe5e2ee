"""Defects of the public LBL code that move its published numbers, each as a variant of the
assumption set.

`lbl-2024` repairs them. A published number that differs is explained only if switching on exactly
the defects that touch its configuration gives that number back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.num import Num, floor

from ..report import Check
from .rings import DefectiveRing

SAME = 1e-3
"""Relative difference within which a published number counts as reproduced."""
EXACT = 1e-6
"""The same with the defects switched on."""


@dataclass(frozen=True)
class Defect:
    """One defect: what it is, which layouts it touches, how a set of assumptions gets it."""

    name: str
    what: str
    touches: Callable[[Layout], bool]
    switched_on: Callable[[Assumptions], Assumptions]


def sequence_width(job: Job, layout: Layout) -> Num:
    """T / n1 in whole columns, where hidden / n1 is meant."""
    return floor(job.T / layout.tp)


def _rings(how: Assumptions, **defect: bool) -> Assumptions:
    """The set with one more defect in its collectives."""
    rings = replace(how.network.algorithm or DefectiveRing(), **defect)
    return replace(how, network=replace(how.network, algorithm=rings))


DEFECTS = (
    Defect(
        "norm-width",
        "a SUMMA layer norm is taken to be as wide as the sequence over n1, not the hidden size"
        " over n1",
        lambda l: l.scheme == "summa",
        lambda a: replace(
            a, count=replace(a.count, summa_width=sequence_width)
        ),
    ),
    Defect(
        "free-hops",
        "pipeline sends that leave the fast domain cost nothing as soon as some stages share a"
        " domain",
        lambda l: bool(1 < l.group("pp")[0] < l.pp),
        lambda a: _rings(a, free_hops=True),
    ),
    Defect(
        "single all-reduce",
        "an all-reduce goes round its ring once, not twice; only in a group with several ranks in"
        " several domains does its vector move twice",
        lambda l: bool(l.scheme == "summa" and l.tp > 1),
        lambda a: _rings(a, halved=True),
    ),
)


def _all() -> Assumptions:
    """`lbl-2024` with every defect switched on."""
    how = LBL
    for defect in DEFECTS:
        how = defect.switched_on(how)
    source = (
        "Subramanian et al. 2024 as its public code computes it, defects included; only to account"
        " for published numbers."
    )
    return replace(how, name="lbl-2024-code", source=source)


LBL_CODE = _all()


def touching(layout: Layout) -> tuple[Defect, ...]:
    """The defects that can move a number of this layout."""
    return tuple(d for d in DEFECTS if d.touches(layout))


def compare_defects(
    id: str,
    layout: Layout,
    published: float,
    value: Callable[[Assumptions], float],
    unit: str,
    rounding: float,
    same: float,
) -> Check:
    """A published number of a layout beside ours; value: assumptions -> our number.

    rounding: half the last digit printed, or what sums of floats may lose;  same: relative
    tolerance of a match.
    """

    ours = value(LBL)
    names = ", ".join(d.name for d in touching(layout))

    def verdict() -> tuple[str, str]:
        off = abs(ours - published)
        if off <= same * abs(published):
            exact = off <= EXACT * abs(published) or not names
            return "match", "" if exact else f"touched by {names}"
        if off <= same * abs(published) + rounding:
            return "explained", "the rounding of the published number"
        steps = []
        before, chosen = ours, LBL
        for defect in touching(layout):
            chosen = defect.switched_on(chosen)
            after = value(chosen)
            if after != before:
                steps.append(f"{defect.name} {after - before:+.6g} {unit}")
            before = after
        if abs(before - published) <= EXACT * abs(published) + rounding:
            return "explained", (
                f"repaired {ours:.6g} {unit}; defects of the authors' code: {', '.join(steps)};"
                f" together {before:.9g} {unit}, as published"
            )
        return "mismatch", (
            f"defects that touch this layout: {names or 'none'}; with them {before:.6g} {unit}"
        )

    return Check(id, published, ours, *verdict())
