"""CPU seconds of a step, summed over all ranks: what ranks that share a machine's cores spend,
however they wait for one another.

Waiting and bubbles cost nothing here, and nothing hides behind anything. Messages count what a rank
spends on them ("all_gather/cpu" in `Dim.collectives`), and the engine what it was measured to cost
beside its operations (`Cluster.engine`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..cost import measured
from ..cost.layer import Clock
from ..cost.network import Fabric
from ..count.model import Counts, count_microbatch
from ..describe.job import Job
from ..describe.layers import totals
from ..describe.layout import Layout
from ..describe.network import Network
from ..layout.stages import microbatches
from ..num import Num, sum_of, where
from ..schedule import get as schedule_named
from ..step.microbatch import (
    ModelCost,
    clock_of,
    model_with_recomputation,
    time_model,
)
from ..step.parameters import tied_parameters
from ..step.zero import gathers, is_sharded, over_step
from .messages import gradient_reductions

CPU = "/cpu"


def why_no_cpu_time(job: Job, layout: Layout) -> str:
    """Why CPU seconds cannot be predicted; "" if they can. An unmeasured part would count as
    nothing.
    """
    if not job.cluster.engine:
        return "the machine was not measured by meshwright calibrate"
    if (
        job.how.chip.model != "calibrated"
        or job.how.network.collective != "measured"
    ):
        return f"assumptions {job.assumptions.name} take no measured kernels and collectives"
    if job.model.moe:
        return "experts were not measured"
    if job.model.mtp_layers:
        return "blocks that predict further tokens were not measured"
    missing = [
        name for name in features(layout) if name not in job.cluster.engine
    ]
    return (
        f"the machine file has no engine {', '.join(map(repr, missing))}"
        if missing
        else ""
    )


def in_cpu_seconds(network: Network) -> Network:
    """The network whose collectives cost the CPU seconds of a rank instead of time."""
    dims = []
    for dim in network.dims:
        paid = {
            name.removesuffix(CPU): table
            for name, table in dim.collectives.items()
            if name.endswith(CPU)
        }
        dims.append(replace(dim, collectives=paid))
    return replace(network, dims=tuple(dims))


def cpu_seconds(job: Job, layout: Layout) -> dict[str, Num]:
    """CPU seconds of one step by cause, summed over ranks. layout: placed (`layout.placed`)."""
    job = replace(
        job,
        cluster=replace(
            job.cluster, network=in_cpu_seconds(job.cluster.network)
        ),
    )
    clock = clock_of(job, shared=True)
    counts = count_microbatch(job, layout)
    parts = model_with_recomputation(
        time_model(counts, clock), layout.recompute
    )
    m = microbatches(job, layout)
    ranks = layout.chips
    group = ranks / layout.pp
    often = zip(_occurrences(job), parts.parts, strict=True)
    whole: Any = sum_of((n, c.causes.both) for n, c in often)
    schedule = schedule_named(layout.schedule)
    stages = layout.pp * schedule.chunks(layout.interleave)
    # the last rank of a folded pipeline hands on to itself
    inside = float(schedule.folded)
    fabric = clock.fabric
    hop = 2 * (stages - 1.0 - inside) * send(fabric, parts.message)
    shards = layout.replicas if is_sharded(layout.zero, "optimizer") else 1.0
    return {
        "compute": group * m * (whole.compute + whole.memory),
        "accumulate": group
        * (m - 1.0)
        * of_weights(counts, clock, "accumulate", 1.0),
        "tp_comm": group * m * whole.tp_comm,
        "cp_comm": group * m * whole.cp_comm,
        "pp_comm": group * m * hop,
        "dp_comm": group * sync_seconds(job, layout, parts, clock),
        "optimizer": group * of_weights(counts, clock, "optimizer", shards),
        "engine": _engine(job, layout),
    }


def send(fabric: Fabric, V: Num) -> Num:
    """CPU seconds of one message between stages, of sender and receiver together; at the nearest
    dimension's cost.
    """
    table = fabric.dims[0].collectives.get("send")
    return 2 * measured.table_seconds(table, (2.0, V)) if table else 0.0 * V


def _occurrences(job: Job) -> tuple[float, ...]:
    """How often each of `ModelCost.parts` is in the model."""
    return (*totals(job.model), 1.0, 1.0)


def _kernel(clock: Clock, name: str, size: Num) -> Num:
    """Seconds of a measured kernel of one axis; 0 where it was not measured."""
    table = clock.rates.kernels.get(name)
    return measured.table_seconds(table, (size,)) if table else 0.0 * size


def of_weights(counts: Counts, clock: Clock, name: str, shards: Num) -> Num:
    """Seconds of a kernel that goes over all weights of a chain of stages, tensor by tensor, each
    cut over `shards` ranks.

    Small tensors stay in caches that one tensor of all weights would not fit in.
    """
    job, layout = counts.microbatch.job, counts.microbatch.layout
    total: Num = (
        -_kernel(clock, name, tied_parameters(job, layout) / shards)
        if job.model.tied_embeddings
        else 0.0
    )
    parts = (*counts.layers, counts.embedding, counts.head)
    for n, ops in zip(_occurrences(job), parts, strict=True):
        for op in ops:
            if isinstance(op.weights, (int, float)) and op.weights == 0:
                continue
            tensors = op.forward.calls if op.kind == "matmul" else 1.0
            total = total + n * tensors * _kernel(
                clock, name, op.weights / tensors / shards
            )
    return total


def sync_seconds(
    job: Job, layout: Layout, cost: ModelCost, clock: Clock
) -> Num:
    """CPU seconds of weight and gradient collectives, of one rank for each stage, with the copies
    in and out of flat buffers.

    As often as the ZeRO stage says (`step.zero`). Units: each layer; embedding and head together,
    or apart on different stages.
    """
    m = microbatches(job, layout)
    p = job.precision
    group = layout.group("replicas")
    fabric = clock.links(layout)
    e = cost.embedding.weights
    h = cost.head.weights
    alone = layout.pp == 1
    units = (
        *(
            (n, c.weights)
            for n, c in zip(totals(job.model), cost.layers, strict=True)
        ),
        (1.0, where(alone, e + h - tied_parameters(job, layout), e)),
        (where(alone, 0.0, 1.0), h),
    )

    def each(kind: str, size: float, copies: float) -> Num:
        return sum(
            n
            * (
                fabric.time(kind, weights * size, group)
                + copies * _kernel(clock, "copy", weights)
            )
            for n, weights in units
        )

    if not is_sharded(layout.zero, "optimizer"):
        return where(
            layout.replicas > 1, each("all_reduce", p.gradient_bytes, 2.0), 0.0
        )
    gather = each("all_gather", p.gather_bytes, 1.0)
    scatter = each("reduce_scatter", p.gradient_bytes, 1.0)
    return where(
        layout.replicas > 1,
        gather * over_step(gathers(layout.zero), m)
        + scatter * gradient_reductions(layout, m),
        0.0,
    )


def features(layout: Layout) -> dict[str, Num]:
    """Feature of the engine that a layout uses -> ranks of its group."""
    schedule = schedule_named(layout.schedule)
    used: dict[str, tuple[Any, Num]] = {
        "plain": (True, 1.0),
        "tp": (layout.tp > 1, layout.tp),
        "cp": (layout.cp > 1, layout.cp),
        f"zero{layout.zero}": (layout.replicas > 1, layout.replicas),
        schedule.name: (layout.pp > 1, layout.pp),
        f"recompute {layout.recompute}": (layout.recompute != "none", 1.0),
    }
    return {name: ranks for name, (wanted, ranks) in used.items() if wanted}


def _engine(job: Job, layout: Layout) -> Num:
    """CPU seconds of the engine itself, over all ranks: each feature at the layers and microbatches
    of a rank.
    """
    m = microbatches(job, layout)
    L = job.model.layers / layout.pp
    total: Num = 0.0
    for name, ranks in features(layout).items():
        if overhead := job.cluster.engine.get(name):
            total = total + measured.overhead(overhead, ranks, L, m)
    return total * layout.chips
