"""The figure of a result, by its kind; matplotlib is loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compare import Comparison
from ..compare.logged import Logged
from ..errors import BadInput
from ..grid import Grid
from ..limits.answer import Limits
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay
from ..roofline import Roofline
from ..search import Plan
from ..sweep import Sweep


def figure_of(answer: Any) -> Any:
    """What `-o FILE.png` of the command line draws; BadInput for a result without a picture."""
    from . import plots
    from .limits_plots import of_limits
    from .roofline_plots import roofline_plot

    if isinstance(answer, (Grid, Logged)):
        raise BadInput(
            f"a {type(answer).__name__.lower()} has no picture: to_frame() gives its rows"
        )
    draw: dict[type, Callable[[Any], Any]] = {
        Sweep: plots.scaling,
        Replay: plots.pipeline,
        Limits: of_limits,
        Roofline: roofline_plot,
        Comparison: lambda c: plots.pipelines(
            c.timelines,
            f"{c.predicted.job.model.name}: {c.predicted.layout.schedule}",
        ),
    }
    if type(answer) in draw:
        return draw[type(answer)](answer)
    return plots.layouts(predictions_of(answer))


def predictions_of(answer: Any) -> list[Prediction]:
    """The predictions in a result."""
    if isinstance(answer, Prediction):
        return [answer]
    if isinstance(answer, Plan):
        return [answer.best, *answer.alternatives] if answer.best else []
    return [p for p in answer.predictions if p]
