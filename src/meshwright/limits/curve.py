"""Utilisation against the size of a training run: for each model of a law the smallest cluster that
trains it in time.

Chips come in E 2^k; the smallest number that trains the model in less than the scenario's duration
counts. A curve ends with the last model that can be trained at all, or at a utilisation of 0.1 %.
Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, sections 4.4 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from ..cost.chip import launches
from ..count.mlp2d import unit
from ..num import ceil, log2
from .crossing import Line, Run
from .laws import LawShape, shape, smooth_widths, widths
from .placing import Lower
from .scenario import Scenario
from .search import Spread, fastest
from .simulate import AXES, Degrees, Machine, StepSeconds
from .space import Column

DOUBLINGS = 12
"""A model that cannot be trained with 2^12 times the chips its arithmetic needs cannot be
trained.
"""
LEAST_UTILISATION = 1e-3
FINENESS = 8
"""Numbers of chips to a doubling in smooth mode."""
LATE = 2.0
"""How much longer than allowed a run may take to be interpolated with."""


@dataclass(frozen=True)
class Point(Run):
    """A run of the paper's model."""

    hidden: float
    layers: float
    experts: float
    degrees: Degrees
    lower: Lower
    """For each axis (dp, tp_model, tp_ff, pp, ep) its ranks in every network level but the last."""
    step: StepSeconds

    def to_dict(self) -> dict[str, Any]:
        """SI units, keys that end in their unit."""
        seconds = {
            ("bubble_share" if k == "bubble" else f"{k}_s"): float(v)
            for k, v in self.step._asdict().items()
        }
        return {
            **super().to_dict(),
            "hidden": self.hidden,
            "layers": self.layers,
            "experts": self.experts,
            "degrees": self.degrees._asdict(),
            "lower": dict(zip(AXES, map(list, self.lower), strict=True)),
            "step": seconds,
        }


@dataclass(frozen=True)
class Curve(Line):
    """The points of a scenario, by growing training compute."""

    scenario: Scenario
    points: tuple[Point, ...]
    ends: bool
    """The next model cannot be trained (or hardly); False: the grid of widths ends first."""

    @property
    def threshold(self) -> float:  # type: ignore[override]
        return self.scenario.threshold

    def to_dict(self) -> dict[str, Any]:
        """The fields of one curve of `limits --json`."""
        of_curve = {"scenario": self.scenario.name, "ends": self.ends}
        return of_curve | super().to_dict()


def curve(scenario: Scenario, hidden: Any = None) -> Curve:
    """The curve of a scenario.  hidden: widths of the models, ascending; None = the paper's grid,
    for a smooth scenario eight to a doubling.
    """
    if hidden is None:
        hidden = widths() if scenario.whole else smooth_widths()
    wide = tuple(map(float, hidden))
    _ = scenario.machine  # what it refuses, it refuses by name
    return Curve(scenario, *_line(replace(scenario, name=""), wide))


@lru_cache(maxsize=256)
def _line(
    scenario: Scenario, hidden: tuple[float, ...]
) -> tuple[tuple[Point, ...], bool]:
    """(points, `ends`) of a curve. Scenarios that differ in their name alone have one: a change
    that changes nothing of some scenario, and the same scenario in two figures.
    """
    points = points_at(scenario, np.array(hidden))
    useful = takewhile(
        lambda i: i in points and points[i].utilisation >= LEAST_UTILISATION,
        range(len(hidden)),
    )
    line = tuple(points[i] for i in useful)
    return line, len(line) < len(hidden)


def points_at(scenario: Scenario, hidden: Column) -> dict[int, Point]:
    """Position of a width -> its point, for all widths below the first that cannot be trained in
    time.
    """
    on = scenario.machine
    s = shape(scenario.law, hidden)
    chips = first_guess(on, s, scenario.duration_s)
    possible = trainable(on, s, scenario.duration_s)
    alive = np.arange(
        len(possible) if possible.all() else int(np.argmin(possible))
    )
    points: dict[int, Point] = {}
    for _ in range(DOUBLINGS + 1):
        if not len(alive):
            break
        best = in_time(
            scenario, s.at(alive), chips[alive], enough=not scenario.whole
        )
        points |= {int(alive[i]): p for i, p in best.items()}
        alive = np.delete(alive, [*best])
        chips[alive] *= 2
    index = sorted(i for i in points if not len(alive) or i < alive[0])
    if scenario.whole:
        return {i: points[i] for i in index}
    smooth = smooth_points(scenario, s.at(index), [points[i] for i in index])
    return dict(zip(index, smooth, strict=True))


def in_time(
    scenario: Scenario,
    s: LawShape,
    chips: Column,
    late: float = 1.0,
    enough: bool = False,
) -> dict[int, Point]:
    """Position of a model -> its fastest run on its number of chips, where that takes less than the
    scenario's duration, or `late` times that.  enough: any run that does.
    """
    useful_s = scenario.useful_s(chips, s.parameters)
    budget = late * useful_s / s.steps
    best = fastest(scenario, s, chips, budget, enough)
    took = s.steps * scenario.duration_s / useful_s
    return {
        i: point(
            scenario, s.at(i), chips[i], steps=float(took[i]), best=best[i]
        )
        for i in sorted(best)
    }


def smooth_points(
    scenario: Scenario, s: LawShape, points: list[Point]
) -> list[Point]:
    """Points of a smooth curve: instead of the power of two that is first in time, the number of
    chips, fewer than that, which takes exactly the time there is (`Scenario.duration_s`).

    Bisection over steps of 2^(1/8) below the power of two finds the fewest chips still in time;
    between them and the next fewer, log time is taken as linear in log chips.
    """
    doubled = np.array([p.chips for p in points])
    enough = np.zeros(len(points))
    too_few = np.full(len(points), float(FINENESS))
    while np.any(too_few - enough > 1):
        middle = np.floor((enough + too_few) / 2)
        fewer = doubled * 2.0 ** (-middle / FINENESS)
        some = in_time(scenario, s, fewer, enough=True)
        faster = np.isin(np.arange(len(points)), [*some])
        enough = np.where(faster, middle, enough)
        too_few = np.where(faster, too_few, middle)
    best = in_time(scenario, s, doubled * 2.0 ** (-enough / FINENESS))
    chips = doubled * 2.0 ** (-too_few / FINENESS)
    slower = in_time(scenario, s, chips, LATE)
    most_s = LATE * scenario.duration_s
    return [
        interpolate(
            scenario,
            p,
            chips[i],
            slower[i].duration_s if i in slower else most_s,
        )
        for i, p in best.items()
    ]


def interpolate(
    scenario: Scenario, p: Point, chips: float, late_s: float
) -> Point:
    """A point moved to the duration, between its own number of chips and a smaller one that takes
    `late_s`.
    """
    duration_s = scenario.duration_s
    share = np.log(duration_s / p.duration_s) / np.log(late_s / p.duration_s)
    least = float(p.chips * (chips / p.chips) ** share)
    return replace(
        p,
        chips=least,
        utilisation=p.flops / (scenario.machine.peak * least * duration_s),
        duration_s=duration_s,
    )


def first_guess(on: Machine, s: LawShape, duration_s: float) -> Column:
    """The smallest E 2^k that would do at the sustained rate of the chips, were there nothing but
    arithmetic.
    """
    least = s.flops / (duration_s * on.rates.matrix)
    # one chip an expert at least
    chips: Column = s.E * 2.0 ** np.maximum(ceil(log2(least / s.E)), 0.0)
    return chips


def trainable(on: Machine, s: LawShape, duration_s: float) -> Any:
    """Whether launching the kernels alone leaves time: those of each of L blocks for each step, one
    after the other.
    """
    # without this wall all models beyond it are searched in thirteen doublings: .4 for .1 CPU s
    kernels = sum(
        launches(half, on.rates)
        for op in unit()
        for half in (op.forward, op.backward)
    )
    return kernels * s.L * on.rates.launch_s * s.steps < duration_s


def point(
    scenario: Scenario, s: LawShape, chips: float, steps: float, best: Spread
) -> Point:
    """A run of a model.  steps: its optimizer steps, more of them where failures take time."""
    s = LawShape(*map(float, s))
    took = steps * best.step.total
    return Point(
        flops=s.flops,
        parameters=s.parameters,
        batch_tokens=s.batch,
        chips=float(chips),
        utilisation=s.flops / (scenario.machine.peak * float(chips) * took),
        duration_s=took,
        hidden=s.D,
        layers=s.L,
        experts=s.E,
        degrees=best.degrees,
        lower=best.lower,
        step=best.step,
    )
