"""What follows the pipeline: weights and gradients are synchronised, and the optimizer updates what a device owns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from ..cost import overlap
from ..cost.chip import compute_time, exposed_memory
from ..cost.layer import Clock
from ..count import optimizer, vocabulary
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches
from ..num import Num, maximum, where
from .microbatch import Body, backward, total
from .pipeline import Shares


class Collectives(NamedTuple):
    """Seconds of the weight and gradient collectives of one layer, and of the ends of the model: embedding and head."""

    all_reduce: Num
    gather: Num
    scatter: Num
    end_all_reduce: Num
    end_gather: Num
    end_scatter: Num


def collectives(job: Job, layout: Layout, parts: Body, at: Clock) -> Collectives:
    """Weights are replicated over dp x cp (group "replicas"), those of experts over edp.

    Ends: the larger of embedding and head, or both on a device that is alone.
    """
    p, fabric, t, e, h = job.precision, at.fabric, parts.typical, parts.embedding, parts.head
    both = e.weights + h.weights - tied(job, layout)
    weights = {"replicas": (t.weights, where(layout.pp == 1, both, maximum(e.weights, h.weights)))}
    if job.model.moe:
        weights["edp"] = (t.expert_weights, h.expert_weights)
    groups_ = {axis: layout.group(axis) for axis in weights}

    def each(kind: str, size: float, end: int) -> Num:
        return sum(fabric.time(kind, w[end] * size, groups_[axis]) for axis, w in weights.items())

    sizes = {"all_reduce": p.gradient_bytes, "all_gather": p.gather_bytes, "reduce_scatter": p.gradient_bytes}
    return Collectives(*(each(kind, size, end) for end in (0, 1) for kind, size in sizes.items()))


def tied(job: Job, layout: Layout) -> Num:
    """Parameters that embedding and head share on a device that holds both."""
    if not (job.model.tied_embeddings and job.assumptions.count.vocabulary):
        return 0.0
    return vocabulary.rows(job, layout) * float(job.model.hidden)


def synchronise(job: Job, layout: Layout, parts: Body, times: Collectives, recompute: str, zero: int, n: Num) -> Num:
    """Exposed seconds of weight and gradient collectives; n layers on the fullest device.

    ZeRO 0 all-reduces gradients once a step; 1 reduce-scatters them and gathers weights; 2 reduce-scatters after every
    microbatch; 3 also gathers the weights before each pass. The first gather and the last reduction of the ends are exposed.
    """
    m, gather, scatter = microbatches(job, layout), times.gather, times.scatter
    forward, back = total(parts.typical.forward), total(backward(parts.typical, recompute))
    hide = job.assumptions.overlap.dp != "none"

    def shown(time: Num, work: Num) -> Num:
        return overlap.behind_layers(time, work, n) if hide else time * n

    def again(time: Num, work: Num, units: Num = n) -> Num:
        return overlap.prefetched(time, work, units) if hide else time * units

    if zero == 0:
        return shown(times.all_reduce, back) + times.end_all_reduce
    ends = times.end_gather + times.end_scatter
    if zero == 1:
        return shown(gather, forward) + shown(scatter, back) + ends
    later = (m - 1) * again(times.end_scatter, back, 1.0)
    if zero == 2:
        return shown(gather, forward) + shown(scatter, back) + (m - 1) * again(scatter, back) + ends + later
    later = later + (m - 1) * again(times.end_gather, forward, 1.0) + m * again(times.end_gather, back, 1.0)
    first = shown(gather, forward) + (m - 1) * again(gather, forward)
    return first + m * again(gather + scatter, back) + (scatter if hide else 0.0) + ends + later


ENDS = ("first", "second", "last")
"""Devices that may be the fullest: most microbatches in flight, most layers, the logits."""
Held = tuple[Num, Num]
"""Parameters on a device: (dense, of experts)."""


def held(job: Job, layout: Layout, parts: Body, by: Shares, end: str) -> Held:
    """Parameters (dense, expert) of the first or the last device; a device that is alone holds a tied embedding once."""
    alone = layout.pp == 1
    dense = where(alone, by["whole"].of(parts, lambda c: c.weights), by[end].of(parts, lambda c: c.weights))
    if job.model.tied_embeddings:
        dense = dense - where(alone, tied(job, layout), 0.0)
    if not job.model.moe:
        return dense, 0.0
    return dense, where(
        alone, by["whole"].of(parts, lambda c: c.expert_weights), by[end].of(parts, lambda c: c.expert_weights)
    )


def update(job: Job, layout: Layout, ends: Sequence[Held], zero: int, at: Clock) -> Num:
    """Seconds of the optimizer on the device with the most parameters to update; ends: what the candidates hold."""
    if not job.assumptions.count.optimizer_step:
        return 0.0
    mine = reduce(maximum, [end[0] for end in ends]) / (layout.replicas if zero else 1.0)
    if job.model.moe:
        mine = mine + reduce(maximum, [end[1] for end in ends]) / (layout.expert_replicas if zero else 1.0)
    work, r = optimizer.update(job, mine), at.rates
    compute = compute_time(work, r)
    return compute + exposed_memory(work, compute, r)
