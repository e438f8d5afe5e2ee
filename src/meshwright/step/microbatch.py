"""What one microbatch costs on one device: each part of the model, counted and timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..cost.causes import NO_CAUSES, Causes
from ..cost.chip import rates
from ..cost.layer import Clock, LayerCost, RecomputeCost, Timer, in_sequence
from ..cost.network import Fabric
from ..cost.offload import Away
from ..count.model import Counts, count_microbatch
from ..describe.assumptions import ChipTime, Counting, NetworkTime, Overlap
from ..describe.chip import Chip
from ..describe.job import Job
from ..describe.layers import layer_in_words, sorts
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.network import Network
from ..describe.offload import offload
from ..describe.recompute import recompute, resolve
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
    away: Away | None = None
    """Activations that wait in host memory; None: all stay."""

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


END_LABELS = ("embedding", "head")
"""What an explanation calls the parts of a `ModelCost` that are no layers."""


def clock_of(job: Job, shared: bool = False) -> Clock:
    """The job's chip, network and overlap policy as rates.

    shared: one object for equal chips, networks and sets, for single layouts, whose groups it
    remembers.
    """
    clock = _clock if shared else _clock.__wrapped__
    on, how = job.cluster, job.how
    return clock(
        on.chip,
        job.precision.compute,
        on.network,
        chip_time=how.chip,
        network_time=how.network,
        overlap=how.overlap,
    )


@lru_cache(maxsize=32)
def _clock(
    chip: Chip,
    precision: str,
    network: Network,
    chip_time: ChipTime,
    network_time: NetworkTime,
    overlap: Overlap,
) -> Clock:
    fabric = Fabric.from_network(network, network_time)
    return Clock(rates(chip, precision, chip_time), fabric, overlap)


def model_cost(
    job: Job,
    layout: Layout,
    clock: Clock | None = None,
    details: bool = False,
    modes: Sequence[str] = (),
) -> ModelCost:
    """Costs of the parts of the model, counted and timed.

    clock: the job's, or that of a bound;  details: keep seconds by cause and operations, else only
    totals (faster); modes: of recomputation that will be asked for (none: the layout's).
    """
    counts = count_microbatch(job, layout)
    cost = time_model(counts, clock or clock_of(job), details, modes)
    return cost if details else _totals(cost)


def time_model(
    counts: Counts,
    clock: Clock,
    details: bool = True,
    modes: Sequence[str] = (),
) -> ModelCost:
    """Seconds of the parts of the model, and what each keeps. details, modes: as in
    `model_cost`."""
    microbatch = counts.microbatch
    layout, model, chip = (
        microbatch.layout,
        microbatch.model,
        microbatch.job.cluster.chip,
    )
    timer = Timer(clock, layout, details)
    ways = _ways(microbatch.counting, modes or (layout.recompute,))
    boundary = microbatch.boundary
    choice = offload(layout.offload)
    layers = tuple(
        timer.layer(ops, ways=ways, boundary=boundary) for ops in counts.layers
    )
    head = timer.layer(counts.head, "head")
    if counts.next_token:
        block = timer.layer(counts.next_token, "head")
        head = in_sequence(block, float(model.mtp_layers), head)
    embedding = timer.layer(counts.embedding, "embedding")
    return ModelCost(
        layers,
        embedding,
        head,
        boundary=boundary,
        message=microbatch.stage_message,
        away=Away(chip, choice, choice.share(model.layers))
        if choice.activations
        else None,
    )


def _totals(cost: ModelCost) -> ModelCost:
    """Costs without seconds by cause."""
    return cost._replace(
        layers=tuple(map(_total, cost.layers)),
        embedding=_total(cost.embedding),
        head=_total(cost.head),
    )


def _total(c: LayerCost) -> LayerCost:
    again = {
        name: cost._replace(causes=NO_CAUSES.forward)
        for name, cost in c.recompute.items()
    }
    return c._replace(recompute=again, causes=NO_CAUSES)


def _ways(counting: Counting, modes: Sequence[str]) -> dict[str, str]:
    """Name -> parts of what runs again, where it is less than the whole layer."""
    ways = {
        recompute(mode).parts: resolve(mode, counting.selective, counting.full)
        for mode in modes
    }
    return {
        name: parts
        for name, parts in ways.items()
        if parts not in ("none", "full")
    }


def recompute_cost(
    c: LayerCost, mode: str, boundary: Num = 0.0
) -> RecomputeCost | None:
    """What recomputation adds to a layer's backward pass, and what the layer keeps then; None:
    nothing. mode: `Layout.recompute`;  boundary: bytes of the layer's input, all that full
    recomputation keeps (callers that ask for seconds alone leave it out).
    """
    parts = recompute(mode).parts
    if parts in c.recompute:
        return c.recompute[parts]
    if parts == "full":
        return RecomputeCost(c.forward, c.sent, boundary, c.causes.forward)
    return None


def with_recomputation(c: LayerCost, mode: str, share: Num = 1.0) -> LayerCost:
    """A layer whose backward pass also runs again what the mode recomputes. mode:
    `Layout.recompute`;  share: of the layers that recompute (`ModelShare.recompute_share`): each is
    given the mean.
    """
    again = recompute_cost(c, mode)
    if not again:
        return c
    return c._replace(
        backward=c.backward + again.time * share,
        sent_back=c.sent_back + again.sent * share,
        causes=c.causes._replace(
            backward=c.causes.backward + again.causes * share
        ),
    )


def saved_bytes(
    layer: LayerCost, cost: ModelCost, mode: str, share: Num = 1.0
) -> Num:
    """Bytes a layer keeps of one microbatch: everything, or in that share of layers what
    recomputation leaves.
    """
    again = recompute_cost(layer, mode, cost.boundary)
    if not again:
        return layer.saved
    all_of_them = isinstance(share, float) and share == 1.0
    return (
        again.saved
        if all_of_them
        else layer.saved + (again.saved - layer.saved) * share
    )


def leaving_bytes(
    layer: LayerCost, cost: ModelCost, mode: str, share: Num = 1.0
) -> Num:
    """Of `saved_bytes`, those that wait in host memory if the layer's do."""
    kept = saved_bytes(layer, cost, mode, share)
    return cost.away.leaving(kept, cost.boundary) if cost.away else 0.0


def copies_beside(cost: ModelCost, mode: str, share: Num) -> list[Causes]:
    """Of a layer of each kind, what copies between device and host outlast of its passes, one of
    which also runs again what the mode recomputes."""
    if not cost.away:
        return [NO_CAUSES for _ in cost.layers]
    shown = []
    for c in cost.layers:
        back = with_recomputation(c, mode, share).backward
        leaves = leaving_bytes(c, cost, mode, share) * cost.away.share
        shown.append(cost.away.outlasting(leaves, (c.forward, back)))
    return shown


def model_with_recomputation(
    cost: ModelCost, mode: str, share: Num = 1.0
) -> ModelCost:
    """The model with every layer as `with_recomputation` has it, beside copies to host memory; the
    same object where neither is.
    """
    if recompute(mode).parts == "none" and not cost.away:
        return cost
    copies = copies_beside(cost, mode, share)
    return cost._replace(
        layers=tuple(
            with_recomputation(c, mode, share).longer(more)
            for c, more in zip(cost.layers, copies, strict=True)
        )
    )
