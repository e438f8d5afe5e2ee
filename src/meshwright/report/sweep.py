"""A sweep as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction
from ..sweep import Sweep, speedup
from ..units import DAY_S, show
from .lines import Line
from .predict import plain
from .text import between, count, percent, seconds, short_words

FEW = 4
"""Values that a note names."""


def report(sweep: Sweep) -> RenderableType:
    """One row a value; rates against the first value that has a layout."""
    chips = [] if sweep.over == "chips" else ["chips"]
    money = any(p.train_time_s for _, p in sweep.found)
    run = ["days", "cost"] if money else ["tokens/s"]
    table = plain(
        sweep.over, *chips, "step", "90 %", *run, "speed-up", "MFU", "what"
    )
    first = sweep.found[0][1] if sweep.found else None
    for point in sweep.points:
        p = point.prediction
        cells = [f"{point.job.cluster.chips:,}"] if chips else []
        if p is None or first is None:
            table.add_row(
                str(point.value), *cells, *[""] * (len(run) + 4), point.note
            )
            continue
        cells += [
            seconds(p.step_time_s),
            between(*p.interval_s, seconds) if p.interval_s else "",
        ]
        cells += _run(p) if money else [count(p.tokens_per_s)]
        cells += [_times(p, first), percent(p.mfu)]
        short = (
            ""
            if p.fits
            else f"{p.verdict} in {show(p.memory_bytes['capacity'], 'GiB')}: "
        )
        idle = f", {p.idle}" if p.idle else ""
        what = short + short_words(p.layout) + idle
        table.add_row(str(point.value), *cells, what)
    return Group(table, *_notes(sweep))


def _run(p: Prediction) -> list[str]:
    """Days and dollars of the whole run."""
    days = "" if p.train_time_s is None else f"{p.train_time_s / DAY_S:.3g}"
    return [days, "" if p.cost_usd is None else f"{count(p.cost_usd)} USD"]


def _times(p: Prediction, first: Prediction) -> str:
    """How many times the tokens a second of the first point, with the interval of the ratio."""
    ends = speedup(p, first)
    sure = f" ({ends[0]:.2f}-{ends[1]:.2f})" if ends else ""
    return f"{p.tokens_per_s / first.tokens_per_s:.2f}{sure}"


def _notes(sweep: Sweep) -> Iterator[RenderableType]:
    if sweep.interrupted:
        yield Text()
        yield Text(
            "note: interrupted; these points are complete, the others are missing",
            "yellow",
        )
    chips = dict.fromkeys(
        p.job.cluster.chip.name for _, p in sweep.found if p.unmeasured
    )
    if chips:
        yield Text(
            f"note: unmeasured, so a share of the peak is assumed: {', '.join(chips)}",
            "yellow",
        )
    unpriced = dict.fromkeys(
        p.job.cluster.chip.unpriced
        for _, p in sweep.found
        if p.train_time_s is not None and p.cost_usd is None
    )
    for said in unpriced:
        yield Line(f"note: {said}", "yellow", hang=6)
    if sum(1 for _ in sweep.found) > 1:
        yield Line(
            "speed-up: tokens a second over those of the first value, with the 90 % interval of the"
            " ratio",
            "dim",
        )
    tie = max((resolution(p.job) for _, p in sweep.found), default=0.0)
    if tie and not sweep.fixed and len({p.layout for _, p in sweep.found}) > 1:
        yield Line(
            "layouts whose steps differ by less than the model can tell are ties, answered by the"
            f" simplest: for that alone a line may be some {percent(tie, 0)} slower than the one"
            " before",
            "dim",
        )
    unsure: dict[str, list[str]] = {}
    for point, p in sweep.found:
        if p.certainty and p.certainty.note:
            unsure.setdefault(p.certainty.note, []).append(str(point.value))
    for note, values in unsure.items():
        yield Line(
            f"note: {', '.join(values[:FEW])}: {note}", "yellow", hang=6
        )
