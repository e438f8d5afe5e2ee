"""How far it goes: limits of scenarios, the largest run on given chips, the smallest cluster for a
given run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..describe.assumptions import EPOCH
from ..describe.display import Displayed
from ..describe.frozen import short_repr
from ..errors import BadInput, NoLayout
from ..num import crossing
from ..units import show
from .closed_forms import ClosedForms, Setting, closed_forms, node, under_law
from .crossing import Crossing, Run
from .curve import Curve, Point, curve, points_at
from .laws import LAWS, SMOOTH_GRID, Law, shape
from .scenario import Scenario, preset

NARROWEST = 2.0**9
WIDEST = 2.0**26
"""Widths among which a model of a given size is sought."""


@dataclass(frozen=True)
class Limit:
    """One scenario: where its linear scaling ends, and where it ends altogether."""

    curve: Curve
    """The paper's grids: chips in doublings, rounded shapes."""
    smooth: Curve | None
    """Real shapes and numbers of chips, exactly the time there is."""
    closed: ClosedForms | None
    """Closed forms; None where they do not count what the scenario does."""

    @property
    def scenario(self) -> Scenario:
        return self.curve.scenario

    @property
    def main(self) -> Curve:
        """The curve that answers: runs without grids take all the time there is, and no more chips
        than they need."""
        return self.smooth or self.curve

    @property
    def linear_run(self) -> Run | None:
        """The largest run that scales linearly: on as many chips as it takes at the threshold."""
        s, flops = self.scenario, self.main.crossing.flops
        if flops is None:
            return None
        law = s.smooth.law
        model = shape(law, law_width(law, flops))
        return Run(
            flops,
            model.parameters,
            batch_tokens=model.batch,
            chips=flops / (s.machine.peak * s.threshold * s.duration_s),
            utilisation=s.threshold,
            duration_s=s.duration_s,
        )

    @property
    def wall(self) -> Point | None:
        """The largest run that can be trained at all; None: the widest model that is tried can."""
        points = self.main.points
        return points[-1] if points and self.main.ends else None

    @property
    def doubt(self) -> float | None:
        """How many times larger or smaller the end of linear scaling is at most on the paper's
        grids and by the closed forms; None where neither has one."""
        flops = self.main.crossing.flops
        others = [self.crossing.first_flops, self.crossing.last_flops]
        others += [self.closed.linear_flops] if self.closed else []
        return max(
            (max(x / flops, flops / x) for x in others if x and flops),
            default=None,
        )

    @property
    def crossing(self) -> Crossing:
        """The two ends of linear scaling on the paper's grids."""
        return self.curve.crossing

    @property
    def smooth_crossing(self) -> Crossing | None:
        """The two ends without grids."""
        return self.smooth.crossing if self.smooth else None

    @property
    def largest(self) -> Point | None:
        """The largest run on the grid that can be trained at all (the latency wall, if the grid
        goes on).
        """
        return self.curve.points[-1] if self.curve.points else None

    def to_dict(self) -> dict[str, Any]:
        """The fields of one scenario of `limits --json`."""
        largest = self.largest
        smooth = self.smooth and self.smooth.to_dict()
        return {
            **self.curve.to_dict(),
            "sustained_utilisation": self.scenario.sustained,
            "duration_s": self.scenario.duration_s,
            "largest_flops": largest.flops if largest else None,
            "largest_parameters": largest.parameters if largest else None,
            "bills": [bill(p, self.scenario) for p in self.curve.points],
            "smooth_points": smooth and smooth["points"],
            "smooth_crossing": smooth and smooth["crossing"],
            "closed_forms": self.closed.to_dict() if self.closed else None,
        }


@dataclass(frozen=True)
class Limits(Displayed):
    """How far several scenarios scale.

    >>> from meshwright import Limits, limits
    >>> answer = limits(["h100", "a100/sparse"])
    >>> isinstance(answer, Limits), [line.scenario.name for line in answer.lines]
    (True, ['h100', 'a100/sparse'])
    """

    lines: tuple[Limit, ...]

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        return {"scenarios": [line.to_dict() for line in self.lines]}


def limits(
    scenarios: Sequence[Scenario | str] | Scenario | str = ("h100",),
    smooth: bool = True,
) -> Limits:
    """Utilisation against training compute, and where it falls, for one or several scenarios.

    scenarios: scenarios, or their names ("h100", "a100/sparse", see `presets`).  smooth: also the
    curve without grids. Raises BadInput.

    >>> from meshwright import limits
    >>> (line,) = limits("h100").lines
    >>> 2e28 < line.crossing.first_flops < 3e28
    True
    """
    many = (
        [scenarios]
        if isinstance(scenarios, (str, Scenario))
        else list(scenarios)
    )
    if not many:
        raise BadInput("limits needs at least one scenario, such as 'h100'")
    return Limits(
        tuple(
            _limit(preset(s) if isinstance(s, str) else s, smooth)
            for s in many
        )
    )


def _limit(scenario: Scenario, smooth: bool) -> Limit:
    exact = curve(scenario)
    line = curve(scenario.smooth) if smooth else None
    closed = None
    if as_the_closed_forms(scenario):
        on = node(scenario.chip, scenario.network, scenario.precision.compute)
        s = under_law(Setting(duration_s=scenario.duration_s), scenario.law)
        closed = closed_forms(on, s)
    return Limit(exact, line, closed)


def as_the_closed_forms(scenario: Scenario) -> bool:
    """Whether the closed forms count what the scenario does: dense models of the paper's depth and
    tokens, chips that never fail, its hierarchy of memories and of links, its overlap, and linear
    scaling down to the paper's share.
    """
    how, law, base = scenario.assumptions, scenario.law, LAWS["baseline"]
    asked = (how.chip.model, how.network.collective, how.overlap)
    return (
        asked == (EPOCH.chip.model, EPOCH.network.collective, EPOCH.overlap)
        and (law.depth, law.tokens_per_parameter, law.experts)
        == (base.depth, base.tokens_per_parameter, None)
        and (scenario.linear, scenario.failures) == (Scenario.linear, None)
    )


def parallelism_split(p: Point) -> dict[str, float]:
    """How the parallelism is divided: share of log N that tensor, data, pipeline and expert
    parallelism have; they add up to 1."""
    d = p.degrees
    whole = math.log(p.degrees.chips) if p.degrees.chips > 1 else 1.0
    parts = {"tp": d.tp_model * d.tp_ff, "dp": d.dp, "pp": d.pp, "ep": d.ep}
    return {axis: math.log(n) / whole for axis, n in parts.items()}


def bill(p: Run, scenario: Scenario) -> dict[str, float | None]:
    """Rent and energy of a whole run, every chip at its power limit; None where the price or the
    power is not known.
    """
    seconds = p.chips * p.duration_s
    chip = scenario.chip
    hours = seconds / 3600
    return {
        "chip_hours": hours,
        "cost_usd": chip.rent_usd(hours),
        "energy_j": chip.energy_j(seconds),
    }


def law_width(law: Law, flops: float) -> float:
    """Width of the model that a law trains with so many FLOPs; BadInput if it is beyond all
    reason.
    """
    wide = crossing(
        lambda wide: shape(law, wide).flops - flops, NARROWEST, WIDEST
    )
    if wide is None or wide == NARROWEST:
        least, most = (shape(law, x).flops for x in (NARROWEST, WIDEST))
        raise BadInput(
            f"a run of {flops:.3g} FLOP is outside what the scaling law {law.name} covers:"
            f" {least:.1g} to {most:.1g}"
        )
    return wide


def smallest_cluster(scenario: Scenario, flops: float) -> Point:
    """The smallest cluster that makes a run of so many FLOPs in the scenario's time, in real
    numbers (smooth mode).

    Raises NoLayout if no cluster can.
    """
    real = scenario.smooth
    points = points_at(real, np.array([law_width(real.law, flops)]))
    if not points:
        wall = largest_run(scenario, math.inf).flops
        coarse = curve(scenario).points
        grid = (
            f" ({coarse[-1].flops:.1e} on the paper's grid)" if coarse else ""
        )
        raise NoLayout(
            f"no number of chips makes a run of {flops:.3g} FLOP in"
            f" {show(scenario.duration_s, 's')}: the largest, the latency wall, is {wall:.1e}{grid}"
        )
    return points[0]


def largest_run(scenario: Scenario, chips: float) -> Point:
    """The largest run of the law that so many chips make in the scenario's time, in real numbers
    (smooth mode).

    Raises NoLayout if not even a model of width 512 can be trained.
    """
    real = scenario.smooth
    low = math.log2(NARROWEST)
    high = math.log2(WIDEST)
    best: Point | None = None
    for _ in range(4):
        grid = np.linspace(low, high, SMOOTH_GRID + 1)
        enough = {
            i: p
            for i, p in points_at(real, 2.0**grid).items()
            if p.chips <= chips
        }
        if not enough:
            break
        last = max(enough)
        best = enough[last]
        low = grid[last]
        high = grid[min(last + 1, len(grid) - 1)]
    if best is None:
        time = show(scenario.duration_s, "s")
        raise NoLayout(
            f"{chips:g} chips of {scenario.chip.name} train no model of the law {real.law.name} in"
            f" {time}"
        )
    return best
