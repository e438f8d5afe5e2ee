"""Results as pandas tables, matplotlib figures and HTML, for notebooks and scripts."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from ..compare import Comparison
from ..compare.logged import Logged
from ..errors import BadInput
from ..grid import Grid
from ..limits.answer import Limits
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay
from ..prediction.table import Table
from ..roofline import Roofline
from ..search import Plan
from ..sweep import Sweep
from . import explain, files
from .console import plain
from .figures import figure_of

WIDTH = 100
"""Columns of a table in a notebook."""


def frame(answer: Any) -> Any:
    """A pandas DataFrame of the rows; BadInput where pandas is missing."""
    try:
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise BadInput(
            "to_frame() needs pandas: pip install 'meshwright[notebook]'"
        ) from None
    return pandas.DataFrame(files.flat_rows(answer))


def text(answer: Any, term: str = "") -> str:
    """The card of the command line, or a term of a prediction in full."""
    console = plain(Console, width=WIDTH, file=io.StringIO())
    if term and not isinstance(answer, Prediction):
        raise BadInput(f"only a prediction has terms such as {term[:40]!r}")
    card, *_ = _reports(answer)
    console.print(
        explain.explanation_report(answer, term) if term else card(answer)
    )
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


Report = Callable[[Any], RenderableType]


def _reports(answer: Any) -> tuple[Report, ...]:
    """What makes the card of a result, and what makes the tables behind it."""
    from . import (
        compare,
        grid,
        limits,
        limits_card,
        plan,
        predict,
        roofline,
        run_card,
        sweep,
        table,
        timeline,
    )

    reports: dict[type, tuple[Report, ...]] = {
        Prediction: (run_card.predict_card, predict.prediction_report),
        Plan: (run_card.plan_card, lambda p: plan.plan_report(p, "")),
        Sweep: (sweep.sweep_card, sweep.sweep_report),
        Grid: (
            lambda g: grid.grid_card(g, "step_time_s"),
            lambda g: grid.grid_report(g, "step_time_s"),
        ),
        Table: (table.table_report,),
        Replay: (timeline.timeline_card, timeline.timeline_report),
        Limits: (limits_card.limits_card, limits.limits_report),
        Roofline: (roofline.roofline_card, roofline.roofline_report),
        Comparison: (compare.comparison_card, compare.comparison_report),
        Logged: (compare.log_card, compare.of_log),
    }
    return reports[type(answer)]


def html(answer: Any) -> str:
    """The card of the command line and the tables behind it as HTML."""
    console = plain(Console, record=True, width=WIDTH, file=io.StringIO())
    for report in _reports(answer):
        console.print(report(answer))
    code = '<pre style="line-height:1.2;font-family:monospace">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=code)


def plot(answer: Any, file: str | None = None) -> Any:
    """The figure of a result; file: a .png or .svg that is written too."""
    files.suffix(file, files.PLOTS)
    try:
        from . import plots
    except ImportError:
        raise BadInput(
            "plot() needs matplotlib: pip install 'meshwright[plot]'"
        ) from None
    figure = figure_of(answer)
    if file:
        Path(file).write_bytes(plots.image(figure, Path(file).suffix))
    return figure
