"""Plots like the figures of Epoch 2024 beside those of `meshwright.report.limits_plots`: several
plots of utilisation, how parallelism is divided, limits against an exponent, depths, products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from meshwright.limits.answer import parallelism_split
from meshwright.limits.curve import Curve
from meshwright.report.limits_plots import (
    COMPUTE,
    LINES,
    MARKS,
    draw_utilisation,
)

from .lines import sheet

SHARES = {
    "tp": ("tensor", "#ee6677", "///"),
    "pp": ("pipeline", "#4477aa", "..."),
    "dp": ("data", "#228833", "\\\\\\"),
    "ep": ("expert", "#ccbb44", "xx"),
}
"""Axis -> label, colour and hatch."""


def panels_side_by_side(
    panels: Sequence[tuple[str, Mapping[str, Curve]]], whole: str
) -> Figure:
    """Several plots of utilisation on the same axes; whole: the title above them."""
    figure = Figure(figsize=(6.2 * len(panels), 4.8), layout="constrained")
    figure.suptitle(whole, fontsize=12)
    for ax, (title, curves) in zip(
        figure.subplots(1, len(panels), sharex=True, sharey=True),
        panels,
        strict=True,
    ):
        draw_utilisation(ax, curves, title)
    return figure


def degree_split(curve: Curve, title: str) -> Figure:
    """Shares of log N that tensor, pipeline, data and expert parallelism have, stacked."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    ax = figure.subplots()
    shares = [parallelism_split(p) for p in curve.points]
    x = [p.flops for p in curve.points]
    below = [0.0] * len(shares)
    for axis, (label, colour, hatch) in SHARES.items():
        top = [b + s[axis] for b, s in zip(below, shares, strict=True)]
        if any(s[axis] for s in shares):
            ax.fill_between(
                x,
                below,
                top,
                color=colour,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.8,
                alpha=0.6,
                label=label,
            )
        below = top
    ax.set(
        xscale="log",
        xlabel=COMPUTE,
        ylabel="share of log(chips)",
        ylim=(0, 1),
        title=title,
    )
    if x:
        ax.set_xlim(x[0], x[-1])
    ax.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="parallelism"
    )
    return figure


def exponents(x: Any, lines: Mapping[str, Any], title: str) -> Figure:
    """Limits against the exponent by which batch over depth grows."""
    figure, ax = sheet(title, height=4.6, size=12)
    for i, (name, values) in enumerate(lines.items()):
        colour, dash, mark = LINES[i % len(LINES)]
        ax.plot(
            x,
            values,
            color=colour,
            linestyle=dash,
            marker=mark,
            markevery=max(len(x) // MARKS, 1),
            markersize=5,
            label=name,
        )
    ax.set(
        yscale="log",
        xlabel=r"$\alpha_b - \alpha_L$: batch over depth grows as $T^{\alpha_b - \alpha_L}$",
        ylabel=COMPUTE,
    )
    ax.legend(fontsize=9)
    return figure


def depths(
    models: Mapping[str, tuple[float, float]],
    lines: Mapping[str, tuple[Any, Any]],
    title: str,
) -> Figure:
    """Layers against parameters: models as marks, laws as lines."""
    figure, axes = sheet(title)
    axes.plot(*zip(*models.values(), strict=True), "o", color="#777777", ms=4,
              label=f"{len(models)} dense models of the catalogue")  # fmt: skip
    for (name, (x, y)), (colour, dash, _) in zip(
        lines.items(), LINES[1:], strict=False
    ):
        axes.plot(x, y, color=colour, linestyle=dash, label=name)
    axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="layers")
    axes.legend(frameon=False)
    return figure


def products_plot(
    side: Any, us: Any, shares: Any, laws: Mapping[str, Any], title: str
) -> Figure:
    """Time and utilisation of square products by their side, measured and by laws.

    laws: name -> (sides, microseconds): first the fit to what is measured.
    """
    figure = Figure(figsize=(7.4, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        side,
        us,
        "o",
        color="#228833",
        markersize=4,
        label="time, three public tables",
    )
    looks = (("#aa3377", "-"), ("black", "--"), ("black", ":"))
    for (name, (x, y)), (colour, dash) in zip(
        laws.items(), looks, strict=True
    ):
        axes.plot(x, y, color=colour, linestyle=dash, label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="side of the product n",
        ylabel="time [us]",
        ylim=(1, None),
    )
    right = axes.twinx()
    right.plot(
        side,
        shares,
        "s",
        color="#4477aa",
        markersize=3,
        label="utilisation (right)",
    )
    right.set(ylabel="utilisation of the peak", ylim=(0, 1))
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    handles = [
        line
        for on in (axes, right)
        for line in on.get_legend_handles_labels()[0]
    ]
    axes.legend(handles=handles, frameon=False, loc="upper left")
    axes.set_title(title, fontsize=10)
    return figure
