"""What an implementation of the loss holds and moves: cross entropy of logits, whose bytes differ
by a factor of ten between one kernel and a chain of copies in fp32.

The data lie in catalog/losses.toml, counted in the code that each of them names; a framework
(`Framework.loss`) or a job (`Software.loss`) names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from ..num import Num, where
from . import shipped
from .fields import FROM_0, Bytes, Checked, Name, Sources, origins
from .frozen import short_repr
from .read import read

Each = Annotated[Bytes, FROM_0]
"""For each logit of a tp rank."""


@dataclass(frozen=True)
class LossBytes(Checked):
    """Bytes of one logit; `_tp`: where the vocabulary is cut over tp, None = the same."""

    name: Name
    held: Each
    """At the peak, from the logits to the gradient of the head's input."""
    forward: Each
    """Read and written after the product that makes the logits."""
    backward: Each
    """Read and written before the products that take their gradient."""
    held_tp: Each | None = None
    forward_tp: Each | None = None
    backward_tp: Each | None = None
    sources: Sources = origins()

    __repr__ = short_repr

    def over(self, tp: Num) -> tuple[Num, Num, Num]:
        """(held, forward, backward) with tp ranks."""
        alone = self.held, self.forward, self.backward
        cut = self.held_tp, self.forward_tp, self.backward_tp
        held, forward, backward = (
            one if many is None else where(tp > 1, many, one)
            for one, many in zip(alone, cut, strict=True)
        )
        return held, forward, backward


@cache
def losses() -> dict[str, LossBytes]:
    """name -> bytes, all of the catalogue."""
    file = shipped.shipped_table("losses.toml")
    return {
        name: read(LossBytes, {"name": name, **table}, f"loss {name}")
        for name, table in file.items()
    }
