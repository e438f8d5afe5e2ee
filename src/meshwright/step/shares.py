"""What the devices of a pipeline hold of the model: how often one microbatch passes each part of it
there.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from ..describe.model import Model
from ..describe.recompute import recompute
from ..layout.stages import partition
from ..num import SCALARS, Num, anywhere, minimum, sum_of
from ..schedule.partition import StagePartition
from ..schedule.schedule import Schedule
from .microbatch import ModelCost


class ModelShare(NamedTuple):
    """How often one microbatch on a device passes each part of the model."""

    layers: tuple[Num, ...]
    """Of each kind, as in `ModelCost.layers`."""
    embedding: Num
    head: Num
    chunk: Num = 1.0
    """Layers of a chunk of the model, on average: the same on all devices."""
    begins: tuple[Num, ...] = ()
    """The kind of its first layer: 1 of that, 0 of the others; none = the first kind."""
    rank: Num = 0.0
    """Which device of the pipeline it is."""

    def recompute_share(self, mode: str) -> Num:
        """The share of the layers that recomputes: 1, or of a mode such as "full:2" the first two
        of each chunk over its layers, as if every layer did that much.
        """
        first = recompute(mode).layers
        # a chunk of fewer layers than the mode names recomputes all it has
        return minimum(first / self.chunk, 1.0) if first else 1.0

    @property
    def parts(self) -> tuple[Num, ...]:
        """Numbers of layers of each kind, embeddings, heads: in the order of `ModelCost.parts`."""
        return (*self.layers, self.embedding, self.head)

    @property
    def number(self) -> Num:
        """Layers of all kinds."""
        return reduce(operator.add, self.layers)

    @property
    def first_layer(self) -> tuple[Num, ...]:
        """One layer of the kind that it begins with; nothing where it has none."""
        # a column may hold devices with no layer, and means of devices with less than one
        some = minimum(self.number, 1.0)
        if len(self.layers) == 1 or not self.begins:
            return (some, *(0.0 for _ in self.layers[1:]))
        return tuple(some * kind for kind in self.begins)

    def total(self, values: Iterable[Any], nothing: Any = 0.0) -> Any:
        """The sum of a value of each part of the model, as often as that is passed; nothing: where
        none is."""
        return sum_of(zip(self.parts, values, strict=True), nothing)

    def layer_total(self, cost: ModelCost, what: str) -> Any:
        """The sum of a field of its layers, without embedding and head."""
        fields = (getattr(part, what) for part in cost.layers)
        return sum_of(zip(self.layers, fields, strict=True))


class ModelShares(NamedTuple):
    """What the devices of a pipeline hold, as far as a step asks: of p devices only those that can
    set its end or its need of memory. In a table, where some rows have one device and others more,
    each of these stands for the only one of a short pipeline.
    """

    partition: StagePartition
    slow: tuple[ModelShare, ...]
    """Devices of which one has the most work: the first (with the embedding), the last (with the
    head), and those between that have more layers or heavier ones (`StagePartition.heavy`). The
    first comes first, on which `Step.outside` rests."""
    full: tuple[ModelShare, ...]
    """Devices of which one is the fullest: the first has most microbatches in flight, some between
    have more layers (`StagePartition.early`, or `late` where later ranks hold more of a
    microbatch), the last has the logits."""

    def on(self, rank: Num) -> ModelShare:
        """What one device holds."""
        return _share(self.partition, rank)

    def recompute_share(self, mode: str) -> Num:
        """`ModelShare.recompute_share`, the same on all devices."""
        return self.slow[0].recompute_share(mode)


def model_shares(
    model: Model, pp: Num, schedule: Schedule, v: Num
) -> ModelShares:
    """What the devices of a pipeline hold of a model."""
    stages = partition(model, pp, schedule, v)
    # equal partitions of numbers are one object, whose shares are remembered
    known = _shares if isinstance(stages.p, SCALARS) else _shares.__wrapped__
    return known(stages, schedule.holds_back)


@lru_cache(maxsize=1024, typed=True)
def _shares(stages: StagePartition, back: bool) -> ModelShares:
    """Shares of stages. back: later ranks hold more of a microbatch."""

    def along(between: tuple[Num, ...]) -> tuple[ModelShare, ...]:
        several = anywhere(stages.p > 1)
        ranks = (0.0, *between, stages.q) if several else (0.0,)
        return tuple(_share(stages, rank) for rank in ranks)

    fullest = stages.late if back else stages.early
    return ModelShares(stages, along(stages.heavy), along(fullest))


def _share(stages: StagePartition, rank: Num) -> ModelShare:
    """What a device holds."""
    *layers, embedding, head = stages.on(rank)
    return ModelShare(
        tuple(layers),
        embedding=_alike(embedding),
        head=_alike(head),
        chunk=stages.chunk,
        begins=stages.first_kind(rank),
        rank=rank,
    )


def _alike(column: Num) -> Num:
    """One number where all rows are alike: what is nowhere costs nothing to add."""
    if isinstance(column, SCALARS) or not column.size:
        return column
    first = float(column.flat[0])
    return first if (column == first).all() else column
