"""Figures 1 to 5 and A1 to A6 as plots with the tables behind them; nothing is computed before it
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import sub
from typing import Any

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.prediction.prediction import Prediction

from ...validate.collectives import MeasuredCollective
from ..report import PaperFigure, PaperTable, table_of
from . import figures as f
from . import nccl
from .defects import LBL_CODE
from .figures import FigurePoint, LblFigure
from .saved import run_days

CODE = "the authors' code, recomputed (lbl-2024-code)"
REPAIRED = "the authors' code, its defects repaired (lbl-2024)"
EDITIONS = {CODE: LBL_CODE, REPAIRED: LBL}
"""What figures of layouts are drawn with, one above the other or, where they agree, once."""
CHANGE = "what the repair changes"


Draw = Callable[[LblFigure, str], Any]
"""A figure and its title -> the picture."""
Table = Callable[[LblFigure, str, str], PaperTable]
"""A figure, its name and title -> the numbers behind it."""


def figures_in_order(
    measured: tuple[MeasuredCollective, ...],
) -> tuple[PaperFigure, ...]:
    """The figures in the order of the paper."""
    kinds: dict[str, tuple[Draw, Table]] = {
        "layouts": (draw_bars, editions_table),
        "scaling": (draw_bars, editions_table),
        "days": (draw_systems, days_table),
        "gain": (draw_systems, gains_table),
        "chips": (draw_chips, chips_table),
        "collectives": (
            partial(draw_collectives, measured),
            lambda *_: nccl.nccl_table(measured),
        ),
    }
    return tuple(
        _figure(of, *kinds[of.kind]) for of in f.paper_figures().values()
    )


def _figure(of: LblFigure, draw: Draw, table: Table) -> PaperFigure:
    name, title = f"lbl-fig-{of.number}", f"Figure {of.number}: {of.what}"
    return PaperFigure(
        name, partial(draw, of, title), partial(table, of, name, title)
    )


def draw_bars(of: LblFigure, title: str) -> Any:
    """Bars of layouts, or of optima by number of GPUs."""
    from ...report import figures_lbl

    draw = figures_lbl.bars if of.layouts else figures_lbl.strong_scaling
    return draw(_shown(of), title, verdicts(of.number))


def editions_table(of: LblFigure, name: str, title: str) -> PaperTable:
    """The bars of both editions."""
    editions = {e: f.points_of(of.number, how) for e, how in EDITIONS.items()}
    return f.points_table(name, title, editions)


def verdicts(number: str) -> tuple[str, ...]:
    """What the text concludes from a figure, what both editions say of it, and whether that holds:
    one line each for the paper and for ours.
    """
    from .conclusions import conclusions

    lines: list[str] = []
    for of in conclusions():
        figure, _, what = of.id.partition("/")
        if figure == f"fig-{number}":
            code, repaired = map(of.value, EDITIONS.values())
            lines += [
                f"the paper: {of.said} ({what}: {of.published:g})",
                f"ours: {what}: {code:g} by the authors' code recomputed, {repaired:g} by the code"
                f" repaired: {of.turned}",
            ]
    return tuple(lines)


def _shown(of: LblFigure) -> dict[str, tuple[list[Prediction], list[str]]]:
    """Predictions and labels of both editions."""
    editions = {}
    for edition, how in EDITIONS.items():
        points = f.points_of(of.number, how)
        predictions = [p.prediction for p in points]
        editions[edition] = predictions, [p.label for p in points]
    return editions


def systems(
    strategy: str, model: str, how: Assumptions = LBL
) -> dict[str, Sequence[FigurePoint]]:
    """The optima of each system."""
    return {
        f"{gpu.upper()}-NVS{nvs}": f.optima_by_gpus(
            strategy, model, gpu, nvs, a=how
        )
        for gpu, nvs in f.SYSTEMS
    }


Values = dict[str, dict[int, float]]
"""System -> value by number of GPUs."""


def system_days(strategy: str, model: str, how: Assumptions) -> Values:
    """Days of a whole run."""
    return {
        s: {p.n: run_days(p.prediction) for p in points}
        for s, points in systems(strategy, model, how).items()
    }


@cache
def speedups(strategy: str, how: Assumptions) -> Values:
    """Percent by which a strategy beats 1D on GPT3-1T, for each system and number of GPUs where
    both fit.
    """
    other, plain = (system_days(s, f.GPT, how) for s in (strategy, "1d_tp"))
    return {
        s: {
            n: 100 * (plain[s][n] / days - 1)
            for n, days in of.items()
            if n in plain[s]
        }
        for s, of in other.items()
    }


GAIN = "more throughput than 1D [%]"


def draw_systems(of: LblFigure, title: str) -> Any:
    """Days or gains of the repaired edition, and beside them what the repair changes."""
    from ...report.figures_lbl import curves

    change: Callable[[float, float], float] = sub
    axes = GAIN, "over the authors' code [points of a percent]"
    days = of.kind == "days"
    if days:
        change = _more
        axes = (
            "training time [days]",
            "days more than by the authors' code [%]",
        )
    code, repaired = (
        system_days(of.strategy, of.model, how)
        if days
        else speedups(of.strategy, how)
        for how in EDITIONS.values()
    )
    lines = {s: [*points.items()] for s, points in repaired.items()}
    changes = {
        s: [(n, change(x, code[s][n])) for n, x in points]
        for s, points in lines.items()
    }
    panels = {REPAIRED: (lines, axes[0]), CHANGE: (changes, axes[1])}
    # days go over orders of magnitude
    return curves(panels, title, log_y=days)


def _more(x: float, code: float) -> float:
    """Per cent more than by the authors' code."""
    return 100 * (x / code - 1)


def days_table(of: LblFigure, name: str, title: str) -> PaperTable:
    """The optima of all systems."""
    return f.points_table(name, title, systems(of.strategy, of.model))


def gains_table(of: LblFigure, name: str, title: str) -> PaperTable:
    """The gains of both editions."""
    return table_of(
        name,
        title,
        (
            {"edition": edition, "system": s, "GPUs": float(n), GAIN: x}
            for edition, how in EDITIONS.items()
            for s, points in speedups(of.strategy, how).items()
            for n, x in points.items()
        ),
    )


def draw_chips(of: LblFigure, title: str) -> Any:
    """Days by chip, the marks of the three generations where rows are arithmetic."""
    from ...report.figures_lbl import heat

    days = partial(f.days_by_chip, of.number)
    return heat(
        days(),
        f.chip_rows(of.number),
        f.MEMORY_SHARES,
        title=title,
        x=f"{of.columns} [of a B200]",
        y=f"{of.rows} [of a B200]",
        marks=f.generations() if of.rows == "arithmetic" else None,
        others=days(LBL_CODE),
    )


def chips_table(of: LblFigure, name: str, title: str) -> PaperTable:
    """Days by two shares."""
    columns = map("{:g}".format, f.MEMORY_SHARES)
    rows = zip(f.chip_rows(of.number), f.days_by_chip(of.number), strict=True)
    return PaperTable(
        name,
        title,
        (f"{of.rows} / {of.columns}", *columns),
        tuple((share, *days) for share, days in rows),
    )


def draw_collectives(
    rows: tuple[MeasuredCollective, ...], _: LblFigure, title: str
) -> Any:
    """All-gathers, measured and by the formula."""
    from ...report.figures_lbl import collective_figure

    every = [r for r in rows if r.collective == "allgather"]
    gathers = [r for r in every if r.gpus == 32] or list(rows)
    kinds = map(str, sorted({r.per_node for r in gathers}))
    gathers += [r for r in every if r.per_node == 2 and r.gpus == 16]

    def series(
        value: Callable[[MeasuredCollective], float],
    ) -> Mapping[str, list[tuple[float, float]]]:
        return {
            name: [
                (r.bytes, value(r))
                for r in gathers
                if nccl.group_text(r) == name
            ]
            for name in dict.fromkeys(map(nccl.group_text, gathers))
        }

    return collective_figure(
        series(lambda r: r.seconds),
        series(nccl.paper_seconds),
        title.format(kinds=" and ".join(kinds)),
    )
