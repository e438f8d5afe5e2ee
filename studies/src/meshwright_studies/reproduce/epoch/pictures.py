"""Figures 1 and 5 to 11: on the paper's grids, and figures 6, 8 and 9 in smooth mode too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from meshwright.catalog import chip, model, names
from meshwright.count.mlp2d import mlp2d_parameters as mlp_parameters
from meshwright.count.model import parameters
from meshwright.limits.answer import parallelism_split
from meshwright.limits.closed_forms import (
    LATENCY_CONSTANT,
    Setting,
    latency_reach,
    scaled_flops,
)
from meshwright.limits.curve import Curve
from meshwright.limits.laws import FIT, LAWS
from meshwright.report.limits_plots import (
    COMPUTE,
    LINES,
    MARKS,
    draw_utilisation,
    utilisation,
)

from ..drawing import sheet, verdict
from ..report import Check
from . import golden, square_products, tables
from .published import PRINTED, SCENARIOS

STEPS = 43
"""Points of figure 11, from exponent 0 to 0.21 (the paper's 0.2 and the pole at 0.5 well
beyond).
"""
SHARES = {
    "tp": ("tensor", "#ee6677", "///"),
    "pp": ("pipeline", "#4477aa", "..."),
    "dp": ("data", "#228833", "\\\\\\"),
    "ep": ("expert", "#ccbb44", "xx"),
}
"""Axis -> label, colour and hatch."""


def curves(
    names: Mapping[str, str], kind: str = "", smooth: bool = False
) -> dict[str, Curve]:
    """label -> curve, on the paper's grids or in smooth mode."""
    of = golden.smooth if smooth else golden.ours
    return {label: of(name + kind) for label, name in names.items()}


def figure_1() -> Figure:
    """Left: today; right: what innovations add."""
    innovations = {
        "H100 SXM": "h100",
        "global NVLink, low latency": "h100-global-nvlink-low-latency",
        "DeepSeek batch scaling": "h100-deepseek",
    }
    figure = Figure(figsize=(12.4, 4.8), layout="constrained")
    figure.suptitle(
        f"Figure 1: three-month runs, today and with innovations {SET}",
        fontsize=12,
    )
    today, later = figure.subplots(1, 2, sharex=True, sharey=True)
    draw_utilisation(
        today, curves(SCENARIOS["6"]), "today's hardware and scaling"
    )
    draw_utilisation(later, curves(innovations), "H100 with innovations")
    return figure


def figure_5() -> Figure:
    """Time and utilisation of square products by the side: tables, the fit to them, and laws."""
    of = square_products
    _, side, seconds = map(np.array, zip(*of.measured_calls(), strict=True))
    between = np.geomspace(side.min(), side.max(), 97)
    lines = {
        "their fit, a + b n + d n³": of.least_squares(0, 1, 3).seconds(between)
    } | {
        f"time, {name}": np.array([law(float(n)) for n in between])
        for name, law in of.LAWS.items()
    }
    figure, axes = sheet(
        "Figure 5: square bf16 products on an A100\n(public tables in place of the paper's)",
        width=7.4,
        height=5.4,
        xscale="log",
        yscale="log",
        xlabel="side of the product n",
        ylabel="time [us]",
    )
    axes.plot(
        side, 1e6 * seconds, "o", color="#228833", markersize=4,
        label="time, three public tables",
    )  # fmt: skip
    looks = (("#aa3377", "-"), ("black", "--"), ("black", ":"))
    for (name, y), (colour, dash) in zip(lines.items(), looks, strict=True):
        axes.plot(between, 1e6 * y, color=colour, linestyle=dash, label=name)
    axes.set_ylim(1, None)
    right = axes.twinx()
    shares = 2 * side**3 / seconds / chip("a100-80").peak("bf16")
    right.plot(
        side, shares, "s", color="#4477aa", markersize=3,
        label="utilisation (right)",
    )  # fmt: skip
    right.set(ylabel="utilisation of the peak", ylim=(0, 1))
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    handles = [
        line
        for on in (axes, right)
        for line in on.get_legend_handles_labels()[0]
    ]
    axes.legend(handles=handles, frameon=False, loc="upper left")
    verdict(figure, [*of.checks()])
    return figure


def figure_10() -> Figure:
    """Depth by parameters: the paper's fit, its law, and models of the catalogue in place of its
    list, which is not public.
    """
    known = (model(name) for name in names("models"))
    dense = [
        (float(parameters(m)), float(m.layers))
        for m in known
        if not m.moe and isinstance(m.layers, int)
    ]
    a, at, power = FIT
    n = np.geomspace(3e7, 2e12, 40)
    known_n, known_l = np.log(np.array(dense)).T
    slope, level = np.polyfit(known_n - np.log(at), known_l, 1)
    explained = np.corrcoef(known_n, known_l)[0, 1] ** 2
    wide = np.geomspace(256, 40000, 40)
    law = LAWS["baseline"]
    deep = law.depth(law.ffn_ratio * wide**2)
    figure, axes = sheet(
        "Figure 10: layers by parameters (the models of Hoffmann et al. are not public as a list)"
        ";\nan erratum: with attention counted (footnote 13) the law still has twice the layers of"
        " the fit",
        xscale="log",
        yscale="log",
        xlabel="parameters",
        ylabel="layers",
    )
    axes.plot(*zip(*dense, strict=True), "o", color="#777777", ms=4,
              label=f"{len(dense)} dense models of the catalogue")  # fmt: skip
    lines = {
        f"the paper's fit: {a} (N / 1e6)^{power}": (n, a * (n / at) ** power),
        f"fit of these: {np.exp(level):.2f} (N / 1e6)^{slope:.2f},"
        f" R2 {explained:.2f}": (n, np.exp(level) * (n / at) ** slope),
        "its law: L = 0.10056 (D F)^0.3751": (
            mlp_parameters(deep, 1.0, wide, law.ffn_ratio * wide),
            deep,
        ),
    }
    for (name, (x, y)), (colour, dash, _) in zip(
        lines.items(), LINES[1:], strict=False
    ):
        axes.plot(x, y, color=colour, linestyle=dash, label=name)
    axes.legend(frameon=False)
    return figure


def figure_11() -> Figure:
    """End of linear scaling and largest run against the exponent of batch over depth."""
    run = Setting()
    x = np.linspace(0.0, 0.21, STEPS)
    lines = {
        "largest run": scaled_flops(
            run, latency_reach(run), x, LATENCY_CONSTANT
        )
    }
    for label, name in SCENARIOS["6"].items():
        lines[f"end of linear scaling, {label}"] = tables.scaled_end(name, x)
    figure, axes = sheet(
        "Figure 11: limits if the batch grows faster than the depth; closed forms",
        height=4.6,
        size=12,
        yscale="log",
        xlabel=r"$\alpha_b - \alpha_L$: batch over depth grows as $T^{\alpha_b - \alpha_L}$",
        ylabel=COMPUTE,
    )
    for (name, y), (colour, dash, mark) in zip(
        lines.items(), LINES, strict=False
    ):
        axes.plot(
            x, y, color=colour, linestyle=dash, marker=mark,
            markevery=STEPS // MARKS, markersize=5, label=name,
        )  # fmt: skip
    axes.legend(fontsize=9)
    return figure


SET = "(epoch-2024)"
ENDS = {scenario: text for _, scenario, text in tables.printed_ends()}
"""Scenario -> the printed end of linear scaling."""


def ends_of_scaling(
    title: str, of: str, kind: str = "", smooth: bool = False
) -> Figure:
    """Curves with the printed ends of linear scaling, and ours where the paper has them from: on
    its grids. Of figure 6 the latency wall too, and the verdict of the checks.
    """
    scenarios = SCENARIOS[of]
    lines, printed, ends = {}, {}, {}
    for label, curve in curves(scenarios, kind, smooth).items():
        words = label
        if text := ENDS.get(scenarios[label] + kind):
            first = None if smooth else curve.crossing.first_flops
            words += f": paper {text}" + f", ours {short(first)}" * bool(first)
            printed[words] = float(text)
            if first:
                ends[words] = first
        lines[words] = curve
    figure = utilisation(lines, f"{title} {SET}", printed, ours=ends)
    if of == "6" and not kind and not smooth:
        (axes,) = figure.axes
        wall = PRINTED["wall"]
        axes.axvline(float(wall), color="black", ls=(0, (1, 2)), lw=1.2)
        axes.annotate(
            f"latency wall, paper {wall} ",
            (float(wall), 0.85),
            ha="right",
            fontsize=8,
        )
        verdict(figure, figure_6_checks())
    return figure


def short(flops: float | None) -> str:
    """FLOP as the paper writes them, with a digit more: 2.8e27."""
    return f"{flops or 0:.1e}".replace("e+", "e")


def figure_6_checks() -> list[Check]:
    """Of table 3's dense ends, which figure 6 shows, and of its wall."""
    return [
        c
        for c in tables.linear_scaling()
        if c.id.startswith("figure 6/wall/")
        or (c.id.startswith("table 3/") and c.id.endswith("/dense"))
    ]


def degree_split(title: str, name: str) -> Figure:
    """Shares of log N that tensor, pipeline, data and expert parallelism have, stacked."""
    points = golden.ours(name).points
    shares = [parallelism_split(p) for p in points]
    x = [p.flops for p in points]
    figure, axes = sheet(
        f"{title} {SET}",
        width=7.5,
        height=4.4,
        size=12,
        xscale="log",
        xlabel=COMPUTE,
        ylabel="share of log(chips)",
        xlim=(x[0], x[-1]),
        ylim=(0, 1),
    )
    below = np.zeros(len(x))
    for axis, (label, colour, hatch) in SHARES.items():
        top = below + [s[axis] for s in shares]
        if (top > below).any():
            axes.fill_between(
                x, below, top, color=colour, hatch=hatch, edgecolor="black",
                linewidth=0.8, alpha=0.6, label=label,
            )  # fmt: skip
        below = top
    axes.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="parallelism"
    )
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "5": figure_5,
    "1": figure_1,
    "10": figure_10,
    "11": figure_11,
    "7": partial(
        degree_split, "Figure 7: how dense H100 runs are parallelised", "h100"
    ),
    "7-sparse": partial(
        degree_split, "How sparse H100 runs are parallelised", "h100/sparse"
    ),
    **{
        name: partial(ends_of_scaling, **of)
        for name, of in PRINTED["utilisation"].items()
    },
}
