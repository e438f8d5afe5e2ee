"""Figures 1 to 5 and A1 to A6 as plots with the tables behind them; nothing is computed before it
is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.formats.nccl_tests import Sample

from ..report import PaperFigure, PaperTable, table_of
from . import figures as f
from . import nccl
from .defects import LBL_CODE
from .figures import LblFigure, Points
from .saved import run_days

CODE = "the authors' code, recomputed (lbl-2024-code)"
REPAIRED = "the authors' code, its defects repaired (lbl-2024)"
EDITIONS = {CODE: LBL_CODE, REPAIRED: LBL}
"""What figures of layouts are drawn with, one above the other or, where they agree, once."""


Table = Callable[[LblFigure, str, str], PaperTable]
"""A figure, its name and title -> the numbers behind it."""


def figures_in_order(
    measured: tuple[Sample, ...],
) -> tuple[PaperFigure, ...]:
    """The figures in the order of the paper."""
    tables: dict[str, tuple[str, Table]] = {
        "layouts": ("bars", editions_table),
        "scaling": ("bars", editions_table),
        "days": ("systems", days_table),
        "gain": ("systems", gains_table),
        "chips": ("chips", chips_table),
        "collectives": (
            "all_gathers",
            lambda *_: nccl.nccl_table(measured),
        ),
    }

    def figure(of: LblFigure) -> PaperFigure:
        picture, table = tables[of.kind]
        name, title = f"lbl-fig-{of.number}", f"Figure {of.number}: {of.what}"

        def draw() -> Any:
            from . import pictures  # matplotlib: only here

            given = (measured,) if of.kind == "collectives" else ()
            return getattr(pictures, picture)(*given, of, title)

        return PaperFigure(name, draw, partial(table, of, name, title))

    return tuple(map(figure, f.paper_figures().values()))


def editions_table(of: LblFigure, name: str, title: str) -> PaperTable:
    """The bars of both editions."""
    editions = {e: f.points_of(of.number, how) for e, how in EDITIONS.items()}
    return f.points_table(name, title, editions)


def verdicts(number: str) -> tuple[str, ...]:
    """What the text concludes from a figure, and what both editions say of it: a line each."""
    from .conclusions import conclusions

    return tuple(
        of.check().note
        for of in conclusions()
        if of.id.startswith(f"fig-{number}/")
    )


def systems(
    strategy: str, model: str, how: Assumptions = LBL
) -> dict[str, Points]:
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
        s: {n: run_days(p) for n, p in points.items()}
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
