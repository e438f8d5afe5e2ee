"""The time of one training step: layers make stages, stages make a pipeline; synchronisation and the optimizer follow.

Every function takes a job and a layout whose numbers may be arrays, so one layout and a table of a million are the same code. `Body`
holds what a layer costs; schedule, ZeRO stage and recomputation are applied to it afterwards, which lets the search evaluate every
such choice without counting a layer again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .cost import overlap
from .cost.chip import compute_time, exposed_memory, rates
from .cost.layer import Clock, LayerCost, Seconds, Time, Timer, mean
from .cost.network import Fabric, pipeline_hop
from .count import optimizer, vocabulary
from .count.model import groups, layer, next_token
from .num import Num, ceil_div, floor, maximum, minimum, where
from .schedule import get as schedule_named
from .schedule.types import Schedule
from .spec.job import Job
from .spec.layout import Layout


class Body(NamedTuple):
    """What one microbatch costs in each part of the model, on one device."""

    typical: LayerCost
    """The mean layer after the leading ones."""
    leading: LayerCost
    """The mean of the leading dense layers of a mixture of experts."""
    embedding: LayerCost
    head: LayerCost
    """Final norm, logits, loss, and multi-token-prediction blocks."""
    boundary: Num
    """Bytes of the activation that stages hand on (each tp rank sends its part: Megatron-LM's scatter/gather)."""


class Share(NamedTuple):
    """How often one microbatch on a device passes each part of the model."""

    typical: Num
    leading: Num
    embedding: Num
    head: Num

    def of(self, parts: Body, what: Any) -> Any:
        """The sum of what(part) over the parts, each times its share."""
        return sum_of((share, what(part)) for share, part in zip(self, parts, strict=False))

    def back(self, parts: Body, recompute: str) -> Any:
        """Backward seconds with what recomputation adds to layers; embedding and head are never computed again."""
        layers = (
            (self.typical, backward(parts.typical, recompute)),
            (self.leading, backward(parts.leading, recompute)),
        )
        return sum_of((*layers, (self.embedding, parts.embedding.backward), (self.head, parts.head.backward)))


class Stages(NamedTuple):
    """One microbatch on the slowest device, and on the mean of the others."""

    forward: Time
    backward: Time
    others_forward: Num
    others_backward: Num
    others_weight: Num


class Pipeline(NamedTuple):
    """Seconds of the microbatches of one step."""

    busy: Time
    """m microbatches on the slowest device."""
    sends: Num
    """Stage boundaries, as far as they are not hidden."""
    bubble: Num

    @property
    def total(self) -> Num:
        return total(self.busy) + self.sends + self.bubble


def clock(job: Job) -> Clock:
    """The job's chip, network and overlap policy as rates."""
    a = job.assumptions
    return Clock(
        rates(job.cluster.chip, job.precision.compute, a.chip), Fabric.of(job.cluster.network, a.network), a.overlap
    )


def total(time: Time) -> Num:
    """Plain seconds of a time by cause."""
    return time.total if isinstance(time, Seconds) else time


def microbatches(job: Job, layout: Layout) -> Num:
    """m = B / (dp b), rounded up: the last one may be partly empty."""
    return ceil_div(job.batch, layout.dp * layout.microbatch)


def body(job: Job, layout: Layout, details: bool = False) -> Body:
    """Costs of the parts of the model. details: keep seconds by cause, else only totals (faster)."""
    timer = Timer(clock(job), layout)
    lead, rest = groups(job.model)
    parts = {kind: timer.layer(layer(job, layout, kind)) for kind, _ in {*lead, *rest}}
    typical, leading = mean(parts, rest), mean(parts, lead)
    head = timer.layer(vocabulary.head(job, layout))
    if job.model.mtp_layers:
        head = mean(
            {0: timer.layer(next_token(job, layout)), 1: head}, ((0, job.model.mtp_layers), (1, 1)), divide=False
        )
    every = (typical, leading, timer.layer(vocabulary.embedding(job, layout)), head)
    typical, leading, embedding, head = every if details else (_plain(c) for c in every)
    return Body(typical, leading, embedding, head, boundary(job, layout))


def _plain(c: LayerCost) -> LayerCost:
    return c._replace(forward=c.forward.total, backward=c.backward.total, again=c.again.total)


def boundary(job: Job, layout: Layout) -> Num:
    """Bytes one device sends to the next stage for one microbatch: its shard of b T/cp tokens of width D."""
    width: Num = job.model.hidden
    if layout.scheme == "summa" and job.assumptions.count.summa_norm == "sequence":
        width = floor(job.T / layout.tp) * layout.tp
    share = layout.tp if layout.sequence_parallel or layout.scheme == "summa" else 1.0
    return layout.microbatch * job.T / layout.cp * width / share * job.precision.activation_bytes


def backward(c: LayerCost, recompute: str) -> Time:
    """Backward seconds with what recomputation adds: nothing, the core of attention, or the whole forward pass."""
    return (
        c.backward + {"none": 0.0, "selective": c.again, "full": c.forward}[recompute]
        if recompute != "none"
        else c.backward
    )


def layers_on(job: Job, layout: Layout, chunks: Num) -> tuple[Num, Num, Num]:
    """(fullest, first, last): layers of a device; when L does not divide, the last and then the first device hold fewer."""
    L = job.model.layers
    n = chunks * ceil_div(L, layout.pp * chunks)
    spare: Any = layout.pp * n - L
    return n, n - 1.0 * (spare >= 2), n - 1.0 * (spare >= 1)


Shares = dict[str, Share]
"""What the "middle", "first" and "last" device hold, and a device that is alone: the "whole"."""


def shares(job: Job, layout: Layout, schedule: Schedule, v: Num) -> Shares:
    """What a middle, the first and the last device hold, and a device that is alone.

    First: embedding and leading layers; last: head. A folded schedule gives the first device both ends.
    """
    n, n_first, n_last = layers_on(job, layout, schedule.chunks(v))
    lead = float(job.model.moe.dense_layers) if job.model.moe else 0.0
    early = minimum(n_first, lead) if lead else 0.0
    ends = 1.0 if schedule.folded else 0.0
    return {
        "middle": Share(n, 0.0, 0.0, 0.0),
        "first": Share(n_first - early, early, 1.0, ends),
        "last": Share(n_last, 0.0, 0.0, 1.0 - ends),
        "whole": Share(job.model.layers - lead, lead, 1.0, 1.0),
    }


def stages(layout: Layout, parts: Body, recompute: str, by: Shares) -> Stages:
    """The slowest device's microbatch and the mean of the others'."""
    forward = {name: share.of(parts, lambda c: c.forward) for name, share in by.items()}
    back = {name: share.back(parts, recompute) for name, share in by.items()}
    name = slowest(layout, {k: total(forward[k]) + total(back[k]) for k in by})
    f, b = pick(name, forward), pick(name, back)
    others = maximum(layout.pp - 1.0, 1.0)
    rest_f, rest_b = (total(forward["whole"]) - total(f)) / others, (total(back["whole"]) - total(b)) / others
    return Stages(f, b, rest_f, rest_b, by["whole"].of(parts, lambda c: c.weight_pass) / layout.pp)


Choice = tuple[Any, Any, Any]
"""(the device is alone, an end is slowest, the last end is)."""


def slowest(layout: Layout, seconds: dict[str, Num]) -> Choice:
    """Which device the pipeline waits for."""
    first, last = seconds["first"], seconds["last"]
    return layout.pp == 1, maximum(first, last) >= seconds["middle"], last >= first


def pick(choice: Choice, values: dict[str, Time]) -> Time:
    """The value of the device that `slowest` chose."""
    alone, end, last = choice
    return _choose(
        alone, values["whole"], _choose(end, _choose(last, values["last"], values["first"]), values["middle"])
    )


def sum_of(terms: Iterable[tuple[Num, Any]]) -> Any:
    """Sum of factor x value, leaving out factors that are 0."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return 0.0 if result is None else result


def _choose(condition: Any, a: Time, b: Time) -> Time:
    """`where` for seconds by cause too."""
    if isinstance(a, Seconds):
        return Seconds(*(where(condition, getattr(a, c), getattr(b, c)) for c in Seconds.__slots__))
    return where(condition, a, b)


def hop(job: Job, layout: Layout, parts: Body) -> Num:
    """Seconds of one send between neighbouring stages."""
    return pipeline_hop(clock(job).fabric, parts.boundary, layout.group("pp"))


def ordered(job: Job, layout: Layout, s: Stages, send: Num, schedule: Schedule, v: Num) -> Pipeline:
    """Stages put in order by a schedule.

    Each chunk costs a send forward and one backward. In the bubble every send counts; in the steady state the assumption
    set says whether sends hide behind compute.
    """
    m, chunks = microbatches(job, layout), schedule.chunks(v)
    sends = chunks * send
    policy = job.assumptions.overlap.pp
    waits = where(chunks > 1, 0.0, 1.0) if policy == "interleaved" else float(policy != "all")
    bubble = schedule.bubble(
        layout.pp, m, v, s.others_forward + sends, s.others_backward - s.others_weight + sends, s.others_weight
    )
    return Pipeline((s.forward + s.backward) * m, 2 * m * sends * waits, bubble)


class Collectives(NamedTuple):
    """Seconds of the weight and gradient collectives of one layer, and of the ends of the model: embedding and head."""

    all_reduce: Num
    gather: Num
    scatter: Num
    end_all_reduce: Num
    end_gather: Num
    end_scatter: Num


def collectives(job: Job, layout: Layout, parts: Body) -> Collectives:
    """Weights are replicated over dp x cp (group "replicas"), those of experts over edp.

    Ends: the larger of embedding and head, or both on a device that is alone.
    """
    p, fabric, t, e, h = job.precision, clock(job).fabric, parts.typical, parts.embedding, parts.head
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


def update(job: Job, layout: Layout, first: Held, last: Held, zero: int) -> Num:
    """Seconds of the optimizer on the device with the most parameters to update; first, last: what the ends hold."""
    if not job.assumptions.count.optimizer_step:
        return 0.0
    mine = maximum(first[0], last[0]) / (layout.replicas if zero else 1.0)
    if job.model.moe:
        mine = mine + maximum(first[1], last[1]) / (layout.expert_replicas if zero else 1.0)
    work, r = optimizer.update(job, mine), clock(job).rates
    compute = compute_time(work, r)
    return compute + exposed_memory(work, compute, r)


class Step(NamedTuple):
    """Seconds of one step."""

    pipeline: Pipeline
    sync: Num
    update: Num

    @property
    def total(self) -> Num:
        return self.pipeline.total + (self.sync + self.update)


def step(job: Job, layout: Layout, parts: Body) -> Step:
    """One step of the job; the layout's numbers may be arrays (categorical fields may not)."""
    schedule, v = schedule_named(layout.schedule), layout.interleave
    by = shares(job, layout, schedule, v)
    sync = synchronise(
        job, layout, parts, collectives(job, layout, parts), layout.recompute, layout.zero, by["middle"].typical
    )
    first, last = held(job, layout, parts, by, "first"), held(job, layout, parts, by, "last")
    pipe = ordered(job, layout, stages(layout, parts, layout.recompute, by), hop(job, layout, parts), schedule, v)
    return Step(pipe, sync, update(job, layout, first, last, layout.zero))


def step_time(job: Job, layout: Layout) -> Num:
    """Seconds of one step."""
    return step(job, layout, body(job, layout)).total
