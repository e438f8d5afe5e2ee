"""Two fields varied against each other, as a table of one column of their points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..errors import unknown
from ..grid import Grid
from ..units import count, show
from .card import Card
from .card import CardTable as Table
from .lines import noted
from .run_card import notes as card_notes
from .tables import text_table
from .text import percent, seconds

WIDEST = 8
"""Values of the second field that stand beside each other in 80 columns."""
SHARES = ("mfu", "hfu", "risk_of_oom")
UNITS = {"energy_j": "J"}
INTERRUPTED = "interrupted; the same command with -o FILE.jsonl continues"


def grid_card(grid: Grid, column: str, notes: Sequence[str] = ()) -> Card:
    """The table as far as a card has room."""
    (first, _), (second, across) = grid.axes
    demand_column(grid, column)
    names = (f"{first} \\ {second}", *map(str, across), "")
    rows = [(*row, "") for row in _rows(grid, column, slice(None))]
    return Card(
        f"{column} by {first} (down) and {second} (across)",
        (Table(names, rows, most=9), *card_notes((*notes, *_notes(grid)))),
        "--all: every value; --show COLUMN: another column; -o FILE.csv: all",
    )


def demand_column(grid: Grid, column: str) -> None:
    """BadInput for a column that the points do not have."""
    names = [name for row in grid.rows for name in row]
    if grid.rows and column not in names:
        raise unknown("--show", column, dict.fromkeys(names))


def grid_report(grid: Grid, column: str) -> RenderableType:
    """One line a value of the first field, one column a value of the second."""
    demand_column(grid, column)
    return Group(*_parts(grid, column))


def _parts(grid: Grid, column: str) -> Iterator[RenderableType]:
    (first, _), (second, across) = grid.axes
    yield Text(f"{column}: {first} down, {second} across", "bold")
    for at in range(0, len(across), WIDEST):
        part = slice(at, at + WIDEST)
        names = (first, *map(str, across[part]))
        yield text_table(names, _rows(grid, column, part))
    yield from noted(_notes(grid, 3))


def _rows(grid: Grid, column: str, part: slice) -> Iterator[tuple[str, ...]]:
    """A value of the first field, and the cells of some values of the second."""
    (_, ups), _ = grid.axes
    for value, line in zip(ups, grid.table(column), strict=True):
        yield str(value), *(cell(column, v) for v in line[part])


def _notes(grid: Grid, most: int | None = None) -> Iterator[str]:
    """That points are missing, and what points say, each once."""
    if grid.interrupted:
        yield INTERRUPTED
    said = (row["note"] for row in grid.rows if row.get("note"))
    yield from [*dict.fromkeys(said)][:most]


def cell(column: str, value: Any) -> str:
    """A cell for people."""
    if value is None:
        return "-"
    if isinstance(value, (bool, str)):
        return str(value).lower()
    if column in SHARES:
        return percent(value)
    if column == "cost_usd":
        return f"{count(value)} USD"
    if column in UNITS:
        return show(value, UNITS[column], 3)
    return (
        seconds(value)
        if column.endswith("_s") and "per_s" not in column
        else count(value)
    )
