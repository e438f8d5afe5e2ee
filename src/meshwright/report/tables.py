"""Tables in the house style: text left, numbers right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table

WORDS = ("", "what it is", "source", "why", "what", "note")
"""Columns of text, by their names; all but the first column are numbers else."""


def text_table(
    header: str | Iterable[str],
    rows: Iterable[Sequence[RenderableType]] = (),
    total: Sequence[str] = (),
    left: Sequence[int] = (),
    caption: str = "",
) -> Table:
    """Rows of cells under a header.

    header: names of the columns, as they are printed with " | " between them, or one by one;
    total: a last row, bold;  left: further columns of text, by place;
    caption: what the names mean, below.
    """
    names = header.split(" | ") if isinstance(header, str) else [*header]
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        padding=(0, 2, 0, 0),
        caption=caption or None,
    )
    for i, name in enumerate(names):
        # the picture of a cell of a bar stands in the third column after the first
        text = i > 0 and (name in WORDS or name.startswith("in one"))
        table.add_column(
            name,
            justify="left" if i == 0 or text or i in left else "right",
            no_wrap=not text or (i == 3 and name == ""),
            overflow="ellipsis" if i == 0 else "fold",
        )
    for cells in rows:
        table.add_row(*cells)
    if total:
        table.add_row(*total, style="bold")
    return table
