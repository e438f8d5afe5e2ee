"""Seconds by cause: of one pass of an operation, and of both passes of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add, mul
from typing import NamedTuple

from ..num import Num, total
from .load import NOTHING, Load

CAUSE_OF = {
    **dict.fromkeys(("tp", "tp_model", "tp_ff"), "tp_comm"),
    "cp": "cp_comm",
    **dict.fromkeys(("ep", "etp"), "ep_comm"),
}
"""Axis of a message -> the cause that its seconds are counted under."""


class Seconds(NamedTuple):
    """Seconds by cause; adds and scales like a number."""

    compute: Num = 0.0
    memory: Num = 0.0
    """Memory traffic that outlasts the arithmetic."""
    tp_comm: Num = 0.0
    cp_comm: Num = 0.0
    ep_comm: Num = 0.0
    host: Num = 0.0
    """By which launching the kernels outlasts them."""
    overlap_slowdown: Num = 0.0
    """By which compute is slower while communication hides behind it."""

    def __add__(self, other: Seconds) -> Seconds:  # type: ignore[override]
        return Seconds(*map(add, self, other))

    def __mul__(self, factor: Num) -> Seconds:  # type: ignore[override]
        return Seconds(*map(mul, self, repeat(factor)))

    def __rmul__(self, factor: Num) -> Seconds:  # type: ignore[override]
        return self * factor

    @property
    def total(self) -> Num:
        """Seconds of the causes together."""
        return total(self)


CAUSES = Seconds._fields


class Causes(NamedTuple):
    """Seconds of both passes by cause; adds and scales like a number."""

    forward: Seconds = Seconds()
    backward: Seconds = Seconds()

    @property
    def both(self) -> Seconds:
        """One after the other."""
        return self.forward + self.backward

    def __add__(self, other: Causes) -> Causes:  # type: ignore[override]
        return Causes(
            self.forward + other.forward, self.backward + other.backward
        )

    def __mul__(self, factor: Num) -> Causes:  # type: ignore[override]
        return Causes(self.forward * factor, self.backward * factor)


NO_CAUSES = Causes()
"""Where only totals matter."""


class PassCost(NamedTuple):
    """One pass, forward or backward, of one operation."""

    part: str
    """The part of a layer it belongs to: the first word of its path, such as attention."""
    time: Seconds
    """Nothing hidden yet, but for SUMMA's panels."""
    sent: Load
    weights: Num = 0.0
    """Seconds of the product that makes weight gradients."""
    launched: Num = 0.0
    """Collectives that the host launches: those of one rank are none."""

    def share(self, share: Num) -> PassCost:
        """Time and messages of a share of it, from 0 to 1."""
        whole = isinstance(share, float) and share == 1.0
        return (
            self
            if whole
            else PassCost(self.part, self.time * share, self.sent * share)
        )


def sent_load(costs: Sequence[PassCost]) -> Load:
    """What several operations send."""
    return sum((cost.sent for cost in costs if cost.sent.busy), NOTHING)


def is_zero(number: Num) -> bool:
    """Nothing, in any row: the plain number 0, as it is of what does not happen (an array is not
    looked at)."""
    return isinstance(number, float) and number == 0.0
