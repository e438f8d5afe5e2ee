"""Figures 1 and 5 to 11: on the paper's grids, and figures 6, 8 and 9 in smooth mode too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from meshwright.catalog import chip, model, names, network
from meshwright.count.mlp2d import mlp2d_parameters as mlp_parameters
from meshwright.count.model import parameters
from meshwright.limits.closed_forms import (
    LATENCY_CONSTANT,
    Setting,
    bandwidth_reach,
    latency_reach,
    nanobatch,
    node,
    scaled_flops,
    slice_side,
)
from meshwright.limits.curve import Curve
from meshwright.limits.laws import FIT, LAWS

from ..report import Check, PaperFigure
from . import golden, square_products, tables
from .published import PRINTED

SCENARIOS: dict[str, dict[str, str]] = PRINTED["scenarios"]
"""Figure -> label -> scenario."""
STEPS = 43
"""Points of figure 11, from exponent 0 to 0.21 (the paper's 0.2 and the pole at 0.5 well
beyond).
"""


def curves(
    names: Mapping[str, str], kind: str = "", smooth: bool = False
) -> dict[str, Curve]:
    """label -> curve, on the paper's grids or in smooth mode."""
    of = golden.smooth if smooth else golden.ours
    return {label: of(name + kind) for label, name in names.items()}


def figure_1() -> Any:
    """Left: today; right: what innovations add."""
    from ...report.figures_epoch import panels_side_by_side

    innovations = {
        "H100 SXM": "h100",
        "global NVLink, low latency": "h100-global-nvlink-low-latency",
        "DeepSeek batch scaling": "h100-deepseek",
    }
    return panels_side_by_side(
        [
            ("today's hardware and scaling", curves(SCENARIOS["6"])),
            ("H100 with innovations", curves(innovations)),
        ],
        f"Figure 1: three-month runs, today and with innovations {SET}",
    )


def figure_10() -> Any:
    """Depth by parameters: the paper's fit, its law, and models of the catalogue in place of its
    list, which is not public.
    """
    from ...report.figures_epoch import depths

    known = (model(name) for name in names("models"))
    dense = {
        m.name: (float(parameters(m)), float(m.layers))
        for m in known
        if not m.moe and isinstance(m.layers, int)
    }
    a, at, power = FIT
    n = np.geomspace(3e7, 2e12, 40)
    known_n, known_l = np.log(np.array([*dense.values()])).T
    slope, level = np.polyfit(known_n - np.log(at), known_l, 1)
    explained = np.corrcoef(known_n, known_l)[0, 1] ** 2
    wide = np.geomspace(256, 40000, 40)
    law = LAWS["baseline"]
    deep = law.depth(law.ffn_ratio * wide**2)
    lines = {
        f"the paper's fit: {a} (N / 1e6)^{power}": (n, a * (n / at) ** power),
        f"fit of these: {np.exp(level):.2f} (N / 1e6)^{slope:.2f},"
        f" R2 {explained:.2f}": (n, np.exp(level) * (n / at) ** slope),
        "its law: L = 0.10056 (D F)^0.3751": (
            mlp_parameters(deep, 1.0, wide, law.ffn_ratio * wide),
            deep,
        ),
    }
    return depths(
        dense,
        lines,
        "Figure 10: layers by parameters (the models of Hoffmann et al. are not public as a list)"
        ";\nan erratum: with attention counted (footnote 13) the law still has twice the layers of"
        " the fit",
    )


def figure_11() -> Any:
    """End of linear scaling and largest run against the exponent of batch over depth."""
    from ...report.figures_epoch import exponents

    run = Setting()
    x = np.linspace(0.0, 0.21, STEPS)
    lines = {
        "largest run": scaled_flops(
            run, latency_reach(run), x, LATENCY_CONSTANT
        )
    }
    for label, name in SCENARIOS["6"].items():
        on = node(chip(f"epoch-{name}"), network(f"epoch-{name}"))
        side = slice_side(on)
        lines[f"end of linear scaling, {label}"] = scaled_flops(
            run, bandwidth_reach(on, run, side, nanobatch(on, side)), x
        )
    return exponents(
        x,
        lines,
        "Figure 11: limits if the batch grows faster than the depth; closed forms",
    )


SET = "(epoch-2024)"
ENDS = {scenario: text for _, scenario, text in tables.printed_ends()}
"""Scenario -> the printed end of linear scaling."""


def draw_utilisation(
    title: str, of: str, kind: str = "", smooth: bool = False
) -> Any:
    """Curves with the printed ends of linear scaling, and ours where the paper has them from: on
    its grids. Of figure 6 the latency wall too, and the verdict of the checks.
    """
    from meshwright.report.limits_plots import utilisation

    names = SCENARIOS[of]
    lines, printed, ends = {}, {}, {}
    for label, curve in curves(names, kind, smooth).items():
        words = label
        if text := ENDS.get(names[label] + kind):
            first = None if smooth else curve.crossing.first_flops
            words += f": paper {text}" + f", ours {short(first)}" * bool(first)
            printed[words] = float(text)
            if first:
                ends[words] = first
        lines[words] = curve
    figure = utilisation(lines, f"{title} {SET}", printed, ours=ends)
    if of == "6" and not kind and not smooth:
        _walled(figure)
    return figure


def _walled(figure: Any) -> None:
    """The wall that the text names, and whether ends and wall are what ours are."""
    from ...report.lines import verdict

    (axes,) = figure.axes
    wall = PRINTED["wall"]
    axes.axvline(
        float(wall), color="black", linestyle=(0, (1, 2)), linewidth=1.2
    )
    axes.annotate(
        f"latency wall, paper {wall} ", (float(wall), 0.85), ha="right", fontsize=8
    )  # fmt: skip
    checks = figure_6_checks()
    met = sum(c.status == "match" for c in checks if "table 3" in c.id)
    walls = {short(c.computed) for c in checks if "/wall/" in c.id}
    verdict(
        figure,
        f"ours: {met} of {len(SCENARIOS['6'])} ends round to the printed digit; latency wall"
        f" {' and '.join(sorted(walls))} on the\nlast size of the grid (paper {wall}, by its closed"
        " form): {}reproduced",
        all(c.status != "mismatch" for c in checks),
    )


def short(flops: float | None) -> str:
    """As the paper writes them, with a digit more: 2.8e27."""
    return f"{flops or 0:.1e}".replace("e+", "e")


def figure_6_checks() -> list[Check]:
    """Of table 3's dense ends, which figure 6 shows, and of its wall."""
    return [
        c
        for c in tables.linear_scaling()
        if c.id.startswith("figure 6/wall/")
        or (c.id.startswith("table 3/") and c.id.endswith("/dense"))
    ]


def draw_split(title: str, name: str) -> Any:
    """Shares of the axes in the logarithm of the chips."""
    from ...report.figures_epoch import degree_split

    return degree_split(golden.ours(name), f"{title} {SET}")


FIGURES: dict[str, Callable[[], Any]] = {
    "1": figure_1,
    "10": figure_10,
    "11": figure_11,
    "7": partial(
        draw_split, "Figure 7: how dense H100 runs are parallelised", "h100"
    ),
    "7-sparse": partial(
        draw_split, "How sparse H100 runs are parallelised", "h100/sparse"
    ),
    **{
        name: partial(draw_utilisation, **of)
        for name, of in PRINTED["utilisation"].items()
    },
}


def figures() -> tuple[PaperFigure, ...]:
    """Epoch's figures, drawn only when written."""
    return (
        square_products.FIGURE,
        *(
            PaperFigure(f"epoch-figure-{name}", draw)
            for name, draw in FIGURES.items()
        ),
    )
