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
from .tables import text_table
from .text import (
    CAUSES,
    KINDS,
    MFU,
    NOTHING,
    TOTALS,
    Bar,
    count,
    evidence,
    headline,
    layout_words,
    percent,
    placement_words,
    seconds,
)


def prediction_report(p: Prediction) -> RenderableType:
    """Everything `predict` prints."""
    first, _ = taken_first(p.notes)
    return Group(
        *(IndentedLine(note, "yellow") for note in first),
        *title_and_headline(p),
        Text(),
        time_table(p),
        Text(),
        memory_table(p),
        *notes(p),
    )


def title_and_headline(
    p: Prediction, idle: bool = True
) -> Iterator[RenderableType]:
    """Title, headline and layout; idle: say which chips do nothing, where nobody has."""
    first, *rest = headline(p)
    cluster = p.job.cluster
    chips = cluster.machine + " (unmeasured)" * p.unmeasured
    machine = f"{chips}, {cluster.network.name}"
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


def time_table(p: Prediction) -> Table:
    """Seconds by cause; causes that take no time are left out."""
    longest = max(p.time_s.values())
    rows = (
        (
            cause,
            seconds(s),
            percent(s / p.step_time_s),
            Bar(s / longest),
            CAUSES[cause],
        )
        for cause, s in p.time_s.items()
        if s > NOTHING * p.step_time_s
    )
    return text_table(
        "time of a step | seconds | share |  | what it is",
        rows,
        ("step_time", seconds(p.step_time_s), "100 %", "", "sum"),
    )


def memory_table(p: Prediction) -> Table:
    """Bytes by kind on the fullest chip, against what it has; then their sums."""
    use = p.memory_bytes
    capacity = use["capacity"]

    def cells(name: str) -> tuple[str | Bar, ...]:
        share = use[name] / capacity
        return name, show(use[name], "GiB"), percent(share), Bar(share)

    table = text_table(
        "fullest chip | size | of capacity |  | ",
        [(*cells(kind), "") for kind in KINDS if use[kind]],
    )
    for total, words in TOTALS.items():
        needed = total == "needed"
        said = f"of {show(capacity, 'GiB')}: {words}" if needed else words
        table.add_row(*cells(total), said, style="bold" * needed)
    return table


def notes(p: Prediction) -> Iterator[RenderableType]:
    """What else the reader should know, a line each; idle chips stand above the numbers."""
    _, others = taken_first(p.notes)
    rest = [note for note in others if note != p.idle]
    if rest:
        yield Text()
    yield from noted(rest)
