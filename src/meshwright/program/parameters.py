"""The parameters of a rank of the trainer by name and shape, in the units that are gathered and
reduced together.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..count.blocks import NORM_PARAMETERS
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import Model, MoE
from ..step.zero import is_sharded
from .order import Stage

EMBEDDING = "embedding"

HEAD = "head"

BOTH = "embedding and head"
"""Units of a stage beside its layers."""

Shapes = dict[str, tuple[Any, ...]]
"""Name of a parameter -> its shape on one tp rank, before sharding over the replicas."""


def layer_shapes(job: Job, moe: bool) -> Shapes:
    """Parameters of one layer without its experts, in the order of its modules: column-parallel
    matrices are cut by rows (outputs), row-parallel ones by columns.  moe: it has experts.
    """
    m = job.model
    tp = job.layout.tp
    D, wide, narrow = m.hidden, m.heads * m.h // tp, m.K * m.h // tp
    of_heads: Shapes = {
        f"attention.{name}_norm.weight": (m.h,) for name in "qk" if m.qk_norm
    }
    return {
        **norm_shapes(job, "attention_norm"),
        **_linear("attention.wq", (wide, D), m.qkv_bias),
        **_linear("attention.wk", (narrow, D), m.qkv_bias),
        **_linear("attention.wv", (narrow, D), m.qkv_bias),
        **_linear("attention.wo", (D, wide), m.bias),
        **of_heads,
        **norm_shapes(job, "ffn_norm"),
        **(
            _mixture_shapes(m, m.moe, tp)
            if moe and m.moe
            else _feed_forward("ffn", m, m.ffn // tp)
        ),
    }


def _linear(name: str, shape: tuple[Any, ...], bias: bool) -> Shapes:
    """A matrix, [outputs, inputs] or one for each expert, and its bias."""
    matrix: Shapes = {f"{name}.weight": shape}
    return matrix | {f"{name}.bias": shape[:-1]} if bias else matrix


def _feed_forward(name: str, m: Model, width: Any) -> Shapes:
    """Two matrices, or three. width: of a tp rank."""
    gate = _linear(f"{name}.gate", (width, m.hidden), m.bias)
    return {
        **(gate if m.gated else {}),
        **_linear(f"{name}.up", (width, m.hidden), m.bias),
        **_linear(f"{name}.down", (m.hidden, width), m.bias),
    }


def _mixture_shapes(m: Model, moe: MoE, tp: Any) -> Shapes:
    """What decides on the experts of a token, whole on every tp rank, and shared experts."""
    shapes = _linear("ffn.router", (moe.experts, m.hidden), moe.router_bias)
    if moe.shared_ffn:
        shapes |= _feed_forward("ffn.shared", m, moe.shared_ffn // tp)
    if moe.shared_gate:
        shapes["ffn.shared_gate.weight"] = (1, m.hidden)
    return shapes


def expert_shapes(job: Job) -> Shapes:
    """Parameters of the experts of a layer that a rank has."""
    m = job.model
    if m.moe is None:
        return {}
    experts = m.moe.experts // job.layout.ep
    D, F, bias = m.hidden, m.moe.expert_ffn, m.moe.expert_bias
    gate = _linear("ffn.experts.gate", (experts, F, D), bias)
    return {
        **(gate if m.gated else {}),
        **_linear("ffn.experts.up", (experts, F, D), bias),
        **_linear("ffn.experts.down", (experts, D, F), bias),
    }


def norm_shapes(job: Job, name: str) -> Shapes:
    """Scale, and shift, of a norm over the hidden state."""
    return {
        f"{name}.{part}": (job.model.hidden,)
        for part in ("weight", "bias")[: NORM_PARAMETERS[job.model.norm]]
    }


def end_shapes(job: Job, stage: Stage) -> dict[str, Shapes]:
    """Parameters of a stage outside its layers, by unit: embedding (with learned positions) and
    head (with the last norm), or what is both if one matrix is.
    """
    m = job.model
    first: Shapes = {}
    last: Shapes = {}
    rows = m.padded_vocab // job.layout.tp
    if stage.first:
        first["embedding.weight"] = (rows, m.hidden)
        if m.positions == "learned":
            first["positions.weight"] = (m.seq, m.hidden)
    if stage.last:
        last.update(norm_shapes(job, "norm"))
        if not (stage.first and m.tied_embeddings):
            last["head.weight"] = (rows, m.hidden)
    if first and last and m.tied_embeddings:
        return {BOTH: first | last}
    return {
        name: shapes
        for name, shapes in ((EMBEDDING, first), (HEAD, last))
        if shapes
    }


def replicas(
    layout: Layout, shards: int, experts: bool = False
) -> tuple[int, int]:
    """(copies, ranks that share out one copy's state). experts: of those."""
    cp = int(layout.cp)
    every = int(layout.expert_replicas if experts else layout.dp * cp)
    if not is_sharded(layout.zero, "optimizer"):
        return every, 1
    inside = shards * cp if shards else every
    return every // inside, inside


def elements(shapes: Shapes, shards: Any = 1) -> Any:
    """Parameters of a unit. Each is cut along its first dim that the shards divide; where they
    divide none, its rows are padded.
    """
    return sum(
        padded_rows(shape, shards) * prod(shape[1:])
        for shape in shapes.values()
    )


def padded_rows(shape: tuple[Any, ...], shards: Any) -> Any:
    """Rows of a parameter, with those that pad it."""
    rows, *rest = shape
    if any(dim % shards == 0 for dim in rest):
        return rows
    return -(-rows // shards) * shards
