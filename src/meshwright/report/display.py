"""Results as pandas tables, matplotlib figures and HTML, for notebooks and scripts."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from ..errors import BadInput
from ..grid import Grid
from ..prediction.prediction import Prediction
from ..prediction.table import Table
from ..search import Plan
from ..sweep import Sweep
from . import explain, files

WIDTH = 100
"""Columns of a table in a notebook."""


def rows(thing: Any) -> list[dict[str, Any]]:
    """One flat row for each prediction in a result."""
    if isinstance(thing, Prediction):
        return [files.flat(thing.to_dict())]
    if isinstance(thing, Plan):
        predictions = [thing.best, *thing.alternatives] if thing.best else []
        return [files.flat(p.to_dict()) for p in predictions]
    if isinstance(thing, Sweep):
        return thing.rows()
    if isinstance(thing, Grid):
        return [*thing.rows]
    return list(thing.rows())


def frame(thing: Any) -> Any:
    """A pandas DataFrame of the rows; BadInput where pandas is missing."""
    try:
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise BadInput(
            "to_frame() needs pandas: pip install 'meshwright[notebook]'"
        ) from None
    return pandas.DataFrame(rows(thing))


def text(thing: Any, term: str = "") -> str:
    """The card of the command line, or a term of a prediction in full."""
    console = Console(width=WIDTH, file=io.StringIO(), highlight=False)
    if term and not isinstance(thing, Prediction):
        raise BadInput(f"only a prediction has terms such as {term[:40]!r}")
    console.print(explain.report(thing, term) if term else _card(thing))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def _card(thing: Any) -> RenderableType:
    from . import grid, run_card, sweep, table

    writers: dict[type, Callable[[Any], RenderableType]] = {
        Prediction: run_card.predicted,
        Plan: run_card.planned,
        Sweep: sweep.card,
        Grid: lambda g: grid.card(g, "step_time_s"),
        Table: table.report,
    }
    return writers[type(thing)](thing)


def html(thing: Any) -> str:
    """The tables of the command line as HTML."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), highlight=False
    )
    console.print(_tables(thing))
    code = '<pre style="line-height:1.2;font-family:monospace">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=code)


def _tables(thing: Any) -> RenderableType:
    from . import grid, plan, predict, sweep, table

    writers: dict[type, Callable[[Any], RenderableType]] = {
        Prediction: predict.report,
        Plan: lambda p: plan.report(p, ""),
        Sweep: sweep.report,
        Grid: lambda g: grid.report(g, "step_time_s"),
        Table: table.report,
    }
    return writers[type(thing)](thing)


def plot(thing: Any, file: str | None = None) -> Any:
    """The figure of a result; file: a .png or .svg that is written too."""
    files.suffix(file, files.PLOTS)
    try:
        from . import plots
    except ImportError:
        raise BadInput(
            "plot() needs matplotlib: pip install 'meshwright[plot]'"
        ) from None
    if isinstance(thing, Sweep):
        figure = plots.scaling(thing)
    elif isinstance(thing, Grid):
        raise BadInput("a grid has no picture: to_frame() gives its points")
    else:
        figure = plots.layouts(predictions(thing))
    if file:
        Path(file).write_bytes(plots.image(figure, Path(file).suffix))
    return figure


def predictions(thing: Any) -> list[Prediction]:
    """The predictions in a result."""
    if isinstance(thing, Prediction):
        return [thing]
    if isinstance(thing, Plan):
        return [thing.best, *thing.alternatives] if thing.best else []
    return [p for p in thing.predictions if p]
