"""What a framework holds beside states and saved tensors: the head's logits, temporaries of the
backward pass, buffers, copies at the step.

Each function gives its bytes part by part, by name, of one device and (where it says so) one
microbatch; the names are those of the tree of terms. Letters: T tokens of a microbatch on a device,
V vocabulary rows of a tp rank, D width, k bytes a logit, t = tp. Sources: the fields of
`describe.holding.Holding`, each with its own in catalog/frameworks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..count import vocabulary
from ..count.blocks import FP32
from ..count.local import Local
from ..describe.holding import Holding
from ..describe.job import Job
from ..describe.kernels import GENERIC, kernels
from ..describe.layout import HIDDEN_CUT, Layout
from ..describe.loss import losses
from ..num import Num, largest, minimum, where, with_name
from .microbatch import ModelCost
from .zero import cuts

Parts = dict[str, Num]
"""Name -> bytes."""
GATHERED = 2.0
"""16-bit copies of logits gathered over tp: the list of the ranks' parts, and the whole; one at tp
1.
"""
HALF = 2.0
"""Bytes of a gradient accumulated in 16 bits."""


def counts_holding(job: Job) -> bool:
    """What the framework holds is counted."""
    return job.how.memory.resident == "held"


def holding_of(job: Job) -> Holding:
    """What the job's framework holds."""
    holding = job.how.memory.holding
    # a set that leaves it open is answered by its framework
    assert holding is not None
    return holding


def gradient_bytes(job: Job) -> float:
    """Bytes of a gradient as the framework accumulates it; at least those that the job states, and
    16 bits where it states these.
    """
    p = job.precision
    if not counts_holding(job) or p.gradient_bytes <= p.activation_bytes:
        return p.gradient_bytes
    own = holding_of(job).gradient_bytes.get(p.compute, p.gradient_bytes)
    return max(own, p.gradient_bytes) if job.software.gradients else own


def layer_weight_bytes(job: Job) -> float:
    """Bytes of a weight of a layer: where FP8 or FP4 products find it narrow for a whole step
    (`Framework.weights_quantised`), those of the narrow copies, and beside them the wide weight
    unless it is gathered narrow too, so that there is none (--fp8-param-gather).
    """
    p, by = job.precision, job.profile
    if not (
        counts_holding(job) and by and by.weights_quantised == "step"
    ) or p.compute not in ("fp8", "fp4"):
        return p.weight_bytes
    law = kernels(job.cluster.chip.kernel_law or GENERIC)
    recipe = "nvfp4" if p.compute == "fp4" else by.float8
    narrow = law.quantised_weight[recipe]
    return (
        narrow if p.gather_bytes < p.weight_bytes else p.weight_bytes + narrow
    )


class ParameterBytes(NamedTuple):
    """Bytes of one parameter of which a device keeps the weight, and of the optimizer's state."""

    layer: float
    """Weight of a layer."""
    end: float
    """Weight of embedding or head, which is never narrow."""
    state: float


def parameter_bytes(job: Job, zero: int) -> ParameterBytes:
    """Under a ZeRO stage: a shard that is the fp32 master is the weight, and the state is the
    moments alone.
    """
    if job.master_is_weight and cuts(zero, "weights"):
        master = job.optimizer.master_bytes
        return ParameterBytes(master, master, job.state_bytes - master)
    return ParameterBytes(
        layer_weight_bytes(job), job.precision.weight_bytes, job.state_bytes
    )


def logits(job: Job, layout: Layout) -> Num:
    """Logits of one microbatch on one device: T V of the head, and of each block that predicts
    further tokens."""
    if not (job.model.vocab and job.how.count.vocabulary):
        return 0.0
    number = Local.of(job, layout).tokens * vocabulary.rows(
        job.model, layout.tp
    )
    return number * (1.0 + job.model.mtp_layers)


def head(job: Job, layout: Layout, cost: ModelCost) -> Parts:
    """Of one microbatch, from the head's forward pass to the gradient of its input: k bytes of each
    of its logits (gathered: k t), what the products around them keep, and the placeholder of the
    head's weight gradient."""
    how = holding_of(job)
    number = logits(job, layout)
    act = job.precision.activation_bytes
    if job.profile and job.profile.logits_gathered:
        whole, _, _ = losses()["eager"].over(1)
        copies = where(layout.tp > 1, GATHERED, GATHERED - 1.0)
        lost = number * layout.tp * (whole + copies * act)
    elif job.profile:
        each, _, _ = losses()[job.profile.loss].over(layout.tp)
        lost = number * each
    else:
        lost = number * FP32
    bytes_ = {
        "logits and loss": lost,
        "inputs of the head": cost.head.saved - number * FP32,
    }
    if how.dummy_weight_gradients and job.model.vocab:
        rows = vocabulary.rows(job.model, layout.tp) * job.model.hidden
        bytes_["placeholder of the head's gradient"] = (
            rows * job.precision.weight_bytes
        )
    return bytes_


def backward_bytes(job: Job, layout: Layout, saved: Num, kept: Num) -> Parts:
    """Bytes beside what is kept, while one layer's backward pass of one microbatch runs. saved:
    bytes the layer keeps if nothing is computed again;  kept: bytes it does keep.

    With activations cut over tp 2 T D (1 - 1/t) numbers: the gathered input of a product and its
    gradient, beside their shards.
    """
    how = holding_of(job)
    bytes_: Parts = {
        "computed again": saved - kept if how.holds_recomputed else 0.0,
        "temporaries of the backward pass": how.backward_share * saved,
    }
    if layout.sequence_parallel and layout.scheme in (
        "megatron",
        *HIDDEN_CUT,
    ):
        size = Local.of(job, layout)
        copies = 4.0 if how.gathered_twice else 2.0
        wide = size.tokens * job.model.hidden * (1.0 - 1.0 / layout.tp)
        bytes_["gathered over tp"] = (
            copies * wide * job.precision.activation_bytes
        )
    return bytes_


def buffers(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    parameters: Num,
    layers: tuple[Num, ...],
    high: Layout | None = None,
) -> Parts:
    """For the whole run: placeholders of the weight gradients of one layer, and the block in which
    gradients are reduced. Gradients of sharded units are no placeholders: no product adds them up
    (Megatron-FSDP in Megatron-Bridge's recipes, perf_recipes at 067f987d:
    gradient_accumulation_fusion = False).

    parameters: of the device, its experts included;  layers: how many it has of each kind;  high:
    the rows with the most replicas of an interval of dp (None: `layout`).
    """
    how = holding_of(job)
    bytes_ = Parts()
    if how.dummy_weight_gradients:
        moe = job.model.moe
        # all have the same shape
        experts = moe.experts / layout.ep if moe else 1.0
        shapes = largest(
            where(n > 0, c.weights + c.expert_weights / experts, 0.0)
            for n, c in zip(layers, cost.layers, strict=True)
        )
        bytes_["placeholders of weight gradients"] = (
            where((high or layout).shards > 1, 0.0, shapes)
            if cuts(layout.zero, "gradients")
            else shapes
        ) * job.precision.weight_bytes
    if how.bucket_elements:
        sent = minimum(gradient_bytes(job), FP32)
        bucket = where(
            layout.replicas > 1, minimum(parameters, how.bucket_elements), 0.0
        )
        bytes_["bucket of gradients"] = bucket * sent
    return bytes_


def unit_gradient_bytes(job: Job) -> float:
    """Bytes of a gradient of a unit before it is scattered."""
    if not counts_holding(job):
        return job.precision.gradient_bytes
    wide = {
        "accumulated": gradient_bytes(job),
        "activations": job.precision.activation_bytes,
        "none": 0.0,
    }
    return wide[holding_of(job).unit_gradient]


def step_bytes(job: Job) -> float:
    """Bytes of each parameter that a rank updates, while the optimizer runs."""
    return (
        holding_of(job).step_bytes
        if counts_holding(job) and gradient_bytes(job) <= HALF
        else 0.0
    )


def largest_backward_bytes(
    layers: tuple[Num, ...], kinds: Sequence[Parts]
) -> Parts:
    """`backward_bytes` of the kind of layer that takes most, row by row. layers: how many of each
    kind the device has;  kinds: the bytes of one layer of each.
    """
    most: Parts = {}
    for n, parts in zip(layers, kinds, strict=True):
        bytes_ = {
            name: where(n > 0, size, 0.0) for name, size in parts.items()
        }
        if most:
            more = total(bytes_) > total(most)
            bytes_ = {
                name: where(more, bytes_[name], size)
                for name, size in most.items()
            }
        most = bytes_
    return most


def total(bytes_: Parts, cost: ModelCost | None = None) -> Num:
    """The sum of them, each by its name where the parts of the model are (`num.with_name`)."""
    if cost is None:
        return sum(bytes_.values(), 0.0)
    kept = cost.boundary
    return sum(
        (with_name(size, name, kept) for name, size in bytes_.items()), 0.0
    )
