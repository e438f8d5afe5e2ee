"""What the trainer gathers, works with and reduces together: units of parameters, with the bytes of
each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..count import vocabulary
from ..count.microbatch import DeviceMicrobatch
from ..count.model import kinds
from ..count.work import Op
from ..describe.frozen import FrozenDict
from ..describe.job import Job
from .operations import FP32, LOSS, operations, recomputed_prefix
from .order import Stage, rank_stages
from .parameters import (
    EMBEDDING,
    HEAD,
    Shapes,
    elements,
    end_shapes,
    expert_shapes,
    layer_shapes,
    replicas,
)
from .tensors import as_made, moving, results, results_kept

EXPERTS = "experts"
"""A unit inside a layer."""


class Work(NamedTuple):
    """An operation of one microbatch, by its bytes."""

    name: str
    expert: bool
    saved: float
    """That it keeps for its backward pass."""
    moving: float
    """Of the gradients of its inputs and results, with that of the residual stream."""
    gradients: float
    """Of its weights' gradients before they are added up."""


@dataclass(frozen=True)
class Unit:
    """Parameters that FSDP gathers and reduces together, with the operations of one microbatch that
    use them. All layers of a kind are one unit.
    """

    name: str
    """layer, one of the ends of the model, or the experts of the layer that comes after them, among
    whose operations theirs are.
    """
    works: list[Work]
    """But for the loss."""
    shapes: Shapes = FrozenDict()
    again: int = 0
    """So many of them are computed again in the backward pass."""
    whole: float = 0.0
    """Bytes of its parameters in fp32."""
    padded: float = 0.0
    """The same with the rows that pad them to shards."""
    shard: float = 0.0
    """A rank's share of those."""
    last: float = 0.0
    """Of these bytes, those of the last parameter: its gradient lives while all are reduced."""
    foreign: float = 0.0
    """Rows of other tp ranks in the gradient of the embedding, in fp32."""
    saved: float = 0.0
    """Bytes kept of one microbatch, without the logits."""
    logits: float = 0.0
    """Bytes of the logits in fp32."""
    results: float = 0.0
    """Of `saved`, results that recomputation takes as they are."""
    unused: float = 0.0
    """Of these, what it stops before."""
    made: float = 0.0
    """Bytes of the results of all operations with weights."""


class Units:
    """Those of a model, the same on all ranks of a pipeline: layers of a kind are one unit."""

    def __init__(self, job: Job, shards: int) -> None:
        self.job, self.layout = job, job.layout
        self.boundary = float(
            DeviceMicrobatch.from_layout(job, job.layout).boundary
        )
        self.shards = shards
        self.by_kind = dict[Any, list[Unit]]()
        self.by_end = dict[Any, Unit]()

    def replicas(self, name: str) -> tuple[int, int]:
        """(copies, ranks that share out one copy's state) of units of this name."""
        return replicas(self.layout, self.shards, name == EXPERTS)

    def of_rank(self, rank: int) -> Iterator[tuple[int, Unit]]:
        """(place of its stage among those of the rank, unit) of all its parameters."""
        for chunk, stage in enumerate(rank_stages(self.job, rank)):
            for unit in self.stage_units(stage):
                yield chunk, unit

    def stage_units(self, stage: Stage) -> list[Unit]:
        """Embedding, layers and head of a stage, in the order of its forward pass."""
        every = kinds(self.job.model)
        units = list[Unit]()
        for kind in (every[i] for i in stage.layers):
            if kind not in self.by_kind:
                ops = operations(self.job, kind)
                self.by_kind[kind] = self.layer_units(ops, kind.moe)
            units += self.by_kind[kind]
        for name, shapes in end_shapes(self.job, stage).items():
            ops = []
            if name != HEAD:
                ops += vocabulary.embedding(
                    DeviceMicrobatch.from_layout(self.job, self.layout)
                )
            if name != EMBEDDING:
                ops += vocabulary.head(
                    DeviceMicrobatch.from_layout(self.job, self.layout)
                )
            unit = self.by_end.setdefault(name, self.unit(name, shapes, ops))
            units = [unit, *units] if name == EMBEDDING else [*units, unit]
        return units

    def layer_units(self, ops: list[Op], moe: bool) -> list[Unit]:
        """Its experts, if it has any, and itself."""
        shapes = layer_shapes(self.job, moe=moe)
        whole = self.unit("layer", shapes, ops)
        return (
            [self.unit(EXPERTS, expert_shapes(self.job), []), whole]
            if moe
            else [whole]
        )

    def unit(self, name: str, shapes: Shapes, ops: list[Op]) -> Unit:
        """With its bytes."""
        _, shards = self.replicas(name)
        padded = FP32 * float(elements(shapes, shards))
        rows = {k: s for k, s in shapes.items() if k == "embedding.weight"}
        layout, final = self.layout, dict([*shapes.items()][-1:])
        redone = (
            recomputed_prefix(ops, layout.recompute) if name == "layer" else []
        )
        works = [self.work(op) for op in ops if op.name != LOSS]
        saved = sum(work.saved for work in works)
        kept = [float(size) for size in self.kept(redone and ops)]
        if redone:
            saved = self.boundary + sum(kept)
        return Unit(
            name,
            works,
            shapes,
            len(redone),
            whole=FP32 * float(elements(shapes)),
            padded=padded,
            shard=padded / shards,
            last=FP32 * float(elements(final)),
            foreign=FP32 * float(elements(rows) * (self.layout.tp - 1)),
            saved=saved,
            logits=sum(float(op.saved) for op in ops if op.name == LOSS),
            results=sum(kept),
            unused=sum(kept[len(redone) :]),
            made=float(results(self.job, ops)),
        )

    def work(self, op: Op) -> Work:
        """An operation as the walk goes through it."""
        return Work(
            op.name,
            op.expert,
            float(op.saved),
            float(moving(self.job, self.boundary, op)),
            float(as_made(self.job, op.weights)),
        )

    def kept(self, ops: list[Op]) -> list[Any]:
        """Bytes of the results of a layer's operations that recomputation takes as they are."""
        layout = self.layout
        return results_kept(self.job, layout.tp, ops, layout.recompute)
