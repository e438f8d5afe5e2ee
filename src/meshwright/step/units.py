"""Collectives of the parameters that a device shares with its replicas: of a layer, of embedding
and head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..cost.layer import Clock
from ..cost.load import NOTHING, Load
from ..cost.offload import seconds
from ..count import vocabulary
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..num import Num, anywhere, apart, beside, where
from .microbatch import Body
from .pipeline import Share
from .zero import gathers, reductions


class Unit(NamedTuple):
    """What a device does for parameters that it shares with its replicas, each once."""

    all_reduce: Load
    gather: Load
    scatter: Load

    def __add__(self, other: Unit) -> Unit:  # type: ignore[override]
        return Unit(
            self.all_reduce + other.all_reduce,
            self.gather + other.gather,
            self.scatter + other.scatter,
        )

    def __mul__(self, times: Num) -> Unit:  # type: ignore[override]
        if isinstance(times, float) and times == 1.0:
            return self
        return Unit(
            self.all_reduce * times, self.gather * times, self.scatter * times
        )

    def under(self, zero: int) -> tuple[Load, Load]:
        """One gather of the weights, and one reduction of the gradients, of a ZeRO stage."""
        if zero == 0:
            return NOTHING, self.all_reduce
        return self.gather, self.scatter

    def in_step(self, zero: int, m: Num) -> Load:
        """All of a step of m microbatches."""
        gather, reduction = self.under(zero)
        return reduction * reductions(zero, m) + gather * gathers(zero, 2 * m)


SILENT = Unit(NOTHING, NOTHING, NOTHING)
"""Of nothing."""


WHOLE = {"replicas": "replicas", "edp": "edp"}
"""Axis of a weight -> the group that its collectives run over, where all shards are one group's."""


class Held(NamedTuple):
    """Parameters on a device."""

    dense: Num
    """Replicated over dp x cp."""
    expert: Num
    """Replicated over edp."""


def unit(
    job: Job,
    layout: Layout,
    weights: Held,
    stages: Collection[int],
    at: Clock,
    far: Layout | None = None,
) -> Unit:
    """Collectives of parameters that these ZeRO stages need: groups "replicas" (dp x cp), of
    experts "edp".

    With copies (HSDP) weights and gradients are sharded inside a group, and shards of gradients
    all-reduced across groups. far: the same rows with the most replicas, for bounds: it says how
    small shards may be.
    """
    p = job.precision
    held = {
        "replicas": weights.dense,
        **({"edp": weights.expert} if job.model.moe else {}),
    }
    several = hybrid(layout)
    inner = {"replicas": "shards", "edp": "edp shards"} if several else WHOLE

    def loads(
        kind: str, size: Num, needed: bool, groups: Mapping[str, str]
    ) -> Load:
        found = NOTHING
        for axis, n in held.items() if needed else ():
            if axis in groups and not nothing(n):
                ranks = layout.group(groups[axis])
                load = at.fabric.load(kind, n * size, ranks)
                # a latency is paid with the seconds here, and never by itself
                found = found + Load(load.seconds, 0.0, load.busy)
        return found

    how = at.overlap
    summed = (
        "all_reduce"
        if how.weights.gradients == "all-reduce"
        else "reduce_scatter"
    )
    gather = loads("all_gather", p.gather_bytes, any(stages), inner)
    if how.weights.gathers != 1.0:
        gather = gather._replace(seconds=gather.seconds / how.weights.gathers)
    scatter = loads(summed, p.gradient_bytes, any(stages), inner)
    if several:
        inside = {
            "replicas": (far or layout).shards,
            "edp": (far or layout).expert_shards,
        }
        for axis, ranks in inside.items():
            one = {axis: "copies" if axis == "replicas" else "edp copies"}
            if axis in held:
                scatter = scatter + loads(
                    "all_reduce", p.gradient_bytes / ranks, any(stages), one
                )
    if offload(layout.offload).weights:
        chip = job.cluster.chip
        own = shard(job, far or layout, weights)
        arrives = seconds(chip, own * p.weight_bytes)
        leaves = seconds(chip, own * p.gradient_bytes)
        gather = gather + Load(arrives)
        scatter = scatter + Load(leaves)
    return Unit(
        loads(
            "all_reduce",
            p.gradient_bytes,
            0 in stages,
            WHOLE,
        ),
        gather,
        scatter,
    )


def shard(job: Job, layout: Layout, weights: Held) -> Num:
    """Parameters of a shard."""
    dense = weights.dense / layout.shards
    if not job.model.moe:
        return dense
    return dense + weights.expert / layout.expert_shards


def hybrid(layout: Layout) -> bool:
    """Groups of replicas hold copies of what they shard (in some row)."""
    return anywhere(layout.dp_replicate > 1)


def nothing(held: Num) -> bool:
    """No parameters, in any row."""
    return not anywhere(held)


class Units(NamedTuple):
    """Collectives of a layer of each kind, and of embedding and head on each device."""

    layers: tuple[Unit, ...]
    ends: Mapping[Any, Unit]


def units(
    job: Job,
    layout: Layout,
    parts: Body,
    by: Mapping[Any, Share],
    stages: Collection[int],
    at: Clock,
    far: Layout | None = None,
) -> Units:
    """by: what the devices hold, each by its name;  far: as in `unit`."""
    layers = [Held(c.weights, c.expert_weights) for c in parts.layers]
    ends = [of_ends(job, layout, parts, share) for share in by.values()]
    found = each_unit(
        job,
        layout,
        [*layers, *ends],
        stages,
        at,
        far,
    )
    return Units(
        tuple(found[: len(layers)]),
        dict(zip(by, found[len(layers) :], strict=True)),
    )


def each_unit(
    job: Job,
    layout: Layout,
    several: Sequence[Held],
    stages: Collection[int],
    at: Clock,
    far: Layout | None = None,
) -> list[Unit]:
    """Collectives of several sets of parameters over the same groups; columns are asked for
    together, side by side.
    """
    some = [
        i
        for i, held in enumerate(several)
        if not (nothing(held[0]) and nothing(held[1]))
    ]
    found = [SILENT] * len(several)
    columns = beside([held for i in some for held in several[i]])
    if columns is None:
        known = [unit(job, layout, several[i], stages, at, far) for i in some]
    else:
        whole = unit(
            job, layout, Held(columns[::2], columns[1::2]), stages, at, far
        )
        known = [
            apart(whole, number, columns.ndim) for number in range(len(some))
        ]
    for i, one in zip(some, known, strict=True):
        found[i] = one
    return found


def of_ends(job: Job, layout: Layout, parts: Body, share: Share) -> Held:
    """Parameters of embedding and head on a device."""
    dense = (
        share.embedding * parts.embedding.weights
        + share.head * parts.head.weights
    )
    if job.model.tied_embeddings:
        dense = dense - where(
            layout.pp == 1, share.head * tied(job, layout), 0.0
        )
    return Held(dense, share.head * parts.head.expert_weights)


def tied(job: Job, layout: Layout) -> Num:
    """Parameters that embedding and head share on a device that holds both."""
    if not (job.model.tied_embeddings and job.how.count.vocabulary):
        return 0.0
    return vocabulary.table(job, layout)
