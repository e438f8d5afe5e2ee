"""What to change of a run: the card, the reasons, and every change that was tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table

from ..advice.answer import Advice, json_value
from ..advice.changes import value_in_effect
from ..advice.gap import Gap
from ..advice.judged import Option
from ..formats.bridge.edit import NONE
from .card import FIRST, Card, CardRow, CardTable, Commands, Item
from .lines import noted
from .run_card import (
    SEEN,
    basis,
    notes,
    preconditions,
    question,
    step_rows,
    verdict,
)
from .tables import text_table
from .text import (
    BRIEFLY,
    memory_needed,
    percent,
    risk_words,
    seconds,
    short_words,
    step_words,
)

LISTED = 4
"""Changes of a card."""
WHY = "--why: flags of every gain, what explains a gap; --all: every change"


def advise_card(advice: Advice, commands: Sequence[str] = ()) -> Card:
    """The first screen."""
    run = advice.run
    rows: list[Item] = [
        verdict(run, "ran" if advice.ran else ""),
        *preconditions(run.idle, advice.notes, advice.fits),
        CardRow("layout", short_words(run.layout), rank=4, most=1),
        *step_rows(run, advice.ran),
        *measured(advice.gap),
        *gains(advice),
        *pair_and_triple(advice),
        *_ties(advice),
        *numerics_rows(advice),
        *basis(run),
        *notes(advice.notes),
        Commands(tuple(commands)),
    ]
    return Card(f"Advice on {question(run.job)}", tuple(rows), WHY)


def measured(gap: Gap | None) -> Iterator[CardRow]:
    """The measured time beside the predicted one, and what could explain that."""
    if gap is None:
        return
    inside = "inside" if gap.inside else "outside"
    yield CardRow(
        "ran",
        f"{seconds(gap.measured_s)}, {gap.ratio:.2f} times the"
        f" {seconds(gap.predicted_s)} predicted, {inside} the interval",
    )
    if said := explained(gap):
        yield CardRow("gap", said, rank=2)


def explained(gap: Gap) -> str:
    """What could explain a gap, and that it cannot be told."""
    if gap.inside and not gap.assumptions:
        return ""
    if gap.assumptions:
        path, assumed, other, s = gap.assumptions[0]
        return (
            f"{name(path)} {word(other)} instead of the assumed {word(assumed)} would take"
            f" {seconds(s)}; the time alone cannot tell"
        )
    causes = [
        f"{BRIEFLY[c]} taking {t:.2f} times as long" for c, t in gap.causes
    ]
    if not causes:
        return "no single cause explains it: look for a setting that the job does not hold"
    return f"{' or '.join(causes[:2])} would explain it; the time alone cannot tell"


def gains(advice: Advice) -> Iterator[Item]:
    """The best changes as a table."""
    if not advice.gains:
        tie = percent(advice.tie, 0)
        most = (
            f"gains more than {tie}; less is a tie"
            if advice.fits
            else "makes it fit"
        )
        yield CardRow("best", f"no single change {most}", "bold")
        return
    rows = [
        (briefly(advice, each), *_figures(each, 0))
        for each in advice.gains[:LISTED]
    ]
    head = ("change", "tokens/s", "step", "memory", "risk")
    yield CardTable(head, rows, most=LISTED)


def pair_and_triple(advice: Advice) -> Iterator[CardRow]:
    """The best two and three changes."""
    for rank, label in enumerate(("pair", "triple"), 2):
        if each := getattr(advice, label):
            p = each.prediction
            yield CardRow(
                label,
                f"{gain(each)}, {seconds(p.step_time_s)}: {in_their_terms(advice, each)}",
                rank=rank,
            )


def _ties(advice: Advice) -> Iterator[CardRow]:
    """Changes that the model cannot tell from the run."""
    ties = [a for a in advice.ties if a.gain >= SEEN]
    # of a run that does not fit, seconds are no matter
    if ties and advice.fits:
        each = [f"{fields(advice, a)} {gain(a, 1)}" for a in ties[:3]]
        said = f"within {percent(advice.tie, 0)}: {', '.join(each)}"
        yield CardRow("ties", said, "dim", rank=4, most=1)


def numerics_rows(advice: Advice) -> Iterator[CardRow]:
    """Changes of the numerics, which train something else."""
    if advice.numerics and advice.fits:
        best = max(advice.numerics, key=lambda a: a.gain)
        if best.gain > advice.tie:
            yield CardRow(
                "or",
                f"{fields(advice, best)}: {gain(best)}, but that changes what is trained",
                rank=3,
                most=1,
            )


def flags(each: Option) -> str:
    """The keys of a change, before and after."""
    return ", ".join(flag(k, *pair) for k, pair in each.words.items())


def in_their_terms(advice: Advice, each: Option) -> str:
    """The keys of a change in the file that was read; fields, where that is a job of ours."""
    return flags(each) if advice.foreign else fields(advice, each)


def briefly(advice: Advice, each: Option) -> str:
    """A change in the run's own terms, where a table has room for them, else its fields."""
    words = in_their_terms(advice, each)
    return words if len(words) <= FIRST else fields(advice, each)


def flag(key: str, old: Any, new: Any) -> str:
    """--tensor-model-parallel-size 8 -> 4."""
    key = (
        name(key) if key.startswith(("layout.", "software.", "job.")) else key
    )
    if new == NONE:
        return f"without {key}"
    if old == NONE:
        return key if new is True else f"{key} {word(new)}"
    return f"{key} {word(old)} -> {word(new)}"


def fields(advice: Advice, each: Option) -> str:
    """Fields of the job that change: tp 8 -> 4."""
    job = advice.run.job
    return ", ".join(
        f"{name(path)} {word(value_in_effect(job, path))} -> {word(new)}"
        for path, new in each.change.fields.items()
        if value_in_effect(job, path) != new
    )


def name(path: str) -> str:
    """A field without its table."""
    return path.rpartition(".")[2]


def word(value: Any) -> str:
    """A value in a sentence."""
    value = json_value(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return str(value)


def gain_details(advice: Advice) -> Iterator[Any]:
    """Each gain in full, what explains a gap, and all notes."""
    for i, each in enumerate(advice.gains, 1):
        yield f"{i}. {line(advice, each)}"
    for label in ("pair", "triple"):
        if each := getattr(advice, label):
            yield f"{label}: {line(advice, each)}"
    if advice.gap:
        yield from gap_lines(advice.gap)
    yield from noted(advice.notes)


def line(advice: Advice, each: Option) -> str:
    """A change in one line: what it sets, and what the run is with it."""
    p = each.prediction
    return (
        f"{fields(advice, each)}: {gain(each, 1)} tokens/s, {step_words(p)},"
        f" {memory_needed(p)}, out-of-memory risk"
        f" {risk_words(each.risk)}; {flags(each)}"
    )


def gap_lines(gap: Gap) -> Iterator[str]:
    """What could explain a gap, a line each."""
    for path, assumed, other, s in gap.assumptions:
        yield (
            f"gap: {name(path)} {word(other)} (assumed {word(assumed)}): {seconds(s)}"
        )
    for cause, times in gap.causes:
        yield f"gap: {BRIEFLY[cause]} alone would have to take {times:.2f} times as long"


def rest(advice: Advice) -> Iterator[Any]:
    """Every change that fits, ties and slower ones too, and what was left out."""
    yield change_table(advice, advice.changes)
    if advice.numerics:
        yield "changes of the numerics, which change what is trained:"
        yield change_table(advice, advice.numerics)
    yield (
        f"left out: {advice.unfit} changes that do not fit, {advice.unsaid} that the framework's"
        " files cannot express"
    )


def change_table(advice: Advice, changes: Iterable[Option]) -> Table:
    """Changes, a row each."""

    def cells(each: Option) -> tuple[str, ...]:
        tie = " (tie)" if abs(each.gain) <= advice.tie else ""
        more, *rest = _figures(each, 1)
        return fields(advice, each), more + tie, *rest, flags(each)

    return text_table(
        "change | tokens/s | step | memory | risk | flags",
        map(cells, changes),
    )


def gain(each: Option, digits: int = 0) -> str:
    """Tokens a second more: +16 %; 0 %, never -0 %."""
    more = round(100 * each.gain, digits)
    return f"{more:+.{digits}f} %" if more else "0 %"


def _figures(each: Option, digits: int) -> tuple[str, ...]:
    """Gain, step, memory and risk of a change."""
    p = each.prediction
    return (
        gain(each, digits),
        seconds(p.step_time_s),
        memory_needed(p),
        risk_words(each.risk),
    )
