"""A prediction as tables: the answer, the step by cause, the memory by kind, the notes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..count.model import parameters
from ..prediction.prediction import Prediction
from ..units import show
from .lines import IndentedLine, noted, taken_first
from .text import (
    CAUSES,
    KINDS,
    MFU,
    NOTHING,
    TOTALS,
    bar,
    count,
    evidence,
    headline,
    layout_words,
    percent,
    placement_words,
    seconds,
)

WIDTH = 12
"""Characters of a full bar."""


def prediction_report(
    p: Prediction, ascii_only: bool = False
) -> RenderableType:
    """Everything `predict` prints."""
    first, _ = taken_first(p.notes)
    return Group(
        *(IndentedLine(note, "yellow") for note in first),
        *title_and_headline(p),
        Text(),
        time_table(p, ascii_only),
        Text(),
        memory_table(p, ascii_only),
        *notes(p),
    )


def title_and_headline(
    p: Prediction, idle: bool = True
) -> Iterator[RenderableType]:
    """Title, headline and layout; idle: say which chips do nothing, where nobody has."""
    first, *rest = headline(p)
    cluster = p.job.cluster
    chip = cluster.chip.name + (" (unmeasured)" if p.unmeasured else "")
    machine = f"{cluster.chips:,} x {chip}, {cluster.network.name}"
    model = f"{p.job.model.name} ({count(parameters(p.job.model))})"
    yield IndentedLine(f"{model} on {machine}, {p.job.under_words}", "bold")
    yield IndentedLine(layout_words(p.layout, p.microbatches), indent=2)
    if where := placement_words(p):
        yield IndentedLine(where, "dim", 2)
    if idle and p.idle:
        yield IndentedLine(f"note: {p.idle}", "yellow", 2)
    yield IndentedLine(first, "bold green" if p.fits else "bold red", 2)
    for line in rest:
        yield IndentedLine(line, indent=2)
    for line in (*evidence(p), MFU):
        yield IndentedLine(line, "dim", 2)


def time_table(p: Prediction, ascii_only: bool = False) -> Table:
    """Seconds by cause; causes that take no time are left out."""
    table = empty_table("time of a step", "seconds", "share", "", "what it is")
    longest = max(p.time_s.values())
    for cause, s in p.time_s.items():
        if s > NOTHING * p.step_time_s:
            share = percent(s / p.step_time_s)
            table.add_row(
                cause,
                seconds(s),
                share,
                bar(s / longest, WIDTH, ascii_only),
                CAUSES[cause],
            )
    table.add_section()
    table.add_row(
        "step_time", seconds(p.step_time_s), "100 %", "", "sum", style="bold"
    )
    return table


def memory_table(p: Prediction, ascii_only: bool = False) -> Table:
    """Bytes by kind on the fullest chip, against what it has."""
    table = empty_table("fullest chip", "size", "of capacity", "", "")
    use = p.memory_bytes
    capacity = use["capacity"]
    for kind in KINDS:
        if use[kind]:
            table.add_row(
                kind,
                show(use[kind], "GiB"),
                percent(use[kind] / capacity),
                bar(use[kind] / capacity, WIDTH, ascii_only),
                "",
            )
    table.add_section()
    for total, words in TOTALS.items():
        style = "bold" if total == "needed" else ""
        there = (
            f"of {show(capacity, 'GiB')}: {words}"
            if total == "needed"
            else words
        )
        share = use[total] / capacity
        table.add_row(
            total,
            show(use[total], "GiB"),
            percent(share),
            bar(share, WIDTH, ascii_only),
            there,
            style=style,
        )
    return table


def notes(p: Prediction) -> Iterator[RenderableType]:
    """What else the reader should know, a line each; idle chips stand above the numbers."""
    _, others = taken_first(p.notes)
    rest = [note for note in others if note != p.idle]
    if rest:
        yield Text()
    yield from noted(rest)


def empty_table(first: str, *columns: str) -> Table:
    """An empty table in the house style: text left, numbers right."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    table.add_column(first, no_wrap=True)
    for i, column in enumerate(columns):
        text = column in (
            "",
            "what it is",
            "source",
            "why",
            "what",
            "note",
        ) or column.startswith("in one")
        table.add_column(
            column,
            justify="left" if text else "right",
            no_wrap=not text or (i == 2 and column == ""),
            overflow="fold",
        )
    return table
