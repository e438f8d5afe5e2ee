"""A sweep as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType

from ..prediction.certainty import has_precedent, resolution
from ..prediction.prediction import Prediction
from ..prediction.runnable import NO_RUN
from ..sweep import Sweep, speedup
from ..units import DAY_S, count, show
from .card import Card, CardRow, CardTable, answer_row
from .lines import IndentedLine, noted
from .run_card import binding, preconditions
from .run_card import notes as card_notes
from .tables import text_table
from .text import (
    interval_words,
    percent,
    priced_run,
    run_words,
    seconds,
    short_words,
)

FEW = 4
"""Values that a note names."""
ROWS = 7
"""Values of a card's table."""


def sweep_card(sweep: Sweep, notes: Sequence[str] = ()) -> Card:
    """A line a value, as many as a card has room for; the fastest and the cheapest."""
    first = next(iter(sweep.predictions), None)
    columns, rows = _table(sweep, first, brief=True)
    how = "this layout" if sweep.fixed else "the best layout"
    where = (
        f"on {len(rows)} clusters"
        if sweep.over == "on"
        else f"at {len(rows)} values of {sweep.over}"
    )
    said = (*notes, *_said(sweep))
    above = [*preconditions("", said)]
    # their lines are taken from the table, whose ends stay
    most = max(ROWS - sum(row.most for row in above), 3)
    return Card(
        f"{_subject(first) if first else 'Sweep'}: {how} {where}",
        (
            CardTable(columns, rows, most),
            *_ends(sweep),
            *above,
            *card_notes(said),
            CardRow(
                "next",
                "add -o sweep.png for curves, -o sweep.csv for rows",
                rank=3,
            ),
        ),
        "--all: every value with intervals, MFU and layout",
    )


def _table(
    sweep: Sweep, first: Prediction | None, brief: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows, one a value; rates against the first value that has a layout. brief: as a
    card has room for.
    """
    money = any(p.train_time_s for p in sweep.predictions)
    chips = [] if brief or sweep.over == "chips" else ["chips"]
    run = ["days", "USD" if brief else "cost"] if money else ["tokens/s"]
    last = "layout" if brief else "what"
    columns = (
        *(sweep.over, *chips, "step", "90 %", *run),
        *("speed-up", "MFU", last),
    )
    rows = []
    for point in sweep.points:
        p = point.prediction
        head = [str(point.value)]
        head += [f"{point.job.cluster.chips:,}"] if chips else []
        if p is None or first is None:
            blanks = [""] * (len(columns) - len(head) - 1)
            rows.append((*head, *blanks, point.note))
            continue
        capacity = show(p.memory_bytes["capacity"], "GiB")
        where = "" if brief else f" in {capacity}"
        short = "" if point.fits else f"{p.verdict}{where}: "
        idle = f", {p.idle}" if p.idle and not brief else ""
        rows.append(
            (
                *head,
                seconds(p.step_time_s),
                interval_words(p),
                *(_run(p, brief) if money else [count(p.tokens_per_s)]),
                _times(p, first, brief),
                percent(p.mfu),
                short + short_words(p.layout) + idle,
            )
        )
    return columns, rows


def _subject(p: Prediction) -> str:
    """What is trained."""
    job = p.job
    tokens = f" for {count(job.tokens)} tokens" if job.tokens else ""
    return f"{job.model.name}{tokens}"


def _ends(sweep: Sweep) -> Iterator[CardRow]:
    """The fastest value that fits, and the cheapest."""
    fine = [(point.value, p) for point, p in sweep.predicted if point.fits]
    if not fine:
        yield answer_row(False, "nothing fits at any of these values")
        return
    if sweep.over.removeprefix("job.") == "assumptions":
        each = [p.step_time_s for _, p in fine]
        yield CardRow(
            "apart",
            f"{seconds(min(each))} to {seconds(max(each))} a step: sets reckon the same run, so"
            " none is a faster choice",
        )
        return
    value, p = max(fine, key=lambda each: each[1].tokens_per_s)
    run = priced_run if p.cost_usd else run_words
    rest = f", {run(p)}" if p.train_time_s else ""
    slowest = min(each.tokens_per_s for _, each in fine)
    apart = p.tokens_per_s / slowest - 1.0
    if len(fine) > 1 and apart < resolution(p.job):
        yield CardRow(
            "equal",
            f"no value is more than {percent(apart)} faster than another, which is below the"
            f" model's resolution{'' if sweep.over == 'on' else f': {sweep.over} does not bind'}",
        )
    else:
        yield CardRow(
            "fastest",
            f"{named(sweep, value)}: {seconds(p.step_time_s)} a step{rest}",
        )
        shown = [
            each for each in fine if has_precedent(each[1].job, each[1].layout)
        ]
        if shown and p.certainty and not has_precedent(p.job, p.layout):
            near, q = max(shown, key=lambda each: each[1].tokens_per_s)
            words = f"{named(sweep, near)}: {seconds(q.step_time_s)} a step"
            yield CardRow(
                "shown",
                f"no published run is sharded so; of those that are, {words}",
            )
    idle = [f"{one}: {each.idle}" for one, each in fine if each.idle]
    if idle:
        yield CardRow("idle", "; ".join(idle), "yellow", rank=4)
    yield from binding(p)
    paid = [(p.cost_usd, value, p) for value, p in fine if p.cost_usd]
    if paid:
        _, least, p = min(paid, key=lambda each: each[0])
        if least == value:
            return
        yield CardRow("cheapest", f"{named(sweep, least)}: {priced_run(p)}")


def named(sweep: Sweep, value: object) -> str:
    """A value of the field that is varied; a cluster says by itself what it is."""
    return str(value) if sweep.over == "on" else f"{sweep.over} {value}"


def _said(sweep: Sweep) -> Iterator[str]:
    """What a reader must know of these numbers, a sentence each."""
    if sweep.interrupted:
        yield "interrupted: these values are complete, the others are missing"
    yield from dict.fromkeys(
        note for p in sweep.predictions for note in p.notes if NO_RUN in note
    )
    chips = dict.fromkeys(
        p.job.cluster.chip.name for p in sweep.predictions if p.unmeasured
    )
    if chips:
        yield (
            f"unmeasured, so a share of the peak is assumed: {', '.join(chips)}"
        )
    yield from dict.fromkeys(
        p.job.cluster.chip.unpriced
        for p in sweep.predictions
        if p.train_time_s is not None and p.cost_usd is None
    )
    unsure: dict[str, list[str]] = {}
    for point, p in sweep.predicted:
        if p.certainty and p.certainty.note:
            unsure.setdefault(p.certainty.note, []).append(str(point.value))
    for note, values in unsure.items():
        some = len(values) < len(sweep.predictions)
        yield f"{', '.join(values[:FEW])}: {note}" if some else note


def sweep_report(sweep: Sweep) -> RenderableType:
    """One row a value; rates against the first value that has a layout."""
    first = next(iter(sweep.predictions), None)
    return Group(
        text_table(*_table(sweep, first, brief=False)), *_notes(sweep)
    )


def _run(p: Prediction, brief: bool) -> list[str]:
    """Days and dollars of the whole run."""
    days = "" if p.train_time_s is None else f"{p.train_time_s / DAY_S:.3g}"
    unit = "" if brief else " USD"
    return [days, "" if p.cost_usd is None else count(p.cost_usd) + unit]


def _times(p: Prediction, first: Prediction, brief: bool) -> str:
    """How many times the tokens a second of the first point, with the interval of the ratio."""
    ends = None if brief else speedup(p, first)
    sure = f" ({ends[0]:.2f}-{ends[1]:.2f})" if ends else ""
    return f"{p.tokens_per_s / first.tokens_per_s:.2f}{sure}"


def _notes(sweep: Sweep) -> Iterator[RenderableType]:
    yield from noted(_said(sweep))
    if len(sweep.predictions) > 1:
        yield IndentedLine(
            "speed-up: tokens/s relative to the first row, with the 90 % interval of the ratio",
            "dim",
        )
    tie = max((resolution(p.job) for p in sweep.predictions), default=0.0)
    if (
        tie
        and not sweep.fixed
        and len({p.layout for p in sweep.predictions}) > 1
    ):
        yield IndentedLine(
            f"rows within {percent(tie, 0)} are ties: each row shows the layout that runs and"
            " recipes prefer, else the simplest, so a row may be up to"
            f" {percent(tie, 0)} slower than the one above",
            "dim",
        )
