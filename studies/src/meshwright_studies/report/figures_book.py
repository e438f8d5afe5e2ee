"""Plots like the figures of the scaling book beside those of `meshwright.report.roofline_plots`:
the ratio of times, and times, against the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def ratio_plot(tokens: Num, curves: Mapping[str, Num], title: str) -> Figure:
    """T_math/T_comms against tokens a chip; above 1 a scheme is compute-bound."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    ax = figure.subplots()
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
    ax.set_title(title, fontsize=11)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.legend(fontsize=9)
    ax.grid(alpha=0.3)
    return figure


def times_plot(
    batch: Num, compute: Num, lines: Mapping[str, Num], title: str
) -> Figure:
    """Compute time (solid) and the communication time of several splits against the batch."""
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    ax = figure.subplots()
    compute_line(ax, batch, compute)
    for i, (name, values) in enumerate(lines.items()):
        line(ax, x=batch, y=values, name=name, i=i)
    logarithmic(ax)
    ax.set(xlabel=BATCH, ylabel="time of one layer")
    ax.set_title(title, fontsize=11)
    ax.legend(fontsize=9)
    return figure
