"""A table of layouts as the command line prints one."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..describe.layout import Layout
from ..prediction.prediction import Prediction
from ..prediction.table import Table
from ..units import count
from .tables import text_table
from .text import layout_words, memory_needed, percent, seconds

MOST = 40
"""Rows that are printed."""


def table_report(table: Table) -> RenderableType:
    """One line a layout."""
    pairs = [*zip(table.layouts, table.predictions, strict=True)]
    printed = text_table(
        "layout | step | tokens/s | MFU | memory",
        [_cells(layout, p) for layout, p in pairs[:MOST]],
    )
    more = len(table.layouts) - MOST
    return Group(
        printed, *([Text(f"... and {more} more")] if more > 0 else [])
    )


def _cells(layout: Layout, p: Prediction | None) -> tuple[str, ...]:
    """The cells of a layout; of one that is refused, that it is."""
    if p is None:
        return layout_words(layout), "-", "-", "-", "refused"
    need = memory_needed(p)
    return (
        layout_words(p.layout) + (f"\n{p.idle}" if p.idle else ""),
        seconds(p.step_time_s),
        count(p.tokens_per_s),
        percent(p.mfu),
        need if p.fits else f"{need} {p.verdict}",
    )
