"""A model as a trace of its PyTorch code found it: operations of each kind of layer, for one token.

    x(T) = x T + x_square T^2     of a quantity over a sequence of T tokens (`Amounts`)

Bytes are those of numbers of 16 bits; whoever counts them scales them to the job's precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .fields import Amount, Checked, Count, Name, OneOf, Range


@dataclass(frozen=True)
class TracedOp(Checked):
    """One operation of a layer, or what one module does beside products."""

    name: Name
    """Path of the module in its layer."""
    kind: Annotated[
        str, OneOf("matmul", "experts", "attention", "product", "vector")
    ]
    """matmul: activations by a weight; experts: by the weights of the experts of each token;
    attention: softmax(Q K^T) V; product: other FLOPs that PyTorch's counter knows; vector: the
    rest.
    """
    cut: Annotated[str, OneOf("column", "row", "inside", "whole")] = "whole"
    """Over tp: by columns, by rows, between such a pair, or not at all."""
    inner: Count = 0
    """Features that a weight reads."""
    outer: Count = 0
    """Features that it makes."""
    rows: Amount = 0.0
    """Rows of the product for each token: k of a mixture of experts."""
    copies: Count = 1
    """Weight matrices that share the rows."""
    pieces: Count = 0
    """Heads that a column matrix makes, where ranks beyond so many hold copies; 0 = any cut."""
    reads: Annotated[int, Range(0, 1e9)] = 0
    """Number of the tensor it reads in its layer: matrices that read the same gather it once."""
    keeps: bool = True
    """Its input is kept for the backward pass here, not by an operation before it."""
    weights: Amount = 0.0
    """Parameters, of all copies."""
    heads: Count = 0
    """Query heads of attention."""
    kv_heads: Count = 0
    query: Count = 0
    """Width of a query head."""
    value: Count = 0
    """Width of a value head."""
    window: Count = 0
    """Keys that a query sees at most; 0 = all."""
    keys: Amount = 1.0
    """Keys for each token: more than 1 where a summary of the sequence stands beside it."""
    flops: Amount = 0.0
    """FLOPs of a product, or elements that a vector operation makes, for each token."""
    flops_square: Amount = 0.0
    """The same for each pair of tokens."""
    moved: Amount = 0.0
    """Bytes read and written, for each token."""
    moved_square: Amount = 0.0
    saved: Amount = 0.0
    """Bytes that autograd keeps, for each token."""
    saved_square: Amount = 0.0


@dataclass(frozen=True)
class TracedLayer(Checked):
    """One kind of layer: its operations in forward order."""

    ops: tuple[TracedOp, ...]
    experts: bool = False
    """It has routed experts."""


@dataclass(frozen=True)
class Traced(Checked):
    """The layers of a traced model, and what stands before and after them."""

    kinds: tuple[TracedLayer, ...]
    order: tuple[Count, ...]
    """Position in `kinds` of each layer."""
    before: tuple[TracedOp, ...] = ()
    """Beside the embedding of tokens."""
    after: tuple[TracedOp, ...] = ()
    """Beside the matrix of logits and the loss."""
    states: bool = False
    """Products that mix tokens and are no attention: context parallelism has no rule for them."""

    def conflict(self) -> str:
        """Each layer has a kind."""
        if any(kind >= len(self.kinds) for kind in self.order):
            return f"order names a kind beyond the {len(self.kinds)} that there are"
        return ""
