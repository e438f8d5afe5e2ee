"""What `fit` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from meshwright.report.tables import text_table

NAMES = {
    "median_abs_error": "median",
    "mean_abs_error": "mean",
    "p90_abs_error": "90 %",
    "bias": "bias",
    "dense": "dense",
    "experts": "experts",
}


def fitted_report(data: Mapping[str, Any]) -> list[RenderableType]:
    """Numbers with their ranges, errors overall and by source, intervals."""
    numbers = text_table(
        "number | prior | fitted | range | falls back without",
        [
            (
                p["name"],
                f"{p['prior']:.3g}",
                f"{p['value']:.3g}",
                "{:.3g} to {:.3g}".format(*p["range"]),
                ", ".join(p["without"]),
            )
            for p in data["parameters"]
        ],
    )
    errors = text_table(
        ("errors of step times, %", *NAMES.values()),
        [
            (name, *(_percent(of[key], key) for key in NAMES))
            for name, of in data["errors"].items()
        ],
    )
    return [
        numbers,
        Text(),
        errors,
        Text(),
        _sources(data["sources"]),
        Text(),
        *_sure(data),
    ]


def _sources(of: Mapping[str, Any]) -> RenderableType:
    return text_table(
        ("median (bias), %", *of),
        [
            (
                name,
                *(
                    f"{_percent(figures[name]['median_abs_error'])}"
                    f" ({_percent(figures[name]['bias'], 'bias')})"
                    for figures in of.values()
                ),
            )
            for name in next(iter(of.values()))
        ],
    )


def _sure(data: Mapping[str, Any]) -> list[RenderableType]:
    intervals_of = data["intervals"]
    scaled = data["scaled"]
    times = intervals_of["score"] / intervals_of["score_of_one_interval"]
    return [
        Text(
            f"intervals from the other laboratories hold {_percent(intervals_of['coverage'])} % of"
            f" the runs; interval score {times:.2f} of that of one pooled interval"
        ),
        Text(
            "; ".join(
                f"one {name} for a kind of run: {_percent(one['median_abs_error'])} % in the"
                f" median, the model is nearer in {_percent(one['nearer'])} % of the runs"
                for name, one in data["baselines"].items()
            )
        ),
        Text(
            f"after one scale from three rows of a source: {_percent(scaled['three_rows'])} % on"
            f" its others; one constant from all its rows: {_percent(scaled['all_rows'])} %"
        ),
    ]


def _percent(value: float | None, key: str = "") -> str:
    if value is None:
        return ""
    return f"{100 * value:+.1f}" if key == "bias" else f"{100 * value:.1f}"
