"""What an implementation of the loss holds and moves: cross entropy of logits, whose bytes differ
by a factor of ten between one kernel and a chain of copies in fp32.

The data lie in catalog/losses.toml, counted in the code that each of them names; a framework
(`Framework.loss`) or a job (`Software.loss`) names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from ..num import Num, ceil, log2, maximum, minimum, where
from . import shipped
from .fields import FROM_0, Bytes, Checked, Name, Range, Sources, origins
from .frozen import short_repr
from .read import read

Each = Annotated[Bytes, FROM_0]
"""For each logit of a tp rank."""


@dataclass(frozen=True)
class LossBytes(Checked):
    """Bytes of one logit; `_tp`: where the vocabulary is cut over tp, None = the same."""

    name: Name
    held: Each
    """At the peak, from the logits to the gradient of the head's input; of a loss in pieces, for
    each logit of the piece that is at work."""
    forward: Each
    """Read and written after the product that makes the logits."""
    backward: Each
    """Read and written before the products that take their gradient."""
    pieces: Annotated[float, FROM_0] = 1.0
    """The logits are made, lost and multiplied in so many pieces of their rows; 0: in pieces as
    large as the head's input (`piece`)."""
    kept: Each = 0.0
    """Of all logits, until the backward pass of their piece."""
    input_held: Each = 0.0
    """For each element of the head's input, beside the input and its gradient."""
    weight_held: Each = 0.0
    """For each element of the head's weight, from the second piece on: what its gradient is added
    up in."""
    weight_forward: Each = 0.0
    """Read and written in each piece to add that gradient up, in the forward pass."""
    weight_backward: Each = 0.0
    """The same in the backward pass, in each piece after the first."""
    scaled: Each = 0.0
    """Read and written in the backward pass for each element of the gradients of the head's weight
    and input, which are there by then."""
    again: Annotated[float, Range(0, 1)] = 0.0
    """Products of the head that run again in the backward pass, since no logit was kept."""
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

    def at_once(self, tokens: Num, rows: Num, width: Num) -> Num:
        """Tokens whose logits are there at once; tensors are split as evenly as can be."""
        if not self.pieces:
            return piece(tokens, rows, width)
        return tokens if self.pieces == 1.0 else ceil(tokens / self.pieces)

    def gradients(self, tokens: Num, rows: Num, width: Num) -> Num:
        """Gradients of logits in memory when that of the head's input is made: of a piece; none
        where the head's products run in the forward pass, or in the kernel of the loss.
        """
        if self.again or self.weight_forward:
            return 0.0
        return self.at_once(tokens, rows, width) * rows

    def whole(
        self, tokens: Num, rows: Num, width: Num, tp: Num
    ) -> tuple[Num, Num, Num]:
        """(held, forward, backward) bytes of tokens x rows logits of a head that is width wide.

        Held: a piece at work beside what is kept of all; or, where that is more, the second piece,
        beside the others and what adds up the weight's gradient.
        """
        held, forward, backward = self.over(tp)
        at_once = self.at_once(tokens, rows, width)
        number = ceil(tokens / at_once)
        weight, input_ = rows * width, tokens * width
        first = rows * at_once * held
        second = first - rows * at_once * self.kept + weight * self.weight_held
        return (
            tokens * rows * self.kept
            + maximum(first, second)
            + input_ * self.input_held,
            tokens * rows * forward + weight * self.weight_forward * number,
            tokens * rows * backward
            + weight * self.weight_backward * (number - 1.0)
            + (weight + input_) * self.scaled,
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
