"""A sweep as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ..sweep import Sweep
from ..units import show
from .predict import plain
from .text import count, layout_words, percent, seconds


def report(sweep: Sweep) -> RenderableType:
    """One row a value; rates against the first value that has a layout."""
    chips = [] if sweep.over == "chips" else ["chips"]
    table = plain(
        sweep.over, *chips, "step", "tokens/s", "speed-up", "per chip", "MFU", "memory", "what"
    )
    first = sweep.found[0][1] if sweep.found else None
    for point in sweep.points:
        p = point.prediction
        cells = [f"{point.job.cluster.chips:,}"] if chips else []
        if p is None or first is None:
            table.add_row(str(point.value), *cells, "", "", "", "", "", "", point.note)
            continue
        faster = f"{p.tokens_per_s / first.tokens_per_s:.2f}"
        each = percent(p.tokens_per_s_per_chip / first.tokens_per_s_per_chip, 0)
        cells += [seconds(p.step_time_s), count(p.tokens_per_s), faster, each, percent(p.mfu)]
        short = "" if p.fits else f"does NOT fit in {show(p.memory_bytes['capacity'], 'GiB')}: "
        table.add_row(
            str(point.value),
            *cells,
            show(p.memory_bytes["needed"], "GiB"),
            short + layout_words(p.layout),
        )
    return Group(table, *_notes(sweep))


def _notes(sweep: Sweep) -> Iterator[Text]:
    if sweep.interrupted:
        yield Text()
        yield Text("note: interrupted; these points are complete, the others are missing", "yellow")
    chips = dict.fromkeys(p.job.cluster.chip.name for _, p in sweep.found if p.unmeasured)
    if chips:
        yield Text(
            f"note: unmeasured, so a share of the peak is assumed: {', '.join(chips)}", "yellow"
        )
    if sum(1 for _ in sweep.found) > 1:
        yield Text("speed-up and per chip: against the first value", "dim")
