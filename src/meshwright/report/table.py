"""A table of layouts as the command line prints one."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..prediction.table import Table
from ..units import show
from .predict import empty_table
from .text import count, layout_words, percent, seconds

MOST = 40
"""Rows that are printed."""


def table_report(table: Table) -> RenderableType:
    """One line a layout."""
    printed = empty_table("layout", "step", "tokens/s", "MFU", "memory")
    for layout, p in list(zip(table.layouts, table.predictions, strict=True))[
        :MOST
    ]:
        if p is None:
            printed.add_row(layout_words(layout), "-", "-", "-", "refused")
            continue
        memory = show(p.memory_bytes["needed"], "GiB") + (
            "" if p.fits else f" {p.verdict}"
        )
        rates = seconds(p.step_time_s), count(p.tokens_per_s), percent(p.mfu)
        idle = f"\n{p.idle}" if p.idle else ""
        printed.add_row(layout_words(p.layout) + idle, *rates, memory)
    more = len(table.layouts) - MOST
    return Group(
        printed, *([Text(f"... and {more} more")] if more > 0 else [])
    )
