"""What one microbatch costs on one device: each part of the model, counted and timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..cost.chip import rates
from ..cost.layer import (
    NO_CAUSES,
    Clock,
    LayerCost,
    Redo,
    Redone,
    Timer,
    in_sequence,
    scale,
)
from ..cost.network import Fabric
from ..cost.offload import with_copies
from ..count import summa
from ..count.local import Local
from ..count.model import Counts, microbatch
from ..describe.assumptions import ChipTime, NetworkTime, Overlap
from ..describe.chip import Chip
from ..describe.job import Job
from ..describe.layers import layer_in_words, sorts
from ..describe.layout import GRIDS, Layout
from ..describe.model import Model
from ..describe.network import Network
from ..describe.offload import offload
from ..describe.recompute import recompute, resolve
from ..layout.sequence import length
from ..num import Num


class ModelCost(NamedTuple):
    """What one microbatch costs in each part of the model, on one device."""

    layers: tuple[LayerCost, ...]
    """A layer of each kind, in the order of `describe.layers.sorts`: that of the last one first."""
    embedding: LayerCost
    head: LayerCost
    """Final norm, logits, loss, and multi-token-prediction blocks without their layers."""
    boundary: Num
    """Bytes a device holds of the activation between two layers: the input that full recomputation
    keeps.
    """
    message: Num
    """Bytes a device sends of it to the next stage."""

    @property
    def typical(self) -> LayerCost:
        """A layer of the kind of the last one."""
        return self.layers[0]

    @property
    def parts(self) -> tuple[LayerCost, ...]:
        """Layers, embedding and head."""
        return (*self.layers, self.embedding, self.head)


def labels(model: Model) -> list[str]:
    """What an explanation calls layers of each kind."""
    every = sorts(model)
    if len(every) == 1:
        return ["layers"]
    return [f"layers of {layer_in_words(model, kind)}" for kind in every]


ENDS_CALLED = ("embedding", "head")
"""What an explanation calls the parts of a `ModelCost` that are no layers."""


def clock_of(job: Job) -> Clock:
    """The job's chip, network and overlap policy as rates."""
    return _clock.__wrapped__(*_timed_by(job))


def kept_clock(job: Job) -> Clock:
    """`clock`, one object for equal chips, networks and choices: for single layouts, whose groups
    it remembers."""
    return _clock(*_timed_by(job))


def _timed_by(
    job: Job,
) -> tuple[Chip, str, ChipTime, Network, NetworkTime, Overlap]:
    on, how = job.cluster, job.how
    return (
        on.chip,
        job.precision.compute,
        how.chip,
        on.network,
        how.network,
        how.overlap,
    )


@lru_cache(maxsize=32)
def _clock(
    chip: Chip,
    precision: str,
    timed: ChipTime,
    network: Network,
    sent: NetworkTime,
    hidden: Overlap,
) -> Clock:
    return Clock(
        rates(chip, precision, timed), Fabric.of(network, sent), hidden
    )


def model_cost(
    job: Job,
    layout: Layout,
    clock: Clock | None = None,
    details: bool = False,
    again: Sequence[str] = (),
) -> ModelCost:
    """Costs of the parts of the model, counted and timed.

    at: the job's `clock`, or that of a bound;  details: keep seconds by cause and operations, else
    only totals (faster); again: ways to recompute that will be asked for (none: the layout's).
    """
    counts = microbatch(job, layout)
    cost = time_model(
        job,
        layout,
        counts,
        clock=clock or clock_of(job),
        again=again,
        details=details,
    )
    return cost if details else _totals(cost)


def time_model(
    job: Job,
    layout: Layout,
    counts: Counts,
    clock: Clock,
    again: Sequence[str] = (),
    details: bool = True,
) -> ModelCost:
    """Seconds of the parts of the model, and what each keeps."""
    timer = Timer(clock, layout, details)
    ways = _ways(job, again or (layout.recompute,))
    edge = boundary(job, layout)
    layers = [
        timer.layer(ops, ways=ways, boundary=edge) for ops in counts.layers
    ]
    if leaves := offload(layout.offload).share(job.model.layers):
        layers = [with_copies(c, leaves, job.cluster.chip) for c in layers]
    head = timer.layer(counts.head, "head")
    if counts.next_token:
        block = timer.layer(counts.next_token, "head")
        head = in_sequence(scale(block, float(job.model.mtp_layers)), head)
    embedding = timer.layer(counts.embedding, "embedding")
    return ModelCost(
        tuple(layers),
        embedding,
        head,
        boundary=edge,
        message=stage_message(job, layout),
    )


def _totals(cost: ModelCost) -> ModelCost:
    """Costs without seconds by cause."""
    return cost._replace(
        layers=tuple(map(_total, cost.layers)),
        embedding=_total(cost.embedding),
        head=_total(cost.head),
    )


def _total(c: LayerCost) -> LayerCost:
    redone = Redone(
        {
            name: redo._replace(causes=NO_CAUSES.forward)
            for name, redo in c.redone.items()
        }
    )
    return c._replace(redone=redone, causes=NO_CAUSES)


def _ways(job: Job, texts: Sequence[str]) -> dict[str, str]:
    """Name -> parts of what runs again, where it is less than the whole layer."""
    count = job.how.count
    ways = {
        recompute(text).parts: resolve(text, count.selective, count.full)
        for text in texts
    }
    return {
        name: parts
        for name, parts in ways.items()
        if parts not in ("none", "full")
    }


def boundary(job: Job, layout: Layout) -> Num:
    """Bytes one device holds of a microbatch between two layers: b T/cp tokens of width D, a shard
    of them (/ tp) with sequence parallelism or SUMMA, else all.
    """
    tokens = layout.microbatch * length(job, layout) / layout.cp
    size = job.precision.activation_bytes
    if layout.scheme == "summa":
        return tokens * summa.width(Local.of(job, layout)) * size
    share = layout.tp if _activation_is_sharded(layout) else 1.0
    return tokens * job.model.hidden / share * size


def stage_message(job: Job, layout: Layout) -> Num:
    """Bytes one device sends to the next stage for one microbatch: what it holds, or, where tp
    ranks hold the same and the set scatters it, 1/tp of that (Narayanan et al. 2021, section 4.1).
    """
    return boundary(job, layout) / _senders(job, layout)


def _senders(job: Job, layout: Layout) -> Num:
    """Ranks among which a message is scattered: tp where the set of assumptions scatters it and
    each of them holds all of it, else 1.
    """
    scattered = job.how.count.stage_message == "scattered"
    return (
        layout.tp if scattered and not _activation_is_sharded(layout) else 1.0
    )


def _activation_is_sharded(layout: Layout) -> bool:
    """Do the tp ranks hold different parts of the activation between layers?"""
    if layout.scheme in GRIDS:
        return layout.scheme == "summa"
    return layout.sequence_parallel


def redo(c: LayerCost, text: str, boundary: Num = 0.0) -> Redo | None:
    """What recomputation adds to a layer's backward pass, and what the layer keeps then; None:
    nothing. boundary: bytes of the layer's input, all that full recomputation keeps (callers that
    ask for seconds alone leave it out).
    """
    parts = recompute(text).parts
    if parts in c.redone:
        return c.redone[parts]
    if parts == "full":
        return Redo(c.forward, c.sent, boundary, c.causes.forward)
    return None


def with_recomputation(c: LayerCost, text: str, share: Num = 1.0) -> LayerCost:
    """A layer whose backward pass also runs again what the mode recomputes. text:
    `Layout.recompute`;  share: of the layers that recompute (`ModelShare.recompute_share`): each is
    given the mean.
    """
    again = redo(c, text)
    if not again:
        return c
    return c._replace(
        backward=c.backward + again.time * share,
        sent_back=c.sent_back + again.sent * share,
        causes=c.causes._replace(
            backward=c.causes.backward + again.causes * share
        ),
    )


def model_with_recomputation(
    cost: ModelCost, text: str, share: Num = 1.0
) -> ModelCost:
    """The model with every layer as `with_recomputation` has it; of a mode that recomputes nothing
    the same object."""
    if recompute(text).parts == "none":
        return cost
    return cost._replace(
        layers=tuple(with_recomputation(c, text, share) for c in cost.layers)
    )
