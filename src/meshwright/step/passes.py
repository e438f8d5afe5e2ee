"""One microbatch on the devices of a pipeline: both its passes on each that may be the slowest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import add, mul
from typing import NamedTuple

from ..cost.load import NOTHING, Busy, Load
from ..num import Num, sum_of
from ..schedule.stage_costs import StageCosts
from .microbatch import ModelCost
from .shares import ModelShare


class Passes(NamedTuple):
    """Both passes of a microbatch on one device."""

    forward: Num
    """Seconds."""
    backward: Num
    sent: Load
    """What the forward pass sends itself, on links that synchronisation may share."""
    sent_back: Load
    """What the backward pass sends."""

    @property
    def work(self) -> Num:
        """Seconds of both."""
        return self.forward + self.backward

    def __add__(self, other: Passes) -> Passes:  # type: ignore[override]
        return Passes(*map(add, self, other))

    def __mul__(self, times: Num) -> Passes:  # type: ignore[override]
        return Passes(*map(mul, self, repeat(times)))


NO_PASSES = Passes(0.0, 0.0, NOTHING, NOTHING)


class DevicePasses(NamedTuple):
    """What one device of the pipeline works on a microbatch."""

    whole: Passes
    """Of all that it holds."""
    first: Passes
    """Of the one layer whose weights arrive first and whose gradients leave last."""


def device_passes(
    cost: ModelCost, shares: Iterable[ModelShare]
) -> tuple[DevicePasses, ...]:
    """Of devices that hold these shares of the model."""
    every = [
        Passes(part.forward, part.backward, part.sent, part.sent_back)
        for part in cost.parts
    ]
    return tuple(
        DevicePasses(
            share.total(every, NO_PASSES),
            sum_of(zip(share.first_layer, every, strict=False), NO_PASSES),
        )
        for share in shares
    )


class Microbatch(NamedTuple):
    """One microbatch on the devices of a pipeline, with what they compute again, whatever the order
    of its schedule and the ZeRO stage.
    """

    devices: tuple[DevicePasses, ...]
    stages: StageCosts
    sent: Busy
    """Seconds each dimension is busy with what a rank sends of one microbatch through one chunk,
    forward and backward."""
