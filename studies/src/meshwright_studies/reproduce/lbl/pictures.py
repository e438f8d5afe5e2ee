"""Pictures like the figures of Subramanian et al. 2024: bars with configurations, strong scaling,
days, speedups, maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from meshwright.describe.assumptions import LBL
from meshwright.formats.nccl_tests import Sample
from meshwright.prediction.prediction import Prediction
from meshwright.report.plots import (
    configuration,
    memory_bars,
    panels,
    spent,
    stack_legend,
    stacked_bars,
    wide,
)

from ..drawing import COLOURS, LINES, MARKERS, Curves, draw_lines, sheet
from . import figures as f
from . import nccl
from .defects import LBL_CODE
from .figures import LblFigure
from .plots import (
    EDITIONS,
    GAIN,
    REPAIRED,
    speedups,
    system_days,
    verdicts,
)

TITLE_AT, EDITION_AT, TOP = 0.1, 0.35, 0.6
LEFT, LEGEND, BOTTOM = 1.15, 1.4, 0.75
"""Inches at the edges of a panel of bars: for titles, names of rows, legends and names of bars."""
MORE = 0.3
"""Inches that a panel of these is wider than one of a plan."""
SAID = 0.2
"""Inches of a line below a title."""
REVERSED = "reversed"
"""In a line that says of a conclusion that it does not hold."""
LETTERS = {"tp": "tp (n1)", "cp": "cp (n2)", "pp": "pp (np)", "dp": "dp (nd)"}
"""A degree -> with its letter in the paper."""
TITLE = 80
"""Characters of a line of a title."""
MARK = "#cc3311"
"""Of what differs between editions, and of known chips on a map."""
LARGE = 8
"""Points of a cell that has room to be bold."""
ALIKE = 0.005
"""Share of a step time within which two editions are drawn as one."""


Editions = Mapping[str, f.Points]
"""Name of an edition -> its layouts."""


def bars(of: LblFigure, title: str) -> Figure:
    """Time and memory of layouts, with their configuration (figures 1, 2, 3, A2); or the optimum
    for each number of GPUs: step time, where it goes, memory, configuration (figures 4, A3).
    """
    editions = {
        name: f.points_of(of.number, how) for name, how in EDITIONS.items()
    }
    return stacked(editions, title, verdicts(of.number), bool(of.layouts))


def stacked(
    editions: Editions, title: str, said: Sequence[str], layouts: bool
) -> Figure:
    """A panel for each edition that has anything to show, one above the other, so that the cells
    stay legible on a page; one for all that agree. Red: what the first has not. Margins are the
    same in all figures, so nothing is measured before it is drawn.

    said: lines below the title: what the paper concludes, and what ours says of it;  layouts: of
    one number of GPUs.
    """
    height, draw = (8.0, panels) if layouts else (9.5, _scaled)
    shown = {name: of for name, of in editions.items() if of}
    if same := agreement(shown):
        shown = {same: next(iter(shown.values()))}
    width = MORE + max(wide(len(of)) for of in shown.values())
    figure = Figure(figsize=(width, height * len(shown)))
    figure.suptitle(
        title, fontsize=11, y=1 - TITLE_AT / figure.get_figheight()
    )
    parts = figure.subfigures(len(shown), 1, squeeze=False)[:, 0]
    lift = SAID * len(said)
    for i, line in enumerate(said, 1):
        figure.text(
            0.5,
            1 - (TITLE_AT + SAID * i) / figure.get_figheight(),
            line,
            ha="center",
            va="top",
            fontsize=9,
            color=MARK if REVERSED in line else "black",
        )
    for part, (name, of) in zip(parts, shown.items(), strict=True):
        draw(part, [*of.values()], [*map(str, of)])
        _in_the_papers_letters(part)
        more = "; red: what differs" if part is not parts[0] else ""
        part.suptitle(
            name + more, fontsize=10, y=1 - (EDITION_AT + lift) / height
        )
        part.subplots_adjust(
            left=LEFT / width,
            right=1 - LEGEND / width,
            top=1 - (TOP + lift) / height,
            bottom=BOTTOM / height,
            hspace=0.06,
        )
    first, *others = map(_texts, parts)
    for texts in others:
        for place, text in texts.items():
            other = first.get(place)
            if not other or other.get_text() != text.get_text():
                text.set_color(MARK)
                # long cells are small, since they fill their column
                if float(text.get_fontsize()) >= LARGE:
                    text.set_fontweight("bold")
    return figure


def _in_the_papers_letters(part: FigureBase) -> None:
    """The degrees of a table below bars by the names of the paper too."""
    every: Any = part.axes  # of a part, its stubs say otherwise
    cells = every[-1]
    rows = [label.get_text() for label in cells.get_yticklabels()]
    cells.set_yticks(
        cells.get_yticks(), [LETTERS.get(row, row) for row in rows]
    )


def agreement(editions: Editions) -> str:
    """What stands over one panel for all editions, where each of their bars has one layout, fits
    alike and takes as long to a few thousandths; else nothing.
    """
    first, *others = editions.values()
    apart = 0.0
    for bars in others:
        if bars.keys() != first.keys():
            return ""
        for name, p in bars.items():
            q = first[name]
            if p.layout != q.layout or p.fits != q.fits:
                return ""
            apart = max(apart, abs(p.step_time_s / q.step_time_s - 1))
    if apart > ALIKE:
        return ""
    return f"{' and '.join(editions)}: the same within {max(apart, 1e-3):.1%}"


def _texts(part: FigureBase) -> dict[tuple[str, int], Text]:
    """(row, bar) -> the cell beneath it; under "" the seconds above it."""
    every: Any = part.axes  # of a part, its stubs say otherwise
    times, *_, cells = every
    rows = [label.get_text() for label in cells.get_yticklabels()]
    seconds = {
        ("", round(t.xy[0])): t
        for t in times.texts
        if isinstance(t, Annotation)
    }
    at = ((t, *t.get_position()) for t in cells.texts)
    return seconds | {(rows[round(y)], round(x)): t for t, x, y in at}


def _scaled(
    figure: FigureBase, predictions: Sequence[Prediction], names: Sequence[str]
) -> None:
    times, shares, memory, low = figure.subplots(
        4, 1, sharex=True, height_ratios=[2, 3, 2, 2]
    )
    seconds = [p.step_time_s for p in predictions]
    times.plot(range(len(seconds)), seconds, color="#4477aa", marker="o")
    for x, s in enumerate(seconds):
        times.annotate(
            f"{s:.3g}" if s < 100 else f"{s:,.0f}",
            (x, s),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    times.set_yscale("log")
    times.set_ylabel("step time [s]")
    times.margins(y=0.2)
    times.grid(alpha=0.3)
    share_bars(shares, [p.time_s for p in predictions])
    memory_bars(memory, [p.memory_bytes for p in predictions])
    configuration(low, predictions, names)
    low.set_xlabel("GPUs")
    low.set_xlim(-0.6, len(predictions) - 0.4)


def share_bars(axes: Axes, times: Sequence[Mapping[str, float]]) -> None:
    """What the step time is spent on, in percent."""
    shares = [
        {cause: 100 * s / sum(t.values()) for cause, s in t.items()}
        for t in times
    ]
    stacked_bars(axes, shares, spent(times))
    axes.set_ylabel("share of step time [%]")
    axes.set_ylim(0, 100)
    stack_legend(axes)


PALEST = 0.2
"""Of the range of a map's values below the least of them: so much darker than paper is the best."""


def systems(of: LblFigure, title: str) -> Figure:
    """Days or gains of each system against the number of GPUs by the repaired edition, and beside
    them what the repair changes (figures 5, A4).
    """
    days = of.kind == "days"
    code, repaired = (
        system_days(of.strategy, of.model, how)
        if days
        else speedups(of.strategy, how)
        for how in EDITIONS.values()
    )
    lines = {s: [*points.items()] for s, points in repaired.items()}
    changes = {
        s: [
            (n, 100 * (x / code[s][n] - 1) if days else x - code[s][n])
            for n, x in points
        ]
        for s, points in lines.items()
    }
    y, change = (
        ("training time [days]", "days more than by the authors' code [%]")
        if days
        else (GAIN, "over the authors' code [points of a percent]")
    )
    figure = Figure(figsize=(13.5, 5.0), layout="constrained")
    figure.suptitle(title, fontsize=11)
    left, right = figure.subplots(1, 2)
    left.set_title(REPAIRED, fontsize=10)
    right.set_title("what the repair changes", fontsize=10)
    _systems(left, lines, y)
    _systems(right, changes, change)
    right.axhline(0.0, color="black", linewidth=0.8)
    # days go over orders of magnitude
    if days:
        left.set_yscale("log")
        _plain_log(left)
    else:
        left.axhline(0.0, color="black", linewidth=0.8)
    right.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False
    )
    return figure


def _systems(axes: Axes, groups: Curves, y: str) -> None:
    for i, (name, points) in enumerate(groups.items()):
        axes.plot(
            *zip(*points, strict=True),
            label=name,
            markersize=5,
            marker=MARKERS[i % 3],
            linestyle=LINES[i % 3],
            color=COLOURS[i // 3],
        )
    every = sorted({x for points in groups.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{x:g}" for x in every])
    axes.minorticks_off()
    axes.set(xlabel="GPUs", ylabel=y)
    axes.grid(alpha=0.3)


def _plain_log(axes: Axes) -> None:
    """1, 3, 10, 30 instead of powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def chips(of: LblFigure, title: str) -> Figure:
    """A map of days by chip, each cell with its number, hatched where nothing fits, in brackets the
    authors' code where it reads otherwise; rings on the three generations where rows are
    arithmetic (figures A5, A6).
    """
    values, others = (
        f.days_by_chip(of.number, how) for how in (LBL, LBL_CODE)
    )
    rows, columns = f.chip_rows(of.number), f.MEMORY_SHARES
    marks = f.generations() if of.rows == "arithmetic" else {}
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axes = figure.subplots()
    shown = [
        [math.log10(v) if math.isfinite(v) else math.nan for v in line]
        for line in values
    ]
    finite = [v for line in shown for v in line if math.isfinite(v)] or [0.0]
    least, most = min(finite), max(finite)
    axes.imshow(
        shown, cmap="Greys", origin="lower", aspect="auto", alpha=0.75,
        vmin=least - PALEST * (most - least), vmax=most,
    )  # fmt: skip
    middle = (least + most) / 2
    for i, line in enumerate(values):
        for j, v in enumerate(line):
            known = math.isfinite(v)
            colour = "white" if known and shown[i][j] > middle else "black"
            words, other = days(v), days(others[i][j])
            more = f"\n({other})" if other != words else ""
            axes.text(
                j,
                i,
                words + more,
                ha="center",
                va="center",
                fontsize=8,
                color=colour,
            )
            if not known:
                axes.add_patch(
                    Rectangle(
                        (j - 0.5, i - 0.5), 1, 1, fc="#ffd9c9", hatch="///",
                        ec="#cc8866", lw=0.0,
                    )
                )  # fmt: skip
    for name, (column, row) in marks.items():
        at = _between(columns, column), _between(rows, row)
        axes.plot(*at, marker="o", ms=30, mfc="none", mec=MARK, mew=2.0)
        axes.annotate(
            name, at, (14, 13), textcoords="offset points", color=MARK,
            fontsize=9, fontweight="bold",
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), [f"{c:g}" for c in columns])
    axes.set_yticks(range(len(rows)), [f"{r:g}" for r in rows])
    axes.set(
        xlabel=f"{of.columns} [of a B200]", ylabel=f"{of.rows} [of a B200]"
    )
    axes.set_title(fill(title, TITLE), fontsize=10)
    return figure


def days(value: float) -> str:
    """What stands in a cell of a map."""
    return f"{value:.3g}" if math.isfinite(value) else "none\nfits"


def _between(values: Sequence[float], x: float) -> float:
    """Where a value lies among cells, whose middles are 0, 1, 2, ..."""
    last = len(values) - 1
    i = min(max(sum(v <= x for v in values) - 1, 0), last - 1)
    return i + (x - values[i]) / (values[i + 1] - values[i])


def all_gathers(rows: tuple[Sample, ...], _: LblFigure, title: str) -> Figure:
    """All-gathers, measured and by the formula, against bytes (figure A1)."""
    every = [r for r in rows if r.kind == "all_gather"]
    gathers = [r for r in every if nccl.gpus(r) == 32] or list(rows)
    kinds = map(str, sorted({r.per_node for r in gathers}))
    gathers += [r for r in every if r.per_node == 2 and nccl.gpus(r) == 16]
    title = title.format(kinds=" and ".join(kinds))

    def series(what: str, value: Callable[[Sample], float]) -> Curves:
        return {
            f"{name}, {what}": [
                (r.bytes, value(r))
                for r in gathers
                if nccl.group_text(r) == name
            ]
            for name in dict.fromkeys(map(nccl.group_text, gathers))
        }

    figure, axes = sheet(fill(title, TITLE), height=5.0)
    draw_lines(axes, series("measured", lambda r: r.seconds), linestyle="")
    draw_lines(axes, series("formula", nccl.paper_seconds), marker="")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _bytes(v)))
    axes.set(xlabel="size of the vector", ylabel="time [s]")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _bytes(value: float) -> str:
    """Powers of two, short."""
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:g} {name}"
    return f"{value:g} B"
