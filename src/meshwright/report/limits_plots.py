"""Plots of limits: utilisation against training compute, how parallelism is divided, limits against
an exponent.

Lines differ by dash and marker: black and white will do. matplotlib is only needed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ..limits.answer import Limits
from ..limits.curve import Curve
from ..units import show

LINES = (
    ("black", "-", "o"),
    ("#4477aa", "--", "s"),
    ("#ee6677", "-.", "^"),
    ("#228833", ":", "D"),
    ("#aa3377", (0, (5, 1)), "v"),
    ("#885522", (0, (1, 2)), "x"),
    ("#66ccee", (0, (6, 2, 1, 2, 1, 2)), "+"),
)
"""Colour, dash and marker of each line."""
MARKS = 8
"""Markers on a line."""
COMPUTE = "training compute [FLOP]"
RING = 12
"""Points across of what a paper prints."""
NONE: Mapping[str, float] = MappingProxyType({})


def of_limits(result: Limits) -> Figure:
    """Scenarios as the card answers them; a ring where linear scaling ends."""
    time = show(result.lines[0].scenario.duration_s, "s")
    curves: dict[str, Curve] = {}
    ends: dict[str, float] = {}
    for line in result.lines:
        end = line.main.crossing.flops
        name = line.scenario.name + (f", linear to {end:.1e}" if end else "")
        curves[name] = line.main
        if end:
            ends[name] = end
    return utilisation(
        curves, f"Training runs of {time}", ends, "end of linear scaling"
    )


def utilisation(
    curves: Mapping[str, Curve],
    title: str,
    ends: Mapping[str, float] = NONE,
    meaning: str = "end of linear scaling as printed",
    ours: Mapping[str, float] = NONE,
) -> Figure:
    """One line a scenario; a bar where nothing larger can be trained, the latency wall.

    ends: scenario -> where its linear scaling ends [FLOP], a ring;  ours: a cross there, where the
    rings are a paper's. Both stand on the line of the threshold, whatever run comes first below.
    """
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    # scenarios of one chip have one threshold: one line, in the colour of the first
    shares: dict[float, str] = {}
    for i, (name, curve) in enumerate(curves.items()):
        colour = LINES[i % len(LINES)][0]
        share = curve.scenario.threshold
        shares.setdefault(share, colour)
        for at, mark in ((ends, "o"), (ours, "x")):
            if name in at:
                axes.plot(
                    at[name],
                    share,
                    color=colour,
                    marker=mark,
                    markersize=RING if mark == "o" else RING / 2,
                    markerfacecolor="none",
                    markeredgewidth=2,
                    linestyle="none",
                )
    said = [f"O: {meaning}"] * bool(ends) + ["X: ours"] * bool(ours)
    draw_utilisation(axes, curves, title, ", ".join(said))
    for share, colour in shares.items():
        axes.axhline(share, color=colour, linestyle=":", linewidth=1)
        # on the right, where curves are low
        axes.annotate(
            f"linear above {share:.0%}",
            (0.99, share),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=colour,
            bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )
    return figure


def draw_utilisation(
    ax: Axes, curves: Mapping[str, Curve], title: str, more: str = ""
) -> None:
    """The lines of a plot of utilisation; more: of its legend."""
    for i, (name, curve) in enumerate(curves.items()):
        colour, dash, mark = LINES[i % len(LINES)]
        x = [p.flops for p in curve.points]
        y = [p.utilisation for p in curve.points]
        every = max(len(x) // MARKS, 1)
        ax.plot(
            x,
            y,
            color=colour,
            linestyle=dash,
            marker=mark,
            markevery=(i % every, every),
            markersize=5,
            linewidth=1.5,
            label=name,
        )
        if x and curve.ends:
            ax.plot(
                x[-1:],
                y[-1:],
                color=colour,
                marker="|",
                markersize=12,
                markeredgewidth=2,
            )
    ax.set(
        xscale="log",
        xlabel=COMPUTE,
        ylabel="utilisation of the boost-clock peak",
        ylim=(0, 1),
        title=title,
    )
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    words = ", ".join(filter(None, ("|: latency wall", more)))
    chips = {curve.scenario.threshold for curve in curves.values()}
    ax.legend(
        fontsize=9,
        title=words,
        title_fontsize=8,
        # below curves of several chips, which begin high and end together
        loc="lower left" if len(chips) > 1 else "best",
    )
    ax.grid(alpha=0.3)
