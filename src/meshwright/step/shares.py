"""What the devices of a pipeline hold of the model: how often one microbatch passes each part of it
there.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache, reduce
from typing import Any, NamedTuple

from ..cost.layer import LayerCost
from ..describe.job import Job
from ..describe.layers import totals
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import partition
from ..num import SCALARS, Num, minimum, where
from ..schedule.partition import StagePartition
from ..schedule.schedule import Schedule
from .microbatch import ModelCost

DEVICES = ("first", "middle", "last")
"""A pipeline waits for the slowest of these and for the last of them to be done; there may be
several in the middle."""
ENDS = ("first", "second", "last")
"""Devices that may be the fullest: most microbatches in flight, most layers, the logits; there may
be several of the second."""


class ModelShare(NamedTuple):
    """How often one microbatch on a device passes each part of the model."""

    layers: tuple[Num, ...]
    """Of each kind, as in `ModelCost.layers`."""
    embedding: Num
    head: Num
    chunk: Num = 1.0
    """Layers of a chunk of the model, on average."""
    begins: tuple[Num, ...] = ()
    """The kind of its first layer: 1 of that, 0 of the others; none = the first kind."""
    rank: Num = 0.0
    """Which device of the pipeline it is."""

    def again(self, text: str) -> Num:
        """The share of the layers that recomputes, where only the first of each chunk do: spread
        evenly over all.
        """
        first = recompute(text).layers
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
        some = minimum(self.number, 1.0)
        if len(self.layers) == 1 or not self.begins:
            return (some, *(0.0 for _ in self.layers[1:]))
        return tuple(some * kind for kind in self.begins)

    def passed(self, cost: ModelCost) -> list[tuple[Num, LayerCost]]:
        """The parts of the model that it has, each with how often one is passed."""
        return [
            (n, part)
            for n, part in zip(self.parts, cost.parts, strict=True)
            if not (isinstance(n, float) and n == 0.0)
        ]

    def of(self, cost: ModelCost, what: str) -> Any:
        """The sum of a field of all parts of the model, each as often as it is passed."""
        return added(self.passed(cost), what)

    def passes(self, cost: ModelCost) -> tuple[Num, Num]:
        """Forward and backward seconds of a microbatch."""
        passed = self.passed(cost)
        return added(passed, "forward"), added(passed, "backward")

    def where(self, condition: Any, other: ModelShare) -> ModelShare:
        """This one in the rows where a condition holds, else another."""
        if isinstance(condition, SCALARS):
            return self if condition else other

        def choose(x: Any, y: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(choose, x, y))
            return where(condition, x, y)

        return ModelShare(*map(choose, self, other))


def added(
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


class ModelShares(dict[str, ModelShare]):
    """What devices hold, each by its name: the "first", the "last", a "middle" one that may be
    slower than they are and a "second" that may be the fullest, and a device that is alone: the
    "whole".

    With layers of several kinds there may be several of a name, "middle 2" and so on.
    """

    def __init__(
        self, cut: StagePartition, by: Mapping[str, ModelShare]
    ) -> None:
        super().__init__(by)
        self.cut = cut

    def again(self, text: str) -> Num:
        """`ModelShare.again`, the same on all devices."""
        return next(iter(self.values())).again(text)

    def __missing__(self, name: str) -> ModelShare:
        """There are fewer of this name than elsewhere: one of them again, or in the middle, where
        all hold alike, any."""
        return self["second" if name == "middle" else name.split()[0]]

    def called(self, *names: str) -> tuple[str, ...]:
        """All devices of these names, name by name."""
        return tuple(key for name in names for key in self._named[name])

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Name -> devices of it."""
        names: dict[str, list[str]] = defaultdict(list)
        for key in self:
            names[key.split()[0]].append(key)
        return names

    def fullest(self, layout: Layout) -> dict[str, ModelShare]:
        """Of the devices that may be the fullest (`ENDS`); the whole model where a device is
        alone.
        """
        alone = layout.pp == 1
        whole = self["whole"]
        return {
            end: whole.where(alone, self[end]) for end in self.called(*ENDS)
        }

    def pipeline(self, layout: Layout) -> ModelShares:
        """Of the devices of a pipeline (`DEVICES`): the whole model on the first and nothing on the
        others where a device is alone.
        """
        whole = self["whole"]
        none = whole._replace(
            layers=tuple(0.0 for _ in whole.layers), embedding=0.0, head=0.0
        )
        return ModelShares(
            self.cut,
            {
                name: (whole if name == "first" else none).where(
                    layout.pp == 1, self[name]
                )
                for name in self.called(*DEVICES)
            },
        )


def shares(
    job: Job, layout: Layout, schedule: Schedule, v: Num
) -> ModelShares:
    """What the devices of a pipeline hold, and a device that is alone.

    First: embedding; last: head. A folded schedule gives the first device both ends.
    """
    cut = partition(job, layout.pp, schedule, v)
    # equal cuts of numbers are one object, whose shares are remembered
    held = _shares if isinstance(cut.p, SCALARS) else _shares.__wrapped__
    return held(cut, totals(job.model), schedule.holds_back)


@lru_cache(maxsize=1024, typed=True)
def _shares(
    cut: StagePartition, every: tuple[float, ...], back: bool
) -> ModelShares:
    """Shares of a cut. every: layers of the model, of each kind; back: later ranks hold more of a
    microbatch.
    """
    ends = 1.0 if cut.folded else 0.0
    chunk = sum(every) / cut.stages

    def share(rank: Num, embedding: Num = 0.0, head: Num = 0.0) -> ModelShare:
        layers, *kinds = cut.on(rank)
        begins = cut.first_kind(rank)
        return ModelShare(
            (layers - sum(kinds), *kinds),
            embedding,
            head,
            chunk,
            _one_of(begins),
            rank,
        )

    first = share(0.0, 1.0, ends)
    inside = cut.p > 2
    # the second device: as full as any in the middle, and with nearly as many microbatches in
    # flight as the first; or the one before the last, with as many gradients held back
    fullest = cut.late if back else cut.early
    second = [share(rank).where(inside, first) for rank in fullest]
    begins = tuple(float(kinds[1]) for kinds in cut.deal.kinds)
    return ModelShares(
        cut,
        {
            **_numbered("middle", [share(rank) for rank in cut.heavy]),
            "first": first,
            "last": share(cut.q, 0.0, 1.0 - ends),
            **_numbered("second", second),
            "whole": ModelShare(every, 1.0, 1.0, chunk, _one_of(begins)),
        },
    )


def _one_of(further: tuple[Num, ...]) -> tuple[Num, ...]:
    """1 of one kind and 0 of the others, of what the kinds after the first have of it."""
    return (1.0 - sum(further), *further) if further else ()


def _numbered(name: str, several: list[ModelShare]) -> dict[str, ModelShare]:
    return {
        f"{name} {k}" if k > 1 else name: share
        for k, share in enumerate(several, 1)
    }
