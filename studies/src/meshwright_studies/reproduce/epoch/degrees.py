"""How curves in files are parallelised, beside ours: the same degrees, or others that take the same
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.limits.curve import Curve, Point
from meshwright.limits.laws import LawShape, shape
from meshwright.limits.simulate import AXES, Degrees, simulate

from ..report import Check

COLUMNS = {
    "dp": "DP",
    "tp_model": "TP_model",
    "tp_ff": "TP_ff",
    "pp": "PP",
    "ep": "EP",
    "microbatches": "microbatches",
    "interleave": "interleave",
    "zero_bubble": "zero_bubble",
}
"""Field of `Degrees` -> column."""
LOWER = "lower_level_DP_TPm_TPf_PP_EP"
"""Ranks of each axis in the first of two levels; "-" where there is one."""
LEVELS = 2
"""Of the networks whose placements a file can hold."""
SAME = 1e-9
"""Relative difference of steps that take equally long."""


@dataclass(frozen=True)
class DegreesRow:
    """One row of a file."""

    degrees: Degrees
    lower: tuple[int, ...]


def read_degrees(line: Mapping[str, str]) -> DegreesRow | None:
    """The degrees in a line; None if it has none.  Raises ValueError."""
    if not all(line.get(name) for name in (*COLUMNS.values(), LOWER)):
        return None
    said = line[LOWER].split()
    lower = tuple(1 if n == "-" else int(n) for n in said)
    if len(lower) != len(AXES) or min(lower) < 1:
        raise ValueError(f"{line[LOWER]!r:.40}")
    values = {field: float(line[name]) for field, name in COLUMNS.items()}
    if min(v for k, v in values.items() if k != "zero_bubble") < 1:
        raise ValueError("a degree below 1")
    return DegreesRow(Degrees(**values), lower)


def _seconds(curve: Curve, p: Point, spread: DegreesRow) -> float:
    """Seconds of a step of our point, spread as theirs."""
    on = curve.scenario.machine
    levels = len(curve.scenario.joined.dims)
    s = LawShape(*map(float, shape(curve.scenario.law, p.hidden)))
    d = spread.degrees
    places = {
        axis: (low, getattr(d, axis) / low)
        if levels == LEVELS
        else (getattr(d, axis),)
        for axis, low in zip(AXES, spread.lower, strict=True)
    }
    return float(simulate(on, s, d, places).total)


def degree_check(
    name: str, curve: Curve, pairs: list[tuple[DegreesRow, Point]]
) -> Check:
    """Points whose degrees are those of a file; ties are named."""
    equal = 0
    ties: list[str] = []
    others: list[str] = []
    for spread, p in pairs:
        if same_degrees(spread.degrees, p.degrees):
            equal += 1
            continue
        theirs = _seconds(curve, p, spread)
        at = f"{p.flops:.2g} FLOP {degrees_text(spread.degrees)} for {degrees_text(p.degrees)}"
        tied = abs(theirs / p.step.total - 1) <= SAME
        (ties if tied else others).append(at)
    note = f"{equal} of {len(pairs)} points have the same degrees"
    if ties:
        note += f"; as fast: {', '.join(ties)}"
    if others:
        note += f"; others: {', '.join(others)}"
    status = "mismatch" if others else "explained" if ties else "match"
    whole = float(len(pairs))
    return Check(
        f"{name}/degrees",
        whole,
        computed=float(equal),
        status=status,
        note=note,
    )


def same_degrees(a: Degrees, b: Degrees) -> bool:
    """Whether two rows agree in every field (one stage is not interleaved)."""
    return all(
        x == y
        for field, x, y in zip(Degrees._fields, a, b, strict=True)
        if field != "interleave" or min(a.pp, b.pp) > 1
    )


def degrees_text(d: Degrees) -> str:
    """Tensor degrees, pipeline, data, experts, microbatches."""
    schedule = "zb-h2" if d.zero_bubble else "1f1b"
    return (
        f"tp {d.tp_model:g}x{d.tp_ff:g} pp {d.pp:g} dp {d.dp:g} ep {d.ep:g} m {d.microbatches:g}"
        f" {schedule}"
    )
