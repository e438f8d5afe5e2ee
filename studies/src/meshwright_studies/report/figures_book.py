"""Plots like the figures of the scaling book beside those of `meshwright.report.roofline_plots`:
the ratio of times, times, and communication, against the batch or the split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from meshwright.num import Num
from meshwright.report.roofline_plots import (
    BATCH,
    compute_line,
    line,
    logarithmic,
)

from .lines import COLOURS, MARKERS, Curves, draw_lines, sheet

RED = "#cc3311"


def ratio_plot(tokens: Num, curves: Mapping[str, Num], title: str) -> Figure:
    """T_math/T_comms against tokens a chip; above 1 a scheme is compute-bound."""
    figure, ax = sheet(title, height=4.6, size=11)
    for i, (name, values) in enumerate(curves.items()):
        line(ax, x=tokens, y=values, name=name, i=i)
    ax.axhline(1.0, color="black", linewidth=1)
    ax.text(
        np.asarray(tokens)[-1],
        1.0,
        "compute-bound above ",
        ha="right",
        va="bottom",
        fontsize=9,
    )
    ax.set(
        yscale="log",
        xlabel="batch per chip [tokens]",
        ylabel=r"$T_{math}\,/\,T_{comms}$",
    )
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.legend(fontsize=9)
    return figure


def times_plot(
    batch: Num, compute: Num, bands: Mapping[str, tuple[Num, Num]], title: str
) -> Figure:
    """Compute time (solid) and the communication time of several splits against the batch: a line
    at the most of it, a band down to the least.
    """
    figure, ax = sheet(title, size=11)
    compute_line(ax, batch, compute)
    for i, (name, (least, most)) in enumerate(bands.items()):
        line(ax, x=batch, y=most, name=name, i=i)
        ax.fill_between(
            batch,
            least,
            most,
            color=ax.lines[-1].get_color(),
            alpha=0.35,
            linewidth=0,
        )
    logarithmic(ax)
    ax.set(xlabel=BATCH, ylabel="time of one layer")
    ax.legend(fontsize=9)
    return figure


def split_plot(
    degrees: Sequence[tuple[int, int]],
    batches: Mapping[str, tuple[float, Mapping[str, Sequence[float]]]],
    title: str,
) -> Figure:
    """Communication over the split, its minimum in a ring, for each batch and edition.

    degrees: X and Y of the splits;  batches: name -> (seconds of compute, edition -> seconds of
    communication at each split).
    """
    figure, axes = sheet(title, width=7.5, size=9)
    every = range(len(degrees))
    for i, (batch, (compute, editions)) in enumerate(batches.items()):
        axes.axhline(compute, color="black", linewidth=0.8)
        # where every line is far above
        axes.annotate(
            f"compute, {batch}", (every[-1], compute), fontsize=8, ha="right",
            va="bottom",
        )  # fmt: skip
        for (edition, y), dash in zip(
            editions.items(), ("-", ":"), strict=True
        ):
            least = y.index(min(y))
            axes.plot(
                every, y, dash, color=COLOURS[i], marker=MARKERS[i],
                markersize=4, label=f"{batch}, {edition}",
            )  # fmt: skip
            axes.plot(least, y[least], "o", ms=13, mfc="none", mec=COLOURS[i])
    axes.set_yscale("log")
    axes.set_xticks(every, [f"{x}\n{y}" for x, y in degrees], fontsize=8)
    axes.set_xlabel(
        "X (FSDP) over Y (tensor parallel), at three batches of tokens"
    )
    axes.set_ylabel("time of a layer's communication, forward [s]")
    axes.legend(fontsize=8)
    return figure


def zoom_plot(
    curves: Curves,
    spans: Sequence[tuple[int, str, tuple[float, float]]],
    crossings: Sequence[tuple[float, float]],
    highest: float,
    title: str,
) -> Figure:
    """Communication over compute against the batch.

    spans: (which line, words, batches between which the book has it lowest);  crossings: (batch,
    ratio) that are ringed;  highest: ratio at the upper edge.
    """
    figure, axes = sheet(title, width=7.5)
    draw_lines(axes, curves, markevery=12, markersize=5)
    axes.axhline(1.0, color="black", linewidth=1.2, label="compute")
    for i, words, ends in spans:
        axes.hlines(highest / 1.5, *ends, color=COLOURS[i], linewidth=5)
        axes.annotate(
            f"{words}\n{ends[0] / 1e6:g}M to {ends[1] / 1e6:g}M",
            ((ends[0] * ends[1]) ** 0.5, highest / 1.7), ha="center", va="top",
            fontsize=8,
        )  # fmt: skip
    for at, level in crossings:
        axes.plot(at, level, "o", ms=14, mfc="none", mec=RED, mew=2)
        axes.annotate(
            f"{at / 1e6:.2g}M", (at, level), (10, 8), color=RED,
            textcoords="offset points", fontsize=9, fontweight="bold",
        )  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="batch [tokens]",
        ylabel="communication over compute",
        ylim=(0.03, highest),
    )
    axes.legend(fontsize=8)
    return figure
