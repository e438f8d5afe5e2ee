"""What an implementation of the loss holds and moves: cross entropy of logits, whose bytes differ
by a factor of ten between one kernel and a chain of copies in fp32.

The data lie in catalog/losses.toml, counted in the code that each of them names; a framework
(`Framework.loss`) or a job (`Software.loss`) names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from ..num import Num, ceil, log2, minimum, where
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
    weight_held: Annotated[Bytes, FROM_0] = 0.0
    """For each element of the head's weight: its gradient, where logits come in pieces (`piece`);
    0: they do not."""
    weight_forward: Annotated[Bytes, FROM_0] = 0.0
    """Read and written in each piece to add that gradient up."""
    scaled: Annotated[Bytes, FROM_0] = 0.0
    """Read and written in the backward pass for each element of the gradients of the head's weight
    and input, which are there by then."""
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

    @property
    def in_pieces(self) -> bool:
        """Logits are made, lost and multiplied some rows at a time."""
        return self.weight_held > 0.0

    def whole(
        self, tokens: Num, rows: Num, width: Num, tp: Num
    ) -> tuple[Num, Num, Num]:
        """(held, forward, backward) bytes of tokens x rows logits of a head that is width wide. In
        pieces, the logits of one are there, and the gradients of the head's input and weight.
        """
        held, forward, backward = (
            tokens * rows * each for each in self.over(tp)
        )
        if not self.in_pieces:
            return held, forward, backward
        at_once = piece(tokens, rows, width)
        weight, input_ = rows * width, tokens * width
        return (
            held * (at_once / tokens)
            + input_ * self.held
            + weight * self.weight_held,
            forward + weight * self.weight_forward * ceil(tokens / at_once),
            backward + (weight + input_) * self.scaled,
        )


def piece(tokens: Num, rows: Num, width: Num) -> Num:
    """Tokens whose logits are made at once, so that they take about as much as the input of the
    head: with c = ceil(rows / width) that many times wider, the power of two that holds tokens / c.
    At most all of them.
    Source: linkedin/Liger-Kernel@ead96b61, ops/fused_linear_cross_entropy.py, chunk_size.
    """
    wider = ceil(rows / width)
    size = 2.0 ** ceil(log2(ceil(tokens / wider)))
    return minimum(size, tokens)


@cache
def losses() -> dict[str, LossBytes]:
    """name -> bytes, all of the catalogue."""
    file = shipped.shipped_table("losses.toml")
    return {
        name: read(LossBytes, {"name": name, **table}, f"loss {name}")
        for name, table in file.items()
    }
