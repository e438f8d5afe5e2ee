"""Tables of `published/` and of what the studies ship: CSV below comments that say where the numbers
are from.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "published"
Row = dict[str, str]


def rows_of(text: str) -> list[Row]:
    lines = text.splitlines()
    return [*csv.DictReader(x for x in lines if not x.startswith("#"))]


@cache
def published(name: str) -> list[Row]:
    """The rows of `published/NAME.csv`."""
    return rows_of((FOLDER / f"{name}.csv").read_text("utf-8"))
