"""How To Scale Your Model (the scaling book), made again: 164 worked numbers, a row of its
take-aways, the figures of its part 5.
"""

from __future__ import annotations

from pathlib import Path

from ..report import Report, pictures
from . import published, tables

FIGURES = pictures(
    "scaling-book",
    "scaling_book.pictures",
    ("ratio", "times", "explorer", "split", "zoom-sum", "zoom-max", "zero"),
)


def scaling_book_report(files: dict[str, tuple[Path, ...]]) -> Report:
    """Every worked number beside ours; tables and figures are those of the shipped editions."""
    given = files.get("scaling-book", ())
    cases = (
        [c for f in given for c in published.read_published(f)]
        if given
        else published.shipped()
    )
    return Report(
        "scaling-book",
        checks=tuple(published.worked_checks(cases)),
        tables=tables.book_tables(),
        figures=FIGURES,
        notes=NOTES,
    )


NOTES = (
    (
        "Editions: sum = collectives of different mesh axes in turn (February 2025); max = beside"
        " each other (newest)."
    ),
    (
        "max is a lower bound: it hides tensor-parallel collectives, which the chapter itself puts"
        " on the critical path."
    ),
    (
        "The book's explorer counts ceil(log16 n) axes for each group, 3 + 1 on a torus of 3; 2 + 1"
        " stands beside it."
    ),
)
