"""Figures 1 to 5 and A1 to A6 as plots with the tables behind them; nothing is computed before it
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.prediction.prediction import Prediction

from ..report import PaperFigure, PaperTable
from . import figures as f
from . import nccl
from .defects import LBL_CODE
from .figures import GPT, VIT, FigurePoint

NAMES = {GPT: "GPT3-1T", VIT: "ViT"}
STRATEGIES = {
    "1d_tp": "1D TP",
    "2d_tp_context": "2D TP",
    "2d_tp_summa": "2D TP SUMMA",
}
Points = Callable[[Assumptions], Sequence[FigurePoint]]
CODE = "the authors' code, recomputed (lbl-2024-code)"
REPAIRED = "the authors' code, its defects repaired (lbl-2024)"
EDITIONS = {CODE: LBL_CODE, REPAIRED: LBL}
"""What figures of layouts are drawn with, one above the other or, where they agree, once."""
CHANGE = "what the repair changes"


def figures_in_order(
    measured: tuple[nccl.NcclLine, ...],
) -> tuple[PaperFigure, ...]:
    """The figures in the order of the paper."""
    gpt = "GPT3-1T, 1D TP, 16384 B200"
    summa = "GPT3-1T, SUMMA (tp x cp), 16384 B200"
    return (
        _bars("1", f"{gpt}, NVS 8, pp 64, microbatch 1", f.figure_1),
        _bars("2a", f"{gpt}, NVS 8, tp 8", partial(f.figure_2, 8)),
        _bars("2b", f"{gpt}, NVS 64, tp 8", partial(f.figure_2, 64)),
        _bars("3a", f"{summa}, NVS 8", partial(f.figure_3, 8)),
        _bars("3b", f"{summa}, NVS 64", partial(f.figure_3, 64)),
        _scaling("4a", "1d_tp", GPT, 8),
        _scaling("4b", "2d_tp_context", VIT, 8),
        _days("5a", "1d_tp", GPT),
        _days("5b", "2d_tp_context", VIT),
        _collectives(measured),
        _bars(
            "A2a",
            "GPT3-1T, 2D TP (tp x cp), 16384 B200, NVS 64",
            partial(f.figure_a2, GPT),
        ),
        _bars(
            "A2b",
            "ViT, 2D TP (tp x cp), 16384 B200, NVS 8",
            partial(f.figure_a2, VIT),
        ),
        _scaling("A3a", "1d_tp", GPT, 64),
        _scaling("A3b", "2d_tp_summa", GPT, 64),
        _speedup("A4a", "2d_tp_summa"),
        _speedup("A4b", "2d_tp_context"),
        *(
            _map(f"A{5 + i}{x}", model, strategy, not i)
            for i in (0, 1)
            for x, model, strategy in (
                ("a", GPT, "1d_tp"),
                ("b", VIT, "2d_tp_context"),
            )
        ),
    )


def _figure(
    number: str,
    what: str,
    draw: Callable[[str], Any],
    table: Callable[[str, str], PaperTable],
) -> PaperFigure:
    """draw: title -> figure;  table: name and title -> the numbers behind it."""
    name, title = f"lbl-fig-{number}", f"Figure {number}: {what}"
    return PaperFigure(name, lambda: draw(title), lambda: table(name, title))


def _bars(
    number: str, what: str, points: Points, kind: str = "bars"
) -> PaperFigure:
    """Bars of layouts, or of optima by number of GPUs."""

    def draw(title: str) -> Any:
        from ...report import figures_lbl

        said = verdicts(number)
        return getattr(figures_lbl, kind)(_shown(points), title, said)

    def table(name: str, title: str) -> PaperTable:
        editions = {edition: points(how) for edition, how in EDITIONS.items()}
        return f.points_table(name, title, editions)

    return _figure(number, what, draw, table)


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


def _shown(
    points: Points,
) -> dict[str, tuple[list[Prediction], list[str]]]:
    """Predictions and labels of both editions."""
    editions = {}
    for edition, how in EDITIONS.items():
        pairs = [(p.prediction, p.label) for p in points(how) if p.prediction]
        editions[edition] = (
            [p for p, _ in pairs],
            [label for _, label in pairs],
        )
    return editions


def _scaling(
    number: str, strategy: str, model: tuple[str, str], nvs: int
) -> PaperFigure:
    what = (
        f"{NAMES[model]}, {STRATEGIES[strategy]}, B200, NVS {nvs}: the optimum for each number of"
        " GPUs"
    )
    points = partial(f.optima_by_gpus, strategy, model, "b200", nvs)
    return _bars(number, what, points, "strong_scaling")


def systems(
    strategy: str, model: tuple[str, str], how: Assumptions = LBL
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


def _changed(
    number: str,
    what: str,
    values: Callable[[Assumptions], Values],
    change: Callable[[float, float], float],
    axes: tuple[str, str],
    table: Callable[[str, str], PaperTable],
) -> PaperFigure:
    """Values of the repaired edition, and what the repair changes: (repaired, authors' code) -> a
    number.  axes: what stands at each y; days go over orders of magnitude.
    """

    def draw(title: str) -> Any:
        from ...report.figures_lbl import curves

        code, repaired = (values(how) for how in EDITIONS.values())
        lines = {s: [*of.items()] for s, of in repaired.items()}
        changes = {
            s: [(n, change(x, code[s][n])) for n, x in points]
            for s, points in lines.items()
        }
        panels = {REPAIRED: (lines, axes[0]), CHANGE: (changes, axes[1])}
        return curves(panels, title, log_y="days" in axes[0])

    return _figure(number, what, draw, table)


def run_days(
    strategy: str, model: tuple[str, str], how: Assumptions
) -> Values:
    """Days of a whole run."""
    return {
        s: {p.n: p.days for p in points if p.days}
        for s, points in systems(strategy, model, how).items()
    }


def _days(number: str, strategy: str, model: tuple[str, str]) -> PaperFigure:
    run = (
        "1e12 tokens"
        if model == GPT
        else "28e6 samples (40 years of ERA5, 80 times)"
    )
    return _changed(
        number,
        what=f"{NAMES[model]}, {STRATEGIES[strategy]}, {run}",
        values=partial(run_days, strategy, model),
        change=lambda x, code: 100 * (x / code - 1),
        axes=(
            "training time [days]",
            "days more than by the authors' code [%]",
        ),
        table=lambda name, title: f.points_table(
            name, title, systems(strategy, model)
        ),
    )


@cache
def speedups(strategy: str, how: Assumptions = LBL) -> Values:
    """Percent by which a strategy beats 1D on GPT3-1T, for each system and number of GPUs where
    both fit.
    """
    other, plain = (run_days(s, GPT, how) for s in (strategy, "1d_tp"))
    return {
        s: {
            n: 100 * (plain[s][n] / days - 1)
            for n, days in of.items()
            if n in plain[s]
        }
        for s, of in other.items()
    }


def _speedup(number: str, strategy: str) -> PaperFigure:
    def table(name: str, title: str) -> PaperTable:
        rows = tuple(
            (edition, s, float(n), x)
            for edition, how in EDITIONS.items()
            for s, points in speedups(strategy, how).items()
            for n, x in points.items()
        )
        columns = ("edition", "system", "GPUs", "more throughput than 1D [%]")
        return PaperTable(name, title, columns, rows)

    return _changed(
        number,
        what=f"GPT3-1T, {STRATEGIES[strategy]} against 1D TP",
        values=partial(speedups, strategy),
        change=lambda x, code: x - code,
        axes=(
            "more throughput than 1D [%]",
            "over the authors' code [points of a percent]",
        ),
        table=table,
    )


def _map(
    number: str, model: tuple[str, str], strategy: str, compute: bool
) -> PaperFigure:
    what = (
        f"{NAMES[model]}, {STRATEGIES[strategy]}: days on 8192 GPUs by chip"
        " (lbl-2024; in brackets the authors' code where it differs)"
    )
    rows = f.FLOP_SHARES if compute else f.MEMORY_SHARES
    x = "memory bandwidth and capacity" if compute else "memory bandwidth"
    y = "arithmetic" if compute else "memory capacity"
    days = partial(f.days_by_chip, model, strategy, compute)

    def draw(title: str) -> Any:
        from ...report.figures_lbl import heat

        return heat(
            days(),
            rows,
            f.MEMORY_SHARES,
            title=title,
            x=f"{x} [of a B200]",
            y=f"{y} [of a B200]",
            marks=f.generations() if compute else None,
            others=days(LBL_CODE),
        )

    return _figure(
        number,
        what,
        draw,
        lambda name, title: f.grid_table(
            name, title, rows, values=days(), of=f"{y} / {x}"
        ),
    )


def _collectives(rows: tuple[nccl.NcclLine, ...]) -> PaperFigure:
    every = [r for r in rows if r.collective == "allgather"]
    gathers = [r for r in every if r.gpus == 32] or list(rows)
    kinds = sorted({r.per_node for r in gathers})
    what = (
        "all-gather on A100 of Perlmutter, by GPUs and GPUs a node (the paper: 32 GPUs,"
        f" 2 and 4 a node; measured here: 32 with {' and '.join(map(str, kinds))}, 16 with 2)"
    )
    gathers += [r for r in every if r.per_node == 2 and r.gpus == 16]

    def series(
        value: Callable[[nccl.NcclLine], float],
    ) -> Mapping[str, list[tuple[float, float]]]:
        names = dict.fromkeys(r.group for r in gathers)
        return {
            name: [(r.bytes, value(r)) for r in gathers if r.group == name]
            for name in names
        }

    def draw(title: str) -> Any:
        from ...report.figures_lbl import collective_figure

        return collective_figure(
            series(lambda r: r.seconds), series(nccl.paper_seconds), title
        )

    return _figure("A1", what, draw, lambda *_: nccl.nccl_table(rows))
