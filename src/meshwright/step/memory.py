"""What lives on a device, by kind: weights, gradients, optimizer state, activations, buffers.

The fullest device is the first of the pipeline (it holds the most microbatches), the second (the
first may hold fewer or lighter layers) or the last (it holds the logits: of one microbatch, or of
as many as the schedule lets wait between its forward and its backward). What a framework holds
beside states and saved tensors is counted in `holding`; how much of it a device must have, in
`oom`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from ..cost.layer import LayerCost
from ..count.blocks import FP32
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..describe.recompute import recompute
from ..layout.stages import microbatches
from ..num import Num, largest, maximum, minimum, sum_of, where, with_name
from ..schedule.schedule import Schedule
from . import holding
from .microbatch import ModelCost, redo
from .parameters import DeviceParameters, Parameters, end_units, shard
from .shares import ModelShare
from .zero import States, cuts, state_bytes

LAYERS_IN_COPY = 2.0
"""Layers whose activations are on the device at least while others leave for host memory or come
back: one that is copied, beside the one that is computed. Where more stay, none beside them: a
layer leaves while later ones fill the room of those that stay (Transformer Engine,
NVIDIA/TransformerEngine@d0067d0da, pytorch/cpu_offload.py, DefaultOffloadSynchronizer: the peak is
that of the layers that are not offloaded)."""


NO_ENDS = Parameters(0.0, 0.0)
"""Parameters of embedding and head where a device has none."""


class Use(NamedTuple):
    """Bytes of tensors on one device."""

    weights: Num
    gradients: Num
    optimizer: Num
    activations: Num
    buffers: Num

    @property
    def total(self) -> Num:
        """Bytes of all kinds."""
        return self.activations + (
            self.weights + self.gradients + self.optimizer + self.buffers
        )


def states(
    job: Job,
    layout: Layout,
    parameters: Parameters,
    ends: Parameters = NO_ENDS,
) -> States:
    """Weights, gradients and optimizer state of a device's parameters, of which those of embedding
    and head (`ends`) are never narrow.
    """
    away = offload(layout.offload)
    on_device = 0.0 if away.weights else 1.0
    each = holding.parameter_bytes(job, layout.zero)
    held = state_bytes(
        each.layer * on_device,
        holding.gradient_bytes(job) * on_device,
        each.state * (1.0 - away.optimizer),
        full=parameters.total,
        split=shard(job, layout, parameters),
        zero=layout.zero,
    )
    wider = (each.end - each.layer) * on_device
    if not wider:
        return held
    wide = (
        shard(job, layout, ends)
        if cuts(layout.zero, "weights")
        else ends.total
    )
    return held._replace(weights=held.weights + wide * wider)


def saved_bytes(
    layer: LayerCost, cost: ModelCost, text: str, share: Num = 1.0
) -> Num:
    """Bytes a layer keeps of one microbatch: everything, or in that share of layers what
    recomputation leaves.
    """
    again = redo(layer, text, cost.boundary)
    if not again:
        return layer.saved
    all_of_them = isinstance(share, float) and share == 1.0
    return (
        again.saved
        if all_of_them
        else layer.saved + (again.saved - layer.saved) * share
    )


def recompute_bytes(layer: LayerCost, cost: ModelCost, text: str) -> Num:
    """Bytes of one layer that are there once more while its backward pass runs: of a layer that
    runs again as one, what it keeps inside beside what stayed."""
    way = recompute(text)
    if way.parts == "full":
        return layer.saved
    return (
        layer.saved - saved_bytes(layer, cost, text) + cost.boundary
        if way.whole
        else 0.0
    )


class Activations(NamedTuple):
    """Activation bytes of one device: so many for each microbatch in flight, for each at the head,
    and some once.
    """

    each: Num
    head: Num
    """Logits and what the products around them keep, from the head's forward to the gradient of its
    input.
    """
    late: Num
    """What they keep from there to the gradient of its weights: the logits' gradient, in the
    products' precision, instead of the logits.
    """
    once: Num

    def kept(self, flight: Num, heads: Num, late: Num) -> Num:
        """Their sum, with so many microbatches in flight and so many in either half of the head's
        backward pass.
        """
        return (
            flight * self.each
            + heads * self.head
            + late * self.late
            + self.once
        )


def activations(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    text: str,
    devices: Sequence[ModelShare],
) -> list[Activations]:
    """Activation bytes of each device: its layers' saved bytes, the logits, and once the layer that
    is being recomputed. text: `Layout.recompute`.

    Where a framework's holdings are counted (`holding`) these replace the textbook's: the head's
    tensors are gone before a layer's backward pass begins, so `once` is what that pass takes beyond
    them.
    """
    head = cost.head.saved
    late = head - holding.logits(job, layout) * (
        FP32 - job.precision.activation_bytes
    )
    output: Num = 0.0
    backward: list[holding.Parts] = []
    if holding.counts_holding(job):
        head = holding.total(holding.head(job, layout, cost), cost)
        output = output_bytes(job, layout, cost)
        backward = [
            holding.backward_bytes(
                job, layout, c.saved, saved_bytes(c, cost, text)
            )
            for c in cost.layers
        ]

    def on(share: ModelShare) -> Activations:
        if backward:
            layer = holding.largest_backward_bytes(share.layers, backward)
            beyond = holding.total(layer, cost) - head * share.head
            # the head's own work may be the larger one, and stands beside it already
            once = maximum(beyond, 0.0)
        else:
            once = recomputed_layer(job, cost, text, share)
        stays = saved_by_layers(job, cost, text, share)
        return Activations(
            stays + output,
            head * share.head,
            late * share.head,
            once + copy_bytes(layout, cost, stays),
        )

    return [on(share) for share in devices]


def recomputed_layer(
    job: Job, cost: ModelCost, text: str, share: ModelShare
) -> Num:
    """Bytes of the layer being recomputed, of the kind on a device that takes most."""
    if not job.how.memory.working_set:
        return 0.0
    sizes = [recompute_bytes(layer, cost, text) for layer in cost.layers]
    if len(sizes) == 1:  # all devices have some of the only kind
        return sizes[0]
    return largest(
        where(n > 0, size, 0.0)
        for n, size in zip(share.layers, sizes, strict=True)
    )


def saved_by_layers(
    job: Job, cost: ModelCost, text: str, share: ModelShare
) -> Num:
    """Bytes that a device's layers keep of one microbatch, but for what waits in host memory.

    The sum of what each operation saves (`count.work.Op.saved`): of a GPT layer with dropout in 16
    bits under sequence parallelism 34 s b h / t + 5 a s^2 b / t, of which attention that is
    recomputed or fused spares the second term (Korthikanti et al. 2022, arXiv 2205.05198, eq. 4).
    """
    again = share.recompute_share(text)
    stays = (
        saved_bytes(c, cost, text, again) - c.offloaded for c in cost.layers
    )
    bytes_: Num = sum_of(zip(share.layers, stays, strict=True))
    return bytes_


def copy_bytes(layout: Layout, cost: ModelCost, stays: Num) -> Num:
    """Bytes of activations between device and host, beyond what stays of a microbatch."""
    if not offload(layout.offload).activations:
        return 0.0
    passing = LAYERS_IN_COPY * largest(layer.saved for layer in cost.layers)
    return maximum(passing - stays, 0.0)


def output_bytes(job: Job, layout: Layout, cost: ModelCost) -> Num:
    """Bytes of a stage's output that the framework keeps of one microbatch, beside the input."""
    if not holding.holding_of(job).keeps_pipeline_outputs:
        return 0.0
    return with_name(
        where(layout.pp > 1, cost.boundary, 0.0),
        "outputs of the stage",
        cost.boundary,
    )


def in_flight(p: Num, m: Num, schedule: Schedule, v: Num, rank: Num) -> Num:
    """Microbatches whose activations a device holds at its fullest moment.

    A folded schedule has both ends of the model on the first device; the others hold as many as
    any. A device that is alone has no chunks that others wait for: one stage, and none is folded.
    """
    alone = p == 1
    many = schedule.in_flight(p, m, where(alone, 1.0, v), rank)
    # of two chunks of the model on one device there is but one stage
    return where(alone & schedule.folded, minimum(m, 1.0), many)


def flights(
    job: Job,
    layout: Layout,
    schedule: Schedule,
    rank: Num,
    asked: Any = True,
) -> tuple[Num, Num, Num]:
    """Microbatches in flight on a device, and in either half of the head's backward pass, in the
    rows that are asked for.
    """
    p, m, v = layout.pp, microbatches(job, layout), layout.interleave
    if schedule.replayed:
        # an order that must be written down for it is a short one elsewhere
        p, m, v = (where(asked, n, 1.0) for n in (p, m, v))
        rank = where(asked, rank, 0.0)
    return in_flight(p, m, schedule, v=v, rank=rank), *schedule.logits(p, m, v)


def buffers(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    owned: Parameters,
    share: ModelShare,
    high: Layout | None = None,
) -> Num:
    """Bytes that are neither states nor activations, of one device: the framework's own, and whole
    units of sharded tensors while they are in use. high: the rows with the most replicas of an
    interval of dp (None: `layout`).
    """
    own: holding.Parts = {}
    if holding.counts_holding(job):
        own = holding.buffers(
            job,
            layout,
            cost,
            parameters=owned.total,
            layers=share.layers,
            high=high,
        )
    return holding.total(own | units_in_use(job, layout, cost, share), cost)


def units_in_use(
    job: Job, layout: Layout, cost: ModelCost, share: ModelShare
) -> holding.Parts:
    """Whole units of sharded tensors while they are in use on one device.

    ZeRO-3: the weights of two layers (one in use, one arriving) and of the embedding and head,
    which wrap the whole pass. ZeRO-2, 3: the gradient of the largest unit, before it is scattered.
    Only of what the device holds and other replicas share.
    """
    zero = layout.zero
    if not (cuts(zero, "gradients") and job.how.memory.working_set):
        return {}
    layers = [
        (n, _replicated_parameters(layout, c))
        for n, c in zip(share.layers, cost.layers, strict=True)
    ]
    # what is there with the first layer is freed before what comes with the last
    early, late = end_units(job, layout, cost, share)
    ends = where(layout.shards > 1, maximum(early.dense, late.dense), 0.0)
    layer = reduce(maximum, [where(n > 0, unit, 0.0) for n, unit in layers])
    units: holding.Parts = {}
    if cuts(zero, "weights"):
        units["whole weights in use"] = (
            _two_largest(layers) * holding.layer_weight_bytes(job)
            + ends * job.precision.weight_bytes
        )
    units["gradient of a unit"] = maximum(
        layer, ends
    ) * holding.unit_gradient_bytes(job)
    return units


def _two_largest(layers: list[tuple[Num, Num]]) -> Num:
    """Parameters of the two largest layers of a device. layers: (how many, parameters of one) of
    each kind. The maximum over every kind k of two of k, or, where there is one, of it and the
    largest other one.
    """

    def from_the(k: int) -> Num:
        n, unit = layers[k]
        # two of the kind, where a device has as many
        taken = minimum(n, 2.0)
        second = [
            minimum(2.0 - taken, other) * size
            for other, size in layers[:k] + layers[k + 1 :]
        ]
        return taken * unit + largest(second)

    return largest(from_the(k) for k in range(len(layers)))


def _replicated_parameters(layout: Layout, layer: LayerCost) -> Num:
    """Parameters of a layer of which there are replicas."""
    dense = where(layout.shards > 1, layer.weights, 0.0)
    return dense + where(layout.expert_shards > 1, layer.expert_weights, 0.0)


class FixedBytes(NamedTuple):
    """What stands on a device whatever microbatches hold."""

    states: States
    buffers: Num
    copies: Num | None = None
    """Of gradients, while the optimizer runs; None: there is no such moment."""

    def uses(self, kept: Num) -> list[Use]:
        """Bytes at the moments that may be its fullest: while microbatches keep so many, and when
        these are gone and the optimizer runs.
        """
        passes = Use(*self.states, kept, self.buffers)
        if self.copies is None:
            return [passes]
        return [passes, Use(*self.states, 0.0, self.buffers + self.copies)]


def fixed_bytes(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    owned: DeviceParameters,
    share: ModelShare,
    high: Layout | None = None,
) -> FixedBytes:
    """States and buffers of one device. high: None for layouts; for the bound of an interval of dp
    the rows with its most replicas, where states are smallest. `layout` has the fewest, where
    buffers are: none are needed of what nobody shares.
    """
    s = states(job, high or layout, owned.whole, owned.ends)
    whole = buffers(
        job, layout, cost, owned=owned.whole, share=share, high=high
    )
    if not holding.step_bytes(job):
        return FixedBytes(s, whole)
    copies = step_copies(job, s)
    name = "gradients copied for the step"
    return FixedBytes(s, whole, with_name(copies, name, cost.boundary))


def step_copies(job: Job, owned: States) -> Num:
    """Bytes of gradients copied while the optimizer runs, when activations are gone: of all
    parameters, or a replica's share.
    """
    if not job.state_bytes:
        return 0.0
    return owned.optimizer / job.state_bytes * holding.step_bytes(job)


def new_block(
    job: Job, layout: Layout, owned: Sequence[DeviceParameters]
) -> Num:
    """Bytes that the optimizer's step takes beside all that the allocator holds, on the device
    where they are most.
    """
    if not (
        holding.step_bytes(job)
        and holding.holding_of(job).step_copies == "new"
    ):
        return 0.0
    return largest(
        step_copies(job, states(job, layout, one.whole, one.ends))
        for one in owned
    )


def larger_use(a: Use, b: Use) -> Use:
    """The one with more bytes."""
    more = b.total > a.total
    return Use(*(where(more, y, x) for x, y in zip(a, b, strict=True)))
