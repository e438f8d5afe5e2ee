"""Defects of the public LBL code that move its published numbers, each as a variant of the assumption set.

`lbl-2024` repairs them. A published number that differs is explained only if switching on exactly the defects that touch its
configuration gives that number back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...spec.assumptions import LBL, Assumptions
from ...spec.layout import Layout
from ..report import Check, relative

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


DEFECTS = (
    Defect(
        "norm-width",
        "a SUMMA layer norm is taken to be as wide as the sequence over n1, not the hidden size over n1",
        lambda l: l.scheme == "summa",
        lambda a: replace(a, count=replace(a.count, summa_norm="sequence")),
    ),
    Defect(
        "free-hops",
        "pipeline sends that leave the fast domain cost nothing as soon as some stages share a domain",
        lambda l: bool(1 < l.group("pp")[0] < l.pp),
        lambda a: replace(a, network=replace(a.network, slow_hops="free")),
    ),
    Defect(
        "single all-reduce",
        "an all-reduce goes round its ring once, not twice (but moves the vector twice in a group of several ranks in several domains)",
        lambda l: bool(l.scheme == "summa" and l.tp > 1),
        lambda a: replace(a, network=replace(a.network, all_reduce_factor="across domains")),
    ),
)


def touching(layout: Layout) -> tuple[Defect, ...]:
    """The defects that can move a number of this layout."""
    return tuple(d for d in DEFECTS if d.touches(layout))


def compare(
    id: str, layout: Layout, published: float, value: Callable[[Assumptions], float], unit: str, least: float = 0.0
) -> Check:
    """A published number of a layout beside ours; value: assumptions -> our number.

    least: differences up to this are none (parts of a sum that are tiny or cancel).
    """
    ours = value(LBL)
    difference = relative(published, ours)
    if abs(ours - published) <= max(SAME * abs(published), least):
        return Check(id, published, ours, difference, "match")
    steps, before, set_ = [], ours, LBL
    for defect in touching(layout):
        set_ = defect.switched_on(set_)
        after = value(set_)
        if after != before:
            steps.append(f"{defect.name} {after - before:+.6g} {unit}")
        before = after
    if abs(before - published) <= max(EXACT * abs(published), least * EXACT):
        with_them = relative(published, before)
        note = f"repaired {ours:.6g} {unit}; {', '.join(steps)}; together {before:.6g} {unit}, the published number to {abs(with_them or 0.0):.0e}"
        return Check(id, published, ours, difference, "explained", note)
    return Check(id, published, ours, difference, "mismatch", unaccounted(layout, before, unit))


def unaccounted(layout: Layout, with_defects: float, unit: str) -> str:
    """What is known about a number that is not reproduced."""
    names = ", ".join(d.name for d in touching(layout)) or "none"
    return f"defects that touch this layout: {names}; with them {with_defects:.6g} {unit}"
