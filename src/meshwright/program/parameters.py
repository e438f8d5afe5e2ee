"""The parameters of a rank of the trainer by name and shape, in the units that are gathered and
reduced together.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ..count.blocks import NORM_PARAMETERS
from ..count.model import kinds
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import MoE
from ..num import where
from .order import Stage, rank_stages

EMBEDDING = "embedding"

HEAD = "head"

BOTH = "embedding and head"
"""Units of a stage beside its layers."""

Shapes = dict[str, tuple[Any, ...]]
"""Name of a parameter -> its shape on one tp rank, before sharding over the replicas."""


def layer_shapes(
    job: Job, layout: Layout | None = None, moe: bool = False
) -> Shapes:
    """Parameters of one layer without its experts: column-parallel matrices are cut by rows
    (outputs), row-parallel ones by columns.

    layout: the job's, or one whose numbers may be arrays. moe: it has experts.
    """
    m = job.model
    tp = (layout or job.layout).tp
    D = m.hidden
    wide = m.heads * m.h // tp
    narrow = m.K * m.h // tp
    matrices: Shapes = {
        "attention.wq.weight": (wide, D),
        "attention.wk.weight": (narrow, D),
        "attention.wv.weight": (narrow, D),
        "attention.wo.weight": (D, wide),
    }
    name, width = "ffn", m.ffn
    if moe and m.moe:
        name, width = "ffn.shared", m.moe.shared_ffn
    if width:
        matrices |= {
            f"{name}.up.weight": (width // tp, D),
            f"{name}.down.weight": (D, width // tp),
        }
    if width and m.gated:
        matrices[f"{name}.gate.weight"] = (width // tp, D)
    vectors: Shapes = {}
    for name, shape in matrices.items():
        if (
            m.qkv_bias
            if name.startswith(
                ("attention.wq", "attention.wk", "attention.wv")
            )
            else m.bias
        ):
            vectors[name.replace("weight", "bias")] = shape[:1]
    if m.qk_norm:
        vectors["attention.q_norm.weight"] = vectors[
            "attention.k_norm.weight"
        ] = (m.h,)
    return (
        matrices
        | vectors
        | norm_shapes(job, "attention_norm")
        | norm_shapes(job, "ffn_norm")
        | (router_shapes(m.moe, m.hidden) if moe and m.moe else {})
    )


def router_shapes(moe: MoE, hidden: int) -> Shapes:
    """What decides on the experts of a token, whole on every tp rank."""
    shapes: Shapes = {"ffn.router.weight": (moe.experts, hidden)}
    if moe.router_bias:
        shapes["ffn.router.bias"] = (moe.experts,)
    if moe.shared_gate:
        shapes["ffn.shared_gate.weight"] = (1, hidden)
    return shapes


def expert_shapes(job: Job, layout: Layout | None = None) -> Shapes:
    """Parameters of the experts of a layer that a rank has."""
    m = job.model
    if m.moe is None:
        return {}
    experts = m.moe.experts // (layout or job.layout).ep
    D, F = m.hidden, m.moe.expert_ffn
    shapes: Shapes = {
        "ffn.experts.up.weight": (experts, F, D),
        "ffn.experts.down.weight": (experts, D, F),
    }
    if m.gated:
        shapes["ffn.experts.gate.weight"] = (experts, F, D)
    if m.moe.expert_bias:
        shapes |= {
            name.replace("weight", "bias"): shape[:2]
            for name, shape in shapes.items()
        }
    return shapes


def norm_shapes(job: Job, name: str) -> Shapes:
    """Scale, and shift, of a norm over the hidden state."""
    return {
        f"{name}.{part}": (job.model.hidden,)
        for part in ("weight", "bias")[: NORM_PARAMETERS[job.model.norm]]
    }


def end_shapes(
    job: Job, stage: Stage, layout: Layout | None = None
) -> dict[str, Shapes]:
    """Parameters of a stage outside its layers, by unit: embedding (with learned positions) and
    head (with the last norm), or what is both if one matrix is.
    """
    m = job.model
    first: Shapes = {}
    last: Shapes = {}
    rows = m.padded_vocab // (layout or job.layout).tp
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


class ParameterGroup(NamedTuple):
    """Parameters that are gathered and reduced together."""

    chunk: int
    """The place of its stage among those of the rank."""
    shapes: Shapes
    experts: bool = False
    """They are experts, with replicas of their own."""


def units_of_chunks(job: Job, rank: int) -> list[ParameterGroup]:
    """The parameters of a rank: each layer, its experts, embedding and head."""
    every = kinds(job.model)
    groups = list[ParameterGroup]()
    for chunk, stage in enumerate(rank_stages(job, rank)):
        for i in stage.layers:
            groups.append(
                ParameterGroup(chunk, layer_shapes(job, moe=every[i].moe))
            )
            if every[i].moe:
                groups.append(ParameterGroup(chunk, expert_shapes(job), True))
        groups += [
            ParameterGroup(chunk, shapes)
            for shapes in end_shapes(job, stage).values()
        ]
    return [group for group in groups if group.shapes]


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
    padded = -(-shape[0] // shards) * shards
    for dim in shape[1:]:
        padded = where(dim % shards == 0, shape[0], padded)
    return padded
