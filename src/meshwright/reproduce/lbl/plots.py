"""Figures 1 to 5 and A1 to A6 as plots with the tables behind them; nothing is computed before it
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..report import Figure, Table
from . import figures as f
from . import nccl
from .figures import GPT, VIT, Point

NAMES = {GPT: "GPT3-1T", VIT: "ViT"}
STRATEGIES = {
    "1d_tp": "1D TP",
    "2d_tp_context": "2D TP",
    "2d_tp_summa": "2D TP SUMMA",
}
Points = Callable[[], Sequence[Point]]


def every(measured: tuple[nccl.Measured, ...]) -> tuple[Figure, ...]:
    """All figures, in the order of the paper."""
    return (
        _bars(
            "1",
            "GPT3-1T, 1D TP, 16384 B200, NVS 8, pp 64, microbatch 1",
            f.figure_1,
        ),
        _bars(
            "2a",
            "GPT3-1T, 1D TP, 16384 B200, NVS 8, tp 8",
            lambda: f.figure_2(8),
        ),
        _bars(
            "2b",
            "GPT3-1T, 1D TP, 16384 B200, NVS 64, tp 8",
            lambda: f.figure_2(64),
        ),
        _bars(
            "3a",
            "GPT3-1T, SUMMA (tp x cp), 16384 B200, NVS 8",
            lambda: f.figure_3(8),
        ),
        _bars(
            "3b",
            "GPT3-1T, SUMMA (tp x cp), 16384 B200, NVS 64",
            lambda: f.figure_3(64),
        ),
        _scaling("4a", "1d_tp", GPT, 8),
        _scaling("4b", "2d_tp_context", VIT, 8),
        _days("5a", "1d_tp", GPT),
        _days("5b", "2d_tp_context", VIT),
        _collectives(measured),
        _bars(
            "A2a",
            "GPT3-1T, 2D TP (tp x cp), 16384 B200, NVS 64",
            lambda: f.figure_a2(GPT),
        ),
        _bars(
            "A2b",
            "ViT, 2D TP (tp x cp), 16384 B200, NVS 8",
            lambda: f.figure_a2(VIT),
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


def _bars(number: str, what: str, points: Points) -> Figure:
    name, title = f"lbl-fig-{number}", f"Figure {number}: {what}"

    def draw() -> Any:
        from ...report.figures_lbl import bars

        shown = [(p.prediction, p.label) for p in points() if p.prediction]
        return bars(
            [p for p, _ in shown], [label for _, label in shown], title
        )

    return Figure(
        name, title, draw, lambda: f.points_table(name, title, {"": points()})
    )


def _scaling(
    number: str, strategy: str, model: tuple[str, str], nvs: int
) -> Figure:
    what = (
        f"{NAMES[model]}, {STRATEGIES[strategy]}, B200, NVS {nvs}: the optimum for each number of"
        " GPUs"
    )
    name, title = f"lbl-fig-{number}", f"Figure {number}: {what}"

    def points() -> Sequence[Point]:
        return f.scaling(strategy, model, "b200", nvs)

    def draw() -> Any:
        from ...report.figures_lbl import strong_scaling

        return strong_scaling(
            [p.prediction for p in points() if p.prediction], title
        )

    return Figure(
        name, title, draw, lambda: f.points_table(name, title, {"": points()})
    )


def systems(
    strategy: str, model: tuple[str, str]
) -> dict[str, Sequence[Point]]:
    """The optima of each system."""
    return {
        f"{gpu.upper()}-NVS{nvs}": f.scaling(strategy, model, gpu, nvs)
        for gpu, nvs in f.SYSTEMS
    }


def _days(number: str, strategy: str, model: tuple[str, str]) -> Figure:
    run = (
        "1e12 tokens"
        if model == GPT
        else "28e6 samples (40 years of ERA5, 80 times)"
    )
    name, title = (
        f"lbl-fig-{number}",
        f"Figure {number}: {NAMES[model]}, {STRATEGIES[strategy]}, {run}",
    )

    def draw() -> Any:
        from ...report.figures_lbl import curves

        found = {
            s: [(float(p.n), p.days) for p in points if p.days]
            for s, points in systems(strategy, model).items()
        }
        return curves(found, title, "training time [days]")

    return Figure(
        name,
        title,
        draw,
        lambda: f.points_table(name, title, systems(strategy, model)),
    )


def speedups(strategy: str) -> dict[str, list[tuple[float, float]]]:
    """Percent by which a strategy beats 1D on GPT3-1T, for each system and number of GPUs where
    both fit.
    """
    found = {}
    for system, points in systems(strategy, GPT).items():
        gpu, nvs = system.lower().split("-nvs")
        plain = {
            p.n: p.days
            for p in f.scaling("1d_tp", GPT, gpu, int(nvs))
            if p.days
        }
        found[system] = [
            (float(p.n), 100 * (plain[p.n] / p.days - 1))
            for p in points
            if p.days and p.n in plain
        ]
    return found


def _speedup(number: str, strategy: str) -> Figure:
    name, title = (
        f"lbl-fig-{number}",
        f"Figure {number}: GPT3-1T, {STRATEGIES[strategy]} against 1D TP",
    )

    def draw() -> Any:
        from ...report.figures_lbl import curves

        return curves(
            speedups(strategy),
            title,
            "more throughput than 1D [%]",
            log_y=False,
        )

    def table() -> Table:
        rows = tuple(
            (s, n, x)
            for s, points in speedups(strategy).items()
            for n, x in points
        )
        return Table(
            name,
            title,
            ("system", "GPUs", "more throughput than 1D [%]"),
            rows,
        )

    return Figure(name, title, draw, table)


def _map(
    number: str, model: tuple[str, str], strategy: str, compute: bool
) -> Figure:
    name = f"lbl-fig-{number}"
    title = (
        f"Figure {number}: {NAMES[model]}, {STRATEGIES[strategy]}: days on 8192 GPUs, chips"
        " relative to the B200"
    )
    rows = f.FLOP_SHARES if compute else f.MEMORY_SHARES
    x = "memory bandwidth and capacity" if compute else "memory bandwidth"
    y = "arithmetic" if compute else "memory capacity"

    def draw() -> Any:
        from ...report.figures_lbl import heat

        return heat(
            f.grid(model, strategy, compute),
            rows,
            f.MEMORY_SHARES,
            title,
            f"{x} [of a B200]",
            f"{y} [of a B200]",
        )

    def table() -> Table:
        return f.grid_table(
            name, title, rows, f.grid(model, strategy, compute), f"{y} / {x}"
        )

    return Figure(name, title, draw, table)


def _collectives(rows: tuple[nccl.Measured, ...]) -> Figure:
    title = "Figure A1: all-gather on 32 A100 of Perlmutter"
    gathers = [
        r for r in rows if r.collective == "allgather" and r.gpus == 32
    ] or list(rows)

    def draw() -> Any:
        from ...report.figures_lbl import collectives

        def series(
            value: Callable[[nccl.Measured], float],
        ) -> Mapping[str, list[tuple[float, float]]]:
            names = dict.fromkeys(r.group for r in gathers)
            return {
                name: [(r.bytes, value(r)) for r in gathers if r.group == name]
                for name in names
            }

        return collectives(
            series(lambda r: r.seconds), series(nccl.predicted), title
        )

    return Figure("lbl-fig-A1", title, draw, lambda: nccl.table(rows))
