"""Figures 1 and 5 to 11: on the paper's grids, and figures 6, 8 and 9 in smooth mode too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from . import golden, published, square_products, tables
from .golden import ours

FIGURE_6 = {"V100 SXM": "v100", "A100 SXM": "a100", "H100 SXM": "h100"}
FIGURE_8 = {
    "H100 SXM": "h100",
    "low latency": "h100-low-latency",
    "global NVLink": "h100-global-nvlink",
    "global NVLink, low latency": "h100-global-nvlink-low-latency",
    "infinite network, low latency": "h100-infinite-low-latency",
}
FIGURE_9 = {
    "baseline: b ~ T^(1/6)": "h100",
    "DeepSeek: b ~ T^0.33": "h100-deepseek",
    "no scaling: b = 4M": "h100-fixed",
}
STEPS = 43
"""Points of figure 11, from exponent 0 to 0.21 (the paper's 0.2 and the pole at 0.5 well
beyond).
"""


def exact(names: Mapping[str, str], kind: str = "") -> dict[str, Curve]:
    """Curves on the paper's grids."""
    return {label: ours(name + kind) for label, name in names.items()}


def smooth(names: Mapping[str, str], kind: str = "") -> dict[str, Curve]:
    """Curves in smooth mode."""
    return {label: golden.smooth(name + kind) for label, name in names.items()}


def figure_1() -> Any:
    """Left: today; right: what innovations add."""
    from ...report.figures_epoch import panels_side_by_side

    ahead = {**FIGURE_8, "DeepSeek batch scaling": "h100-deepseek"}
    keep = ("H100 SXM", "global NVLink, low latency", "DeepSeek batch scaling")
    innovations = exact({k: ahead[k] for k in keep})
    return panels_side_by_side(
        [
            ("today's hardware and scaling", exact(FIGURE_6)),
            ("H100 with innovations", innovations),
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
    for label, name in FIGURE_6.items():
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
ENDS = {
    **published.LINEAR["table 3"],
    **published.LINEAR["table 4"],
    "h100-deepseek": (published.FIGURE_9["h100-deepseek"], ""),
}
"""Scenario -> the printed ends of linear scaling, dense and sparse."""


def _utilisation(
    make: Callable[[Mapping[str, str], str], dict[str, Curve]],
    names: Mapping[str, str],
    title: str,
    kind: str = "",
) -> Callable[[], Any]:
    """Curves with the printed ends of linear scaling, and ours where the paper has them from: on
    its grids. Of figure 6 the latency wall too, and the verdict of the checks.
    """

    def draw() -> Any:
        from meshwright.report.limits_plots import utilisation

        lines = make(names, kind)
        printed, ends = {}, {}
        for label, name in names.items():
            first = lines[label].crossing.first_flops
            if name in ENDS:
                text = ENDS[name][bool(kind)]
                words = f"{label}: paper {text}" + (
                    f", ours {short(first)}" if make is exact and first else ""
                )
                lines[words] = lines.pop(label)
                printed[words] = float(text)
                if make is exact and first:
                    ends[words] = first
            else:
                lines[label] = lines.pop(label)
        figure = utilisation(lines, f"{title} {SET}", printed, ours=ends)
        if names is FIGURE_6 and make is exact and not kind:
            _walled(figure)
        return figure

    return draw


def _walled(figure: Any) -> None:
    """The wall that the text names, and whether ends and wall are what ours are."""
    (axes,) = figure.axes
    wall = float(published.WALL)
    axes.axvline(wall, color="black", linestyle=(0, (1, 2)), linewidth=1.2)
    axes.annotate(
        f"latency wall, paper {published.WALL} ", (wall, 0.85), ha="right", fontsize=8
    )  # fmt: skip
    checks = figure_6_checks()
    good = all(c.status != "mismatch" for c in checks)
    met = sum(c.status == "match" for c in checks if "table 3" in c.id)
    walls = {short(c.computed) for c in checks if "/wall/" in c.id}
    figure.supxlabel(
        f"ours: {met} of {len(FIGURE_6)} ends round to the printed digit; latency wall"
        f" {' and '.join(sorted(walls))} on the\nlast size of the grid (paper {published.WALL}, by"
        f" its closed form): {'' if good else 'NOT '}reproduced",
        fontsize=9,
        weight="bold",
        color="darkgreen" if good else "firebrick",
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


def _split(name: str, title: str) -> Callable[[], Any]:
    """How the runs of a curve are parallelised."""

    def draw() -> Any:
        from ...report.figures_epoch import degree_split

        return degree_split(ours(name), f"{title} {SET}")

    return draw


THREE = "three-month runs"
FIGURES: dict[str, Callable[[], Any]] = {
    "1": figure_1,
    "10": figure_10,
    "6": _utilisation(
        exact, FIGURE_6, f"Figure 6: dense {THREE} on DGX nodes"
    ),
    "6-smooth": _utilisation(
        smooth, FIGURE_6, f"Figure 6 without grids: dense {THREE} on DGX nodes"
    ),
    "6-sparse": _utilisation(
        exact, FIGURE_6, f"Sparse {THREE} on DGX nodes", "/sparse"
    ),
    "7": _split("h100", "Figure 7: how dense H100 runs are parallelised"),
    "7-sparse": _split("h100/sparse", "How sparse H100 runs are parallelised"),
    "8": _utilisation(
        exact, FIGURE_8, f"Figure 8: dense {THREE}, H100 with other hardware"
    ),
    "8-smooth": _utilisation(
        smooth, FIGURE_8, f"Figure 8 without grids: dense {THREE}"
    ),
    "9": _utilisation(
        exact,
        FIGURE_9,
        f"Figure 9: dense H100 {THREE}, scaling laws of the batch",
    ),
    "9-smooth": _utilisation(
        smooth, FIGURE_9, "Figure 9 without grids: scaling laws of the batch"
    ),
    "11": figure_11,
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
