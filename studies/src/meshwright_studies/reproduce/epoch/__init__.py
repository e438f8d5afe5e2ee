"""Erdil & Schneider-Joseph 2024 (Epoch AI), arXiv 2411.01137, made again.

Tables 2 to 4, the worked numbers, and curves: those shipped with the catalogue, or those in files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ... import shipped as data
from ..report import (
    Check,
    PaperTable,
    Report,
    pictures,
    sourced,
    table_of,
)
from . import golden, observations, sentences, square_products, tables
from .published import PRINTED, SCENARIOS

FIGURES = pictures(
    "epoch-figure",
    "epoch.pictures",
    ("5", "1", "10", "11", "7", "7-sparse", *PRINTED["utilisation"]),
    {"5": square_products.table},
)


def epoch_report(files: dict[str, tuple[Path, ...]]) -> Report:
    """files: "epoch" -> curves in files; empty: those shipped, and tables of what the limits depend
    on.
    """
    curves = (
        [golden.read_golden(file) for file in files.get("epoch", ())]
        if files
        else shipped()
    )
    checks: list[Check] = [
        *tables.linear_scaling(),
        *tables.closed_form_table(),
        *sourced("own", tables.products()),
        *tables.example_run(),
        *sentences.sentence_checks(),
        *observations.phenomenon_checks(),
        *square_products.checks(),
    ]
    for curve in curves:
        # the paper prints no points of its curves: whoever has them computed them
        for checks_of in (golden.curve_checks, golden.degrees_of_points):
            checks += sourced("own", checks_of(curve))
    more = (
        ()
        if files
        else (
            tables.linear_table(),
            tables.sensitivity_table(),
            *sentences.table_checks(),
            *curve_tables(),
        )
    )
    return Report(
        "epoch",
        checks=tuple(checks),
        tables=(*map(golden.curve_table, curves), *more),
        figures=FIGURES,
        notes=NOTES,
    )


def shipped() -> list[golden.Golden]:
    """The curves of the catalogue."""
    files = sorted((data.DATA / "published/epoch").glob("*.csv"))
    return [golden.read_golden(file) for file in files]


def curve_tables() -> Iterator[PaperTable]:
    """The data of figures 6 to 9: one row a point."""
    for number, names in SCENARIOS.items():
        yield table_of(
            f"epoch-figure-{number}",
            f"Data of figure {number}",
            (
                {
                    "scenario": name,
                    "T_flop": p.flops,
                    "n_gpu": p.chips,
                    "utilisation": p.utilisation,
                    "tp": p.degrees.tp_model * p.degrees.tp_ff,
                    "dp": p.degrees.dp,
                    "pp": p.degrees.pp,
                    "ep": p.degrees.ep,
                }
                for name in names.values()
                for p in golden.ours(name).points
            ),
        )


NOTES = (
    (
        "The published ends of linear scaling are those of grids: chips come in doublings, widths"
        " in a dozen steps to a factor of four, and the first model below the threshold counts. The"
        " last crossing, and the smooth mode, differ from them by up to a factor of ten."
    ),
    (
        "Bandwidths that the paper quotes are both directions together; one way is half of it."
        " Utilisation refers to the boost clock, the threshold to 80 % of what a GPU sustains"
        " (0.90, 0.85, 0.70 of it)."
    ),
)
