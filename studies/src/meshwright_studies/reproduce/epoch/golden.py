"""Curves of the paper in files: cluster size and utilisation of every point, held against ours.

A file is a CSV with a line a model: T_flop, n_gpu, util_vs_boost_peak, and, where they are,
E and degrees. Its scenario is told by its rows, whatever it is called.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import BadInput
from meshwright.limits.curve import Curve, Point, curve
from meshwright.limits.scenario import PRESETS, preset

from ...validate.rows import lines_without_remarks, text_of_rows
from ..report import Check, PaperTable, judged, near_published, table_of
from . import degrees
from .degrees import DegreesRow

TOLERANCE = 1e-9
"""Of utilisation, relative; or the digits that are printed."""
SAME_RUN = 1e-5
"""Relative difference of training FLOPs within which two points are the same model."""


@dataclass(frozen=True)
class GoldenPoint:
    """One published point; texts keep the digits that were printed."""

    flops: float
    chips: float
    utilisation: str
    spread: DegreesRow | None = None


@dataclass(frozen=True)
class Golden:
    """One published curve."""

    name: str
    rows: tuple[GoldenPoint, ...]
    sparse: bool | None
    """None if the file does not say."""


def read_golden(file: Path) -> Golden:
    """The curve in a file; BadInput if a line cannot be read."""
    lines = lines_without_remarks(text_of_rows(file))
    rows, experts = [], []
    for number, line in enumerate(csv.DictReader(lines), 2):
        try:
            rows.append(
                GoldenPoint(
                    _number(line["T_flop"]),
                    _number(line["n_gpu"]),
                    line["util_vs_boost_peak"].strip(),
                    degrees.read_degrees(line),
                )
            )
            _number(rows[-1].utilisation)
            experts.append(_number(line["E"]) if line.get("E") else math.nan)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{file.name[:80]} line {number}: {error} is not what a curve has there"
            ) from None
    if not rows:
        raise BadInput(f"{file.name[:80]} has no points")
    known = not any(map(math.isnan, experts))
    return Golden(file.stem, tuple(rows), max(experts) > 1 if known else None)


def _number(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r:.40}")
    return value


def ours(name: str) -> Curve:
    """Our curve of a scenario of the paper."""
    return curve(preset(name))


def smooth(name: str) -> Curve:
    """The curve in smooth mode: real shapes and numbers of chips."""
    return curve(preset(name).smooth)


def identify(golden: Golden) -> str:
    """The scenario whose curve a file shows: the one that fits best."""
    said = golden.sparse
    kinds = ("", "/sparse") if said is None else ("/sparse" * said,)
    names = [base + kind for base in PRESETS for kind in kinds]
    return max(names, key=lambda name: agreement(golden, name))


def agreement(golden: Golden, name: str) -> int:
    """How many points of a file a scenario's curve has on as many chips."""
    pairs = zip(golden.rows, ours(name).points, strict=False)
    return sum(same_run(row, p) and row.chips == p.chips for row, p in pairs)


def same_run(row: GoldenPoint, p: Point) -> bool:
    """The point is of the same model."""
    return abs(p.flops / row.flops - 1) <= SAME_RUN


def printed(text: str, value: float) -> bool:
    """A value agrees with a printed number within TOLERANCE, or to every digit that is printed."""
    digits = re.fullmatch(r"\s*[+-]?\d*\.?(\d*)(?:[eE]([+-]?\d+))?\s*", text)
    unit = 10.0 ** (int(digits[2] or 0) - len(digits[1])) if digits else 0.0
    return abs(value - float(text)) <= max(
        TOLERANCE * abs(value), 0.5000001 * unit
    )


def curve_checks(golden: Golden) -> Iterator[Check]:
    """Number of points, and of every point its chips and its utilisation."""
    name = identify(golden)
    points = ours(name).points
    yield judged(
        f"{golden.name}/points",
        float(len(golden.rows)),
        computed=float(len(points)),
        good=len(golden.rows) == len(points),
        note=f"scenario {name}",
    )
    for row in golden.rows:
        nearest = min(
            points,
            key=lambda p: abs(math.log(p.flops / row.flops)),
            default=None,
        )
        where = f"{golden.name}/{row.flops:.7g}"
        if nearest is None or not same_run(row, nearest):
            note = f"scenario {name} trains no such model in time"
            yield Check(
                f"{where}/chips",
                row.chips,
                computed=None,
                status="mismatch",
                note=note,
            )
            continue
        good = row.chips == nearest.chips
        yield judged(f"{where}/chips", row.chips, nearest.chips, good)
        yield _utilisation(
            f"{where}/utilisation", row.utilisation, nearest.utilisation
        )


def degrees_of_points(golden: Golden) -> Iterator[Check]:
    """How the points of a file are parallelised, if it says so."""
    curve = ours(identify(golden))
    pairs = [
        (row.spread, p)
        for row in golden.rows
        for p in curve.points
        if row.spread and same_run(row, p)
    ]
    if pairs and len(curve.scenario.network.dims) <= degrees.LEVELS:
        yield degrees.degree_check(golden.name, curve, pairs)


def _utilisation(id: str, text: str, value: float) -> Check:
    """A utilisation against a printed one: a match to all digits that are printed."""
    published = float(text)
    good = printed(text, value)
    rounded = good and not near_published(published, value, TOLERANCE)
    note = f"rounds to the {text} printed" if rounded else ""
    return judged(id, published, computed=value, good=good, note=note)


def curve_table(golden: Golden) -> PaperTable:
    """Rows of a file beside ours."""
    points = {f"{p.flops:.5g}": p for p in ours(identify(golden)).points}
    pairs = ((row, points.get(f"{row.flops:.5g}")) for row in golden.rows)
    return table_of(
        f"epoch-{golden.name}",
        f"Curve {golden.name}",
        (
            {
                "T_flop": row.flops,
                "n_gpu published": row.chips,
                "n_gpu computed": p and p.chips,
                "utilisation published": float(row.utilisation),
                "utilisation computed": p and p.utilisation,
            }
            for row, p in pairs
        ),
    )
