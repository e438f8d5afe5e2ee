"""What no walk through the trainer's program undercuts, for one layout and for tables: a search
ranks by it, and walks what may be among the best (`search.ranked`), as pipelines are replayed.

A peak is at least what lives at any moment of the step. Two moments of a rank are looked at, in
each of which all that is counted lives at once, by the walk's own rules:

    F F F F | F B F B F B ..           | B B B
            full: the most microbatches wait, no gradient is whole yet
                          later: a backward pass of every chunk is done, `fewer` wait

At both the loss is made (on the rank of the head), then its first layer goes backward. What is
counted there, and why no walk is below it:

    shards         three fp32 numbers a parameter, with the buffers of early receives: added before
                   the first action, never let go; a walk's shards have rows that pad them besides
    waiting each   a forward pass leaves what its layers save, the stage's output and what arrived;
                   chunks hold as many layers as the smallest (`even`), so that any chunk may wait
    logits         of the microbatches between the head's forward and backward pass
    gathered       weights that a pass has just used, or is using: chunk by chunk as many as PyTorch
                   keeps, layer by layer the smallest
    gradients      later: whole in fp32 from the first backward pass of a unit to its reduction,
                   which waits for the last microbatch, or as a shard where it does not
    rising         the most that one layer's backward pass needs beside what waits (`tensors`: the
                   walk asks the same function operation by operation); of all kinds the smallest

Left out is what is not there in every such moment: rows that pad shards, results of halved backward
passes, chunks that are fetched ahead. Which microbatches wait when (`later`, `waiting`) follows
from the orders of the schedules and is not proven for others: tests draw jobs and walk them.
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
from .operations import FP32, OPERATIONS, recomputation, recomputed_prefix
from .order import ACTIVE


def least_bytes(
    job: Job, layout: Layout, cost: ModelCost, schedule: Schedule
) -> Num:
    """Bytes on the fullest device, at least. layout: its numbers may be arrays, but for chunks."""
    by = model_shares(job.model, layout.pp, schedule, layout.interleave)
    text = layout.recompute
    by_kind = [layer(job, layout, kind) for kind in sorts(job.model)]
    results = [
        tensors.results_kept(job, layout.tp, ops, text) for ops in by_kind
    ]
    halved: Any = schedule.split_backward & (layout.pp > 1)
    edge = cost.boundary
    rising = [
        tensors.rising(
            job,
            edge,
            ops=ops,
            again=recomputed_prefix(ops, text),
            results=stay,
            halved=halved,
        )
        for ops, stay in zip(by_kind, results, strict=True)
    ]
    kept = [edge + sum(stay) for stay in results]
    m = microbatches(job, layout)
    every = [share.rank for share in by.full]
    flights, heads, _ = activations.flights(layout, m, schedule, every)
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
                heads=heads,
                owned=parameters_of(job, layout, cost, share).whole,
                rising=rising,
                kept=kept if recomputation(text) == OPERATIONS else [],
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
    heads: Num
    """Those of them whose logits wait."""
    owned: Parameters
    rising: list[Num]
    """The most that lives beside what waits while a layer of each kind goes backward."""
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
    def waiting(self) -> tuple[Num, Num]:
        """(microbatches in flight, those of them whose logits wait).

        Between the ends of a folded pipeline a rank holds a chunk's microbatch less than the law
        of the fullest.
        """
        inside: Any = (self.share.rank > 0) & ~self.last
        less = float(self.schedule.folded) * inside
        return where(self.alone, 1.0, self.flight - less / self.chunks), where(
            self.alone, 1.0, self.heads
        )

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

    @cached_property
    def ends(self) -> Num:
        """Parameters of embedding and head."""
        share, parts = self.share, self.parts
        return (
            share.embedding * parts.embedding.weights
            + share.head * parts.head.weights
        )

    @property
    def gathered(self) -> tuple[Num, Num]:
        """Whole weights in the precision of the products: at the loss, at the first layer."""
        every = sum(self.owned)
        chunk = self.even * (every - self.ends) / self.chunks
        if not is_sharded(self.layout.zero, "weights"):
            several = where(self.chunks > ACTIVE, ACTIVE * chunk, every)
            return several, several
        # layer by layer, or chunk by chunk
        layers = [c.weights + c.expert_weights for c in self.parts.layers]
        # those of the head come when the loss has made its gradient
        return 0.0, where(
            self.chunks > 1, chunk, _smallest(self.share.layers, layers)
        )

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
        left = minimum(self.waiting[0], m - passes)
        fine: Any = (left > 0) & ((self.chunks == 1) | (m > group))
        ends: Any = (m > 1) & (self.share.embedding == 0)
        some = fine | ends if self.schedule.folded else fine
        return some, where(fine, left, 0.0)

    def moments(self) -> Iterator[Num]:
        """Bytes at each moment."""
        job, share, p = self.job, self.share, self.layout.pp
        logits = FP32 * activations.logits(
            DeviceMicrobatch.from_layout(job, self.layout)
        )
        head = self.parts.head.saved - logits
        whole = head + tensors.logits(job, logits)
        loss = tensors.in_loss(job, logits)
        v = self.layout.interleave
        early = tensors.early(self.schedule, p, v, share.rank == 0)
        stays = 3 * FP32 * self.shard + where(
            self.alone, 0.0, early * self.parts.boundary
        )
        width = where(
            tensors.copies_weights(job, self.layout),
            job.precision.activation_bytes,
            0.0,
        )
        at_loss, at_layer = (width * n for n in self.gathered)
        up = _smallest(share.layers, self.rising)
        fine, fewer = self.later
        gradients = where(fine, FP32 * self.gradients, 0.0)
        flight, most_heads = self.waiting
        # of the last microbatch alone, the head's gradient is reduced before a layer's is made, and
        # its weights may be let go as early
        closing = where(self.alone & (self.m <= 2), share.head, 0.0)
        for waiting, made in ((flight, 0.0), (fewer, gradients)):
            busy = where(waiting > 0, 1.0, 0.0)
            heads = share.head * minimum(most_heads, waiting)
            beside, left = waiting, heads * whole - busy * share.head * head
            if self.schedule.folded:
                # the first rank works at a loss when others of its microbatches may be through
                beside, heads, left = busy, busy * share.head, 0.0
            kept = stays + made + beside * self.each
            yield kept + heads * whole + busy * share.head * loss + at_loss
            kept = kept + (waiting - beside) * self.each + busy * up
            kept = kept + where(self.alone, 0.0, left)
            gone = closing * (width + where(made > 0, FP32, 0.0))
            yield kept + at_layer - gone * self.parts.head.weights


def _smallest(layers: tuple[Num, ...], sizes: list[Num]) -> Num:
    """Of the kinds of layers that a device has; nothing where it has none."""
    none = float("inf")
    every = [
        where(n > 0, size, none) for n, size in zip(layers, sizes, strict=True)
    ]
    least = reduce(minimum, every)
    return where(least < none, least, 0.0)
