"""What lives on a device, by kind: weights, gradients, optimizer state, activations, buffers.

The fullest device is the first of the pipeline (it holds the most microbatches) or the last (it holds the logits).
"""

from __future__ import annotations

from typing import NamedTuple

from .num import Num, minimum, where
from .schedule.types import Schedule
from .spec.job import Job
from .spec.layout import Layout
from .step import Body, held, layers_on, microbatches


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
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


def states(job: Job, layout: Layout, parts: Body, zero: int, schedule: Schedule, v: Num, end: str) -> States:
    """Weights, gradients and optimizer state of the first or last device: ZeRO 1, 2, 3 shards the third, second, first of them over dp x cp."""
    dense, expert = held(job, layout, parts, schedule, v, end)
    p, o = job.precision, job.optimizer
    shard, experts = layout.replicas, layout.expert_replicas
    split = dense / shard + (expert / experts if job.model.moe else 0.0)
    full = dense + expert if job.model.moe else dense
    kept = [full if zero < stage else split for stage in (3, 2, 1)]
    return States(kept[0] * p.weight_bytes, kept[1] * p.gradient_bytes, kept[2] * o.state_bytes)


def saved(parts: Body, recompute: str) -> Num:
    """Bytes a layer keeps of one microbatch: everything, all but the core of attention, or only its input."""
    return {"none": parts.typical.saved, "selective": parts.typical.saved_selective, "full": parts.boundary}[recompute]


def activations(job: Job, layout: Layout, parts: Body, recompute: str, schedule: Schedule, v: Num, end: str) -> Num:
    """Activation bytes of the first or the last device at its fullest moment, the layer being recomputed included."""
    n, n_first, n_last = layers_on(job, layout, schedule.chunks(v))
    m = microbatches(job, layout)
    keep, t = saved(parts, recompute), parts.typical
    working = t.saved if recompute == "full" and job.assumptions.memory.working_set else 0.0
    alone = layout.pp == 1
    if end == "last":
        return where(alone, 0.0, schedule.in_flight_last(layout.pp, m, v) * n_last * keep + parts.head.saved + working)
    early = minimum(n_first, float(job.model.moe.dense_layers)) if job.model.moe else 0.0
    extra = early * (parts.leading.saved - t.saved) if recompute != "full" and job.model.moe else 0.0
    head = parts.head.saved if schedule.folded else where(alone, parts.head.saved, 0.0)
    return schedule.in_flight(layout.pp, m, v) * (n_first * keep + extra) + head + working


def buffers(job: Job, layout: Layout, parts: Body, zero: int) -> Num:
    """The framework's own bytes, and with ZeRO-3 two layers of gathered weights (one in use, one arriving)."""
    how = job.assumptions.memory
    gathered = 2 * (parts.typical.weights + parts.typical.expert_weights) * job.precision.weight_bytes if zero == 3 and how.working_set else 0.0
    return gathered + how.framework_bytes


def use(job: Job, layout: Layout, parts: Body, schedule: Schedule) -> Use:
    """Bytes by kind on the fuller of the first and the last device."""
    ends = []
    for end in ("first", "last"):
        s = states(job, layout, parts, layout.zero, schedule, layout.interleave, end)
        ends.append((s, activations(job, layout, parts, layout.recompute, schedule, layout.interleave, end)))
    (a, act_a), (b, act_b) = ends
    last = b.total + act_b > a.total + act_a
    chosen = [where(last, y, x) for x, y in zip((*a, act_a), (*b, act_b), strict=True)]
    return Use(*chosen, buffers(job, layout, parts, layout.zero))


def capacity(job: Job) -> float:
    """Bytes that can be allocated on one chip."""
    return job.cluster.chip.hbm_bytes * job.assumptions.memory.capacity_share

