"""The peak memory of a rank of the trainer in closed form, for one layout and for tables: what
`memory.Walk` finds tensor by tensor.

The walk remembers the largest sum; here that sum is written down for the few moments that can be
it. Of a pipeline: the moments of `points`, and the reduction of gradients after it. Of a rank that
is alone: the first, second and last layer of a backward pass, and the reduction of embedding and
head. A moment is a sum of what the choice of ZeRO leaves there (`standing`) and what microbatches
hold (`flying`), so that a table of layouts computes each at its own shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from ..count import vocabulary
from ..count.model import layer
from ..count.work import Op
from ..describe.job import Job
from ..describe.layers import sorts
from ..describe.layout import Layout
from ..layout.stages import microbatches
from ..num import Naming, Num, itemised, largest, maximum, minimum, where
from ..schedule import groups
from ..schedule.types import Schedule
from ..step import ENDS_CALLED, boundary, sum_of, where_share
from ..step.memory import in_flight
from ..step.pipeline import Share, Shares
from . import tensors
from .messages import FP32, LOSS, again
from .points import Point, merged, points

MOMENTS = (
    "loss",
    "fullest",
    "later",
    "turn",
    "together",
    "embedding",
    "reduction",
    "second",
    "drained",
    "through",
    "turned",
    "arriving",
)
"""Of a rank that is alone: the loss or the head, the first, the second and the last layer of the
last backward pass, the end of the second (gradients that are reduced at once lie together in the
products' precision), and the reduction of what is left. Of a pipeline: the moments of `points` (the
first of several chunks is reduced: "through"), the end of a backward pass of the embedding, and the
reduction after the last; where gradients are reduced at once, what comes after the first layer of a
backward pass, at the fullest moment ("second"), the later one ("together") and the turn
("turned"), and the embedding of the last group of microbatches, when all other chunks are through
("drained"). Where a rank has no embedding, the two moments of the embedding are those of the head,
whose gradient is reduced: the fullest and the later one; alone, "drained". Under ZeRO-3, while the
first microbatches go forward: the end of the last chunk but one ("through") and of the one before
it ("arriving").
"""
STATES = ("weights", "experts")
"""Parameters of a unit: those replicated over dp x cp, and those of experts."""


class Unit(NamedTuple):
    """A layer, or what a stage holds beside its layers: one microbatch on one rank."""

    saved: Num = 0.0
    """Bytes kept from forward to backward, without the logits."""
    loss: Num = 0.0
    """The logits in fp32."""
    rising: Num = 0.0
    """The most bytes that live beyond those during the unit's backward pass."""
    touched: Num = 0.0
    """The same during the first half of a split one, which lets go of nothing."""
    results: Num = 0.0
    """Bytes of the gradients that wait for the second half."""
    copied: Num = 0.0
    """What lives beyond those while its gradients are copied to be reduced."""
    weights: Num = 0.0
    """Parameters replicated over dp x cp."""
    experts: Num = 0.0
    """Parameters replicated over edp."""
    foreign: Num = 0.0
    """Rows of the embedding's gradient that belong to other tp ranks, in parameters."""


class Units(NamedTuple):
    """What a rank's stages are made of."""

    layers: tuple[Unit, ...]
    """Of each kind (`step.Body`)."""
    embedding: Unit
    head: Unit
    boundary: Num
    """Bytes of the activation between two stages."""

    def of(self, share: Share, field: str) -> Num:
        """A field of all that a device holds, each part as often as it holds it."""
        return self.stack(share, field) + self.root(share, field)

    def stack(self, share: Share, field: str) -> Num:
        """The same of the layers."""
        found: Num = sum_of(
            (often, getattr(layer, field))
            for often, layer in zip(share.layers, self.layers, strict=True)
        )
        return found

    def root(self, share: Share, field: str) -> Num:
        """The same without the layers."""
        first: Num = getattr(self.embedding, field)
        last: Num = getattr(self.head, field)
        return share.embedding * first + share.head * last

    def layer(self, share: Share, field: str) -> Num:
        """The largest among its layers."""
        if len(self.layers) == 1:
            only: Num = getattr(self.layers[0], field)
            return only
        return largest(
            where(often > 0, getattr(layer, field), 0.0)
            for often, layer in zip(share.layers, self.layers, strict=True)
        )


NAMES = {
    "saved": "saved tensors",
    "loss": "logits",
    "rising": "tensors of a backward pass",
    "touched": "tensors of its first half",
    "results": "gradients of its first half",
    "copied": "gradients that are reduced",
    "weights": "parameters",
    "experts": "parameters of experts",
    "foreign": "parameters of other ranks",
}
"""Field of a `Unit` -> as an explanation names it."""


def explained(of: Units, labels: Sequence[str], called: Naming) -> Units:
    """Units whose numbers are items: what a formula makes of them says how often each is in it;
    labels: of the layers of each kind."""
    return of._replace(
        layers=tuple(
            itemised(layer, name, NAMES, called)
            for layer, name in zip(of.layers, labels, strict=True)
        ),
        **{
            end: itemised(getattr(of, end), end, NAMES, called)
            for end in ENDS_CALLED
        },
        boundary=called("inputs of stages", of.boundary),
    )


def units(job: Job, layout: Layout, recompute: str) -> Units:
    """Every kind of part, counted."""
    edge = boundary(job, layout)
    embedding = vocabulary.embedding(job, layout)
    head = vocabulary.head(job, layout)
    rows = vocabulary.table(job, layout) if embedding else 0.0
    first = unit(job, edge, embedding, recompute, ends=True)._replace(
        foreign=rows * (layout.tp - 1.0)
    )
    return Units(
        tuple(
            unit(job, edge, layer(job, layout, kind), recompute)
            for kind in sorts(job.model)
        ),
        first,
        unit(job, edge, head, recompute, ends=True),
        edge,
    )


def unit(
    job: Job, edge: Num, every: list[Op], recompute: str, ends: bool = False
) -> Unit:
    """The operations of a layer, or (ends) of embedding or head."""
    loss = sum(op.saved for op in every if op.name == LOSS)
    ops = [op for op in every if op.name != LOSS]
    redone = [] if ends else again(ops, recompute)
    kept = sum(
        tensors.kept(op, recompute, any(op is x for x in redone)) for op in ops
    )
    touched = [tensors.moving(job, edge, op) for op in ops]
    weights = [
        sum(op.weights for op in ops if op.expert is expert)
        for expert in (False, True)
    ]
    saved = edge if recompute == "full" and not ends else kept
    rising = tensors.rising(
        job, edge, ops, redone, "none" if ends else recompute
    )
    most = reduce(maximum, touched) if touched else 0.0
    return Unit(
        saved,
        loss,
        rising,
        most,
        tensors.results(job, ops),
        tensors.copied(job, ops, redone, "none" if ends else recompute, saved),
        weights[0],
        weights[1],
    )


class Device(NamedTuple):
    """A device of a pipeline, or the one that is alone."""

    share: Share
    points: tuple[Point, ...]
    p: Num
    m: Num
    chunks: Num
    first: Num
    """Holds the first stage (1 or 0)."""
    local: float
    """Inputs of its chunks that come from itself: one at the turn of a folded pipeline."""
    early: Num
    """Receive buffers that wait for their microbatch."""
    group: Num
    """Microbatches that go through a chunk together."""
    halves: bool = False
    """Its backward passes are cut in two."""

    @property
    def alone(self) -> Any:
        """There is no pipeline."""
        return self.p == 1

    @property
    def layers(self) -> Num:
        """On all its chunks."""
        return self.share.number


def device(
    job: Job, layout: Layout, schedule: Schedule, v: Num, by: Shares, end: str
) -> Device:
    """What the first, second or last device holds, and its moments."""
    m = microbatches(job, layout)
    p = layout.pp
    share = where_share(p == 1, by["whole"], by[end])
    flight = in_flight(p, m, schedule, v, end, by[end].rank)
    end = end.split()[0]
    chunks = schedule.chunks(v)
    # the trainer leaves no stage empty
    layers = maximum(share.number, 1.0)
    moments = points(schedule, p, m, v, end, flight, layers, share.rank)
    if end == "second":  # of two ranks: the first
        others = points(
            schedule,
            p,
            m,
            v,
            "first",
            in_flight(p, m, schedule, v, "first"),
            layers,
            0.0 * p,
        )
        moments = tuple(
            merged(p > 2, a, b) for a, b in zip(moments, others, strict=True)
        )
    local = 1.0 if schedule.folded and end == "last" else 0.0
    early = tensors.early(schedule, p, v, end)
    return Device(
        share,
        moments,
        p,
        m,
        chunks,
        share.embedding,
        local,
        early,
        groups.size(p, m, schedule.group),
        schedule.split_backward,
    )


def flying(
    job: Job,
    layout: Layout,
    of: Units,
    at: Device,
    schedule: Schedule,
    recompute: str,
) -> tuple[Num, ...]:
    """Bytes that microbatches hold at each of `MOMENTS`: activations, receive buffers, gradients on
    their way.
    """
    alone = alone_flying(job, layout, of, at)
    full, later, turn, through = (
        staged_flying(job, layout, of, at, point, schedule, recompute)
        for point in at.points
    )
    last = at.points[1]
    fewer = minimum(last.flight, at.group / at.chunks)
    last = last._replace(flight=fewer, heads=0.0)
    drained = staged_flying(job, layout, of, at, last, schedule, recompute)
    early = at.points[1].lossless
    # `standing` counts the gradient of the head, which the first loss comes before
    behind = at.points[0].head_first * (1.0 - at.points[0].ends)
    of_head = FP32 * at.share.head * of.head.weights * behind
    loss, fullest = (
        (full[0], full[1])
        if early
        else (later[0], maximum(full[0] - of_head, full[1]))
    )
    after = at.early * of.boundary
    of_group = at.group / at.chunks * in_flight_each(job, of, at, recompute)
    further = beside_copies(of, at) - of.layer(at.share, "rising")
    ended = at.share.embedding
    first = maximum(later[2], at.points[0].ends * full[2])
    only_head = at.share.head * (1.0 - ended)
    staged = (
        loss,
        fullest,
        later[1],
        maximum(*turn[:2]),
        later[1] + further,
        ended * first + only_head * full[3],
        after,
        maximum(full[1] + further, where(at.chunks > 1, 0.0, ended * full[2])),
        ended * drained[2]
        + only_head * where(at.chunks > 1, turn[3], later[3]),
        through[0],
        turn[1] + further,
        maximum(through[0] - of_group, 0.0),
    )
    return tuple(
        where(at.alone, a, b) for a, b in zip(alone, staged, strict=True)
    )


def beside_copies(of: Units, at: Device) -> Num:
    """What lives of a backward pass beside the copy of the larger unit of a layer: the gradients of
    the first layer that are copied, or the next one's backward pass, when the copy is that of the
    weights beside experts.
    """
    one = of.layer(at.share, "copied")
    smaller = maximum(
        of.layer(at.share, "experts") - of.layer(at.share, "weights"), 0.0
    )
    following = (
        of.layer(at.share, "rising")
        - of.layer(at.share, "saved")
        - FP32 * smaller
    )
    several = at.layers / at.chunks > 1
    return where(several, maximum(one, following), one)


def made(job: Job, of: Units, at: Device) -> Num:
    """Gradients of a matrix that is embedding and head: they wait for the end of the backward
    pass.
    """
    first = of.embedding.weights + of.embedding.foreign
    both = first + of.head.weights - of.embedding.weights
    return tensors.as_made(job, where(tied(job, of, at) > 0, both, 0.0))


def tied(job: Job, of: Units, at: Device) -> Num:
    """Parameters that a device counts twice if it is alone."""
    return (
        where(at.alone, of.embedding.weights, 0.0)
        if job.model.tied_embeddings
        else 0.0
    )


def alone_flying(
    job: Job, layout: Layout, of: Units, at: Device
) -> tuple[Num, ...]:
    """The loss or the head, the first, second and last layer of a backward pass; nothing is left
    after it.
    """
    every = of.of(at.share, "saved")
    one = of.layer(at.share, "saved")
    kept = every - of.root(at.share, "saved")
    inside = made(job, of, at) + of.layer(at.share, "rising")
    second = kept - minimum(at.layers - 1.0, 1.0) * one + inside
    last = kept - (at.layers - 1.0) * one
    first = where(tied(job, of, at) > 0, 0.0, of_first(job, of)) - one
    last = (
        last + made(job, of, at) + maximum(of.layer(at.share, "rising"), first)
    )
    together = kept + made(job, of, at) + of.layer(at.share, "copied")
    of_head = in_head(job, of, at, tensors.logits(job, of.head.loss))
    return (
        every + of_head,
        kept + inside,
        second,
        last,
        together,
        *(0.0 * kept,) * 3,
        where(tied(job, of, at) > 0, 0.0, kept + of_head_made(job, of, at)),
        *(0.0 * kept,) * 3,
    )


def in_head(job: Job, of: Units, at: Device, logits: Num = 0.0) -> Num:
    """The gradient of the logits is made, beside these `logits`; or the head's backward pass."""
    return at.share.head * maximum(
        logits + tensors.in_loss(job, of.head.loss), of.head.rising
    )


def of_head_made(job: Job, of: Units, at: Device) -> Num:
    """The gradient of the head as it was made, which is copied to be reduced."""
    width = job.precision.activation_bytes
    return at.share.head * width * of.head.weights


def of_first(job: Job, of: Units) -> Num:
    """The gradient of the embedding before it is added up."""
    return tensors.as_made(job, of.embedding.weights + of.embedding.foreign)


def in_flight_each(job: Job, of: Units, at: Device, recompute: str) -> Num:
    """Bytes that a microbatch in flight holds, without the head."""
    # the inputs of stages lie where they were received, or where this rank made them
    inputs = (
        (at.chunks - at.first)
        if tensors.input_is_saved(job, recompute)
        else 0.0
    )
    arrived = at.chunks - at.first - at.local
    outputs = at.chunks - at.share.head
    layers = of.stack(at.share, "saved")
    return layers + of.boundary * (outputs + arrived - inputs)


def staged_flying(
    job: Job,
    layout: Layout,
    of: Units,
    at: Device,
    point: Point,
    schedule: Schedule,
    recompute: str,
) -> tuple[Num, ...]:
    """A moment of a pipeline: (the loss of one microbatch is being worked through, one of its
    layers is, the embedding is; the gradient of the head is there).
    """
    layers = of.stack(at.share, "saved")
    each = in_flight_each(job, of, at, recompute)
    logits = tensors.logits(job, of.head.loss) * at.share.head
    head = of.head.saved * at.share.head + logits
    waiting = point.flight * each + (point.heads + point.late_heads) * head
    waiting = waiting + at.early * of.boundary
    active = where(point.flight > 0, 1.0, 0.0)
    of_head = in_head(job, of, at)
    # that it was sent
    gradient = of.boundary * (1.0 - at.share.head / at.chunks)
    whole = (
        gradient
        + of.layer(at.share, "rising")
        - active * of.head.saved * at.share.head
    )
    first = active * (of_first(job, of) - layers / at.chunks)
    if not schedule.split_backward:
        at_loss = 0.0 if point.lossless else active * of_head
        ended = of_head_made(job, of, at) - of.head.saved * at.share.head
        return (
            waiting + at_loss,
            waiting + active * whole,
            waiting + first,
            waiting + active * ended,
        )
    results = of.stack(at.share, "results")
    of_root = of.root(at.share, "results")
    one = 1.0 / at.chunks
    own = where(point.late > 0, one, 0.0)
    waiting = (
        waiting + (point.late - own) * results + point.late_heads * of_root
    )
    pending = left(job, of, at, point.pending)
    before = waiting + left(job, of, at, maximum(point.pending - one, 0.0))
    at_head = where(point.heads > 0, 1.0, 0.0)
    head_late = point.late_heads > 0
    touched = (
        where(own > 0, of.layer(at.share, "touched"), 0.0) + at_head * of_root
    )
    first_half = before + maximum(
        own * results + touched, at_head * at.share.head * of.head.touched
    )
    second_half = waiting + own * results + pending + at_head * of_root
    second_half = second_half + point.joined * largest_unit(job, of, at)
    whole = waiting + pending + active * whole if point.in_one else before
    # with others between the halves, the chunk of the head has none left
    at_loss = where(
        head_late,
        left(job, of, at, maximum(point.pending - one, 0.0), 0.0),
        pending,
    )
    at_layer = reduce(maximum, (first_half, second_half, whole))
    return (
        waiting + at_loss + at_head * of_head,
        at_layer,
        waiting + pending + first,
        0.0 * waiting,
    )


def largest_unit(job: Job, of: Units, at: Device) -> Num:
    """Gradients in the products' precision of the largest unit: of a layer, its experts or what is
    beside them, or the head.
    """
    units = [of.layer(at.share, k) for k in STATES]
    head = at.share.head * of.head.weights
    return job.precision.activation_bytes * reduce(maximum, units, head)


def left(
    job: Job, of: Units, at: Device, share: Num, head: float = 1.0
) -> Num:
    """Gradients in the products' precision of a share of the layers, and of the head, whose chunk
    leaves them first.
    """
    layers: Num = 0.0
    for k in STATES:
        layers = layers + of.stack(at.share, k)
    ends = where(share > 0, head * at.share.head * of.head.weights, 0.0)
    return job.precision.activation_bytes * (share * layers + ends)
