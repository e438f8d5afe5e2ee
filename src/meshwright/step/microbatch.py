"""What one microbatch costs on one device: each part of the model, counted and timed."""

from __future__ import annotations

from typing import NamedTuple

from ..cost.chip import rates
from ..cost.layer import Clock, LayerCost, Seconds, Time, Timer, mean
from ..cost.load import NOTHING, Load
from ..cost.network import Fabric
from ..count import summa, vocabulary
from ..count.model import groups, layer, next_token
from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num


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
    """Bytes a device holds of the activation between two layers: the input that full recomputation keeps."""
    message: Num
    """Bytes a device sends of it to the next stage."""


LABELS = {"typical": "layers", "leading": "leading layers", "embedding": "embedding", "head": "head"}
"""Part of a `Body` -> as an explanation names it."""


def clock(job: Job) -> Clock:
    """The job's chip, network and overlap policy as rates."""
    a = job.how
    return Clock(
        rates(job.cluster.chip, job.precision.compute, a.chip), Fabric.of(job.cluster.network, a.network), a.overlap
    )


def total(time: Time) -> Num:
    """Plain seconds of a time by cause."""
    return time.total if isinstance(time, Seconds) else time


def body(job: Job, layout: Layout, at: Clock | None = None, details: bool = False) -> Body:
    """Costs of the parts of the model.

    at: the job's `clock`, or that of a bound;  details: keep seconds by cause, else only totals (faster).
    """
    timer = Timer(at or clock(job), layout, details)
    lead, rest = groups(job.model)
    parts = {kind: timer.layer(layer(job, layout, kind)) for kind, _ in {*lead, *rest}}
    typical, leading = mean(parts, rest), mean(parts, lead)
    head = timer.layer(vocabulary.head(job, layout), "head")
    if job.model.mtp_layers:
        head = mean(
            {0: timer.layer(next_token(job, layout)), 1: head}, ((0, job.model.mtp_layers), (1, 1)), divide=False
        )
    every = (typical, leading, timer.layer(vocabulary.embedding(job, layout), "embedding"), head)
    typical, leading, embedding, head = every if details else (_plain(c) for c in every)
    return Body(typical, leading, embedding, head, boundary(job, layout), stage_message(job, layout))


def _plain(c: LayerCost) -> LayerCost:
    return c._replace(forward=c.forward.total, backward=c.backward.total, again=c.again.total)


def boundary(job: Job, layout: Layout) -> Num:
    """Bytes one device holds of a microbatch between two layers: b T/cp tokens of width D, a shard of
    them (/ tp) with sequence parallelism or SUMMA, else all.
    """
    tokens, each = layout.microbatch * job.T / layout.cp, job.precision.activation_bytes
    if layout.scheme == "summa":
        return tokens * summa.width(job, layout) * each
    share = layout.tp if _cut(layout) else 1.0
    return tokens * job.model.hidden / share * each


def stage_message(job: Job, layout: Layout) -> Num:
    """Bytes one device sends to the next stage for one microbatch: what it holds, or, where tp ranks
    hold the same and the set scatters it, 1/tp of that (Narayanan et al. 2021, section 4.1).
    """
    scattered = job.how.count.stage_message == "scattered" and not _cut(layout)
    return boundary(job, layout) / (layout.tp if scattered else 1.0)


def _cut(layout: Layout) -> bool:
    """Do the tp ranks hold different parts of the activation between layers?"""
    return layout.sequence_parallel or layout.scheme == "summa"


def sent_back(c: LayerCost, recompute: str) -> Load:
    """What a layer's backward pass sends, with what recomputation sends again."""
    again = {"none": NOTHING, "selective": c.sent_again, "full": c.sent}[recompute]
    return c.sent_back + again


def backward(c: LayerCost, recompute: str) -> Time:
    """Backward seconds with what recomputation adds: nothing, the core of attention, or the whole forward pass."""
    return (
        c.backward + {"none": 0.0, "selective": c.again, "full": c.forward}[recompute]
        if recompute != "none"
        else c.backward
    )
