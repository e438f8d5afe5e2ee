"""One's own installation: a scale from a few measured steps.

What kernels, collectives and software leave unexplained is mostly common to all runs of one
machine: of published runs one constant a source halves the error. The scale is the median of
measured over predicted, drawn towards 1 as if one more step had come out as predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import BadInput

LEAST = 3
"""Measured steps that a scale needs."""
PRIOR = 1.0
"""Steps that came out as predicted, which the scale starts from."""


def scale(ratios: Sequence[float]) -> float:
    """The scale from measured over predicted of some steps."""
    ordered = sorted(math.log(ratio) for ratio in ratios)
    middle = (
        ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]
    ) / 2
    return math.exp(middle * len(ordered) / (len(ordered) + PRIOR))


def spread(ratios: Sequence[float]) -> float:
    """Largest logarithm of one step over the scaled prediction: how far they disagree."""
    centre = math.log(scale(ratios))
    return max(abs(math.log(ratio) - centre) for ratio in ratios)


def demand_enough(ratios: Sequence[float]) -> None:
    """BadInput for fewer steps than a scale needs."""
    if len(ratios) < LEAST:
        raise BadInput(
            f"a scale needs at least {LEAST} measured steps, not {len(ratios)}"
        )
