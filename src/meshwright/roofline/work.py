"""What one layer asks of one chip: operations, weights, collectives; counted by `count`, at four
levels of detail.

book         two matrices W_in[D, F] and W_out[F, D]; gate and attention
             ignored (a mixture: its k of E experts)
mlp          the model's own feed-forward, gate, router and shared experts included
projections  and the attention matrices, with the second all-gather and reduce-scatter they bring
block        and the attention scores: the whole layer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ..count.model import kind_counts
from ..count.model import layer as operations
from ..count.work import Op, Pass
from ..describe.assumptions import BOOK_SUM, Assumptions
from ..describe.cluster import NOWHERE
from ..describe.frozen import FrozenDict, with_values
from ..describe.job import PRECISIONS, Job, Precision
from ..describe.layers import Kind
from ..describe.layout import Layout
from ..describe.model import Model
from ..errors import unknown
from ..num import Num
from .mesh import Ranks

LAYERS = ("book", "mlp", "projections", "block")
SCORES = "scores"
"""The attention scores alone."""
MATRICES = ("ffn/up", "ffn/down", "experts/up", "experts/down")
"""The operations of the book's layer."""
PRODUCTS = ("matmul", "attention")
"""Kinds of operations whose weights are gathered and reduced; norms and biases are too small to
count.
"""
TENSOR = ("tp", "etp")
"""Mesh axes of messages that the tensor-parallel group carries."""
ONCE = 1 + 1e-9
"""Rounding must not make one microbatch look like several."""


class Layer(NamedTuple):
    """One layer of the whole model, by token: all that thresholds depend on."""

    flops: float
    """Forward FLOPs of a token; the book's 4 D F."""
    weight_bytes: float
    """Bytes gathered for one pass; the book's 4 D F."""
    activation_bytes: float
    """Bytes a token brings to the tensor-parallel collectives of the forward pass; the book's 4
    D.
    """

    @property
    def width(self) -> float:
        """F, the effective feed-forward width: FLOPs per byte of activations."""
        return self.flops / self.activation_bytes

    @property
    def density(self) -> float:
        """Bytes of weights for each FLOP of a token: 1 in bf16, 1/2 in int8, E/k for a mixture of
        experts.
        """
        return self.weight_bytes / self.flops


@dataclass(frozen=True)
class On(Layout):
    """A layout whose groups lie where they are told."""

    groups: Mapping[str, Ranks] = FrozenDict()

    def group(self, axis: str) -> Ranks:
        return self.groups[axis]


UNCUT = On()


@dataclass(frozen=True)
class LayerSetting:
    """One layer of a model (of the kind that most are), and what counts of it. BadInput for an
    unknown level of detail.
    """

    model: Model
    layer: str = "book"
    precision: Precision = PRECISIONS["bf16-pure"]
    assumptions: Assumptions = BOOK_SUM
    seq: int = 0

    def __post_init__(self) -> None:
        if self.layer not in (*LAYERS, SCORES):
            raise unknown("layer", self.layer, LAYERS)

    @cached_property
    def job(self) -> Job:
        """The layer's job: one sequence, nowhere."""
        model = self.model
        if self.layer == "book":
            model = replace(
                model,
                gated=False,
                moe=model.moe and replace(model.moe, shared_ffn=0),
            )
        return Job(
            model,
            NOWHERE,
            1,
            seq=self.seq,
            precision=self.precision,
            assumptions=self.assumptions,
        )

    @cached_property
    def kind(self) -> Kind:
        """The kind of layer that most are."""
        return max(kind_counts(self.job.model)[1], key=lambda known: known[1])[
            0
        ]

    @cached_property
    def per_token(self) -> Layer:
        """The layer as thresholds see it."""
        ops = self.ops(self.on(1.0))
        sent = sum(
            float(m.bytes)
            for op in ops
            for m in op.forward.comm
            if m.axis in TENSOR
        )
        weights = sum(float(op.weights) for op in ops)
        return Layer(
            sum(float(op.forward.matrix) for op in ops),
            weights * self.precision.gather_bytes,
            sent,
        )

    def on(
        self,
        tokens: Num,
        microbatches: int = 1,
        groups: Mapping[str, Ranks] = FrozenDict(),
        **degrees: Num,
    ) -> On:
        """A layout that gives each chip `tokens` tokens of a microbatch.  degrees: of tp (of
        experts too), cp, ep and pp.
        """
        sequences = tokens / self.job.T * degrees.get("cp", 1)
        # thousands of layouts a roofline: no check of each, a sixth of its seconds
        return with_values(
            UNCUT,
            **degrees,
            dp=ONCE / (microbatches * sequences),
            etp=degrees.get("tp", 1) if self.model.moe else 1,
            microbatch=sequences,
            groups=groups,
        )

    def ops(self, layout: Layout) -> list[Op]:
        """The operations of the layer on one chip, as far as they count."""
        ops = operations(self.job, layout, self.kind)
        if self.layer == SCORES:
            return [op for op in ops if op.kind == "attention"]
        whole = self.layer in ("projections", "block")
        return [self._counted(op) for op in ops if whole or feeds(op)]

    def _counted(self, op: Op) -> Op:
        """The operation with what counts of it at this level of detail; its messages always do."""
        if not op_counts(op, self.layer):
            op = op._replace(
                forward=Pass(comm=op.forward.comm),
                backward=Pass(comm=op.backward.comm),
                weights=0.0,
            )
        return op if op.kind in PRODUCTS else op._replace(weights=0.0)


def feeds(op: Op) -> bool:
    """Belongs to the feed-forward half of a layer."""
    return not op.name.startswith("attention/")


def op_counts(op: Op, layer: str) -> bool:
    """Whether an operation's time and weights count at this level of detail."""
    if layer == "book":
        return op.name in MATRICES
    return layer in ("mlp", "block") or feeds(op) or op.kind == "matmul"
