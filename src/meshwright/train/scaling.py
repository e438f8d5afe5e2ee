"""Which gradients may be used: a step whose gradients or loss are not finite is skipped, under
every precision.

Dynamic loss scaling for fp16 is part of it: small gradients are lifted into its range, and where
they leave it the scale halves.

The algorithm of torch.amp.GradScaler (Micikevicius et al. 2018, arXiv 1710.03740), which sees one
rank's gradients only: here the decision is made from the norm over all ranks, so it is the same
everywhere under any layout, and the scale is a power of two, so scaling is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..errors import BadInput

Criterion = Callable[[Tensor, Tensor], Tensor]
FIRST = 2.0**16
"""Scale of the first step (GradScaler's default)."""
LEAST = 2.0**-16
MOST = 2.0**40
"""Bounds of the scale; below the least a run is beyond help, above the most a loss of one would
leave fp32 when squared.
"""
GROWTH_STEPS = 2000
"""Steps without an overflow after which the scale doubles (GradScaler's default)."""


class Scaler:
    """The scale of the loss, and the count of skipped updates; the same on every rank."""

    def __init__(
        self, on: bool, first: float = FIRST, growth_steps: int = GROWTH_STEPS
    ) -> None:
        """on: fp16 is trained; else the scale is 1 and stays so."""
        self.on, self.growth_steps = on, growth_steps
        self.scale, self.good, self.skipped = first if on else 1.0, 0, 0
        self.in_a_row = 0
        """Updates skipped since the last good one that a smaller scale would not have saved."""

    def scaled(self, of: Criterion) -> Criterion:
        """The loss that backward passes start from."""
        return (
            (lambda output, target: of(output, target) * self.scale)
            if self.on
            else of
        )

    def update(self, norm: float, loss: float = 0.0) -> bool:
        """Whether the gradients may be used; the scale of the next step.

        norm: of the scaled gradients of all ranks;  loss: of the whole batch, not scaled.
        """
        if not (math.isfinite(norm) and math.isfinite(loss)):
            too_large = self.on and self.scale > 1 and math.isfinite(loss)
            self.in_a_row += not too_large
            self.good, self.skipped = 0, self.skipped + 1
            self.scale = max(self.scale / 2, LEAST) if self.on else self.scale
            return False
        self.in_a_row = 0
        self.good += self.on
        if self.on and self.good >= self.growth_steps:
            self.scale, self.good = min(self.scale * 2, MOST), 0
        return True

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; a scale of 0 says that there was none."""
        return {
            "scale": self.scale if self.on else 0.0,
            "good": self.good,
            "skipped": self.skipped,
        }

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a checkpoint; from one without a scale (of a run in fp32), with the first one.
        BadInput if it is damaged.
        """
        state = state or {"scale": 0.0, "good": 0, "skipped": 0}
        try:
            scale = float(state["scale"])
            good = int(state["good"])
            skipped = int(state["skipped"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(
                "the checkpoint is damaged: it has no right scaler"
            ) from None
        self.skipped = skipped
        if self.on and scale > 0:
            self.scale, self.good = scale, good
