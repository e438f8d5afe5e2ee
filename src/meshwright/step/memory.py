"""What lives on a device, by kind: weights, gradients, optimizer state, activations, buffers.

The fullest device is the first of the pipeline (it holds the most microbatches), the second (the
first may hold fewer or lighter layers) or the last (it holds the logits: of one microbatch, or of
as many as the schedule lets wait between its forward and its backward). What microbatches keep is
in `activations`, the bytes of a parameter in `holding`; what stands whatever microbatches hold is
here; how much of it all a device must have, in `oom`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from ..cost.layer import LayerCost
from ..count.blocks import FP32
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..layout.stages import microbatches
from ..num import Num, largest, maximum, minimum, where, with_name
from .holding import (
    NamedBytes,
    ParameterBytes,
    parameter_bytes,
    total_bytes,
)
from .microbatch import ModelCost
from .parameters import DeviceParameters, Parameters, end_parts, shard
from .shares import ModelShare
from .zero import States, is_sharded, state_bytes

NO_ENDS = Parameters(0.0, 0.0)
"""Parameters of embedding and head where a device has none."""


class MemoryUse(NamedTuple):
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


def larger_use(a: MemoryUse, b: MemoryUse) -> MemoryUse:
    """The one with more bytes."""
    more = b.total > a.total
    return MemoryUse(*(where(more, y, x) for x, y in zip(a, b, strict=True)))


class FixedBytes(NamedTuple):
    """What stands on a device whatever microbatches hold."""

    states: States
    buffers: Num
    copies: Num | None = None
    """Of gradients, while the optimizer runs; None: there is no such moment."""
    early: Num | None = None
    """Of gradients, as the backward pass of the last layer begins; None: all of them."""

    def apart(self, kept: Num) -> Num:
        """Bytes of the blocks that tensors lie in while microbatches keep so many, where gradients
        take none that activations leave.
        """
        return MemoryUse(*self.states, kept, self.buffers).total

    def uses(self, kept: Num, last: Num) -> list[MemoryUse]:
        """Bytes at the moments that may be its fullest: while microbatches keep so many; where
        gradients come later than the logits, in the backward pass of the layer with which all
        gradients are there (`Activations.last`; before it both change evenly); and when all
        activations are gone and the optimizer runs.
        """
        moments = [MemoryUse(*self.states, kept, self.buffers)]
        if self.early is not None:
            begun = self.states._replace(gradients=self.early)
            moments = [
                MemoryUse(*begun, kept, self.buffers),
                MemoryUse(*self.states, last, self.buffers),
            ]
        if self.copies is not None:
            copies = self.buffers + self.copies
            moments.append(MemoryUse(*self.states, 0.0, copies))
        return moments


def fixed_bytes(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    per_parameter: ParameterBytes,
    owned: DeviceParameters,
    share: ModelShare,
) -> FixedBytes:
    """States and buffers of one device: of an interval of dp the states of its most replicas, which
    are smallest, and the buffers of its fewest, since none are needed of what nobody shares.
    """
    living = states(job, layout, per_parameter, owned.whole, owned.ends)
    units = buffers(
        job,
        layout,
        cost,
        per_parameter=per_parameter,
        owned=owned.whole,
        share=share,
    )
    early = early_gradients(
        job, layout.most_replicas, living, per_parameter, owned.ends
    )
    if not per_parameter.step_copy:
        return FixedBytes(living, units, early=early)
    copies = step_copies(job, layout, living, per_parameter)
    name = "gradients copied for the step"
    copies = with_name(copies, name, cost.boundary)
    return FixedBytes(living, units, copies, early)


def early_gradients(
    job: Job,
    layout: Layout,
    living: States,
    per_parameter: ParameterBytes,
    ends: Parameters,
) -> Num | None:
    """Bytes of gradients that are there before those of layers: of embedding and head (`ends`), in
    a step of one microbatch whose gradients no bucket keeps. living: the states of the device.
    """
    if not (
        job.how.memory.counts_holding
        and job.how.memory.framework_holding.step_gradients != "kept"
    ):
        return None
    more = microbatches(job, layout) > 1
    if not is_sharded(layout.zero, "gradients"):
        more = more | (layout.shards > 1)
    first = shard(layout, ends) * per_parameter.lone_gradient
    return where(more, living.gradients, minimum(first, living.gradients))


def states(
    job: Job,
    layout: Layout,
    per_parameter: ParameterBytes,
    parameters: Parameters,
    ends: Parameters = NO_ENDS,
) -> States:
    """Weights, gradients and optimizer state of a device's parameters, of which those of embedding
    and head (`ends`) are never narrow. Of an interval of dp shards are those of its most replicas,
    and gradients that wait for nobody those of its fewest, where they are most.
    """
    away = offload(layout.offload)
    on_device = 0.0 if away.weights else 1.0
    split = shard(layout.most_replicas, parameters)
    bytes_ = state_bytes(
        per_parameter.layer * on_device,
        per_parameter.gradient * on_device,
        per_parameter.state * (1.0 - away.optimizer),
        full=parameters.total,
        split=split,
        zero=layout.zero,
    )
    if (
        narrower := (per_parameter.gradient - per_parameter.lone_gradient)
        * on_device
    ):
        lone = lone_gradients(layout, parameters, split)
        bytes_ = bytes_._replace(gradients=bytes_.gradients - lone * narrower)
    wider = (per_parameter.end - per_parameter.layer) * on_device
    if not wider:
        return bytes_
    sharded = is_sharded(layout.zero, "weights")
    wide = shard(layout.most_replicas, ends) if sharded else ends.total
    return bytes_._replace(weights=bytes_.weights + wide * wider)


def lone_gradients(layout: Layout, whole: Parameters, split: Num) -> Num:
    """How many of the gradients on a device wait for no sum over replicas: those of its shard
    (`split`), or whole ones of weights that no other rank has.
    """
    if is_sharded(layout.zero, "gradients"):
        return split
    return where(layout.shards > 1, 0.0, whole.dense) + where(
        layout.expert_shards > 1, 0.0, whole.expert
    )


def buffers(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    per_parameter: ParameterBytes,
    owned: Parameters,
    share: ModelShare,
) -> Num:
    """Bytes that are neither states nor activations, of one device: the framework's own, and whole
    units of sharded tensors while they are in use.
    """
    own: NamedBytes = {}
    if job.how.memory.counts_holding:
        own = framework_buffers(
            job,
            layout,
            cost,
            per_parameter=per_parameter,
            parameters=owned.total,
            layers=share.layers,
        )
    return total_bytes(
        own | units_in_use(job, layout, cost, per_parameter, share), cost
    )


def framework_buffers(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    per_parameter: ParameterBytes,
    parameters: Num,
    layers: tuple[Num, ...],
) -> NamedBytes:
    """For the whole run: placeholders of the weight gradients of one layer, and the block in which
    gradients are reduced. Gradients of sharded units are no placeholders: no product adds them up
    (Megatron-FSDP in Megatron-Bridge's recipes, perf_recipes at 067f987d:
    gradient_accumulation_fusion = False).

    parameters: of the device, its experts included;  layers: how many it has of each kind.
    """
    how = job.how.memory.framework_holding
    bytes_ = NamedBytes()
    if how.dummy_weight_gradients:
        moe = job.model.moe
        # all have the same shape
        experts = moe.experts / layout.ep if moe else 1.0
        shapes = largest(
            where(n > 0, c.weights + c.expert_weights / experts, 0.0)
            for n, c in zip(layers, cost.layers, strict=True)
        )
        bytes_["placeholders of weight gradients"] = (
            where((layout.most_replicas).shards > 1, 0.0, shapes)
            if is_sharded(layout.zero, "gradients")
            else shapes
        ) * job.precision.weight_bytes
    if how.bucket_elements:
        sent = minimum(per_parameter.gradient, FP32)
        most = job.software.bucket_size or how.bucket_elements
        bucket = where(layout.replicas > 1, minimum(parameters, most), 0.0)
        bytes_["bucket of gradients"] = bucket * sent
    return bytes_


def units_in_use(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    per_parameter: ParameterBytes,
    share: ModelShare,
) -> NamedBytes:
    """Whole units of sharded tensors while they are in use on one device.

    ZeRO-3: the weights of two layers (one in use, one arriving) and of embedding and head, where
    these are one unit that wraps the whole pass, else of either. ZeRO-2, 3: the gradient of the
    largest unit, before it is scattered. Only of what the device holds and other replicas share.
    """
    zero = layout.zero
    if not (is_sharded(zero, "gradients") and job.how.memory.working_set):
        return {}
    layers = [
        (n, _replicated_parameters(layout, c))
        for n, c in zip(share.layers, cost.layers, strict=True)
    ]
    # what is there with the first layer is freed before what comes with the last
    early, late = end_parts(job, layout, cost, share)
    ends = where(layout.shards > 1, maximum(early.dense, late.dense), 0.0)
    layer = reduce(maximum, [where(n > 0, unit, 0.0) for n, unit in layers])
    units: NamedBytes = {}
    if is_sharded(zero, "weights"):
        units["whole weights in use"] = (
            _two_largest(layers) * per_parameter.whole_layer
            + ends * job.precision.weight_bytes
        )
    units["gradient of a unit"] = (
        maximum(layer, ends) * per_parameter.unit_gradient
    )
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


def step_copies(
    job: Job, layout: Layout, living: States, per_parameter: ParameterBytes
) -> Num:
    """Bytes of gradients copied while the optimizer runs, when activations are gone: of all
    parameters, or a replica's share, or as many as are updated at once. living: the states of the
    device.
    """
    if not job.state_bytes:
        return 0.0
    number = living.optimizer / job.state_bytes
    most = job.how.memory.framework_holding.step_elements
    if most and is_sharded(layout.zero, "weights"):
        number = minimum(number, most)
    return number * per_parameter.step_copy


def new_block(
    job: Job, layout: Layout, owned: Sequence[DeviceParameters]
) -> Num:
    """Bytes that the optimizer's step takes beside all that the allocator holds, on the device
    where they are most.
    """
    per_parameter = parameter_bytes(job, layout.zero)
    if (
        not per_parameter.step_copy
        or job.how.memory.framework_holding.step_copies != "new"
    ):
        return 0.0
    every = [
        states(job, layout, per_parameter, one.whole, one.ends)
        for one in owned
    ]
    return largest(
        step_copies(job, layout, one, per_parameter) for one in every
    )
