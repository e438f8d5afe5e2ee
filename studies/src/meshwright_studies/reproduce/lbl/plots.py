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
CODE = "the authors' code (lbl-2024-code)"
REPAIRED = "its defects repaired (lbl-2024)"
EDITIONS = {CODE: LBL_CODE, REPAIRED: LBL}
"""What figures of layouts are drawn with, side by side or, where they agree, once."""
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


def _bars(number: str, what: str, points: Points) -> PaperFigure:
    name = f"lbl-fig-{number}"
    title = f"Figure {number}: {what}"

    def draw() -> Any:
        from ...report.figures_lbl import bars

        return bars(_shown(points), title)

    return PaperFigure(
        name, title, draw, lambda: _points_table(name, title, points)
    )


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


def _points_table(name: str, title: str, points: Points) -> PaperTable:
    return f.points_table(
        name,
        title,
        {edition: points(how) for edition, how in EDITIONS.items()},
    )


def _scaling(
    number: str, strategy: str, model: tuple[str, str], nvs: int
) -> PaperFigure:
    what = (
        f"{NAMES[model]}, {STRATEGIES[strategy]}, B200, NVS {nvs}: the optimum for each number of"
        " GPUs"
    )
    name = f"lbl-fig-{number}"
    title = f"Figure {number}: {what}"
    points = partial(f.optima_by_gpus, strategy, model, "b200", nvs)

    def draw() -> Any:
        from ...report.figures_lbl import strong_scaling

        return strong_scaling(_shown(points), title)

    return PaperFigure(
        name, title, draw, lambda: _points_table(name, title, points)
    )


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


def _days(number: str, strategy: str, model: tuple[str, str]) -> PaperFigure:
    run = (
        "1e12 tokens"
        if model == GPT
        else "28e6 samples (40 years of ERA5, 80 times)"
    )
    name = f"lbl-fig-{number}"
    title = f"Figure {number}: {NAMES[model]}, {STRATEGIES[strategy]}, {run}"

    def draw() -> Any:
        from ...report.figures_lbl import curves

        code, repaired = (
            {
                s: {p.n: p.days for p in points if p.days}
                for s, points in systems(strategy, model, how).items()
            }
            for how in EDITIONS.values()
        )
        changed = {
            s: [(n, 100 * (x / code[s][n] - 1)) for n, x in of.items()]
            for s, of in repaired.items()
        }
        lines = {s: [*of.items()] for s, of in repaired.items()}
        panels = {
            REPAIRED: (lines, "training time [days]"),
            CHANGE: (changed, "days more than by the authors' code [%]"),
        }
        return curves(panels, title)

    return PaperFigure(
        name,
        title,
        draw,
        lambda: f.points_table(name, title, systems(strategy, model)),
    )


@cache
def speedups(
    strategy: str, how: Assumptions = LBL
) -> dict[str, list[tuple[float, float]]]:
    """Percent by which a strategy beats 1D on GPT3-1T, for each system and number of GPUs where
    both fit.
    """
    speedups_of = {}
    for system, points in systems(strategy, GPT, how).items():
        gpu, nvs = system.lower().split("-nvs")
        plain = {
            p.n: p.days
            for p in f.optima_by_gpus(
                "1d_tp", model=GPT, gpu=gpu, nvs=int(nvs), a=how
            )
            if p.days
        }
        speedups_of[system] = [
            (float(p.n), 100 * (plain[p.n] / p.days - 1))
            for p in points
            if p.days and p.n in plain
        ]
    return speedups_of


def _speedup(number: str, strategy: str) -> PaperFigure:
    name = f"lbl-fig-{number}"
    title = f"Figure {number}: GPT3-1T, {STRATEGIES[strategy]} against 1D TP"

    def draw() -> Any:
        from ...report.figures_lbl import curves

        code, repaired = (speedups(strategy, how) for how in EDITIONS.values())
        before = {s: dict(points) for s, points in code.items()}
        changed = {
            s: [(n, x - before[s][n]) for n, x in points]
            for s, points in repaired.items()
        }
        panels = {
            REPAIRED: (repaired, "more throughput than 1D [%]"),
            CHANGE: (changed, "over the authors' code [points of a percent]"),
        }
        return curves(panels, title, log_y=False)

    def table() -> PaperTable:
        rows = tuple(
            (edition, s, n, x)
            for edition, how in EDITIONS.items()
            for s, points in speedups(strategy, how).items()
            for n, x in points
        )
        return PaperTable(
            name,
            title,
            ("edition", "system", "GPUs", "more throughput than 1D [%]"),
            rows,
        )

    return PaperFigure(name, title, draw, table)


def _map(
    number: str, model: tuple[str, str], strategy: str, compute: bool
) -> PaperFigure:
    name = f"lbl-fig-{number}"
    title = (
        f"Figure {number}: {NAMES[model]}, {STRATEGIES[strategy]}: days on 8192 GPUs by chip"
        " (lbl-2024; in brackets the authors' code where it differs)"
    )
    rows = f.FLOP_SHARES if compute else f.MEMORY_SHARES
    x = "memory bandwidth and capacity" if compute else "memory bandwidth"
    y = "arithmetic" if compute else "memory capacity"

    def draw() -> Any:
        from ...report.figures_lbl import heat

        return heat(
            f.days_by_chip(model, strategy, compute),
            rows,
            f.MEMORY_SHARES,
            title=title,
            x=f"{x} [of a B200]",
            y=f"{y} [of a B200]",
            marks=f.generations() if compute else None,
            others=f.days_by_chip(model, strategy, compute, LBL_CODE),
        )

    def table() -> PaperTable:
        return f.grid_table(
            name,
            title,
            rows,
            values=f.days_by_chip(model, strategy, compute),
            of=f"{y} / {x}",
        )

    return PaperFigure(name, title, draw, table)


def _collectives(rows: tuple[nccl.NcclLine, ...]) -> PaperFigure:
    gathers = [
        r for r in rows if r.collective == "allgather" and r.gpus == 32
    ] or list(rows)
    two = [
        r
        for r in rows
        if r.collective == "allgather" and r.per_node == 2 and r.gpus == 16
    ]
    kinds = sorted({r.per_node for r in gathers})
    title = (
        "Figure A1: all-gather on A100 of Perlmutter, by GPUs and GPUs a node (the paper: 32 GPUs,"
        f" 2 and 4 a node; measured here: 32 with {' and '.join(map(str, kinds))}, 16 with 2)"
    )
    gathers += two

    def draw() -> Any:
        from ...report.figures_lbl import collective_figure

        def series(
            value: Callable[[nccl.NcclLine], float],
        ) -> Mapping[str, list[tuple[float, float]]]:
            names = dict.fromkeys(r.group for r in gathers)
            return {
                name: [(r.bytes, value(r)) for r in gathers if r.group == name]
                for name in names
            }

        return collective_figure(
            series(lambda r: r.seconds), series(nccl.paper_seconds), title
        )

    return PaperFigure(
        "lbl-fig-A1", title, draw, lambda: nccl.nccl_table(rows)
    )
