"""What lives on a device, by kind: weights, gradients, optimizer state, activations, buffers.

The fullest device is the first of the pipeline (it holds the most microbatches), the second (the first may hold fewer or lighter layers) or
the last (it holds the logits: of one microbatch, or of as many as the schedule lets wait between its forward and its backward).
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from ..cost.layer import LayerCost
from ..count import vocabulary
from ..count.megatron import FP32
from ..count.work import local
from ..describe.job import Job, Precision
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import microbatches
from ..num import Num, maximum, minimum, where
from ..schedule.types import Schedule
from ..units import show
from . import ENDS, Body, Held, Share, Shares, held, redo, shares
from .sync import tied


class States(NamedTuple):
    """Bytes that live for the whole run on one device."""

    weights: Num
    gradients: Num
    optimizer: Num

    @property
    def total(self) -> Num:
        return self.weights + self.gradients + self.optimizer


class Use(NamedTuple):
    """Bytes on the fullest device."""

    weights: Num
    gradients: Num
    optimizer: Num
    activations: Num
    buffers: Num

    @property
    def total(self) -> Num:
        return self.activations + (self.weights + self.gradients + self.optimizer + self.buffers)


def states(job: Job, layout: Layout, parameters: Held, zero: int) -> States:
    """Weights, gradients and optimizer state of a device's parameters: ZeRO 1, 2, 3 shards the third, second, first of them over the replicas."""
    dense, expert = parameters
    split = dense / layout.replicas + (expert / layout.expert_replicas if job.model.moe else 0.0)
    full = dense + expert if job.model.moe else dense
    return sharded(job.precision, job.state_bytes, full, split, zero)


def sharded(p: Precision, state_bytes: float, full: Num, split: Num, zero: int) -> States:
    """Of `full` parameters, of which a replica's share is `split`."""
    kept = [full if zero < stage else split for stage in (3, 2, 1)]
    return States(kept[0] * p.weight_bytes, kept[1] * p.gradient_bytes, kept[2] * state_bytes)


def saved(layer: LayerCost, parts: Body, text: str, share: Num = 1.0) -> Num:
    """Bytes a layer keeps of one microbatch: everything, or in that share of layers what recomputation leaves."""
    again = redo(layer, text, parts.boundary)
    if not again:
        return layer.saved
    all_of_them = isinstance(share, float) and share == 1.0
    return again.saved if all_of_them else layer.saved + (again.saved - layer.saved) * share


def rebuilt(layer: LayerCost, parts: Body, text: str) -> Num:
    """Bytes of one layer that are there once more while its backward pass runs: of a layer that runs again as one, what it
    keeps inside beside what stayed."""
    way = recompute(text)
    if way.parts == "full":
        return layer.saved
    return layer.saved - saved(layer, parts, text) + parts.boundary if way.whole else 0.0


class Activations(NamedTuple):
    """Activation bytes of one device: so many for each microbatch in flight, for each at the head, and some once."""

    each: Num
    head: Num
    """Logits and what the products around them keep, from the head's forward to the gradient of its input."""
    late: Num
    """The same from there to the gradient of its weights: the logits' gradient, in the products' precision, instead."""
    once: Num

    def kept(self, flight: Num, heads: Num, late: Num) -> Num:
        """Their sum, with so many microbatches in flight and so many in either half of the head's backward pass."""
        return flight * self.each + heads * self.head + late * self.late + self.once


def activations(job: Job, layout: Layout, parts: Body, text: str, by: Shares, end: str) -> Activations:
    """Of the first or the last device: its layers' saved bytes, the logits, and once the layer being recomputed."""
    share = by[end]
    again = share.again(text)
    working = rebuilt(parts.typical, parts, text) if job.how.memory.working_set else 0.0
    alone, head = layout.pp == 1, parts.head.saved
    late = head - logits(job, layout) * (FP32 - job.precision.activation_bytes)
    each = share.typical * saved(parts.typical, parts, text, again)
    if job.model.moe:
        each = each + share.leading * saved(parts.leading, parts, text, again)
    if end == "last":
        found = (each, head * share.head, late * share.head, working)
        return Activations(*(where(alone, 0.0, bytes_) for bytes_ in found))
    mine = where(alone, 1.0, share.head)
    return Activations(each, head * mine, late * mine, working)


def logits(job: Job, layout: Layout) -> Num:
    """Logits of one microbatch on one device: tokens x V / tp."""
    if not (job.model.vocab and job.how.count.vocabulary):
        return 0.0
    size = local(layout.microbatch, job.T, layout.tp, layout.cp, layout.sequence_parallel)
    return size.tokens * vocabulary.rows(job, layout)


def in_flight(p: Num, m: Num, schedule: Schedule, v: Num, end: str) -> Num:
    """Microbatches whose activations the first, second or last device holds at its fullest moment.

    A folded schedule has both ends of the model on the first device; the others hold as many as any.
    """
    if schedule.folded:
        both, others = schedule.in_flight_last(p, m, v), schedule.in_flight(p, m, v)
        return {"first": both, "second": where(p > 2, others, both), "last": others}[end]
    count = {"first": schedule.in_flight, "second": schedule.in_flight_second, "last": schedule.in_flight_last}[end]
    return count(p, m, v)


def buffers(job: Job, layout: Layout, parts: Body, zero: int, by: Shares, end: str) -> Num:
    """The framework's own bytes, and whole units of sharded tensors while they are in use on one device.

    ZeRO-3: the weights of two layers (one in use, one arriving) and of the embedding and head, which wrap the whole pass. ZeRO-2, 3: the
    gradient of the largest unit, before it is scattered. Only of what the device holds and other replicas share.
    """
    own, p = float(job.how.memory.framework_bytes or 0.0), job.precision
    if zero < 2 or not job.how.memory.working_set:
        return own
    alone = layout.pp == 1
    share = Share(*(where(alone, a, b) for a, b in zip(by["whole"], by[end], strict=True)))
    layers = [(share.typical, _shared(layout, parts.typical))]
    if job.model.moe:
        layers.append((share.leading, _shared(layout, parts.leading)))
    ends = share.embedding * parts.embedding.weights + share.head * parts.head.weights
    ends = where(layout.replicas > 1, ends - where(alone, tied(job, layout), 0.0), 0.0)
    layer = reduce(maximum, [where(n > 0, unit, 0.0) for n, unit in layers])
    gathered = (_two_largest(layers) + ends) * p.weight_bytes if zero == 3 else 0.0
    return own + gathered + maximum(layer, ends) * p.gradient_bytes


def _two_largest(layers: list[tuple[Num, Num]]) -> Num:
    """Of the layers on a device, (how many, parameters of one) of each kind: of the largest kind both, or one and one of the other."""

    def from_the(kind: tuple[Num, Num], *others: tuple[Num, Num]) -> Num:
        n, unit = kind
        taken = minimum(n, 2.0)
        return taken * unit + sum(minimum(2.0 - taken, other) * size for other, size in others)

    return reduce(maximum, [from_the(*order) for order in (layers, layers[::-1])])


def _shared(layout: Layout, layer: LayerCost) -> Num:
    """Parameters of a layer of which there are replicas."""
    dense = where(layout.replicas > 1, layer.weights, 0.0)
    return dense + where(layout.expert_replicas > 1, layer.expert_weights, 0.0)


def of_devices(job: Job, layout: Layout, parts: Body, schedule: Schedule) -> dict[str, Use]:
    """Bytes by kind on the first, the second (any in the middle) and the last device of the pipeline."""
    by, v, found = shares(job, layout, schedule, layout.interleave), layout.interleave, {}
    for end in ENDS:
        s = states(job, layout, held(job, layout, parts, by, end), layout.zero)
        held_, m = activations(job, layout, parts, layout.recompute, by, end), microbatches(job, layout)
        heads = schedule.heads(layout.pp, m, v), schedule.heads_late(layout.pp, m, v)
        kept = held_.kept(in_flight(layout.pp, m, schedule, v, end), *heads)
        whole = buffers(job, layout, parts, layout.zero, by, end)
        found[end] = Use(s.weights, s.gradients, s.optimizer, kept, whole)
    return found


def fuller(a: Use, b: Use) -> Use:
    """The one with more bytes."""
    more = b.total > a.total
    return Use(*(where(more, y, x) for x, y in zip(a, b, strict=True)))


def use(job: Job, layout: Layout, parts: Body, schedule: Schedule) -> Use:
    """Bytes by kind on the fullest device."""
    return reduce(fuller, of_devices(job, layout, parts, schedule).values())


def capacity(job: Job) -> float:
    """Bytes that can be allocated on one chip."""
    return job.cluster.chip.hbm_bytes * job.how.memory.capacity_share


def fits(job: Job, bytes_: Any) -> Any:
    """True (element by element) where that many bytes can be allocated on a chip."""
    return bytes_ <= capacity(job)


def too_big(job: Job, bytes_: float) -> str:
    """The sentence for a layout that does not fit."""
    return f"{show(bytes_, 'GiB')} are needed on the fullest chip, but a {job.cluster.chip.name} can allocate {show(capacity(job), 'GiB')}"
