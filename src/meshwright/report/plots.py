"""Plots of results: time and memory of layouts with their configuration beneath, scaling curves,
pipelines.

Legible in black and white: every colour comes with a hatch, every line with a marker. matplotlib is
only needed here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..describe.choices import FIELDS
from ..describe.job import Job
from ..describe.layout import Layout
from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay
from ..schedule.timeline import Timeline
from ..sweep import Sweep
from ..units import GIB, count
from .text import CAUSES, KINDS, near
from .timeline import bubble

DPI = 150
STYLE = {
    "compute": ("#4477aa", ""),
    "memory": ("#66ccee", "..."),
    "host": ("#bbbbbb", "ooo"),
    "tp_comm": ("#ee6677", "///"),
    "cp_comm": ("#aa3377", "xxx"),
    "ep_comm": ("#ccbb44", "+++"),
    "pp_comm": ("#885522", "ooo"),
    "dp_comm": ("#228833", "\\\\\\"),
    "bubble": ("#eeeeee", ""),
    "overlap_slowdown": ("#ddaa77", "\\\\"),
    "optimizer": ("#777777", "---"),
    "other": ("#ffffff", "***"),
    "weights": ("#4477aa", ""),
    "gradients": ("#ee6677", "///"),
    "activations": ("#228833", "\\\\\\"),
    "buffers": ("#eeeeee", ""),
}
"""cause of time or kind of memory -> colour and hatch ("optimizer" is both)."""
LABELS = {
    "memory": "memory traffic", "tp_comm": "tensor parallel", "cp_comm": "context parallel",
    "ep_comm": "expert parallel", "pp_comm": "stage sends", "dp_comm": "data parallel",
    "overlap_slowdown": "slower during communication",
}  # fmt: skip
"""Causes whose name says too little in a legend."""
ALWAYS = ("tp", "pp", "dp", "microbatch", "microbatches", "zero", "MFU")
"""Rows shown even if they say 1."""
SILENT = {"1", "none", "yes", "-", "even", "0", "gather", Layout().scheme}
"""Cells in which nothing happens."""


def image(figure: Figure, kind: str, numbers: str = "") -> bytes:
    """The figure as .png or .svg; the same figure gives the same bytes. numbers: what it shows, as
    text that the file carries, so that a picture of older numbers is found out.
    """
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "meshwright", "hatch.linewidth": 0.6}):
        figure.savefig(
            data,
            format=kind.lstrip("."),
            dpi=DPI,
            metadata=({"Date": None} if kind == ".svg" else {})
            | ({"Description": numbers} if numbers else {}),
        )
    return data.getvalue()


def layouts(
    predictions: Sequence[Prediction],
    names: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """A bar of time and a bar of memory for each layout, with its configuration beneath."""
    n = len(predictions)
    figure = Figure(figsize=(wide(n), 8.0), layout="constrained")
    panels(figure, predictions, names or [str(i + 1) for i in range(n)])
    if title:
        figure.suptitle(fill(title, int(LETTERS * wide(n))), fontsize=10)
    return figure


def plan_figure(
    predictions: Sequence[Prediction],
    others: Sequence[Prediction],
    title: str = "",
) -> Figure:
    """Time against memory of the layouts of a plan, best first, and their bars beneath; others: the
    best of its families and its front.
    """
    n = len(predictions)
    figure = Figure(figsize=(max(wide(n), 8.0), 12.0), layout="constrained")
    halves = figure.subfigures(2, 1, squeeze=False, height_ratios=[2, 3])
    top, low = halves[:, 0]
    against_memory(top.subplots(), predictions, others)
    panels(low, predictions, [str(i + 1) for i in range(n)])
    figure.suptitle(title, fontsize=10)
    return figure


def against_memory(
    axes: Axes,
    predictions: Sequence[Prediction],
    others: Sequence[Prediction],
) -> None:
    """Step time over needed memory, the best with its interval; the band holds ties."""
    best, *rest = predictions
    beside = [p for p in others if p not in predictions]
    groups: dict[str, tuple[Sequence[Prediction], Mapping[str, Any]]] = {
        "best": ([best], {"color": "#ee6677", "marker": "*", "ms": 16}),
        "alternatives": (rest, {"color": "#4477aa", "marker": "o"}),
        "front and other families": (
            beside,
            {"color": "k", "marker": "s", "mfc": "w"},
        ),
    }
    for words, (group, look) in groups.items():
        spots = [_spot(p) for p in group]
        label = words if spots else None
        xs, ys = [x for x, _ in spots], [y for _, y in spots]
        axes.plot(xs, ys, ls="", label=label, **look)
    (x, y), room = _spot(best), best.memory_bytes["capacity"] / GIB
    low, high = best.interval_s or (y, y)
    axes.errorbar(x, y, [[y - low], [high - y]], color="#ee6677", capsize=3)
    axes.axvline(room, color="black", linestyle="--", label="capacity")
    tie = resolution(best.job)
    axes.axhspan(y / (1 + tie), y * (1 + tie), color="#ee6677", alpha=0.1)
    near: dict[tuple[int, int], list[int]] = {}
    for i, (memory, seconds) in enumerate(map(_spot, predictions)):
        at = round(24 * memory / room), round(40 * seconds / y)
        near.setdefault(at, []).append(i)
    for ranks in near.values():
        axes.annotate(
            ", ".join(str(i + 1) for i in ranks),
            _spot(predictions[ranks[0]]),
            (7, -12),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xlim(0, 1.08 * room)
    axes.set_xlabel("memory needed on the fullest chip [GiB]")
    axes.set_ylabel("step time [s]")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _spot(p: Prediction) -> tuple[float, float]:
    """(GiB needed, seconds) of a layout."""
    return p.memory_bytes["needed"] / GIB, p.step_time_s


LETTERS = 12
"""Letters of a title in an inch."""


def wide(bars: int) -> float:
    """Inches for so many bars and the legend beside them."""
    return max(5.0, 2.8 + 0.8 * bars)


def panels(
    figure: FigureBase, predictions: Sequence[Prediction], names: Sequence[str]
) -> None:
    """Time, memory and configuration of layouts, one above the other; what does not fit says so."""
    top, middle, low = figure.subplots(
        3, 1, sharex=True, height_ratios=[3, 2, 2]
    )
    time_bars(top, [p.time_s for p in predictions])
    memory_bars(middle, [p.memory_bytes for p in predictions])
    for x, p in enumerate(predictions):
        if not p.fits:
            y = p.memory_bytes["allocated"] / GIB
            _above(middle, x, y, "does not fit", fontsize=6, weight="bold")
    configuration(low, predictions, names)
    low.set_xlim(-0.6, len(predictions) - 0.4)


def time_bars(axes: Axes, times: Sequence[Mapping[str, float]]) -> None:
    """Seconds of a step, stacked by cause."""
    stacked_bars(axes, times, spent(times))
    _finish(axes)
    axes.set_ylabel("step time [s]")
    for x, t in enumerate(times):
        whole = sum(t.values())
        _above(axes, x, whole, f"{whole:.3g}", fontsize=8)
    axes.set_ylim(0.0, 1.1 * max(sum(t.values()) for t in times))


def _above(axes: Axes, x: float, y: float, words: str, **look: Any) -> None:
    """Words on top of a bar."""
    place: Any = {"textcoords": "offset points", "ha": "center"}
    axes.annotate(words, (x, y), (0, 2), **place, **look)


def memory_bars(axes: Axes, uses: Sequence[Mapping[str, float]]) -> None:
    """GiB of the fullest chip, stacked by kind, against its capacity."""
    stacked_bars(axes, uses, list(KINDS), GIB)
    _finish(axes)
    # assumption sets differ in it
    room = [use["capacity"] / GIB for use in uses]
    axes.hlines(
        room,
        [x - 0.5 for x in range(len(uses))],
        [x + 0.5 for x in range(len(uses))],
        color="black",
        linestyle="--",
        linewidth=1.2,
        label="capacity",
    )
    axes.set_ylabel("memory [GiB]")
    filled = [sum(use[kind] for kind in KINDS) / GIB for use in uses]
    axes.set_ylim(0.0, 1.15 * max(*room, *filled))
    stack_legend(axes)


def stacked_bars(
    axes: Axes,
    bars: Sequence[Mapping[str, float]],
    parts: Sequence[str],
    unit: float = 1.0,
) -> None:
    """Stacked bars, the first part at the bottom."""
    below = [0.0] * len(bars)
    for part in parts:
        heights = [bar[part] / unit for bar in bars]
        colour, hatch = STYLE[part]
        look: dict[str, Any] = {
            "color": colour,
            "hatch": hatch,
            "edgecolor": "black",
            "linewidth": 0.6,
        }
        axes.bar(
            range(len(bars)),
            heights,
            0.66,
            below,
            label=LABELS.get(part, part),
            **look,
        )
        below = [b + h for b, h in zip(below, heights, strict=True)]


def spent(times: Sequence[Mapping[str, float]]) -> list[str]:
    """Causes that take time in one of them."""
    return [cause for cause in CAUSES if any(t[cause] for t in times)]


def _finish(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    stack_legend(axes)


def stack_legend(axes: Axes) -> None:
    """Beside the plot, in the order of the stack from top to bottom."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8,
        frameon=False,
    )


ROWS = {"interleave": "chunks"}
"""A field of a layout -> what people call it; all others by their names."""
CELLS = {"slots": "ends as layers", "rest": "rest at the end"}
"""A value -> what it means: embedding and loss count as a layer each."""


def configuration(
    axes: Axes, predictions: Sequence[Prediction], names: Sequence[str]
) -> None:
    """The layout of each bar as a column of values; rows in which nothing happens are left out."""
    (node, _), *_ = map(near, predictions)
    columns = [
        {
            **{ROWS.get(f, f): _cell(getattr(p.layout, f)) for f in FIELDS},
            "microbatches": _cell(p.microbatches),
            "MFU": f"{100 * p.mfu:.1f}%",
            f"in one {node}": near(p)[1].replace(" ", "\u2009"),
        }
        for p in predictions
    ]
    cells_by_row = {row: [each[row] for each in columns] for row in columns[0]}
    rows = [
        row
        for row, cells in cells_by_row.items()
        if row in ALWAYS or {*cells} - SILENT
    ]
    for y, row in enumerate(rows):
        for x, cell in enumerate(cells_by_row[row]):
            text = axes.text(
                x,
                y,
                cell,
                ha="center",
                va="center",
                fontsize=8 if len(cell) < 8 else 6,
            )
            text.set_in_layout(False)  # between the axes' edges anyway
        if y % 2 == 0:
            axes.axhspan(
                y - 0.5, y + 0.5, color="black", alpha=0.05, linewidth=0
            )
    axes.set_yticks(
        range(len(rows)), [row.replace("_", " ") for row in rows], fontsize=8
    )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(predictions)), names)
    axes.tick_params(length=0, labelbottom=True)
    axes.set_xlabel("layout")
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return CELLS.get(value, value)
    return str(int(value))


APART = 4.0
"""Ratio of rates from which a logarithmic axis has several ticks."""
ROOM = 0.05
"""Of an axis above its highest point."""


def scaling(sweep: Sweep) -> Figure:
    """Throughput and MFU against the varied field; for chips also the straight line of perfect
    scaling.
    """
    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    points = sweep.predicted
    chips = sweep.over in ("chips", "on", "cluster.chips")
    xs, numeric = _positions(sweep)
    rates = [p.tokens_per_s for _, p in points]
    if chips and numeric:
        ideal = [
            rates[0] * p.job.cluster.chips / points[0][1].job.cluster.chips
            for _, p in points
        ]
        top.plot(
            xs, ideal, color="black", linestyle=":", label="perfect scaling"
        )
    # nothing lies between two models
    line, dashed = ("-", "--") if numeric else ("", "")
    mfus = [100 * p.mfu for _, p in points]
    sure = [p for _, p in points]
    bars = any(p.interval_s for p in sure)
    words = "predicted" + ", 90 % interval" * bars
    for axes, values, mark, style in (
        (
            top,
            rates,
            {"color": "#4477aa", "marker": "o", "label": words},
            line,
        ),
        (low, mfus, {"color": "#ee6677", "marker": "s"}, dashed),
    ):
        axes.errorbar(
            xs,
            values,
            yerr=_interval(sure, values) if bars else None,
            linestyle=style,
            capsize=3,
            elinewidth=1,
            **mark,
        )
    top.set_ylabel("tokens / s")
    low.set_ylabel("MFU [%]")
    # room for the marker of the highest
    low.set_ylim(0, (1 + ROOM) * low.get_ylim()[1])
    low.set_xlabel(sweep.over)
    if numeric:
        top.set_xscale("log", base=2)
    if numeric and max(rates) >= APART * min(rates):
        top.set_yscale("log", base=2)
    else:
        top.set_ylim(0, (1 + ROOM) * top.get_ylim()[1])
    low.set_xticks(
        xs,
        [str(point.value) for point, _ in points],
        rotation=30 if len(points) > 8 else 0,
    )
    low.minorticks_off()
    top.yaxis.set_major_formatter(FuncFormatter(lambda y, _: count(y)))
    top.yaxis.set_minor_formatter(NullFormatter())
    top.set_title(_constants([p.job for _, p in points]), fontsize=10)
    for axes in (top, low):
        axes.grid(alpha=0.3)
    top.legend(frameon=False)
    return figure


def _interval(
    predictions: Sequence[Prediction], values: Sequence[float]
) -> list[list[float]]:
    """How far what goes with 1 / step time may lie below and above; 0 without an interval."""
    shares = [
        (1 - s / high, s / low - 1)
        for p in predictions
        for s in [p.step_time_s]
        for low, high in [p.interval_s or (s, s)]
    ]
    return [
        [v * share for v, share in zip(values, side, strict=True)]
        for side in zip(*shares, strict=True)
    ]


def _constants(jobs: Sequence[Job]) -> str:
    """What is the same in all points of a sweep."""
    alike = len({j.cluster.chips for j in jobs}) == 1
    parts = (
        {j.model.name for j in jobs},
        {_machine(j, alike) for j in jobs},
        {f"{j.batch_tokens:,.0f} tokens a step" for j in jobs},
        {j.under_words for j in jobs},
    )
    return ", ".join(part for part, *others in parts if not others).replace(
        ", on ", " on "
    )


def _machine(job: Job, alike: bool) -> str:
    """The chip, and how many if all points have as many."""
    chips = f"{job.cluster.chips:,} x " if alike else ""
    return f"on {chips}{job.cluster.chip.name}"


def _positions(sweep: Sweep) -> tuple[list[float], bool]:
    """Where the points lie: at their number if all are numbers, else one after the other; clusters
    at their chips, where these are of one kind.
    """
    clusters = [point.job.cluster for point, _ in sweep.predicted]
    on = sweep.over == "on"
    if on and len({cluster.chip.name for cluster in clusters}) > 1:
        return [float(i) for i in range(len(clusters))], False
    values = [
        cluster.chips if on else point.value
        for cluster, (point, _) in zip(clusters, sweep.predicted, strict=True)
    ]
    try:
        numbers = [float(v) for v in values]
    except ValueError:
        return [float(i) for i in range(len(values))], False
    return numbers, all(n > 0 for n in numbers)


def pipeline(replay: Replay) -> Figure:
    """A Gantt chart: a row a rank, a box an action, later chunks of the model darker."""
    t = replay.timeline
    p = replay.prediction
    chunks = (
        max((action.chunk for row in t.order for action in row), default=0) + 1
    )
    cut = f", {chunks} chunks a rank" if chunks > 1 else ""
    words = (
        f"{p.job.model.name}: {p.layout.schedule}{cut}, {p.microbatches} microbatches,"
        f" {p.job.under_words}"
    )
    figure = pipelines({words: t})
    figure.suptitle(f"bubble: {bubble(replay)}", fontsize=10)
    for axes in figure.axes:
        _filling(axes, t)
    return figure


def _filling(axes: Axes, t: Timeline) -> None:
    """Where the pipeline fills, until every rank works, and drains, from the first that is done."""
    full = max(starts[0] for starts in t.start_s)
    done = min(ends[-1] for ends in t.end_s)
    unit, _ = _time_unit(t.makespan_s)
    look: Any = {"ha": "center", "fontsize": 9, "style": "italic"}
    for words, *ends in (("fill", 0.0, full), ("drain", done, t.makespan_s)):
        start, end = (s / unit for s in ends)
        if end > start:
            axes.axvspan(start, end, color="black", alpha=0.06, zorder=0)
            axes.text((start + end) / 2, len(t.order) - 0.55, words, **look)


def pipelines(timelines: Mapping[str, Timeline], title: str = "") -> Figure:
    """Gantt charts one above the other, on one axis of time."""
    count = len(timelines)
    ranks = max(len(t.order) for t in timelines.values())
    figure = Figure(
        figsize=(11.0, 1.1 + count * (0.7 + min(0.34 * ranks, 9.0))),
        layout="constrained",
    )
    charts = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    unit, name = _time_unit(max(t.makespan_s for t in timelines.values()))
    for axes, (words, t) in zip(charts, timelines.items(), strict=True):
        few = sum(map(len, t.order)) <= FEW
        for rank in range(len(t.order)):
            for kind in sorted({action.kind for action in t.order[rank]}):
                _boxes(axes, t, rank, kind=kind, unit=unit, few=few)
        axes.set_title(
            f"{words}, {100 * t.bubble_fraction:.1f} % idle", fontsize=10
        )
        axes.set_ylim(len(t.order) - 0.5, -0.5)
        axes.set_yticks(range(0, len(t.order), max(1, len(t.order) // 16)))
        axes.set_ylabel("pipeline rank")
    charts[-1].set_xlim(
        0, max(t.makespan_s for t in timelines.values()) / unit
    )
    charts[-1].set_xlabel(f"time [{name}]")
    if title:
        figure.suptitle(title, fontsize=10)
    _gantt_legend(figure, list(timelines.values()))
    return figure


GANTT = {
    "F": ("#cfe6f7", "", "forward"), "B": ("#e0913c", "///", "backward"),
    "I": ("#d98ca6", "///", "input gradient"), "W": ("#7db27d", "...", "weight gradient"),
}  # fmt: skip
"""kind of an action -> colour (light, darker, darker still), hatch, name."""
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
"""Behind numbers, so that hatches do not cross them."""
FEW = 600
"""Actions up to which boxes are hatched and numbered."""


def _boxes(
    axes: Axes, t: Timeline, rank: int, kind: str, unit: float, few: bool
) -> None:
    """Actions of a kind on a rank."""
    actions = zip(t.order[rank], t.start_s[rank], t.end_s[rank], strict=True)
    boxes = [
        (start / unit, (end - start) / unit, a)
        for a, start, end in actions
        if a.kind == kind
    ]
    colour, hatch, _ = GANTT[kind]
    bars = axes.broken_barh(
        [(start, width) for start, width, _ in boxes],
        (rank - 0.4, 0.8),
        facecolors=[_shade(colour, a.chunk) for *_, a in boxes],
        edgecolors="black",
        linewidth=0.4 if few else 0.1,
    )
    bars.set_hatch(hatch if few else "")
    for start, width, action in boxes if few else ():
        middle = (start + width / 2, rank)
        axes.text(
            *middle,
            str(action.microbatch),
            ha="center",
            va="center",
            fontsize=6,
            clip_on=True,
            bbox=PAPER,
        )


def _shade(colour: str, chunk: int) -> tuple[float, ...]:
    """The colour, darker for later chunks."""
    dark = 0.78 ** min(chunk, 4)
    return tuple(dark * part for part in to_rgb(colour))


def _time_unit(seconds: float) -> tuple[float, str]:
    """The largest unit of which there is one."""
    units = (1.0, "s"), (1e-3, "ms"), (1e-6, "us")
    return next((u for u in units if seconds >= u[0]), units[-1])


def _gantt_legend(figure: Figure, timelines: Sequence[Timeline]) -> None:
    """The kinds of actions, below the charts."""
    actions = [action for t in timelines for row in t.order for action in row]
    kinds = {action.kind for action in actions}
    few = len(actions) <= FEW * len(timelines)
    handles = [
        Patch(
            facecolor=colour,
            hatch=hatch if few else "",
            edgecolor="black",
            linewidth=0.6,
            label=label,
        )
        for kind, (colour, hatch, label) in GANTT.items()
        if kind in kinds
    ]
    if any(action.chunk for action in actions):
        handles.append(
            Patch(
                facecolor="none",
                edgecolor="none",
                label="darker: later chunks of the model",
            )
        )
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
