"""What the devices of a pipeline hold of the model: how often one microbatch passes each part of it
there.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from ..cost.layer import LayerCost
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import partition
from ..num import SCALARS, Num, anywhere, minimum, where
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

    def recompute_share(self, text: str) -> Num:
        """The share of the layers that recomputes: 1, or of a mode such as "full:2" the first two
        of each chunk over its layers, as if every layer did that much.
        """
        first = recompute(text).layers
        # a chunk of fewer layers than the mode names recomputes all it has
        return minimum(first / self.chunk, 1.0) if first else 1.0

    @property
    def parts(self) -> tuple[Num, ...]:
        """As in `ModelCost.parts`."""
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

    def counted_parts(self, cost: ModelCost) -> list[tuple[Num, LayerCost]]:
        """The parts of the model that it has, each with how often one is passed."""
        return [
            (n, part)
            for n, part in zip(self.parts, cost.parts, strict=True)
            if not (isinstance(n, float) and n == 0.0)
        ]

    def field_total(self, cost: ModelCost, what: str) -> Any:
        """The sum of a field of all parts of the model, each as often as it is passed."""
        return field_sum(self.counted_parts(cost), what)

    def layer_total(self, cost: ModelCost, what: str) -> Any:
        """The sum of a field of its layers, without embedding and head."""
        return sum_of(
            (n, getattr(part, what))
            for n, part in zip(self.layers, cost.layers, strict=True)
        )

    def passes(self, cost: ModelCost) -> tuple[Num, Num]:
        """Forward and backward seconds of a microbatch."""
        passed = self.counted_parts(cost)
        return field_sum(passed, "forward"), field_sum(passed, "backward")


def field_sum(
    passed: Iterable[tuple[Num, LayerCost]], what: str, nothing: Any = 0.0
) -> Any:
    """The sum of a field of what is passed, each so often; nothing: where none is."""
    result: Any = None
    for often, part in passed:
        value = getattr(part, what) * often
        result = value if result is None else result + value
    return nothing if result is None else result


def sum_of(terms: Iterable[tuple[Num, Any]], nothing: Any = 0.0) -> Any:
    """Sum of factor x value, leaving out factors that are 0; nothing: where all are."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return nothing if result is None else result


class ModelShares(NamedTuple):
    """What the devices of a pipeline hold, as far as a step asks: of p devices only those that can
    set its end or its need of memory. In a table, where some rows have one device and others more,
    each of these stands for the only one of a short pipeline.
    """

    cut: StagePartition
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
        return _share(self.cut, rank)

    def recompute_share(self, text: str) -> Num:
        """`ModelShare.recompute_share`, the same on all devices."""
        return self.slow[0].recompute_share(text)


def shares(
    job: Job, layout: Layout, schedule: Schedule, v: Num
) -> ModelShares:
    """What the devices of a pipeline hold."""
    cut = partition(job, layout.pp, schedule, v)
    # equal cuts of numbers are one object, whose shares are remembered
    known = _shares if isinstance(cut.p, SCALARS) else _shares.__wrapped__
    return known(cut, schedule.holds_back)


@lru_cache(maxsize=1024, typed=True)
def _shares(cut: StagePartition, back: bool) -> ModelShares:
    """Shares of a cut. back: later ranks hold more of a microbatch."""

    def along(between: tuple[Num, ...]) -> tuple[ModelShare, ...]:
        several = anywhere(cut.p > 1)
        ranks = (0.0, *between, cut.q) if several else (0.0,)
        return tuple(_share(cut, rank) for rank in ranks)

    fullest = cut.late if back else cut.early
    return ModelShares(cut, along(cut.heavy), along(fullest))


def _share(cut: StagePartition, rank: Num) -> ModelShare:
    """What a device holds: the first has the embedding and the last the head, or in a folded
    pipeline the first too.
    """
    layers, *kinds = cut.on(rank)
    further = cut.first_kind(rank)
    return ModelShare(
        (layers - sum(kinds), *kinds),
        embedding=_indicator(rank == 0),
        head=_indicator(rank == (0.0 if cut.folded else cut.q)),
        chunk=cut.before(cut.stages)[0] / cut.stages,
        # 1 of one kind and 0 of the others
        begins=(1.0 - sum(further), *further) if further else (),
        rank=rank,
    )


def _indicator(condition: Any) -> Num:
    """1 where it holds, 0 elsewhere; one number where all rows are alike."""
    if isinstance(condition, SCALARS):
        return float(condition)
    return where(condition, 1.0, 0.0) if condition.any() else 0.0
