"""The exact timeline of a pipeline as text: seconds of the stages, what is predicted of it, and
each rank's day.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..prediction.replay import Replay
from ..schedule.timeline import Timeline
from ..units import show
from .card import Card, CardRow, Picture
from .lines import noted
from .run_card import notes as card_notes
from .run_card import verdict
from .tables import text_table
from .text import (
    BRIEFLY,
    layout_words,
    percent,
    seconds,
    short_words,
    step_words,
)

COLUMNS = 72
"""Characters of the text Gantt."""
UNEQUAL = 0.05
"""Share by which the slowest stage is above the mean before it is named."""
FEW = 4
"""Ranks on a card."""
GAP = " ... "
"""Between fill and drain."""
FILLED = 16
"""Most characters of a fill, where not all of the step is drawn."""
RANKS = 32
"""Ranks shown; longer pipelines show the first and the last."""


AFTER = ("dp_comm", "overlap_slowdown", "optimizer")
"""Causes of time that follow the pipeline."""
NEGLIGIBLE = 1e-9
"""Of a step: rounding."""


def timeline_card(r: Replay) -> Card:
    """The pipeline's seconds, its idle share, and some ranks' days."""
    p = r.prediction
    t = r.timeline
    after = ", ".join(
        f"{BRIEFLY[name]} {show(p.time_s[name], 's')}"
        for name in AFTER
        if p.time_s[name] > NEGLIGIBLE * p.step_time_s
    )
    off = f"{100 * r.difference:+.2f} %"
    same = "" if float(off[:-2]) == 0 else f"; predicted {off}"
    what = "the pipeline" if p.layout.pp > 1 else "the microbatches"
    taken = f"of which {what} {seconds(r.exact_s, 4)}, simulated exactly{same}"
    return Card(
        f"Timeline of {p.job.model.name} on {p.job.cluster.machine}:"
        f" {short_words(p.layout)}, {p.microbatches} microbatches",
        (
            *([] if p.fits else [verdict(p)]),
            CardRow("step", f"{step_words(p)}, {taken}{p.proviso}", "bold"),
            *_waits(r),
            CardRow("then", f"after it: {after}", rank=4, most=1),
            Picture(tuple(gantt(t, FEW)), rank=1),
            *card_notes((*r.notes, *p.notes)),
            CardRow(
                "next",
                "add -o gantt.png for a chart, -o trace.json for ui.perfetto.dev",
                rank=2,
            ),
        ),
        "--all: stages, busy and idle seconds and microbatches of every rank",
    )


def _waits(r: Replay) -> Iterator[CardRow]:
    """The idle share, and the bubble beside that of equal stages; without a pipeline nothing
    waits.
    """
    if r.prediction.layout.pp == 1:
        yield CardRow("idle", "never: without a pipeline (pp 1) no rank waits")
        return
    idle = [s / r.timeline.makespan_s for s in r.timeline.idle_s]
    ends = f"{percent(min(idle))} to {percent(max(idle))} by rank"
    share = percent(r.bubble_fraction)
    yield CardRow("idle", f"{share} of all device time ({ends})")
    yield CardRow("bubble", bubble(r), rank=2)


def bubble(r: Replay) -> str:
    """Idle over useful time, beside what equal stages would have, and how unequal they are."""
    words = f"{percent(r.bubble)} of the useful time"
    equal = r.bubble_of_equal_stages
    if equal is None:
        return words
    rule = {
        "1f1b": " = (p-1)/m",
        "gpipe": " = (p-1)/m",
        "interleaved": " = (p-1)/(v m)",
    }.get(r.prediction.layout.schedule, "")
    if r.prediction.microbatches < r.prediction.layout.pp:
        rule = ""  # more than that: the pipeline is never full
    words += f"; {percent(equal)}{rule} with equal stages and free sends"
    sums = [sum(passes) for passes in r.stages]
    more = max(sums) / fmean(sums) - 1
    if more > UNEQUAL:
        slowest = sums.index(max(sums))
        words += f", but stage {slowest} takes {percent(more, 0)} more than the mean"
    return words


def _sends(r: Replay) -> str:
    """Seconds of the shortest and the longest send between stages."""
    ends = min(r.sends_s, default=0.0), max(r.sends_s, default=0.0)
    # each once, the shortest first
    return " to ".join(dict.fromkeys(show(end, "s") for end in ends))


def timeline_report(r: Replay) -> RenderableType:
    """What stands behind the card of a timeline."""
    p = r.prediction
    return Group(
        Text(layout_words(p.layout, p.microbatches), "bold"),
        Text(f"  a send between stages takes {_sends(r)}", "dim"),
        *noted((*r.notes, *p.notes)),
        Text(),
        stage_table(r),
        Text(),
        _ranks(r.timeline),
        Text(),
        *gantt(r.timeline),
    )


def stage_table(r: Replay) -> Table:
    """Seconds of one microbatch by stage; equal neighbours share a row."""
    stages = [*r.stages]
    begins = [
        k for k in range(len(stages)) if k == 0 or stages[k] != stages[k - 1]
    ]
    rows = []
    for begin, end in pairwise((*begins, len(stages))):
        name = str(begin) if end == begin + 1 else f"{begin} to {end - 1}"
        passes = stages[begin]
        rows.append((name, *(show(s, "s") for s in (*passes, sum(passes)))))
    return text_table(
        "stages | forward | input gradient | weight gradient | sum", rows
    )


def _ranks(t: Timeline) -> Table:
    """Busy and idle seconds of each rank, and the microbatches it holds."""
    return text_table(
        "rank | busy | idle | idle share | microbatches held",
        [
            (
                str(rank),
                show(t.busy_s[rank], "s"),
                show(t.idle_s[rank], "s"),
                percent(t.idle_s[rank] / t.makespan_s),
                f"{t.in_flight[rank]:g}",
            )
            for rank in _shown(len(t.order))
        ],
    )


def _shown(ranks: int, most: int = RANKS) -> list[int]:
    return (
        list(range(ranks))
        if ranks <= most
        else [*range(most // 2), *range(ranks - most // 2, ranks)]
    )


def gantt(t: Timeline, most: int = RANKS) -> list[Text]:
    """A line a rank: F, B (or its halves I and W), a dot where it is idle. Where an action is
    shorter than a character of the whole step, fill and drain alone are drawn, so that each action
    is seen.
    """
    slice_, windows, middle = _windows(t)
    apart = f"; {show(middle, 's')} left out" if middle else ""
    words = f"each letter is {show(slice_, 's')}: F forward, B backward (I, W its halves)"
    lines = [Text(f"{words}{apart}", "dim")]
    style = {"F": "blue", "B": "green", "I": "green", "W": "yellow"}
    for rank in _shown(len(t.order), most):
        line = Text(f"{rank:4d} ")
        for i, window in enumerate(windows):
            line.append(GAP if i else "", "dim")
            for now in window:
                kind = _kind(t, rank, now)
                line.append(kind, style.get(kind, "dim"))
        lines.append(line)
    return lines


def _windows(t: Timeline) -> tuple[float, list[list[float]], float]:
    """(seconds of a character, moments that are drawn, seconds that are not): the whole step, or
    its first and its last seconds.
    """
    whole = t.makespan_s / COLUMNS
    least = min(
        (end - start)
        for starts, ends in zip(t.start_s, t.end_s, strict=True)
        for start, end in zip(starts, ends, strict=True)
    )
    fill = max(starts[0] for starts in t.start_s)
    slice_ = max(least, fill / FILLED)
    if slice_ >= whole:
        return whole, [[(k + 0.5) * whole for k in range(COLUMNS)]], 0.0
    half = (COLUMNS - len(GAP)) // 2
    moments = [(k + 0.5) * slice_ for k in range(half)]
    last = t.makespan_s - half * slice_
    middle = last - half * slice_
    return slice_, [moments, [last + now for now in moments]], middle


def _kind(t: Timeline, rank: int, now: float) -> str:
    """What the rank does at a moment."""
    at = bisect_right(t.start_s[rank], now) - 1
    busy = at >= 0 and now < t.end_s[rank][at]
    return t.order[rank][at].kind if busy else "."
