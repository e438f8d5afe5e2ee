"""Where linear scaling ends: the sizes of training at which utilisation falls below a threshold.

Utilisation is jagged, because chips come in doublings and widths on a grid: it crosses the
threshold several times. So two ends are given: the first model at or below it, as the paper tells
it, and the last crossing, interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Crossing:
    """Training FLOPs at which linear scaling ends; None = it does not, on this curve."""

    threshold: float
    first_flops: float | None
    """The first model at or below the threshold (the paper's rule)."""
    last_flops: float | None
    """The last time utilisation falls through the threshold, between two models: log T goes with
    utilisation.
    """
    never: bool
    """No model is above the threshold."""

    @property
    def flops(self) -> float | None:
        """Both ends in one: the last, else the first; None where there is none, or no beginning."""
        return None if self.never else self.last_flops or self.first_flops

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def crossing(
    flops: Sequence[float], utilisation: Sequence[float], threshold: float
) -> Crossing:
    """The two ends of linear scaling on a curve. flops: ascending, with the utilisation at each."""
    above = [u > threshold for u in utilisation]
    first = next(
        (t for t, high in zip(flops, above, strict=True) if not high), None
    )
    last = None
    for i in range(len(flops) - 1):
        if above[i] and not above[i + 1]:
            share = (utilisation[i] - threshold) / (
                utilisation[i] - utilisation[i + 1]
            )
            last = math.exp(
                math.log(flops[i]) + share * math.log(flops[i + 1] / flops[i])
            )
    return Crossing(threshold, first, last, bool(flops) and not any(above))


@dataclass(frozen=True)
class Run:
    """A whole training run on the smallest cluster that does it in time."""

    flops: float
    parameters: float
    batch_tokens: float
    chips: float
    utilisation: float
    """FLOPs of the model over what the chips could have done at their boost clock in the whole
    time, failures included."""
    duration_s: float

    def to_dict(self) -> dict[str, Any]:
        """SI units, keys that end in their unit."""
        return {f.name: getattr(self, f.name) for f in fields(Run)}


class Line:
    """Utilisation against training compute."""

    points: tuple[Run, ...]
    threshold: float

    @property
    def crossing(self) -> Crossing:
        """The two ends of linear scaling."""
        return crossing(
            [p.flops for p in self.points],
            [p.utilisation for p in self.points],
            self.threshold,
        )

    def to_dict(self) -> dict[str, Any]:
        """SI units, keys that end in their unit."""
        return {
            "threshold": self.threshold,
            "crossing": self.crossing.to_dict(),
            "points": [p.to_dict() for p in self.points],
        }
