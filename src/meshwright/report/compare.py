"""A run beside its prediction, as text and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..compare import Comparison
from ..compare.logged import Logged
from ..errors import BadInput
from ..formats import perfetto
from ..prediction.prediction import Prediction
from ..schedule.timeline import Timeline
from ..units import show
from .card import Card, CardRow, Commands, Item
from .files import PLOTS, Writers
from .predict import empty_table
from .run_card import binding, preconditions
from .run_card import notes as card_notes
from .text import (
    CAUSES,
    layout_words,
    percent,
    seconds,
    short_range,
    short_words,
)
from .timeline import gantt

WHAT = CAUSES | {
    "forward": "compute and memory traffic of forward passes",
    "backward": "of backward passes",
    "bubble": "pipeline fills and drains, in virtual time",
    "pp_comm": "CPU between actions: sends, PyTorch's schedule",
    "other": "gradient finalization, norm, clipping; not predicted",
}
REMAINDER = "not explained: waiting for cores, messages, other ranks"


def comparison_card(c: Comparison, commands: Sequence[str] = ()) -> Card:
    """Measured beside predicted: the step, its causes that differ most, memory."""
    p = c.predicted
    clock = c.median("step_time_s")
    rows: list[Item] = [*interval_row(p, clock, "median of the run")]
    if c.virtual:
        own = c.virtual.step_s
        words = f"{seconds(own)} with a core for each rank and free messages"
        rows.append(CardRow("virtual", words, rank=3))
    if c.step:
        most = sorted(
            (x for x in c.step.causes if x.difference_s is not None),
            key=lambda x: -abs(x.difference_s or 0.0),
        )[:CAUSED]
        named = [f"{x.name} {signed(x.difference_s or 0.0)}" for x in most]
        left = f"not explained {signed(c.step.remainder_s)}"
        rows.append(CardRow("causes", ", ".join((*named, left)), rank=2))
    return Card(
        f"Did {p.job.model.name} in {c.run.folder} ({len(c.run.metrics)} steps,"
        f" {int(p.layout.chips)} ranks) run as predicted?",
        (*rows, *card_notes(c.why()), Commands(tuple(commands), rank=1)),
        "--all: causes, memory by kind, timelines, notes",
    )


def interval_row(
    p: Prediction, measured: float, how: str
) -> Iterator[CardRow]:
    """Whether a measured step lies in the interval of what is predicted."""
    ends = p.interval_s
    ratio = measured / p.step_time_s
    if ends:
        inside = ends[0] <= measured <= ends[1]
        word, style = ("yes", "bold green") if inside else ("no", "bold red")
        where = "inside" if inside else "outside"
        words = f"{where} its 90 % interval of {short_range(*ends, seconds)}"
        yield CardRow(
            word, f"{ratio:.2f} times the prediction, {words}", style
        )
    else:
        yield CardRow("ratio", f"{ratio:.2f} times the prediction", "bold")
    yield CardRow(
        "step",
        f"measured {seconds(measured)} ({how}), predicted {seconds(p.step_time_s)}",
    )


def log_card(
    c: Logged, notes: Sequence[str] = (), commands: Sequence[str] = ()
) -> Card:
    """The comparison of a log of another tool."""
    p = c.predicted
    rows: list[Item] = [
        *interval_row(p, c.measured_s, "median of the log"),
        *preconditions("", notes),
    ]
    if c.memory:
        reserved = show(p.memory_bytes["reserved"], "GiB")
        words = f"measured {show(c.memory, 'GiB')}, predicted {reserved}"
        rows.append(CardRow("memory", words))
    return Card(
        f"Did {c.name} ({c.log.kind}, {len(c.log.steps)} steps) run as predicted?"
        f" {p.job.model.name},"
        f" {short_words(p.layout)}",
        (
            *rows,
            *binding(p),
            *card_notes((*c.why(), *notes)),
            Commands(tuple(commands), rank=1),
        ),
        "--all: memory, every note",
    )


CAUSED = 3
"""Causes of a difference on a card."""


def comparison_report(
    c: Comparison, ascii_only: bool = False
) -> RenderableType:
    """Everything `compare` prints."""
    p = c.predicted
    title = (
        f"{c.run.folder}: {p.job.model.name}, {len(c.run.metrics)} steps on {int(p.layout.chips)}"
        " ranks"
    )
    parts: list[RenderableType] = [
        Text(title, "bold"),
        Text("  " + layout_words(p.layout, p.microbatches)),
        Text(),
        step_table(c),
    ]
    if c.step:
        parts += [Text(), causes(c)]
    parts += [Text(), _memory(c)]
    if p.layout.pp > 1 and c.virtual:
        parts += [Text(), *_bubble(c)]
        for name, line in lines(c).items():
            parts += [
                Text(),
                Text(f"{name}: {seconds(line.makespan_s)}", "bold"),
                *gantt(line, ascii_only),
            ]
    return Group(
        *parts, Text(), *(Text(f"note: {note}", "yellow") for note in c.why())
    )


def of_log(c: Logged, notes: Sequence[str] = ()) -> RenderableType:
    """The comparison of a log of another tool."""
    p = c.predicted
    title = (
        f"{c.name}: {p.job.model.name}, {len(c.log.steps)} lines of {c.log.kind} on"
        f" {int(p.layout.chips)} ranks"
    )
    table = empty_table("step", "predicted", "measured", "ratio", "what it is")
    table.add_row(
        "on the clock",
        seconds(p.step_time_s),
        seconds(c.measured_s),
        f"{c.measured_s / p.step_time_s:.2f}",
        "median of the log",
    )
    if c.memory:
        reserved = p.memory_bytes["reserved"]
        table.add_row(
            "memory",
            show(reserved, "B"),
            show(c.memory, "B"),
            f"{c.memory / reserved:.2f}",
            "the largest value in the log",
        )
    sentences = [*c.why(), *notes]
    return Group(
        Text(title, "bold"),
        Text("  " + layout_words(p.layout, p.microbatches)),
        Text(),
        table,
        Text(),
        *(Text(f"note: {note}", "yellow") for note in sentences),
    )


def step_table(c: Comparison) -> Table:
    """The step as a whole."""
    table = empty_table(
        "step", "predicted", "measured", "ratio", "", "what it is"
    )
    predicted = c.predicted.step_time_s
    clock = c.median("step_time_s")
    table.add_row(
        "on the clock",
        seconds(predicted),
        seconds(clock),
        f"{clock / predicted:.2f}",
        "",
        "median of the run",
    )
    if c.virtual:
        own = c.virtual.step_s
        table.add_row(
            "virtual time",
            seconds(predicted),
            seconds(own),
            f"{own / predicted:.2f}",
            "",
            "if each rank had a core of its own and messages were free",
        )
    spent = c.median("cpu_s")
    planned = c.cpu_s
    foretold = (
        (seconds(planned), seconds(spent), f"{spent / planned:.2f}")
        if planned
        else ("", seconds(spent), "")
    )
    table.add_row(
        "CPU seconds",
        *foretold,
        "",
        "summed over ranks, median of the run",
    )
    return table


def causes(c: Comparison) -> Table:
    """Predicted and measured seconds by cause; they add up with the remainder."""
    assert c.step
    name = f"recorded steps, rank {c.step.rank}"
    table = empty_table(
        name, "predicted", "measured", "difference", "", "what it is"
    )
    for cause in c.step.causes:
        measured = (
            "" if cause.measured_s is None else seconds(cause.measured_s)
        )
        difference = (
            "" if cause.difference_s is None else signed(cause.difference_s)
        )
        table.add_row(
            cause.name,
            seconds(cause.predicted_s),
            measured,
            difference,
            "",
            WHAT.get(cause.name, ""),
        )
    left = c.step.remainder_s
    table.add_row(
        "remainder",
        "",
        signed(left),
        signed(left),
        "",
        REMAINDER,
        style="yellow",
    )
    for place, value in c.step.remainder.items():
        table.add_row(f"  {place}", "", signed(value), "", "", "", style="dim")
    table.add_section()
    total = signed(c.step.measured_s - c.predicted.step_time_s)
    table.add_row(
        "step",
        seconds(c.predicted.step_time_s),
        seconds(c.step.measured_s),
        total,
        "",
        "sum",
        style="bold",
    )
    return table


def signed(value: float) -> str:
    """Seconds with their sign."""
    return ("-" if value < 0 else "+") + seconds(abs(value))


def _memory(c: Comparison) -> Table:
    """Bytes by kind on the fullest device and rank."""
    table = empty_table(
        "memory of the fullest rank", "predicted", "measured", "", "what it is"
    )
    words = {"within_step": "gradients, activations and buffers at their peak"}
    for kind, (predicted, measured) in c.memory.items():
        table.add_row(
            kind.replace("_", " "),
            show(predicted, "GiB"),
            "" if measured is None else show(measured, "GiB"),
            "",
            words.get(kind, "kept between steps"),
        )
    peak = max(
        (s.bytes.get("peak", 0.0) for r in c.run.ranks for s in r.steps),
        default=0.0,
    )
    if peak:
        table.add_row(
            "whole process",
            "",
            show(peak, "GiB"),
            "",
            "largest so far, with PyTorch itself",
        )
    return table


def _bubble(c: Comparison) -> Iterator[Text]:
    """The pipeline's idle share, three ways."""
    assert c.virtual
    b = c.virtual.bubble
    yield Text(
        f"bubble (idle over useful time): measured {percent(b.measured)}, by the plan with passes"
        f" as long as measured {percent(b.expected)}",
        "bold",
    )
    yield Text(
        f"  {percent(b.measured_raw)} with every action's own seconds, {percent(b.measured_steady)}"
        f" with its median over steps, {percent(b.balanced)} with equally busy ranks; closed form"
        f" of equal stages {percent(b.closed_form)}",
        "dim",
    )
    if not b.as_planned:
        yield Text(
            "  the program ran its actions in another order than the schedule of the plan",
            "yellow",
        )


def lines(c: Comparison) -> dict[str, Timeline]:
    """Timelines of the pipeline, predicted first."""
    timelines = {"predicted": c.replayed.timeline}
    if c.clock and c.virtual:
        timelines |= {
            "measured on the clock": c.clock,
            "measured in virtual time": c.virtual.raw,
        }
    return timelines


def writers(c: Comparison) -> Writers:
    """A Perfetto trace and Gantt charts of all timelines."""
    if not c.recorded:
        raise BadInput(
            f"{c.run.folder} recorded no steps, so there is no timeline to draw: record in [train]"
            " says how many"
        )

    def chart(kind: str) -> bytes:
        from . import plots

        return plots.image(
            plots.pipelines(
                lines(c),
                f"{c.predicted.job.model.name}: {c.predicted.layout.schedule}",
            ),
            kind,
        )

    def trace() -> str:
        return json.dumps(
            perfetto.write_all(
                lines(c),
                f"{c.predicted.job.model.name}, {c.predicted.layout.schedule}",
            )
        )

    return {".json": trace, **{kind: partial(chart, kind) for kind in PLOTS}}
