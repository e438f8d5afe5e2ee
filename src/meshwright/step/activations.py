"""What microbatches keep on a device from their forward to their backward passes, and what their
backward passes take beside it.

Each function gives its bytes of one device and (where it says so) one microbatch; where they have
parts, by the names of the tree of terms. Letters: T tokens of a microbatch on a device, V
vocabulary rows of a tp rank, D width, k bytes a logit, t = tp. What a framework holds of them: the
fields of `describe.holding.Holding`, each with its source in catalog/frameworks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..cost.layer import LayerCost
from ..count import vocabulary
from ..count.blocks import FP32
from ..count.microbatch import DeviceMicrobatch
from ..describe.layout import HIDDEN_CUT, Layout
from ..describe.recompute import recompute
from ..num import Num, largest, maximum, minimum, sum_of, where, with_name
from ..schedule.schedule import Schedule
from .holding import NamedBytes, total_bytes
from .microbatch import ModelCost, leaving_bytes, saved_bytes
from .shares import ModelShare

LAYERS_IN_COPY = 2.0
"""Layers whose activations are on the device at least while others leave for host memory or come
back: one that is copied, beside the one that is computed. Where more stay, none beside them: a
layer leaves while later ones fill the room of those that stay (Transformer Engine,
NVIDIA/TransformerEngine@d0067d0da, pytorch/cpu_offload.py, DefaultOffloadSynchronizer: the peak is
that of the layers that are not offloaded)."""


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
    last: Num
    """Of a layer in the backward pass as all gradients are there: of its last one, when those of
    all others are gone, or of the first one, beside all of them (`Holding.step_gradients`).
    """

    def total(self, flight: Num, heads: Num, late: Num) -> Num:
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
    microbatch: DeviceMicrobatch,
    cost: ModelCost,
    devices: Sequence[ModelShare],
) -> list[Activations]:
    """Activation bytes of each device: its layers' saved bytes, the logits, and once the layer that
    is being recomputed.

    Where a framework's holdings are counted (`holding`) these replace the textbook's: the head's
    tensors are gone before a layer's backward pass begins, so `once` is what that pass takes beyond
    them.
    """
    mode = microbatch.layout.recompute
    holding = microbatch.job.how.memory.framework_holding
    in_loop = holding.step_gradients == "loop"
    head = cost.head.saved
    late = head - logits(microbatch) * (FP32 - microbatch.act)
    output: Num = 0.0
    backward: list[NamedBytes] = []
    if microbatch.job.how.memory.counts_holding:
        head = total_bytes(head_bytes(microbatch, cost), cost)
        output = output_bytes(microbatch, cost)
        backward = [
            backward_bytes(microbatch, c.saved, saved_bytes(c, cost, mode))
            for c in cost.layers
        ]

    def on(share: ModelShare) -> Activations:
        last: Num = 0.0
        stays = saved_by_layers(cost, mode, share)
        copies = copy_bytes(cost, mode, stays)
        if backward:
            layer = largest_backward_bytes(share.layers, backward)
            work = total_bytes(layer, cost)
            last = work + (
                stays + copies
                if in_loop
                else largest(
                    where(n > 0, saved_bytes(c, cost, mode), 0.0)
                    for n, c in zip(share.layers, cost.layers, strict=True)
                )
            )
            # the head's own work may be the larger one, and stands beside it already
            once = maximum(work - head * share.head, 0.0)
        else:
            once = recomputed_layer(microbatch, cost, mode, share)
        return Activations(
            stays + output,
            head * share.head,
            late * share.head,
            once + copies,
            last,
        )

    return [on(share) for share in devices]


def logits(microbatch: DeviceMicrobatch) -> Num:
    """Logits of one microbatch on one device: T V of the head, and of each block that predicts
    further tokens."""
    model = microbatch.model
    if not (model.vocab and microbatch.counting.vocabulary):
        return 0.0
    number = microbatch.tokens * vocabulary.rows(
        microbatch.model, microbatch.profile, microbatch.tp
    )
    return number * (1.0 + model.mtp_layers)


def head_bytes(microbatch: DeviceMicrobatch, cost: ModelCost) -> NamedBytes:
    """Of one microbatch, from the head's forward pass to the gradient of its input: k bytes of each
    of its logits (gathered: k t), or, where that is more, their gradient and that of the input;
    what the products around them keep, and the placeholder of the head's weight gradient."""
    how = microbatch.job.how.memory.framework_holding
    number = logits(microbatch)
    act = microbatch.act
    counted = microbatch.model.vocab and microbatch.counting.vocabulary
    lost: Num = 0.0
    gradients = number
    if by := microbatch.profile:
        m, loss = microbatch.model, vocabulary.loss_bytes(by)
        rows = vocabulary.rows(m, by, microbatch.tp)
        if counted:
            lost, _, _ = loss.whole(
                microbatch.tokens,
                rows * microbatch.tp if by.logits_gathered else rows,
                m.hidden,
                microbatch.tp,
            )
            lost = lost * (1.0 + m.mtp_layers)
            gradients = loss.gradients(microbatch.tokens, rows, m.hidden)
            gradients = gradients * (1.0 + m.mtp_layers)
    else:
        lost = number * FP32
    bytes_ = {
        "logits and loss": lost,
        "inputs of the head": cost.head.saved - number * FP32,
    }
    if microbatch.model.vocab:
        # then of the logits only their gradient is left, in the numbers of the products
        beside = total_bytes(gathered_over_tp(microbatch, head=True))
        back = gradients * act + cost.boundary + beside
        bytes_["gradient of the head's input"] = maximum(back - lost, 0.0)
    if how.dummy_weight_gradients and microbatch.model.vocab:
        rows = (
            vocabulary.rows(
                microbatch.model, microbatch.profile, microbatch.tp
            )
            * microbatch.model.hidden
        )
        bytes_["placeholder of the head's gradient"] = rows * microbatch.wgt
    return bytes_


def saved_by_layers(cost: ModelCost, mode: str, share: ModelShare) -> Num:
    """Bytes that a device's layers keep of one microbatch, but for what waits in host memory.

    The sum of what each operation saves (`count.work.Op.saved`): of a GPT layer with dropout in 16
    bits under sequence parallelism 34 s b h / t + 5 a s^2 b / t, of which attention that is
    recomputed or fused spares the second term (Korthikanti et al. 2022, arXiv 2205.05198, eq. 4).
    """
    again = share.recompute_share(mode)
    away = cost.away.share if cost.away else 0.0
    stays = (
        saved_bytes(c, cost, mode, again)
        - leaving_bytes(c, cost, mode, again) * away
        for c in cost.layers
    )
    bytes_: Num = sum_of(zip(share.layers, stays, strict=True))
    return bytes_


def recompute_bytes(layer: LayerCost, cost: ModelCost, mode: str) -> Num:
    """Bytes of one layer that are there once more while its backward pass runs: of a layer that
    runs again as one, what it keeps inside beside what stayed."""
    way = recompute(mode)
    if way.parts == "full":
        return layer.saved
    return (
        layer.saved - saved_bytes(layer, cost, mode) + cost.boundary
        if way.whole
        else 0.0
    )


def recomputed_layer(
    microbatch: DeviceMicrobatch, cost: ModelCost, mode: str, share: ModelShare
) -> Num:
    """Bytes of the layer being recomputed, of the kind on a device that takes most."""
    if not microbatch.job.how.memory.working_set:
        return 0.0
    sizes = [recompute_bytes(layer, cost, mode) for layer in cost.layers]
    if len(sizes) == 1:  # all devices have some of the only kind
        return sizes[0]
    return largest(
        where(n > 0, size, 0.0)
        for n, size in zip(share.layers, sizes, strict=True)
    )


def backward_bytes(
    microbatch: DeviceMicrobatch, saved: Num, kept: Num
) -> NamedBytes:
    """Bytes beside what is kept, while one layer's backward pass of one microbatch runs. saved:
    bytes the layer keeps if nothing is computed again;  kept: bytes it does keep.
    """
    how = microbatch.job.how.memory.framework_holding
    return {
        "computed again": saved - kept if how.holds_recomputed else 0.0,
        "temporaries of the backward pass": how.backward_share * saved,
        **gathered_over_tp(microbatch),
    }


def gathered_over_tp(
    microbatch: DeviceMicrobatch, head: bool = False
) -> NamedBytes:
    """With activations cut over tp 2 T D numbers: the gathered input of a product and the gradient
    of it, both whole beside their shards, in the product's backward pass. head: of the product that
    makes logits, whose input is counted where it was kept whole.
    """
    layout = microbatch.layout
    if not layout.sequence_parallel or layout.scheme not in (
        "megatron",
        *HIDDEN_CUT,
    ):
        return {}
    copies = (
        4.0
        if microbatch.job.how.memory.framework_holding.gathered_twice
        else 2.0
    )
    if head and microbatch.counting.gathered_inputs == "kept":
        copies /= 2.0
    wide = where(
        microbatch.tp > 1, microbatch.tokens * microbatch.model.hidden, 0.0
    )
    return {"gathered over tp": copies * wide * microbatch.act}


def largest_backward_bytes(
    layers: tuple[Num, ...], kinds: Sequence[NamedBytes]
) -> NamedBytes:
    """`backward_bytes` of the kind of layer that takes most, row by row. layers: how many of each
    kind the device has;  kinds: the bytes of one layer of each.
    """
    most: NamedBytes = {}
    for n, parts in zip(layers, kinds, strict=True):
        bytes_ = {
            name: where(n > 0, size, 0.0) for name, size in parts.items()
        }
        if most:
            more = total_bytes(bytes_) > total_bytes(most)
            bytes_ = {
                name: where(more, bytes_[name], size)
                for name, size in most.items()
            }
        most = bytes_
    return most


def output_bytes(microbatch: DeviceMicrobatch, cost: ModelCost) -> Num:
    """Bytes of a stage's output that the framework keeps of one microbatch, beside the input."""
    if not microbatch.job.how.memory.framework_holding.keeps_pipeline_outputs:
        return 0.0
    return with_name(
        where(microbatch.layout.pp > 1, cost.boundary, 0.0),
        "outputs of the stage",
        cost.boundary,
    )


def copy_bytes(cost: ModelCost, mode: str, stays: Num) -> Num:
    """Bytes of activations between device and host, beyond what stays of a microbatch, which gives
    them room where whole layers leave."""
    if not cost.away:
        return 0.0
    passing = LAYERS_IN_COPY * largest(
        leaving_bytes(layer, cost, mode) for layer in cost.layers
    )
    return maximum(passing - stays, 0.0) if cost.away.whole else passing


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
    layout: Layout,
    m: Num,
    schedule: Schedule,
    ranks: Sequence[Num],
    mask: Any = True,
) -> tuple[list[Num], Num, Num]:
    """Of m microbatches, those in flight on each of some devices, and those in either half of the
    head's backward pass, in the rows of a mask.
    """
    p, v = layout.pp, layout.interleave
    if schedule.replayed:
        # an order that must be written down for it is a short one elsewhere
        p, m, v = (where(mask, n, 1.0) for n in (p, m, v))
        ranks = [where(mask, rank, 0.0) for rank in ranks]
    flight = [in_flight(p, m, schedule, v=v, rank=rank) for rank in ranks]
    return flight, *schedule.logits(p, m, v)
