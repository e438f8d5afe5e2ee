"""Seconds of one layer under a scheme: compute, data-parallel and tensor-parallel collectives, forward and backward.

    scheme   forward                             backward
    DP       -                                   all-reduce of weight gradients
    FSDP     all-gather of weights               all-gather of weights, reduce-scatter of gradients
    TP       all-gather in, reduce-scatter out   all-gather dout, reduce-scatter din

Mixed schemes have both rows at once. DP and FSDP traffic is off the critical path, TP traffic is on it: its hiding is
a bound. Source: How To Scale Your Model, part 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..cost import overlap
from ..count.work import Message
from ..describe.assumptions import BOOK_SUM, Assumptions
from ..describe.job import PRECISIONS, Precision
from ..describe.model import Model
from ..num import Num, maximum, where
from .mesh import Mesh, Placed, loads
from .work import Work, work

TENSOR = ("tp", "etp")
"""Mesh axes of messages that the tensor-parallel group carries."""
POLICIES = {"sum": "none", "max": "full"}
"""edition of the book -> `Overlap.axes`."""


@dataclass(frozen=True)
class Times:
    """Seconds of one pass of one layer."""

    compute: Num
    data: tuple[Num, ...]
    """Seconds that data-parallel collectives keep each network dimension busy."""
    tensor: tuple[Num, ...]

    def comm(self, edition: str) -> Num:
        """All communication: `sum`, one mesh axis after the other; `max`, beside each other on disjoint links."""
        return overlap.mesh((self.data, self.tensor), POLICIES[edition])

    def ratio(self, edition: str) -> Num:
        """T_math/T_comms; infinite without communication."""
        comm = self.comm(edition)
        return where(comm > 0, self.compute / maximum(comm, 1e-300), float("inf"))

    @property
    def data_s(self) -> Num:
        return overlap.mesh((self.data,), "none")

    @property
    def tensor_s(self) -> Num:
        return overlap.mesh((self.tensor,), "none")


@dataclass(frozen=True)
class Setting:
    """What stays the same while splits and batches change."""

    model: Model
    layer: str = "book"
    precision: Precision = PRECISIONS["bf16-pure"]
    assumptions: Assumptions = BOOK_SUM
    seq: int = 0

    def work(self, tokens: Num, tp: Num = 1, ep: Num = 1, cp: Num = 1) -> Work:
        """Counts of one layer for `tokens` tokens of a data-parallel shard."""
        return work(
            self.model, tokens, tp, layer=self.layer, ep=ep, cp=cp,
            precision=self.precision, assumptions=self.assumptions, seq=self.seq,
        )  # fmt: skip


def weights_forward(setting: Setting, weights: Num, zero: int) -> tuple[Message, ...]:
    """Data-parallel collectives of the forward pass: FSDP (zero = 3) gathers the weights, DP does nothing."""
    gather = Message("all_gather", "replicas", weights * setting.precision.gather_bytes)
    return (gather,) if zero == 3 else ()


def weights_backward(setting: Setting, weights: Num, zero: int) -> tuple[Message, ...]:
    """Those of the backward pass: gather again and reduce-scatter the gradients, or all-reduce them."""
    size = weights * setting.precision.gradient_bytes
    if zero == 3:
        return (*weights_forward(setting, weights, zero), Message("reduce_scatter", "replicas", size))
    return (Message("all_reduce", "replicas", size),)


def forward(setting: Setting, mesh: Mesh, batch: Num, data: Placed, tensor: Placed, zero: int = 3) -> Times:
    """The forward pass of `batch` tokens on data.n x tensor.n chips."""
    one = setting.work(batch / data.n, tensor.n)
    return _times(mesh, one.forward, weights_forward(setting, one.weights, zero), one.sends, data, tensor)


def backward(setting: Setting, mesh: Mesh, batch: Num, data: Placed, tensor: Placed, zero: int = 3) -> Times:
    """The backward pass."""
    one = setting.work(batch / data.n, tensor.n)
    return _times(mesh, one.backward, weights_backward(setting, one.weights, zero), one.returns, data, tensor)


def _times(
    mesh: Mesh, flops: Num, weights: Sequence[Message], others: Sequence[Message], data: Placed, tensor: Placed
) -> Times:
    mine = [m for m in others if m.axis in TENSOR]
    return Times(flops / mesh.flops, _loads(mesh, weights, data, 0), _loads(mesh, mine, tensor, 1))


def _loads(mesh: Mesh, messages: Iterable[Message], placed: Placed, slot: int) -> tuple[Num, ...]:
    """Collectives of one mesh axis, one after the other."""
    width = max(len(mesh.dims), 2)
    total: list[Num] = [0.0] * (width + 2)
    for message in messages:
        total = [a + b for a, b in zip(total, loads(message, placed, slot, width, mesh.whole), strict=True)]
    return tuple(total)
