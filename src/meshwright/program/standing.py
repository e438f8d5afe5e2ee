"""What belongs to weights on a rank of the trainer, at each of the moments of `closed`: shards,
gradients, gathered weights, reductions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, maximum, minimum, where
from . import tensors
from .closed import STATES, Device, Units, tied
from .messages import (
    ACTIVE,
    EMBEDDING,
    FP32,
    HEAD,
    Stage,
    elements,
    end_shapes,
    layer_shapes,
)
from .points import Point


class Standing(NamedTuple):
    """Bytes of weights and what belongs to them at one moment."""

    weights: Num
    gradients: Num
    optimizer: Num
    gathered: Num
    """Whole weights in the precision of the products."""
    reduction: Num
    """Gradients of a unit, copied together."""

    @property
    def buffers(self) -> Num:
        """What comes and goes."""
        return self.gathered + self.reduction

    @property
    def total(self) -> Num:
        """Their sum."""
        return self.weights + self.gradients + self.optimizer + self.buffers


def standing(
    job: Job,
    near: Layout,
    far: Layout,
    of: Units,
    at: Device,
    zero: int,
    exact: bool = True,
) -> tuple[Standing, ...]:
    """What lives at each of `MOMENTS` whatever the microbatches hold.

    near: the layout with the fewest replicas it stands for, far: with the most (another one only
    for bounds on an interval of dp); exact: with the rows that make tensors a multiple of the
    shards, of which more replicas may need fewer.
    """
    z = Sharding.of(job, near, far, of, at, zero, exact)
    alone = alone_standing(z, at, zero)
    full, later, turn, through = (z.at_point(p, zero) for p in at.points)
    # a layer's weights are let go before its gradients are copied
    copied = (1.0 - z.narrow) * z.unit
    first = where(at.points[-1].flight > 0, copied, 0.0)
    through = through._replace(reduction=first)
    arriving = nothing = Standing(*(0.0 * z.m for _ in Standing._fields))
    loss = z.at_point(at.points[0 if at.points[1].lossless else 1], zero, 0.0)
    embedding = z.at_embedding(later, at.points[0], zero)
    if z.at_once(zero):
        # of several chunks another one than the head's is the last to be gathered
        of_head = where(z.chunks > 1, 0.0, later.reduction)
        later = later._replace(reduction=of_head)
        again = chosen(z.chunks > 1, turn, later)
        at_head = (s._replace(reduction=z.copied_head) for s in (full, again))
        together, second, turned = (
            s._replace(reduction=z.copied_together)
            for s in (later, full, turn)
        )
        several = where(z.n / z.chunks > 1, 1.0, 0.0)
        turn = turn._replace(reduction=several * z.beside_experts)
        embedding = embedding._replace(reduction=z.beside_embedding)
        drained = embedding._replace(gathered=z.of_last)
        after, through = embedding, nothing
        embedding, drained = (
            chosen(z.embedding > 0, a, b)
            for a, b in zip((embedding, drained), at_head, strict=True)
        )
        if zero == 3:
            through, arriving = z.fetched(at.points[-1])
    else:
        embedding = chosen(z.embedding > 0, embedding, nothing)
        together = second = drained = turned = nothing
        after = z.reduced_after(zero)
    staged = (
        loss,
        full,
        later,
        turn,
        together,
        embedding,
        after,
        second,
        drained,
        through,
        turned,
        arriving,
    )
    return tuple(
        Standing(
            z.weights,
            where(at.alone, a.gradients, b.gradients),
            z.optimizer,
            where(z.copied, where(at.alone, a.gathered, b.gathered), 0.0),
            where(z.copied, where(at.alone, a.reduction, b.reduction), 0.0),
        )
        for a, b in zip(alone, staged, strict=True)
    )


def chosen(where_: Any, a: Standing, b: Standing) -> Standing:
    """The one or the other."""
    pairs = zip(a, b, strict=True)
    return Standing(*(where(where_, one, other) for one, other in pairs))


class Sharding(NamedTuple):
    """Bytes of the units of a device, whole and as shards."""

    shard: Num
    """fp32 shard of all parameters."""
    whole: Num
    """All of them in fp32, with the embedding's foreign rows."""
    layers_whole: Num
    """Its layers in fp32."""
    layers: Num
    """The same, padded to shards."""
    layers_shard: Num
    one: Num
    """One layer in fp32."""
    one_shard: Num
    experts: Num
    """Of one layer, in fp32."""
    unit: Num
    """What is reduced together of it: the larger of its experts and the rest."""
    unit_shard: Num
    root: Num
    """In fp32 what the backward pass comes to last: the embedding, or the matrix that is embedding
    and head.
    """
    root_shard: Num
    head: Num
    """In fp32 what it begins with: last norm and head, if they are a unit of their own."""
    head_shard: Num
    head_whole: Num
    """The same without the rows that pad it."""
    foreign: Num
    narrow: float
    """Bytes of a weight in the products over those in fp32."""
    copied: Any
    """The weights a product sees are other tensors than those the optimizer changes."""
    n: Num
    """Layers."""
    m: Num
    chunks: Num
    embedding: Num
    has_head: Num
    halves: bool

    @classmethod
    def of(
        cls,
        job: Job,
        near: Layout,
        far: Layout,
        of: Units,
        at: Device,
        zero: int,
        exact: bool,
    ) -> Sharding:
        """Of a device."""
        dense, expert = (
            (far.replicas, far.expert_replicas) if zero else (1.0, 1.0)
        )
        of_layer, of_ends = (
            padding(job, near, dense) if exact else (1.0, (1.0, 1.0))
        )
        share = at.share
        ends = (of.embedding, of.head)

        def fp32(
            weights: Num, experts: Num, pad: Num = 1.0
        ) -> tuple[Num, Num]:
            """(whole, shard)."""
            return FP32 * (weights * pad + experts), FP32 * (
                weights * pad / dense + experts / expert
            )

        of_layers = [of.stack(share, k) for k in STATES]
        held = [
            n * end.weights
            for n, end in zip((share.embedding, share.head), ends, strict=True)
        ]
        held[0] = held[0] - tied(job, of, at)
        layers, layers_shard = fp32(of_layers[0], of_layers[1], of_layer)
        first, last = (n * pad for n, pad in zip(held, of_ends, strict=True))
        one_unit = where(tied(job, of, at) > 0, 1.0, 0.0)
        root, root_shard = fp32(first + one_unit * last, 0.0)
        head, head_shard = fp32((1.0 - one_unit) * last, 0.0)
        head_whole = fp32((1.0 - one_unit) * held[1], 0.0)[0]
        one, one_shard = fp32(
            of.layer(share, "weights"), of.layer(share, "experts"), of_layer
        )
        units = (
            fp32(of.layer(share, "weights"), 0.0, of_layer),
            fp32(0.0, of.layer(share, "experts")),
        )
        largest, its_shard = (
            maximum(*pair) for pair in zip(*units, strict=True)
        )
        foreign = FP32 * of.root(share, "foreign")
        layers_whole = fp32(of_layers[0], of_layers[1])[0]
        whole = layers_whole + fp32(sum(held), 0.0)[0] + foreign
        copied = (near.replicas > 1) | tensors.mixed(job)
        if job.model.moe:
            copied = copied | (near.expert_replicas > 1)
        return cls(
            layers_shard + root_shard + head_shard,
            whole,
            layers_whole,
            layers,
            layers_shard,
            one,
            one_shard,
            units[1][0],
            largest,
            its_shard,
            root,
            root_shard,
            head,
            head_shard,
            head_whole,
            foreign,
            job.precision.activation_bytes / FP32,
            copied,
            at.layers,
            at.m,
            at.chunks,
            share.embedding,
            share.head,
            at.halves,
        )

    @property
    def weights(self) -> Num:
        """fp32 weights of the shard."""
        return self.shard

    @property
    def optimizer(self) -> Num:
        """Two moments."""
        return 2.0 * self.shard

    @property
    def gathered(self) -> Num:
        """All weights in the products' precision."""
        return self.narrow * (self.layers + self.root + self.head)

    @property
    def kept_whole(self) -> Num:
        """ZeRO-3: what is gathered during the whole pass: a matrix that is embedding and head."""
        return where(self.both, self.root, 0.0)

    @property
    def both(self) -> Any:
        """One matrix on this rank is embedding and head."""
        return (self.head == 0) & (self.embedding > 0) & (self.has_head > 0)

    def in_use(self, layers: Num) -> Num:
        """ZeRO-3: the unit in use and the one that arrives: two layers, or (0) the head."""
        of_head = where(layers > 0, 0.0, 2.0 * self.head)
        # of two layers with experts, those of one
        second = maximum(layers - 1.0, 0.0) * self.beside_experts
        return self.narrow * (
            self.kept_whole
            + minimum(layers, 1.0) * self.one
            + second
            + of_head
        )

    def at_point(
        self, point: Point, zero: int, layers: float = 2.0
    ) -> Standing:
        """A moment of a pipeline; layers: so many of those in use are gathered (0: the loss)."""
        # the head is in the chunk that is through first
        of_head = where(point.reduced > 0, 1.0, 0.0)
        others: Num = 1.0
        if zero == 3:
            # a loss ends a forward pass, beside which stays what backward passes left
            left = where(point.whole > 0, 1.0, 0.0)
            others = point.gathered if layers else left
        there = self.of_chunks(others, point)
        if zero == 3:
            earlier = self.narrow * point.gathered * self.layers
            in_use = self.in_use(minimum(self.n / self.chunks, layers))
            head = self.narrow * self.head if layers else 0.0
            alone = minimum(in_use + head + earlier, self.gathered)
            # before a gradient of its chunk the embedding is not there
            early = (point.whole == 0) & (self.chunks > 1)
            absent = where(early, self.narrow * self.root, 0.0)
            there = where(self.chunks > 1, there - absent, alone)
        ends = self.whole - self.layers_whole
        if self.at_once(zero):
            of_first = 1.0 if layers else 0.0
            foreign = where(self.copied, 0.0, self.foreign)
            return Standing(
                self.weights,
                (point.whole + point.reduced) * self.layers_shard
                + point.ends * (self.root_shard + foreign)
                + maximum(point.ends, of_first) * self.head_shard,
                self.optimizer,
                there,
                of_first * self.head,
            )
        ends = ends - of_head * (self.head_whole - self.head_shard)
        gradients = point.whole * self.layers_whole + point.ends * ends
        gradients = gradients + point.reduced * self.layers_shard
        # the head's gradient is the first that is whole
        behind = point.head_first if layers else 0.0
        gradients = gradients + behind * (1.0 - point.ends) * self.head
        return Standing(self.weights, gradients, self.optimizer, there, 0.0)

    @property
    def beside_embedding(self) -> Num:
        """Copied to be reduced while the embedding's gradient is there as it was made: that of a
        layer, or its own, to which the rows of others do not come.
        """
        own = self.copy_of(self.root, self.root_shard)
        if self.narrow < 1:
            own = own - self.narrow * self.foreign
            return maximum(self.beside_experts, own)
        return maximum(self.beside_experts, own) + self.root

    @property
    def copied_together(self) -> Num:
        """The gradients of a layer are reduced at once."""
        return self.copy_of(self.unit, self.unit_shard)

    @property
    def copied_head(self) -> Num:
        """Those of the head are."""
        return self.copy_of(self.head, self.head_shard)

    def copy_of(self, whole: Num, shard: Num) -> Num:
        """Gradients copied together, and the new shard where it is more than they were."""
        return whole + maximum(shard - self.narrow * whole, 0.0)

    @property
    def beside_experts(self) -> Num:
        """One layer without its experts, in fp32."""
        return self.one - self.experts

    def at_once(self, zero: int) -> bool:
        """Gradients are reduced after each microbatch."""
        return zero >= 2 and not self.halves

    def fetched(self, point: Point) -> tuple[Standing, Standing]:
        """ZeRO-3, while the first microbatches go forward: the last but one chunk has this share of
        others beside it, and the one before it as many as may be; the chunk of the embedding is
        among as many as may be.
        """
        most = minimum(ACTIVE / self.chunks, 1.0)
        share = minimum(point.gathered + 1.0 / self.chunks, most)
        return (
            self.going_forward(share, share >= most),
            self.going_forward(most, most >= 1),
        )

    def going_forward(self, share: Num, embedding: Any) -> Standing:
        """This share of the layers is gathered, and one of them as it arrived, too."""
        layers = share * self.layers + self.beside_experts
        root = where(embedding, self.root, 0.0)
        none = 0.0 * self.m
        return Standing(
            self.weights,
            none,
            self.optimizer,
            self.narrow * (layers + root + self.head),
            none,
        )

    @property
    def of_last(self) -> Num:
        """Gathered weights of the chunk that is through last; the head is in the first."""
        head = where(self.chunks > 1, 0.0, self.head)
        return self.narrow * (self.layers / self.chunks + self.root + head)

    def of_chunks(self, others: Num, point: Point) -> Num:
        """Gathered weights of the chunk at work and of this share of the others: at most `ACTIVE`
        chunks, and none that all microbatches are through.
        """
        one = 1.0 / self.chunks
        most = minimum(ACTIVE * one, 1.0 - point.reduced)
        head = where(point.reduced > 0, 0.0, self.head)
        layers = minimum(others + one, most) * self.layers
        return self.narrow * (layers + self.root + head)

    def at_embedding(
        self, later: Standing, full: Point, zero: int
    ) -> Standing:
        """The end of the backward pass of a first stage, which is like a `later` moment. Under
        ZeRO-3 all of it is gathered, and of other chunks what was there at the fullest moment.
        """
        if zero < 3:
            return later
        before = self.of_chunks(
            minimum(full.gathered, 1.0 / self.chunks), full
        )
        there = where(self.chunks > 1, before, self.gathered)
        return later._replace(gathered=there)

    def reduced_after(self, zero: int) -> Standing:
        """The gradients of the last chunk are reduced after its last microbatch: embedding or
        head, and its layers; those of the others are by then.
        """
        one = 1.0 / self.chunks
        # the head is in the chunk that is through first
        head = where(self.chunks > 1, self.head_shard, self.head_whole)
        ends = self.whole - self.layers_whole - self.head_whole + head
        layers = one * self.layers_whole + (1.0 - one) * self.layers_shard
        whole = where(self.copied, layers + ends, self.whole)
        first = whole + (1.0 - self.narrow) * maximum(self.unit, self.root)
        last = self.layers_shard + 2.0 * (self.root + head) + self.foreign
        more = maximum(first, last) - whole
        return Standing(
            self.weights, whole, self.optimizer, self.of_last, more
        )


def padding(
    job: Job, layout: Layout, shards: Num
) -> tuple[Num, tuple[Num, Num]]:
    """By how much the rows that make each tensor a multiple of `shards` enlarge (a layer,
    (embedding, head)); experts are not padded.
    """
    if job.model.moe:
        return 1.0, (1.0, 1.0)
    first = Stage(0, range(0), True, False)
    last = Stage(1, range(0), False, True)
    units = (
        layer_shapes(job, layout),
        end_shapes(job, first, layout)[EMBEDDING],
        end_shapes(job, last, layout)[HEAD],
    )
    one, embedding, head = (
        elements(shapes, shards) / maximum(elements(shapes), 1.0)
        for shapes in units
    )
    return one, (embedding, head)


def alone_standing(z: Sharding, at: Device, zero: int) -> tuple[Standing, ...]:
    """A rank without pipeline: gradients are whole from the first microbatch on (ZeRO 0, 1), or
    reduced layer by layer.
    """
    several = z.m > 1
    late = where(several, 1.0 * (zero >= 2), 1.0) > 0
    # the last microbatch lets go of gathered weights
    closing = where(several, 1.0 * (zero < 2), 1.0)

    def moment(before: Num, layers: float = 2.0) -> Standing:
        """So many layers are behind (layers 0: none, nor the head)."""
        head = 1.0 if layers else 0.0
        fresh = where(
            several, z.shard, before * z.one_shard + head * z.head_shard
        )
        piled = (
            z.whole
            - before * (z.one - z.one_shard)
            - head * (z.head - z.head_shard)
        )
        alone = where(several, z.whole, before * z.one + head * z.head)
        gradients = where(z.copied, where(late, fresh, piled), alone)
        there = z.gathered - closing * z.narrow * (
            before * z.one + head * z.head
        )
        if zero == 3:
            there = z.in_use(minimum(z.n, layers))
        reduction = where(before > 0, z.beside_experts, head * z.head)
        return Standing(z.weights, gradients, z.optimizer, there, reduction)

    none = 0.0 * z.n
    second = moment(minimum(z.n - 1.0, 1.0))
    last = moment(z.n - 1.0)
    nothing = Standing(*(0.0 * z.m for _ in Standing._fields))
    first = moment(none)
    # weights are let go before their gradients are copied
    gone = z.narrow * (1.0 if zero == 3 else closing)
    copies = ((z.copied_together, z.unit), (z.copied_head, z.head))
    together, of_head = (
        chosen(
            late,
            first._replace(
                reduction=copied, gathered=first.gathered - gone * unit
            ),
            nothing,
        )
        for copied, unit in copies
    )
    found = (moment(none, 0.0), first, second, last, together, nothing)
    reduced = last_reduction(z, late, closing, zero)
    return (*found, reduced, nothing, of_head, *(nothing,) * 3)


def last_reduction(
    z: Sharding, late: Any, closing: Num, zero: int
) -> Standing:
    """The last layer's gradients are copied together, then those of the embedding."""
    there = where(closing > 0, z.narrow * z.root, z.gathered)
    if zero == 3:
        there = z.narrow * z.root
    # as they were made, beside the copy; or the new shard
    of_layer = z.copied_together + z.narrow * z.unit
    of_root = z.copy_of(z.root, z.root_shard) + z.narrow * z.root
    fresh = maximum(
        of_layer, maximum(z.beside_experts + z.narrow * z.root, of_root)
    )
    before = z.layers_shard + z.head_shard
    gradients = where(
        z.copied, before + where(late, 0.0, z.root + z.foreign), z.whole
    )
    return Standing(
        z.weights, gradients, z.optimizer, there, where(late, fresh, z.root)
    )
