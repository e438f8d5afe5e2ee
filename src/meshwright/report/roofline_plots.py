"""Plots of rooflines: ratio and times against the batch. Lines differ by dash and marker: black and
white will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from ..num import Num
from ..roofline.queries import Roofline
from .limits_plots import LINES

MARKS = 7
"""Markers on a line."""
COLUMNS = 3
"""Panels in a row."""
BATCH = "batch [tokens]"
GREY = "0.88"
"""Batches at which communication binds."""

Panel = tuple[str, Num, Mapping[str, Num], float | None, str]
"""Title, compute seconds, edition -> communication seconds, batch from which it is compute-bound,
and in which edition.
"""


def panels(batch: Num, shown: Sequence[Panel], title: str) -> Figure:
    """Small multiples: one split each, communication-bound batches shaded."""
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(12, 3.3 * rows), layout="constrained")
    figure.suptitle(title, fontsize=11)
    grid = np.ravel(
        figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    )
    for ax, (name, compute, comm, threshold, of) in zip(
        grid, shown, strict=False
    ):
        compute_line(ax, batch, compute)
        for i, (edition, values) in enumerate(comm.items()):
            line(ax, x=batch, y=values, name=f"communication, {edition}", i=i)
        logarithmic(ax)
        first = np.asarray(batch)[0]
        last = np.asarray(batch)[-1]
        ax.axvspan(
            first,
            last if threshold is None else min(max(threshold, first), last),
            color=GREY,
            zorder=0,
        )
        said = (
            "at every batch size"
            if threshold is None
            else f"below {EngFormatter(places=2, sep='')(threshold)} tokens"
        )
        ax.set_title(f"{name}\ncommunication-bound {said} ({of})", fontsize=8)
    below(figure)
    for ax in grid[-COLUMNS:]:
        ax.set_xlabel(BATCH)
    figure.supylabel("time of one layer", fontsize=10)
    return figure


def below(figure: Figure) -> None:
    """One legend for all panels, where it covers no line; in place of an earlier one."""
    for old in list(figure.legends):
        old.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        [*handles, Patch(color=GREY)],
        [*labels, "communication binds"],
        loc="outside lower center",
        ncols=len(labels) + 1,
        fontsize=8,
        frameon=False,
    )


def compute_line(ax: Axes, batch: Num, compute: Num) -> None:
    """Compute time, which all lines of communication are held against."""
    ax.plot(
        batch,
        constant_line(compute, batch),
        color="black",
        linewidth=2,
        label="compute",
    )


def line(ax: Axes, x: Num, y: Num, name: str, i: int) -> None:
    """One line of a family; the first of LINES is solid black, as compute is."""
    _, *lines = LINES
    colour, dash, marker = lines[i % len(lines)]
    every = max(1, np.size(x) // MARKS)
    style: dict[str, Any] = {
        "color": colour,
        "linestyle": dash,
        "marker": marker,
        "markevery": (i * every // 3, every),
    }
    ax.plot(x, constant_line(y, x), label=name, markersize=5, **style)


def logarithmic(ax: Axes) -> None:
    """Tokens and seconds on logarithmic axes with prefixes."""
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_major_formatter(EngFormatter(unit="s"))
    ax.grid(alpha=0.3)


def constant_line(values: Num, like: Num) -> Any:
    """A constant drawn as a line."""
    return np.broadcast_to(np.asarray(values, dtype=float), np.shape(like))


def roofline_plot(r: Roofline) -> Figure:
    """A panel a scheme: compute and communication around the batch asked for."""
    shape = "x".join(map(str, r.shape))
    title = (
        f"{r.model} on {f'{r.pods} pods of ' if r.pods > 1 else ''}{shape} {r.chip}: one layer"
        f" ({r.layer})"
    )
    shown: list[Panel] = []
    for s in r.schemes:
        comm = {
            "sum": np.array(s.curve.comm_sum_s),
            "max": np.array(s.curve.comm_max_s),
        }
        name = f"{s.name}: {s.degrees}, {s.binds}"
        least = {
            "sum": s.least_batch_sum_tokens,
            "max": s.least_batch_max_tokens,
        }
        first = least[s.edition]
        alike = "either edition" if first == least["max"] else s.edition
        shown.append((name, np.array(s.curve.compute_s), comm, first, alike))
    figure = panels(np.array(r.schemes[0].curve.batch_tokens), shown, title)
    batch = EngFormatter(places=2, sep="")(r.batch_tokens)
    for ax in figure.axes[: len(shown)]:
        ax.axvline(
            r.batch_tokens,
            color="black",
            linewidth=0.8,
            linestyle=(0, (1, 3)),
            label=f"the batch asked for, {batch}",
        )
    below(figure)
    for i, ax in enumerate(figure.axes[len(shown) :], len(shown)):
        ax.set_visible(False)
        figure.axes[i - COLUMNS].tick_params(labelbottom=True)
        figure.axes[i - COLUMNS].set_xlabel(BATCH)
    return figure
