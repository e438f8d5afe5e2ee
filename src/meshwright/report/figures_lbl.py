"""Plots like the figures of Subramanian et al. 2024: bars with configurations, strong scaling,
days, speedups, maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..prediction.prediction import Prediction
from .plots import LABELS, STYLE, configuration, layouts, memory_bars
from .text import CAUSES

MARKERS = "osD^vP*X<>"
LINES = ("-", "--", ":", "-.")
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#885522", "#777777")


def bars(
    predictions: Sequence[Prediction], names: Sequence[str], title: str
) -> Figure:
    """Time and memory of layouts, with their configuration (figures 1, 2, 3, A2)."""
    return layouts(predictions, names, title)


def strong_scaling(predictions: Sequence[Prediction], title: str) -> Figure:
    """The optimum for each number of GPUs: step time, where it goes, memory, configuration (figures
    4, A3).
    """
    n = len(predictions)
    figure = Figure(
        figsize=(max(6.0, 3.0 + 0.75 * n), 9.5), layout="constrained"
    )
    figure.suptitle(title, fontsize=10)
    times, shares, memory, low = figure.subplots(
        4, 1, sharex=True, height_ratios=[2, 3, 2, 2]
    )
    seconds = [p.step_time_s for p in predictions]
    times.plot(range(n), seconds, color="#4477aa", marker="o")
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
    configuration(
        low, predictions, [str(p.job.cluster.chips) for p in predictions]
    )
    low.set_xlabel("GPUs")
    low.set_xlim(-0.6, n - 0.4)
    return figure


def share_bars(axes: Axes, times: Sequence[Mapping[str, float]]) -> None:
    """What the step time is spent on, in percent."""
    below = [0.0] * len(times)
    for cause in (c for c in CAUSES if any(t[c] for t in times)):
        heights = [100 * t[cause] / sum(t.values()) for t in times]
        colour, hatch = STYLE[cause]
        look: dict[str, Any] = {
            "color": colour,
            "hatch": hatch,
            "edgecolor": "black",
            "linewidth": 0.6,
        }
        axes.bar(
            range(len(times)),
            heights,
            0.66,
            below,
            label=LABELS.get(cause, cause),
            **look,
        )
        below = [b + h for b, h in zip(below, heights, strict=True)]
    axes.set_ylabel("share of step time [%]")
    axes.set_ylim(0, 100)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8,
        frameon=False,
    )


def curves(
    groups: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    y: str,
    log_y: bool = True,
) -> Figure:
    """A line for each system against the number of GPUs (figures 5, A4)."""
    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(groups.items()):
        look: dict[str, Any] = {
            "marker": MARKERS[i % 3],
            "linestyle": LINES[i % 3],
            "color": COLOURS[i // 3 % 6],
        }
        axes.plot(
            [x for x, _ in points],
            [v for _, v in points],
            label=name,
            markersize=5,
            **look,
        )
    every = sorted({x for points in groups.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [f"{x:g}" for x in every])
    axes.minorticks_off()
    if log_y:
        axes.set_yscale("log")
        _plain_log(axes)
    else:
        axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("GPUs")
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False
    )
    return figure


def _plain_log(axes: Axes) -> None:
    """1, 3, 10, 30 instead of powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def heat(
    values: Sequence[Sequence[float]],
    rows: Sequence[float],
    columns: Sequence[float],
    title: str,
    x: str,
    y: str,
) -> Figure:
    """A map of days, each cell with its number; empty where nothing fits (figures A5, A6)."""
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axes = figure.subplots()
    shown = [
        [math.log10(v) if math.isfinite(v) else math.nan for v in line]
        for line in values
    ]
    axes.imshow(shown, cmap="Greys", origin="lower", aspect="auto", alpha=0.75)
    finite = [v for line in shown for v in line if math.isfinite(v)]
    middle = (min(finite) + max(finite)) / 2 if finite else 0.0
    for i, line in enumerate(values):
        for j, v in enumerate(line):
            known = math.isfinite(v)
            colour = "white" if known and shown[i][j] > middle else "black"
            axes.text(
                j,
                i,
                f"{v:.3g}" if known else "none fits",
                ha="center",
                va="center",
                fontsize=8,
                color=colour,
            )
    axes.set_xticks(range(len(columns)), [f"{c:g}" for c in columns])
    axes.set_yticks(range(len(rows)), [f"{r:g}" for r in rows])
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    return figure


def collectives(
    measured: Mapping[str, Sequence[tuple[float, float]]],
    predicted: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
) -> Figure:
    """Measured marks and the formula's line against bytes (figure A1)."""
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(measured.items()):
        colour, marker = COLOURS[i % 6], MARKERS[i % len(MARKERS)]
        axes.plot(
            *zip(*points, strict=True),
            linestyle="",
            marker=marker,
            color=colour,
            label=f"{name}, measured",
        )
        line = predicted[name]
        axes.plot(
            *zip(*line, strict=True),
            linestyle=LINES[i % 4],
            color=colour,
            label=f"{name}, formula",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _bytes(v)))
    axes.set_xlabel("vector")
    axes.set_ylabel("time [s]")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _bytes(value: float) -> str:
    """Powers of two, short."""
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:g} {name}"
    return f"{value:g} B"
