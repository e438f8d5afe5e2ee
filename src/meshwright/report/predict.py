"""Behind the card of a prediction: its details, time by cause, memory by kind, notes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..prediction.prediction import Prediction
from ..units import show
from .lines import IndentedLine, noted
from .tables import text_table
from .text import (
    CAUSES,
    KINDS,
    MFU,
    NOTHING,
    TOTALS,
    Bar,
    chip_hours,
    evidence,
    interruptions,
    layout_words,
    percent,
    placement_words,
    rates_of_chip,
    seconds,
)


def prediction_report(p: Prediction) -> RenderableType:
    """What stands behind the card of a prediction."""
    return Group(
        *details(p),
        Text(),
        time_table(p),
        Text(),
        memory_table(p),
        Text(),
        *noted(p.notes),
    )


def details(p: Prediction) -> Iterator[IndentedLine]:
    """The layout in full and where its ranks lie, what a chip does, what a run takes beside days
    and money, and what the interval rests on.
    """
    yield IndentedLine(layout_words(p.layout, p.microbatches), "bold")
    cluster = p.job.cluster
    machine = cluster.machine + " (unmeasured)" * p.unmeasured
    where = f"{machine}, {cluster.network.name}", placement_words(p)
    yield IndentedLine(": ".join(filter(None, where)), indent=2)
    for line in (*rates_of_chip(p), chip_hours(p), interruptions(p)):
        if line:
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
