"""What no walk through the trainer's program undercuts, for one layout and for tables: a search
ranks by it, and walks what may be among the best (`search.ranked`), as pipelines are replayed.

A peak is at least what lives at any moment of the step. Two moments of a rank are looked at, in
each of which all that is counted lives at once, by the walk's own rules:

    F F F F | F B F B F B ..           | B B B
            full: the most microbatches wait, no gradient is whole yet
                          later: a backward pass of every chunk is done, `fewer` wait

On the rank of the head the loss is made at both. What is counted, and why no walk is below it:

    shards         three fp32 numbers a parameter: added before the first action, never let go; a
                   walk's shards have rows that pad them besides
    waiting each   a forward pass leaves what its layers save, the stage's output and what arrived;
                   chunks hold as many layers as the smallest (`even`), so that any chunk may wait
    loss           of one microbatch what the head keeps, its logits, and their gradient
    gathered       without ZeRO-3 whole weights: of all chunks, or as many as PyTorch keeps
    gradients      later: whole in fp32 from the first backward pass of a unit to its reduction,
                   which waits for the last microbatch, or as a shard where it does not

Left out is what a layer's backward pass takes besides, which is seldom what decides, and what is
not there in every such moment: rows that pad shards, buffers of receives, weights that are fetched
ahead. Which microbatches wait when (`later`, `waiting`) follows from the orders of the schedules,
and is not proven for others: tests draw jobs and walk them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from ..count import vocabulary
from ..count.microbatch import DeviceMicrobatch
from ..count.model import layer
from ..describe.job import Job
from ..describe.layers import sorts
from ..describe.layout import Layout
from ..layout.stages import microbatches
from ..num import Num, floor, maximum, minimum, sum_of, where
from ..schedule import groups
from ..schedule.schedule import Schedule
from ..step import (
    ModelCost,
    ModelShare,
    activations,
    model_shares,
    parameters_of,
)
from ..step.parameters import Parameters, shard
from ..step.zero import is_sharded
from . import tensors
from .operations import FP32, OPERATIONS, recomputation
from .order import ACTIVE


def least_bytes(
    job: Job, layout: Layout, cost: ModelCost, schedule: Schedule
) -> Num:
    """Bytes on the fullest device, at least. layout: its numbers may be arrays, but for chunks."""
    by = model_shares(job.model, layout.pp, schedule, layout.interleave)
    kept: list[Num] = []
    if recomputation(layout.recompute) == OPERATIONS:
        for kind in sorts(job.model):
            ops = layer(job, layout, kind)
            stays = tensors.results_kept(job, layout.tp, ops, OPERATIONS)
            kept.append(cost.boundary + sum(stays))
    m = microbatches(job, layout)
    every = [share.rank for share in by.full]
    flights, *_ = activations.flights(layout, m, schedule, every)
    ranks = []
    for share, flight in zip(by.full, flights, strict=True):
        ranks.append(
            PipelineRank(
                job,
                layout,
                parts=cost,
                schedule=schedule,
                share=share,
                flight=flight,
                owned=parameters_of(job, layout, cost, share).whole,
                kept=kept,
            )
        )
    return reduce(maximum, (size for rank in ranks for size in rank.moments()))


@dataclass(frozen=True)
class PipelineRank:
    """A device of a pipeline, or the one that is alone."""

    job: Job
    layout: Layout
    parts: ModelCost
    schedule: Schedule
    share: ModelShare
    flight: Num
    """Microbatches in flight."""
    owned: Parameters
    kept: list[Num]
    """What a layer of each kind keeps of a microbatch, where it is recomputed operation by
    operation; else that of `step.activations`."""

    @cached_property
    def alone(self) -> Any:
        """There is no pipeline."""
        return self.layout.pp == 1

    @property
    def last(self) -> Any:
        """It is the last of several."""
        return (self.share.rank == self.layout.pp - 1) & (self.layout.pp > 1)

    @cached_property
    def m(self) -> Num:
        """Microbatches of a step."""
        return microbatches(self.job, self.layout)

    @cached_property
    def chunks(self) -> Num:
        """Of the model on this rank."""
        return where(
            self.alone, 1.0, self.schedule.chunks(self.layout.interleave)
        )

    @cached_property
    def waiting(self) -> Num:
        """Microbatches in flight. Between the ends of a folded pipeline a rank holds a chunk's
        microbatch less than the law of the fullest.
        """
        inside: Any = (self.share.rank > 0) & ~self.last
        less = float(self.schedule.folded) * inside
        return where(self.alone, 1.0, self.flight - less / self.chunks)

    @cached_property
    def even(self) -> Num:
        """The share of the layers that is in chunks if each holds as many as the smallest: with
        slots one fewer beside embedding or head, of a list any number.
        """
        # devices without a layer hold nothing, and are not divided by 0
        number = maximum(self.share.number, 1.0)
        fewer = {"even": 0.0, "slots": 1.0}.get(self.layout.stages, number)
        # a bound from below: a list of stages may leave a chunk empty
        least = maximum(floor(number / self.chunks) - fewer, 0.0)
        return where(self.chunks == 1, 1.0, least * self.chunks / number)

    @cached_property
    def each(self) -> Num:
        """Bytes that a microbatch in flight keeps, without the head.

        Of every chunk its output, and what arrives, unless layers save that; more microbatches wait
        in the first chunk of all, where nothing arrives.
        """
        job, share, way = self.job, self.share, self.layout.recompute
        local = float(self.schedule.folded) * self.last
        arrived = (1.0 - share.embedding) * (self.chunks - local)
        if tensors.input_is_saved(job, way):
            arrived = -local
        passed = self.chunks - share.head + arrived
        size: Num = self.even * (
            self.by_layers
            + share.embedding * self.parts.embedding.saved
            + passed * self.parts.boundary
        )
        return size

    @property
    def by_layers(self) -> Num:
        """Bytes that the layers keep of a microbatch."""
        share, way = self.share, self.layout.recompute
        if self.kept:
            kept: Num = sum_of(zip(share.layers, self.kept, strict=True))
            return kept
        return activations.saved_by_layers(self.parts, way, share)

    @cached_property
    def shard(self) -> Num:
        """Parameters whose fp32 weights and moments are here."""
        if not self.layout.zero:
            return sum(self.owned)
        return shard(self.layout, self.owned)

    @property
    def gathered(self) -> Num:
        """Whole weights in the precision of the products, but for those of a layer in use."""
        if is_sharded(self.layout.zero, "weights"):
            return 0.0
        share, parts, every = self.share, self.parts, sum(self.owned)
        ends = (
            share.embedding * parts.embedding.weights
            + share.head * parts.head.weights
        )
        active = ACTIVE * self.even * (every - ends) / self.chunks
        return where(self.chunks > ACTIVE, active, every)

    @property
    def gradients(self) -> Num:
        """Parameters whose gradients lie there in fp32 after a backward pass of every chunk."""
        foreign = vocabulary.table_parameters(
            self.job.model, self.job.profile, self.layout.tp
        ) * (self.layout.tp - 1.0)
        whole = sum(self.owned) + self.share.embedding * foreign
        if not is_sharded(self.layout.zero, "gradients"):
            return whole
        if self.schedule.split_backward:
            return where(self.alone, self.shard, whole)
        return self.shard

    @property
    def later(self) -> tuple[Any, Num]:
        """(There is a moment at which all chunks have gradients, microbatches in flight then).

        Of several chunks in one group of microbatches each is through before the next has a
        gradient, and what is through is reduced; but a folded pipeline ends on both, where its
        first stage has not all its work left.
        """
        p, m = self.layout.pp, self.m
        group = groups.group_size(p, m, self.schedule.group)
        passes = ((self.chunks - 1.0) * group + 1.0) / self.chunks
        if self.schedule.split_backward:
            passes = 2.0 * p
        left = minimum(self.waiting, m - passes)
        fine: Any = (left > 0) & ((self.chunks == 1) | (m > group))
        ends: Any = (m > 1) & (self.share.embedding == 0)
        some = fine | ends if self.schedule.folded else fine
        return some, where(fine, left, 0.0)

    def moments(self) -> Iterator[Num]:
        """Bytes at each moment."""
        job, microbatch = (
            self.job,
            DeviceMicrobatch.from_layout(self.job, self.layout),
        )
        logits = FP32 * activations.logits(microbatch)
        # folded, the first rank works at a loss when others of its microbatches may be through
        head = (1.0 - float(self.schedule.folded)) * (
            self.parts.head.saved
            - logits
            + tensors.logits(job, logits)
            + tensors.in_loss(job, logits)
        )
        copied = tensors.copies_weights(job, self.layout)
        width = where(copied, job.precision.activation_bytes, 0.0)
        stays = 3 * FP32 * self.shard + width * self.gathered
        fine, fewer = self.later
        gradients = where(fine, FP32 * self.gradients, 0.0)
        for waiting, made in ((self.waiting, 0.0), (fewer, gradients)):
            at_loss = where(waiting > 0, self.share.head * head, 0.0)
            yield stays + made + waiting * self.each + at_loss
