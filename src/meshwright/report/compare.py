"""A run beside its prediction, as text and as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..compare import Comparison
from ..compare.logged import Logged
from ..errors import BadInput
from ..formats import perfetto
from ..formats.records import like_the_newest
from ..prediction.prediction import Prediction
from ..units import show
from .card import Card, CardRow, Commands, Item, answer_row
from .figures import figure_of
from .files import Writers, drawn
from .lines import noted
from .run_card import binding, preconditions
from .run_card import notes as card_notes
from .tables import text_table
from .text import (
    CAUSES,
    layout_words,
    percent,
    range_text,
    seconds,
    short_words,
    signed,
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
    rows: list[Item] = [*interval_row(p, clock, middle_of(c))]
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


def middle_of(c: Comparison) -> str:
    """Of which steps a measured number is: of all but the first of each start, unless others ran
    under another layout or job.
    """
    timed, steps = len(c.run.timed), len(c.run.metrics)
    if timed == 1:
        return f"1 step of {steps}"
    alike = len(like_the_newest(c.run.attempts)) == len(c.run.attempts)
    return "median of the run" if alike else f"median of {timed} of {steps}"


def interval_row(
    p: Prediction, measured: float, how: str
) -> Iterator[CardRow]:
    """Whether a measured step lies in the interval of what is predicted."""
    ends = p.interval_s
    ratio = measured / p.step_time_s
    if ends:
        inside = ends[0] <= measured <= ends[1]
        where = "inside" if inside else "outside"
        words = f"{where} its 90 % interval of {range_text(*ends, seconds)}"
        yield answer_row(inside, f"{ratio:.2f} times the prediction, {words}")
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
    number = len(c.log.steps)
    lines = f"{number:,} step{'s' * (number > 1)}"
    rows: list[Item] = [
        *interval_row(p, c.measured_s, "median of the log"),
        *preconditions("", notes),
        *(CardRow("but", doubt, "yellow", most=2) for doubt in c.doubts),
    ]
    if c.memory:
        reserved = show(p.memory_bytes["reserved"], "GiB")
        words = f"measured {show(c.memory, 'GiB')}, predicted {reserved}"
        rows.append(CardRow("memory", words))
    return Card(
        f"Did {c.name} ({c.log.kind}, {lines}) run as predicted?"
        f" {p.job.model.name},"
        f" {short_words(p.layout)}",
        (
            *rows,
            # what a run does next matters more here than what the prediction waits for
            *(row._replace(rank=2) for row in binding(p)),
            *card_notes((*c.why(), *notes)),
            Commands(tuple(commands), rank=1),
        ),
        "--all: memory, every note",
    )


CAUSED = 3
"""Causes of a difference on a card."""


def comparison_report(c: Comparison) -> RenderableType:
    """Everything `compare` prints."""
    p = c.predicted
    words = layout_words(p.layout, p.microbatches)
    parts: list[RenderableType] = [Text(words, "bold"), step_table(c)]
    if c.step:
        parts += [Text(), causes(c)]
    parts += [Text(), _memory(c)]
    if p.layout.pp > 1 and c.virtual:
        parts += [Text(), *_bubble(c)]
        for name, line in c.timelines.items():
            parts += [
                Text(),
                Text(f"{name}: {seconds(line.makespan_s)}", "bold"),
                *gantt(line),
            ]
    return Group(*parts, Text(), *noted(c.why()))


def of_log(c: Logged, notes: Sequence[str] = ()) -> RenderableType:
    """The comparison of a log of another tool."""
    p = c.predicted
    pairs: list[Pair] = [
        ("on the clock", p.step_time_s, c.measured_s, "median of the log")
    ]
    table = text_table(MEASURED, map(_seconds_row, pairs))
    if c.memory:
        reserved = p.memory_bytes["reserved"]
        table.add_row(
            "memory",
            show(reserved, "B"),
            show(c.memory, "B"),
            f"{c.memory / reserved:.2f}",
            "the largest value in the log",
        )
    return Group(
        Text(layout_words(p.layout, p.microbatches), "bold"),
        table,
        *noted((*c.doubts, *c.why(), *notes)),
    )


MEASURED = "step | predicted | measured | ratio | what it is"
Pair = tuple[str, float | None, float, str]
"""What was measured, its predicted and its measured seconds, how."""


def _seconds_row(pair: Pair) -> tuple[str, ...]:
    """The cells of seconds beside what was predicted of them, if anything was."""
    name, predicted, measured, how = pair
    if not predicted:
        return name, "", seconds(measured), "", how
    ratio = f"{measured / predicted:.2f}"
    return name, seconds(predicted), seconds(measured), ratio, how


def step_table(c: Comparison) -> Table:
    """The step as a whole."""
    p_s = c.predicted.step_time_s
    clock = c.median("step_time_s")
    pairs: list[Pair] = [("on the clock", p_s, clock, middle_of(c))]
    if c.virtual:
        how = "if each rank had a core of its own and messages were free"
        pairs.append(("virtual time", p_s, c.virtual.step_s, how))
    how = f"summed over ranks, {middle_of(c)}"
    pairs.append(("CPU seconds", c.cpu_s, c.median("cpu_s"), how))
    return text_table(MEASURED, map(_seconds_row, pairs))


def causes(c: Comparison) -> Table:
    """Predicted and measured seconds by cause; they add up with the remainder."""
    assert c.step
    table = text_table(
        f"recorded steps, rank {c.step.rank} | predicted | measured | difference | what it is",
        [
            (
                cause.name,
                seconds(cause.predicted_s),
                _or_blank(cause.measured_s, seconds),
                _or_blank(cause.difference_s, signed),
                WHAT.get(cause.name, ""),
            )
            for cause in c.step.causes
        ],
    )
    left = signed(c.step.remainder_s)
    table.add_row("remainder", "", left, left, REMAINDER, style="yellow")
    for place, value in c.step.remainder.items():
        table.add_row(f"  {place}", "", signed(value), "", "", style="dim")
    ends = c.predicted.step_time_s, c.step.measured_s
    more = signed(ends[1] - ends[0])
    table.add_row("step", *map(seconds, ends), more, "sum", style="bold")
    return table


def _or_blank(value: float | None, shown: Callable[[float], str]) -> str:
    return "" if value is None else shown(value)


def _memory(c: Comparison) -> Table:
    """Bytes by kind on the fullest device and rank."""
    words = {"within_step": "gradients, activations and buffers at their peak"}
    rows = [
        (
            kind.replace("_", " "),
            show(predicted, "GiB"),
            _or_blank(measured, lambda size: show(size, "GiB")),
            words.get(kind, "kept between steps"),
        )
        for kind, (predicted, measured) in c.memory.items()
    ]
    if peak := c.process_peak_bytes:
        how = "largest so far, with PyTorch itself"
        rows.append(("whole process", "", show(peak, "GiB"), how))
    return text_table(
        "memory of the fullest rank | predicted | measured | what it is", rows
    )


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


def writers(c: Comparison) -> Writers:
    """A Perfetto trace and Gantt charts of all timelines; refused when written, where a run
    recorded none.
    """

    def trace() -> str:
        p = demand_timelines(c).predicted
        name = f"{p.job.model.name}, {p.layout.schedule}"
        return json.dumps(perfetto.write_all(c.timelines, name))

    return {
        ".json": trace,
        **drawn(lambda: figure_of(demand_timelines(c))),
    }


def demand_timelines(c: Comparison) -> Comparison:
    """The comparison; BadInput where its run recorded no steps."""
    if c.recorded:
        return c
    raise BadInput(
        f"{c.run.folder} recorded no steps, so there is no timeline to draw: record in [train]"
        " says how many"
    )
