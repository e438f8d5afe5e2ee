"""What one layer asks of one chip: FLOPs, weights, collectives; counted by `count`, at four levels of detail.

book         two matrices W_in[D, F] and W_out[F, D]; gate and attention ignored (a mixture: its k of E experts)
mlp          the model's own feed-forward, gate, router and shared experts included
projections  and the attention matrices, with the second all-gather and reduce-scatter they bring
block        and the attention scores: the whole layer
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..count.model import groups
from ..count.model import layer as operations
from ..count.work import Message, Op
from ..describe.assumptions import BOOK_SUM, Assumptions
from ..describe.chip import Chip
from ..describe.cluster import Cluster
from ..describe.job import PRECISIONS, Job, Precision
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.network import Dim, Network
from ..errors import unknown
from ..num import Num

LAYERS = ("book", "mlp", "projections", "block")
MATRICES = ("ffn/up", "ffn/down", "experts/up", "experts/down")
"""The operations of the book's layer."""
NOWHERE = Cluster(Chip("", {"bf16": 1.0}, 1.0, 1.0, 1.0), Network("", (Dim("", 1.0, 0.0),)), 1)
"""Work does not depend on where it is done."""


class Work(NamedTuple):
    """One layer, one pass over `tokens` tokens, on one chip."""

    forward: Num
    """FLOPs on the matrix units."""
    backward: Num
    weights: Num
    """Parameters of its matrices on this chip, before data-parallel sharding."""
    sends: tuple[Message, ...]
    """Collectives of the forward pass over tp, ep and cp."""
    returns: tuple[Message, ...]
    """Those of the backward pass."""


class Layer(NamedTuple):
    """One layer of the whole model, by token: all that thresholds depend on."""

    flops: float
    """Forward FLOPs of a token; the book's 4 D F."""
    weight_bytes: float
    """Bytes gathered for one pass; the book's 4 D F."""
    activation_bytes: float
    """Bytes a token brings to the tensor-parallel collectives of the forward pass; the book's 4 D."""

    @property
    def width(self) -> float:
        """F, the effective feed-forward width: FLOPs per byte of activations."""
        return self.flops / self.activation_bytes

    @property
    def density(self) -> float:
        """Bytes of weights for each FLOP of a token: 1 in bf16, 1/2 in int8, E/k for a mixture of experts."""
        return self.weight_bytes / self.flops


def work(
    model: Model, tokens: Num, tp: Num = 1, *, layer: str = "book", ep: Num = 1, cp: Num = 1,
    precision: Precision = PRECISIONS["bf16-pure"], assumptions: Assumptions = BOOK_SUM, seq: int = 0,
) -> Work:  # fmt: skip
    """Counts of one layer (of the kind that most layers are) for `tokens` tokens of one data-parallel shard.

    tp: tensor-parallel degree, of experts too;  ep, cp: expert- and context-parallel degrees.  Raises BadInput for an
    unknown layer.
    """
    if layer not in LAYERS:
        raise unknown("layer", layer, LAYERS)
    if layer == "book":
        model = replace(model, gated=False, moe=model.moe and replace(model.moe, shared_ffn=0))
    job = Job(model, NOWHERE, 1, seq=seq, precision=precision, assumptions=assumptions)
    layout = Layout(tp=tp, cp=cp, ep=ep, etp=tp if model.moe else 1, microbatch=tokens / job.T * cp)
    kind = max(groups(model)[1], key=lambda known: known[1])[0]
    ops = [op for op in operations(job, layout, kind) if layer in ("projections", "block") or feeds(op)]
    counted = [op for op in ops if counts(op, layer)]
    return Work(
        sum(op.forward.matrix for op in counted),
        sum(op.backward.matrix for op in counted),
        sum(op.weights for op in counted),
        tuple(m for op in ops for m in op.forward.comm),
        tuple(m for op in ops for m in op.backward.comm),
    )


def feeds(op: Op) -> bool:
    """Belongs to the feed-forward half of a layer."""
    return not op.name.startswith("attention/")


def counts(op: Op, layer: str) -> bool:
    """Its FLOPs and weights count at this level of detail."""
    if layer == "book":
        return op.name in MATRICES
    return op.kind == "matmul" or (op.kind == "attention" and layer == "block")


def per_token(
    model: Model,
    layer: str = "book",
    precision: Precision = PRECISIONS["bf16-pure"],
    assumptions: Assumptions = BOOK_SUM,
) -> Layer:
    """The layer as thresholds see it."""
    one = work(model, 1.0, layer=layer, precision=precision, assumptions=assumptions)
    sent = sum(float(m.bytes) for m in one.sends if m.axis in ("tp", "etp"))
    return Layer(float(one.forward), float(one.weights) * precision.gather_bytes, sent)
