"""The figures of Narayanan et al. 2021 as data, and the runs behind them
(`published/megatron_figures.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.errors import BadInput
from meshwright.prediction.prediction import Prediction, predict

from ... import shipped
from . import formulas as f
from .tables import selene, shaped

Value = int | str
"""Of what varies: a degree, a microbatch, a policy of recomputation."""


@dataclass(frozen=True)
class MegatronFigure:
    """A figure, table or section that is drawn: what the paper says of it, and its runs."""

    number: str
    what: str
    x: str
    y: str = "TFLOP/s a GPU, predicted"
    under: str = "realistic"
    """The set of assumptions; empty where a formula is drawn."""
    said: str = ""
    at: float | None = None
    """The x that the text is about."""
    gain: float = 0.0
    """As the text prints it."""
    about: Sequence[str] = ()
    """Parts of the ids of the checks that are about it; empty: those named after it."""
    names: Sequence[str] = ()
    """Of the values 1, 2, ... of x, where these are no numbers."""
    model: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    a_stage: bool = False
    """Layers and GPUs are those of one pipeline stage."""
    varies: str = ""
    """A field of the layout."""
    values: Sequence[Any] = ()
    rest: str = ""
    """The degree that takes the GPUs that what varies leaves."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[int] = ()
    """Sequences; empty: a batch is one microbatch."""
    cases: Sequence[Any] = ()
    """Of formulas, and of sections."""

    @property
    def title(self) -> str:
        """Where in the paper, and the set of assumptions that ours are predicted under."""
        figure = "figure " if self.number[0].isdigit() else ""
        where = (figure + self.number.replace("-", " ")).capitalize()
        by = f" ({self.under})" if self.under else ""
        return f"{where}: {self.what}{by}"


@cache
def paper_figures() -> dict[str, MegatronFigure]:
    """number -> figure, in the order of the paper; tables and sections after them."""
    every = shipped.shipped_table("published/megatron_figures.toml")
    return {n: MegatronFigure(n, **of) for n, of in every.items()}


def predicted_run(
    model: Model,
    gpus: int,
    batch: int,
    message: str = "scattered",
    **layout: Any,
) -> Prediction | None:
    """A prediction with full recomputation, if nothing else is said, and without sequence
    parallelism, as the paper ran; None if not legal.
    """
    job = with_framework(selene(model, gpus, batch), stage_message=message)
    chosen = {"recompute": "full", "sequence_parallel": False, **layout}
    try:
        return predict(job, Layout(**chosen))
    except BadInput:
        return None


def with_framework(job: Job, **fields: Any) -> Job:
    """The job on a framework that does something else."""
    assert job.framework
    return replace(job, framework=replace(job.framework, **fields))


@cache
def runs(
    number: str, batch: int = 0, message: str = "scattered"
) -> dict[Value, Prediction]:
    """value of what varies -> the run of a figure at a batch, where that is legal.

    batch: 0: one microbatch;  message: "whole" without scatter and gather, when each of the t ranks
    sends all of a stage boundary (figure 18).
    """
    of = paper_figures()[number]
    every = {}
    for value in of.values:
        stages = value if of.a_stage else 1
        model = shaped(**{**of.model, "layers": of.model["layers"] * stages})
        layout = {**of.fixed, of.varies: value}
        if of.rest:
            layout[of.rest] = of.gpus // value
        if layout.get("interleave", 1) > 1:
            layout["schedule"] = "interleaved"
        every[value] = predicted_run(
            model, of.gpus * stages, batch or value, message, **layout
        )
    return {value: run for value, run in every.items() if run}


def throughputs(
    number: str, batch: int = 0, message: str = "scattered"
) -> dict[Value, float]:
    """value of what varies -> TFLOP/s a GPU."""
    return {v: tflops(p) for v, p in runs(number, batch, message).items()}


def tflops(p: Prediction) -> float:
    """Achieved FLOP/s a GPU as the paper counts them, recomputation included, in 1e12."""
    return (
        f.flops(p.job.model, p.job.batch)
        / (p.step_time_s * p.job.cluster.chips)
        / 1e12
    )
