"""The shared numbers that runs make of their priors.

Least squares on ln(predicted / measured) / NOISE, large errors counting less (soft L1: weight
1 / sqrt(1 + z^2)), every row weighing the root of one over the rows of its source, about
INDEPENDENT rows in all; each number has a Gaussian prior on its logarithm, and bounds. Steps of
Gauss and Newton from the priors on, in a fixed order: a fit is the same on every machine.

With a laboratory left out the fit is repeated on the effects at the optimum of all rows, and its
runs are predicted anew with what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.compare.as_run import predict_as_run
from meshwright.describe import assumptions, fitted, framework, kernels
from meshwright.describe.families import framework_family
from meshwright.describe.fitted import Parameter
from meshwright.describe.job import Job
from meshwright.prediction.classes import chip_family
from meshwright.prediction.prediction import Prediction

from .runs import Measured
from .seen import Column, Seen, laboratory, run_seen

NOISE = 0.08
"""Width of what the laws leave unexplained, as a logarithm (repeated runs: 0.02 to 0.12)."""
INDEPENDENT = 300.0
"""Rows of one source err alike: about so many are independent."""
STEP = 1.05
"""Change of a number for its effect."""
ROUNDS = 3
"""Times that effects are taken anew; the third changes nothing in the third digit."""
INNER = 40
"""Steps on the same effects: until the weights of large errors stand still."""
DIGITS = 3
"""Of a value in the catalogue."""
FALLS_BACK = 0.25
"""Share of its way from the prior below which a number has fallen back."""
Values = Mapping[str, float]
Mask = NDArray[np.bool_]


@dataclass
class RunModel:
    """Runs whose predictions are asked again and again with other numbers. A number that a job does
    not read leaves its prediction as it is: it is kept by those that it reads."""

    every: tuple[Measured, ...]
    parameters: tuple[Parameter, ...]
    known: dict[tuple[int, tuple[float, ...]], Prediction] = field(
        default_factory=dict
    )
    of: list[int] = field(init=False)
    """Of each run, which of the jobs that differ it is."""
    reads: list[list[str]] = field(init=False)
    """Of each run, the numbers that its job reads."""

    def __post_init__(self) -> None:
        first: dict[Job, int] = {}
        self.of = [first.setdefault(run.job, len(first)) for run in self.every]
        places = [read_by(run.job) for run in self.every]
        self.reads = [
            [p.name for p in self.parameters if at & {*p.places}]
            for at in places
        ]

    def predicted(self, run: int, values: Values) -> Prediction:
        """A run's job with other numbers."""
        key = self.of[run], tuple(values[name] for name in self.reads[run])
        if key not in self.known:
            self.known[key] = predict_as_run(
                with_values(self.every[run].job, values)
            )
        return self.known[key]

    def errors(self, values: Values, only: Mask | None = None) -> Column:
        """ln(predicted / measured) of each run; 0 of those that are not asked for."""
        wanted = np.ones(len(self.every), bool) if only is None else only
        return np.array(
            [
                log(self.predicted(i, values).step_time_s / run.step_s)
                if wanted[i]
                else 0.0
                for i, run in enumerate(self.every)
            ]
        )

    def groups(self, key: str) -> NDArray[np.str_]:
        """The group of each run, by one of GROUPS."""
        return np.array([*map(GROUPS[key], self.every)])

    def seen(self, values: Values, only: Mask | None = None) -> list[Seen]:
        """Runs beside their predictions: all, or those asked for."""
        return [
            run_seen(
                run.id,
                run.source,
                self.predicted(i, values),
                measured=run.step_s,
                workload=run.workload,
            )
            for i, run in enumerate(self.every)
            if only is None or only[i]
        ]


def read_by(job: Job) -> set[str]:
    """Places of the catalogue that a job's time is made of."""
    law = job.cluster.chip.kernel_law
    by = job.framework.name if job.framework else ""
    return {"set/chip", f"kernels/{law}", f"frameworks/{by}"}


def with_values(job: Job, values: Values) -> Job:
    """A job of the default set with other numbers in the catalogue."""
    chip = fitted.with_fitted(
        "set/chip", assumptions.BY_SHAPE_AS_WRITTEN, values
    )
    if law := job.cluster.chip.kernel_law:
        of = kernels.as_written()[law]
        chip = replace(
            chip, kernels=fitted.with_fitted(f"kernels/{law}", of, values)
        )
    how = replace(assumptions.REALISTIC, chip=chip)
    if job.framework is None:
        return replace(job, assumptions=how)
    name = job.framework.name
    by = fitted.with_fitted(
        f"frameworks/{name}", framework.as_written()[name], values
    )
    return replace(job, assumptions=how, framework=by)


class Effects(NamedTuple):
    """Errors at some values, and what each number does to them: rows by numbers."""

    at: Column
    """Logarithms of values over priors."""
    error: Column
    by: Column


@dataclass(frozen=True)
class Fit:
    """What runs make of the numbers."""

    values: dict[str, float]
    left_out: dict[str, dict[str, dict[str, float]]]
    """One of GROUPS -> a group of runs -> the values without it."""

    @property
    def without(self) -> dict[str, dict[str, float]]:
        """Laboratory -> the values without it."""
        return self.left_out["without"]

    def range(self, name: str) -> tuple[float, float]:
        """Over the fits with a laboratory left out."""
        values_of = [values[name] for values in self.without.values()]
        return min(values_of), max(values_of)

    def identified_by(self, of: Parameter) -> tuple[str, ...]:
        """Laboratories without which a number falls back to its prior."""
        way = log(self.values[of.name] / of.prior)
        return tuple(
            name
            for name, values in self.without.items()
            if abs(log(values[of.name] / of.prior)) < FALLS_BACK * abs(way)
        )


def fit(
    model: RunModel, start: Values | None = None, rounds: int = ROUNDS
) -> Fit:
    """The numbers from all runs, and with each laboratory, each family of chips, and each pair of
    families of chips and frameworks left out.

    start: values to begin from in place of the priors; from a fit that has changed little one round
    is enough.
    """
    of = model.parameters
    at = np.array(
        [log((start or {}).get(p.name, p.prior) / p.prior) for p in of]
    )
    everywhere = np.ones(len(model.every), bool)
    for _ in range(rounds):
        linear = effects(model, at)
        at = solved(of, linear, run_weights(model.every, everywhere))
    return Fit(
        rounded_values(of, at),
        {key: _without(model, linear, key) for key in GROUPS},
    )


def whose(run: Measured) -> str:
    """The laboratory of a run."""
    return laboratory(run.source)


def family(run: Measured) -> str:
    """The family of chips of a run."""
    return chip_family(run.job.cluster.chip)


def pair(run: Measured) -> str:
    """The families of chips and frameworks of a run."""
    by = run.job.framework
    return f"{family(run)}, {framework_family(by.name if by else '')}"


GROUPS: Mapping[str, Callable[[Measured], str]] = {
    "without": whose,
    "families": family,
    "pairs": pair,
}
"""Table of the catalogue -> what runs have in common that are left out together."""


def _without(
    model: RunModel, linear: Effects, key: str
) -> dict[str, dict[str, float]]:
    """Group of runs -> the values without it."""
    each = model.groups(key)
    of = model.parameters
    return {
        name: rounded_values(
            of, solved(of, linear, run_weights(model.every, each != name))
        )
        for name in sorted({*each})
    }


def stored(table: Mapping[str, Any] | None = None) -> Fit:
    """The fit that the catalogue holds: nothing is fitted again."""
    rows = fitted.fitted_table() if table is None else table
    values = {
        name: float(of["value"]) for name, of in rows["parameters"].items()
    }
    return Fit(
        values,
        {
            key: {name: {**of} for name, of in rows[key].items()}
            for key in GROUPS
        },
    )


def rounded_values(of: Sequence[Parameter], at: Column) -> dict[str, float]:
    """Values, rounded as the catalogue has them."""
    exact = (p.prior * float(np.exp(x)) for p, x in zip(of, at, strict=True))
    return {
        p.name: float(f"{v:.{DIGITS}g}")
        for p, v in zip(of, exact, strict=True)
    }


def effects(model: RunModel, at: Column) -> Effects:
    """Errors there, and the change of each with the logarithm of each number."""
    of = model.parameters
    here = {
        p.name: p.prior * float(np.exp(x)) for p, x in zip(of, at, strict=True)
    }
    error = model.errors(here)
    columns = []
    for p in of:
        change = STEP if here[p.name] * STEP <= p.most else 1.0 / STEP
        reads = np.array([p.name in mine for mine in model.reads])
        there = model.errors({**here, p.name: here[p.name] * change}, reads)
        columns.append(np.where(reads, there - error, 0.0) / log(change))
    return Effects(at, error, np.array(columns).T)


def run_weights(of: Sequence[Measured], used: Mask) -> Column:
    """The weight of each run in a fit; 0 of those that are left out."""
    count = Counter(run.source for run in of)
    each = np.array([count[run.source] ** -0.5 for run in of])
    return np.where(used, each * INDEPENDENT / each.sum(), 0.0)


def solved(of: Sequence[Parameter], linear: Effects, weight: Column) -> Column:
    """Logarithms of the values over their priors that the weighted rows ask for."""
    spread = np.array([p.spread for p in of])
    bounds = np.log([(p.least / p.prior, p.most / p.prior) for p in of]).T
    stiff = np.diag(spread**-2.0)
    x = linear.at
    for _ in range(INNER):
        left = linear.error + linear.by @ (x - linear.at)
        robust = weight / np.sqrt(1.0 + (left / NOISE) ** 2) / NOISE**2
        normal = linear.by.T @ (robust[:, None] * linear.by) + stiff
        downhill = linear.by.T @ (robust * left) + x / spread**2
        x = np.clip(x - np.linalg.solve(normal, downhill), *bounds)
    return x


def left_out(model: RunModel, of: Fit, key: str = "without") -> list[Seen]:
    """Every run as predicted without its group: its laboratory, or another of GROUPS."""
    each = model.groups(key)
    by_run = {
        s.run.id: s
        for name, values in of.left_out[key].items()
        for s in model.seen(values, each == name)
    }
    return [by_run[run.id] for run in model.every]
