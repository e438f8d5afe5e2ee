"""What a device exchanges with its replicas for the weights that it holds: collectives of a layer,
of embedding and head, of all of them.
"""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache, reduce
from typing import NamedTuple

from ..cost.layer import Clock
from ..cost.load import NOTHING, Load
from ..cost.offload import copy_seconds
from ..count.blocks import FP32
from ..count.vocabulary import table_parameters
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..exchange.types import Message
from ..num import Num, anywhere, maximum, minimum, sum_of, where
from .buckets import bucket, lacking
from .microbatch import ModelCost
from .parameters import (
    Parameters,
    end_units,
    no_parameters,
    parameters_of,
    shard,
    units_of,
)
from .shares import ModelShare
from .zero import gathers, is_sharded, over_step, reductions


class WeightSync(NamedTuple):
    """Collectives of parameters that a device shares with its replicas, each once."""

    gather: Load
    """Of weights, where a ZeRO stage shards anything."""
    reduction: Load
    """Of gradients: to all replicas, or each shard to its owner."""

    def __add__(self, other: WeightSync) -> WeightSync:  # type: ignore[override]
        return WeightSync(
            self.gather + other.gather, self.reduction + other.reduction
        )

    def __mul__(self, times: Num) -> WeightSync:  # type: ignore[override]
        return WeightSync(self.gather * times, self.reduction * times)


SILENT = WeightSync(NOTHING, NOTHING)
"""Collectives of no weights, or of weights that nobody shares."""


class DeviceSync(NamedTuple):
    """Collectives of the weights of a device."""

    first: WeightSync = SILENT
    """Of the layer whose weights arrive first and whose gradients leave last, and of embedding and
    head: exposed once a step.
    """
    rest: WeightSync = SILENT
    """Of the other layers of the device."""
    total: WeightSync = SILENT
    """Of all that the device holds: `first` and `rest` together."""
    backward_gather: Load | None = None
    """Of weights before a backward pass, where that is less than all (`Framework.ends`)."""
    weights_kept: str = "step"
    """`Framework.weights_kept`."""
    tied_gradients: Load = NOTHING
    """Of the gradients of a table that it shares with the last stage, once all others are summed.
    """

    def gathered(self, zero: int) -> tuple[Load, Load, Load]:
        """(before the first forward pass of a step, before each of the other m - 1, before each
        of the m backward passes): the gather of weights that a ZeRO stage makes there, each one
        load; NOTHING where it makes none.
        """
        first, forward, backward = gathers(
            zero, self.weights_kept == "microbatch"
        )
        once = self.total.gather
        return (
            once if first else NOTHING,
            once if forward else NOTHING,
            (self.backward_gather or once) if backward else NOTHING,
        )

    def in_step(self, zero: int, m: Num) -> Load:
        """All of a step of m microbatches."""
        gathered: Load = over_step(self.gathered(zero), m)
        return self.total.reduction * reductions(zero, m) + gathered


def wire_bytes(job: Job, zero: int) -> float:
    """Bytes of a weight on the wire when shards are gathered: where it is gathered as narrow as the
    products find it, those of its recipe (`Framework.gather_bytes`), unless each pass gathers it
    (ZeRO-3), as it is then.
    """
    p, by = job.precision, job.profile
    if (
        not by
        or p.gather_bytes >= p.weight_bytes
        or is_sharded(zero, "weights")
    ):
        return p.gather_bytes
    return by.gather_bytes.get(job.recipe, p.gather_bytes)


def gather_messages(
    job: Job, layout: Layout, weights: Parameters
) -> list[Message]:
    """One gather of sharded weights: inside a group of shards where copies are apart (HSDP)."""
    size = wire_bytes(job, layout.zero)
    return [
        Message("all_gather", group, n * size)
        for group, n in _shared(weights, _inside(layout))
    ]


def reduced_bytes(job: Job) -> float:
    """Bytes of a gradient while replicas sum it: at least those of fp32 where they sum in fp32
    (`Framework.reduction_numbers`), else those that are kept.
    """
    wide = job.profile is not None and job.profile.reduction_numbers == "fp32"
    return max(job.gradient_bytes, FP32) if wide else job.gradient_bytes


def bucket_copies(
    job: Job, layout: Layout, weights: Parameters, clock: Clock
) -> Load:
    """Seconds in which a device copies its gradients to buckets of fp32 and back: g bytes each are
    put side by side (2 g), divided by the replicas (2 g) and cast (g + 4), and the sums are cast
    back (4 + g) and copied to where they were (2 g).

    Source: Aleph-Alpha/scaling@01b9d21, core/optimizer/allreduce.py (bytes: count of this project).
    """
    if reduced_bytes(job) == job.gradient_bytes:
        return NOTHING
    each = 8.0 * job.gradient_bytes + 2.0 * FP32
    seconds = weights.total * each / clock.rates.memory
    return Load(where(layout.replicas > 1, seconds, 0.0))


def reduction_messages(
    job: Job,
    layout: Layout,
    weights: Parameters,
    sharded: bool,
    summed: bool = False,
) -> list[Message]:
    """One reduction of the gradients of weights: to all replicas, or each shard to its owner, and
    then across the groups of shards where copies are apart.

    sharded: a ZeRO stage from 1 on;  summed: gradients of shards are summed whole, whoever owns
    them.
    """
    size = reduced_bytes(job)
    if not sharded:
        shared = _shared(weights, WHOLE)
        return [Message("all_reduce", group, n * size) for group, n in shared]
    kind = "all_reduce" if summed else "reduce_scatter"
    inside, most = _inside(layout), layout.most_replicas
    made = [
        Message(kind, group, n * size) for group, n in _shared(weights, inside)
    ]
    if inside is WHOLE:
        return made
    for axis, across, shards in (
        ("replicas", "copies", most.shards),
        ("edp", "edp copies", most.expert_shards),
    ):
        for group, n in _shared(weights, {axis: across}):
            made.append(Message("all_reduce", group, n * (size / shards)))
    return made


WHOLE = {"replicas": "replicas", "edp": "edp"}
"""Axis of a weight -> the group that its collectives run over, where all shards are one group's:
dp x cp, and of experts edp."""


def _inside(layout: Layout) -> Mapping[str, str]:
    """The groups that shards lie in."""
    if anywhere(layout.dp_replicate > 1):
        return {"replicas": "shards", "edp": "edp shards"}
    return WHOLE


def _shared(
    weights: Parameters, groups: Mapping[str, str]
) -> Iterator[tuple[str, Num]]:
    """(group, parameters) of the axes that have any."""
    axes = {"replicas": weights.dense, "edp": weights.expert}
    for axis, n in axes.items():
        if axis in groups and not no_parameters(n):
            yield groups[axis], n


def weight_sync(
    job: Job,
    layout: Layout,
    weights: Parameters,
    zero: int,
    clock: Clock,
) -> WeightSync:
    """Collectives of parameters: ZeRO stages from 1 on send the same, as often as they say, but for
    the numbers in which weights are gathered (`wire_bytes`)."""

    def load(messages: Iterable[Message]) -> Load:
        return _collectives(layout, messages, clock)

    if no_parameters(weights.dense) and no_parameters(weights.expert):
        return SILENT
    copies = bucket_copies(job, layout, weights, clock)
    if not is_sharded(zero, "optimizer"):
        whole = reduction_messages(job, layout, weights, False)
        return WeightSync(NOTHING, load(whole) + copies)
    p, how = job.precision, clock.overlap.weights
    gather = load(gather_messages(job, layout, weights))
    if how.gathers != 1.0:
        gather = gather._replace(seconds=gather.seconds / how.gathers)
    summed = how.summed_whole(zero)
    scatter = load(
        reduction_messages(job, layout, weights, sharded=True, summed=summed)
    )
    scatter = scatter + copies
    if offload(layout.offload).weights:
        chip, own = job.cluster.chip, shard(layout.most_replicas, weights)
        gather = gather + Load(copy_seconds(chip, own * p.weight_bytes))
        scatter = scatter + Load(copy_seconds(chip, own * job.gradient_bytes))
    return WeightSync(gather, scatter)


def tied_gradient_sync(
    job: Job,
    layout: Layout,
    share: ModelShare,
    clock: Clock,
) -> Load:
    """The sum of the gradients of a table that the first device has as embedding and the last one
    as head, or as embedding of blocks that predict further tokens (`Counting.tied_gradients`).
    """
    m, count = job.model, job.how.count
    if count.tied_gradients == "none" or not (count.vocabulary and m.vocab):
        return NOTHING
    if not (m.tied_embeddings or m.mtp_layers):
        return NOTHING
    # a device that is alone, or has both ends of a folded pipeline, adds them up by itself
    apart = share.embedding * (1.0 - share.head)
    if not anywhere(apart):
        return NOTHING
    table = (
        table_parameters(job.model, job.profile, layout.tp)
        * job.gradient_bytes
    )
    if count.tied_gradients == "shards" and is_sharded(
        layout.zero, "optimizer"
    ):
        table = table / layout.most_replicas.shards
    message = Message("all_reduce", "ends", table * apart)
    return _collectives(layout, [message], clock)


def _collectives(
    layout: Layout, messages: Iterable[Message], clock: Clock
) -> Load:
    """Messages one after the other; their latency is part of the seconds, never paid by itself."""
    links = clock.links(layout)
    whole = NOTHING
    for m in messages:
        one = links.load(m.kind, m.bytes, layout.group(m.axis))
        whole = whole + Load(one.seconds, 0.0, one.busy)
    return whole


def device_syncs(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    devices: Sequence[ModelShare],
    clock: Clock,
) -> tuple[DeviceSync, ...]:
    """Collectives of the weights of each device, in the order of `devices`."""
    ends_unit, weights_kept = units_of(job)
    layers = [Parameters(c.weights, c.expert_weights) for c in cost.layers]
    every = [parameters_of(job, layout, cost, d).whole for d in devices]
    whole = Parameters(*(reduce(minimum, n) for n in zip(*every, strict=True)))
    # of an interval of dp the largest buckets wait least often, and the smallest end soonest
    least = bucket(job.profile, layout.most_replicas, whole)
    soonest = bucket(job.profile, layout, whole)

    def collectives(kind: int, n: Num) -> WeightSync:
        some = Parameters(n, 0.0) if kind == 0 else Parameters(0.0, n)
        return weight_sync(job, layout, some, zero=layout.zero, clock=clock)

    @cache
    def of_bucket(kind: int) -> WeightSync:
        return collectives(kind, least[kind])

    def sync(weights: Parameters) -> WeightSync:
        """Those of some weights: all that are in one bucket take their parts of it."""
        parts: list[tuple[Num, WeightSync]] = []
        for kind, (n, size) in enumerate(zip(weights, least, strict=True)):
            if no_parameters(n):
                continue
            if anywhere(n > size):
                one = maximum(n, size)
                part = n / maximum(one, 1.0)
                parts.append((part, collectives(kind, one)))
            else:
                parts.append((n / maximum(size, 1.0), of_bucket(kind)))
        every: WeightSync = sum_of(parts, SILENT)
        return every

    of_layers = list(map(sync, layers))

    def layers_of(often: Iterable[Num]) -> WeightSync:
        every: WeightSync = sum_of(zip(often, of_layers, strict=True), SILENT)
        return every

    syncs = []
    for share in devices:
        ends = end_units(job, layout, cost, share)
        first, later = map(sync, ends)
        one = share.first_layer
        but_one = (n - k for n, k in zip(share.layers, one, strict=True))
        begin, rest = layers_of(one) + first, layers_of(but_one) + later
        # what else is in the bucket of the first layer and these ends
        beside = sync(
            lacking(soonest, [(1.0, ends[0]), *zip(one, layers, strict=True)])
        )
        begin, rest = begin + beside, rest + beside * -1.0
        backward_gather = None
        if ends_unit != "units":
            before = first if ends_unit == "apart" else SILENT
            backward_gather = (layers_of(share.layers) + before).gather
        syncs.append(
            DeviceSync(
                first=begin,
                rest=rest,
                total=begin + rest,
                backward_gather=backward_gather,
                weights_kept=weights_kept,
                tied_gradients=tied_gradient_sync(
                    job, layout, share, clock=clock
                ),
            )
        )
    return tuple(syncs)
