"""What a framework holds: whether that is counted, the bytes of each parameter, and sums by name.

Sources: the fields of `describe.holding.Holding`, each with its own in catalog/frameworks.
"""

from __future__ import annotations

from typing import NamedTuple

from ..describe.holding import Holding
from ..describe.job import Job
from ..describe.kernels import GENERIC, kernels
from ..describe.precision import Precision
from ..num import Num, with_names
from .microbatch import ModelCost
from .zero import is_sharded

NamedBytes = dict[str, Num]
"""Name -> bytes."""


SIXTEEN_BITS = 2.0
"""Bytes of a gradient that is accumulated in bf16 or fp16."""


class ParameterBytes(NamedTuple):
    """Bytes of one parameter on a device, as its framework has them under a ZeRO stage."""

    layer: float
    """Of the weight that a device keeps, of a layer."""
    end: float
    """The same of embedding or head, which are never narrow."""
    gradient: float
    """While it is accumulated."""
    lone_gradient: float
    """Of a gradient that waits for no sum over replicas: a shard, or of what no other rank has."""
    state: float
    """Of the optimizer."""
    whole_layer: float
    """Of the weight of a layer as its products find it (`layer_weight_bytes`)."""
    unit_gradient: float
    """Of the gradient of a sharded unit, before it is scattered."""
    step_copy: float
    """Of each parameter that a rank updates, while the optimizer runs."""


def parameter_bytes(job: Job, zero: int) -> ParameterBytes:
    """Of a job's parameters. A shard that is the fp32 master is the weight, and the state is the
    moments alone.
    """
    p, how = job.precision, job.how.memory.framework_holding
    gradient, unit_gradient, step = p.gradient_bytes, p.gradient_bytes, 0.0
    if job.how.memory.counts_holding:
        gradient = accumulated_bytes(p, how, bool(job.software.gradients))
        unit_gradient = {
            "accumulated": gradient,
            "activations": p.activation_bytes,
            "none": 0.0,
        }[how.unit_gradient]
        step = how.step_bytes if gradient <= SIXTEEN_BITS else 0.0
    narrow = job.how.memory.counts_holding and how.narrow_gradients
    whole = layer_weight_bytes(job)
    layer, end, state = whole, p.weight_bytes, job.state_bytes
    if job.master_is_weight and is_sharded(zero, "weights"):
        layer = end = job.optimizer.master_bytes
        state = job.state_bytes - layer
    return ParameterBytes(
        layer=layer,
        end=end,
        gradient=gradient,
        lone_gradient=p.weight_bytes if narrow else gradient,
        state=state,
        whole_layer=whole,
        unit_gradient=unit_gradient,
        step_copy=step,
    )


def accumulated_bytes(p: Precision, how: Holding, stated: bool) -> float:
    """Bytes of a gradient as the framework accumulates it; at least those that the job states, and
    16 bits where it states these. stated: the job's software says how wide gradients are.
    """
    if p.gradient_bytes <= p.activation_bytes:
        return p.gradient_bytes
    own = how.gradient_bytes.get(p.compute, p.gradient_bytes)
    return max(own, p.gradient_bytes) if stated else own


def layer_weight_bytes(job: Job) -> float:
    """Bytes of a weight of a layer: where FP8 or FP4 products find it narrow for a whole step
    (`Framework.weights_quantised`), those of the narrow copies, and beside them the wide weight
    unless it is gathered narrow too, so that there is none (--fp8-param-gather).
    """
    p, by = job.precision, job.profile
    if not (
        job.how.memory.counts_holding
        and by
        and by.weights_quantised == "step"
        and job.recipe
    ):
        return p.weight_bytes
    law = kernels(job.cluster.chip.kernel_law or GENERIC)
    narrow = law.quantised_weight[job.recipe]
    return (
        narrow if p.gather_bytes < p.weight_bytes else p.weight_bytes + narrow
    )


def total_bytes(bytes_: NamedBytes, cost: ModelCost | None = None) -> Num:
    """The sum of them, each by its name where the parts of the model are (`num.with_names`)."""
    if cost is None:
        return sum(bytes_.values(), 0.0)
    return sum(with_names(bytes_, cost.boundary), 0.0)
