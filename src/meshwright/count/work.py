"""What one operation of a layer does on one device for one microbatch: the unit every count is made
of.
"""

from __future__ import annotations

from typing import NamedTuple

from ..exchange.types import Message
from ..num import Num

SUMMED = "gradient sum"
"""Kernel that adds a gradient to that of earlier microbatches: it moves what it is said to,
whatever else a framework fuses."""
LOSS = "loss"
"""Kernels of a framework's loss: they move what its code says (`describe.loss`)."""


class Product(NamedTuple):
    """One matrix product: y[out, tokens] = W[out, inner] x[inner, tokens], or the gradient of such
    a W.
    """

    out: Num
    inner: Num
    tokens: Num
    weight_gradient: bool = False
    """dW[out, inner] = dy[out, tokens] x[inner, tokens]^T."""
    copies: Num = 1.0
    """Weight matrices that share the tokens evenly (experts)."""
    backward: bool = False
    """It makes a gradient, of weights or of an input."""
    ready: bool = False
    """What it reads was quantised by the kernel that made it."""
    parts: Num = 1.0
    """Ranks of which each quantises a part of what it reads, before they gather it."""
    sums: Num = 0.0
    """Bytes of sums in fp32 that it adds dW to; of experts 0, for the law of grouped products was
    measured with them (`Kernels.crowd_weights`)."""


class Pass(NamedTuple):
    """The forward or the backward half of an operation."""

    matrix: Num = 0.0
    """FLOPs on the matrix units."""
    vector: Num = 0.0
    """FLOPs on the vector units."""
    memory: Num = 0.0
    """Bytes read and written in HBM."""
    comm: tuple[Message, ...] = ()
    products: tuple[Product, ...] = ()
    """The matrix products by their shapes, for chip models that need more than FLOPs and bytes."""
    engine: str = "matrix"
    """What the matrix FLOPs run on: "matrix" in the job's precision, "wide" in 16 bits (logits),
    "attention forward" or "attention backward", the fused kernel (16 bits too)."""
    kernel: str = ""
    """What it is called in measured tables (`Chip.kernels`); "" = it has none, or runs inside
    another one.
    """
    sizes: tuple[Num, ...] = ()
    """Its sizes there, of one call."""
    calls: Num = 1.0
    """Calls of the kernel, as engines without fused matrices make them (queries, keys and values:
    3).
    """
    parts: tuple[Pass, ...] = ()
    """Kernels that make up this pass one after the other, each with its own roofline (the gradients
    of input and weights); empty: it is one kernel. FLOPs and bytes above are those of all of
    them.
    """
    keys: Num = 0.0
    """Of attention: keys that a query reads on average."""


class Op(NamedTuple):
    """One operation: both passes, what it keeps for the backward pass, and its weights."""

    name: str
    """A path such as attention/qkv."""
    kind: str
    """matmul, attention, vector, lookup."""
    forward: Pass
    backward: Pass
    saved: Num = 0.0
    """Bytes kept from the forward to the backward pass."""
    weights: Num = 0.0
    """Parameters on this device."""
    expert: bool = False
    """The weights are an expert's: replicated over edp, not over replicas."""
    panels: Num = 0.0
    """SUMMA panels; 0 = communication is not cut into panels."""
    selective: bool = False
    """What it keeps inside is worth recomputing by itself."""
    inputs: Num = 0.0
    """Of `saved`, the results of operations before it."""
    needs: Num | None = None
    """Bytes it must have to run again (None: `inputs`)."""
    source: str = ""
    """The operation whose result they are; "" = the one before it."""
    columns: tuple[Num, ...] = ()
    """Widths of matrices that stand side by side in it, where they are several."""
    scratch: Num = 0.0
    """Bytes that live during its backward pass only, beside the gradients of its inputs."""

    @property
    def needed(self) -> Num:
        """Bytes it must have to run again."""
        return self.inputs if self.needs is None else self.needs


def fed(work: Pass) -> Pass:
    """A product whose input the kernel before it quantised."""
    return work._replace(
        products=tuple(p._replace(ready=True) for p in work.products),
        parts=tuple(map(fed, work.parts)),
    )


def also_sent(
    op: Op,
    result: tuple[Message, ...] = (),
    gradient: tuple[Message, ...] = (),
) -> Op:
    """An operation with further messages: of its result (last forward, and the same first in
    backward), and of the gradient of its input (last in backward).
    """
    forward = (*op.forward.comm, *result)
    backward = (*result, *op.backward.comm, *gradient)
    return op._replace(
        forward=op.forward._replace(comm=forward),
        backward=op.backward._replace(comm=backward),
    )
