"""What one constant does on the same runs: two baselines, left out in the same way as the model.

    constant MFU        t = c T_model                            c by family of chips and numbers
    constant efficiency t = c T_hardware (1 + (p - 1) / (m v))   c by these and the kind of model

T: seconds of the model's FLOPs, or of those that run (recomputation included), on all chips at
their peak; p stages of v chunks, m microbatches. c is the median of measured over T of the runs
that are left in; of their numbers, or of all, where none is of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from meshwright.prediction.classes import precision_width
from meshwright.prediction.prediction import Prediction

from .fit import RunModel, family
from .runs import Measured
from .seen import Column

Group = Callable[[Measured], Hashable]


class Baselines(NamedTuple):
    """ln(predicted / measured) of each run."""

    mfu: Column
    efficiency: Column


def baselines(model: RunModel, left_out: Group) -> Baselines:
    """Errors of constants at runs whose group they have not seen."""
    values = {p.name: p.value for p in model.parameters}
    of = [model.predicted(i, values) for i in range(len(model.every))]
    without = [*map(left_out, model.every)]
    measured = np.array([run.step_s for run in model.every])

    def errors(
        ideal: Callable[[Prediction], float], key: Callable[[Measured], str]
    ) -> Column:
        ratio = np.log(measured / np.array([*map(ideal, of)]))
        keys = [*map(key, model.every)]
        wide = [product_numbers(run) for run in model.every]
        error: Column = constant(ratio, without, keys, wide) - ratio
        return error

    return Baselines(
        errors(useful_s, lambda run: f"{family(run)}, {product_numbers(run)}"),
        errors(occupied_s, kind),
    )


def constant(
    ratio: Column, without: Sequence[Hashable], *keys: Sequence[str]
) -> Column:
    """Of each run, the median of the others' logarithms: those of its first key that is found."""
    groups = np.array([hash(group) for group in without])
    names = [np.array(key) for key in keys]
    medians = np.zeros(len(ratio))
    for i in range(len(ratio)):
        other = groups != groups[i]
        alike = [other & (name == name[i]) for name in names]
        first = next((mask for mask in (*alike, other) if mask.any()), other)
        medians[i] = np.median(ratio[first])
    return medians


def product_numbers(run: Measured) -> str:
    """Numbers of its products, as classes have them."""
    return precision_width(run.job.precision.compute)


def kind(run: Measured) -> str:
    """Family of chips, numbers and kind of model."""
    experts = "experts" if run.job.model.moe else "dense"
    return f"{family(run)}, {product_numbers(run)}, {experts}"


def useful_s(p: Prediction) -> float:
    """Seconds of the model's FLOPs at the peak of all chips."""
    return float(p.mfu * p.step_time_s)


def occupied_s(p: Prediction) -> float:
    """Seconds of all FLOPs that run, at the peak of all chips, and of fill and drain."""
    layout = p.layout
    m = p.job.batch / (layout.dp * layout.microbatch)
    idle = (layout.pp - 1) / (m * layout.interleave)
    return float(p.hfu * p.step_time_s * (1.0 + idle))
