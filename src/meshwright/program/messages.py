"""What a rank of the trainer sends in one step: every collective by kind, axis and bytes."""

from __future__ import annotations

from collections import Counter
from math import prod

from ..count.microbatch import DeviceMicrobatch
from ..count.model import kinds
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import (
    microbatches,
    schedule_of,
    stage_count,
    stage_numbers,
)
from ..num import Num
from ..step.zero import gathers, is_sharded, over_step, reductions
from .operations import FP32, microbatch_passes, recomputation
from .order import gathered_again, order, piled_up, rank_stages
from .parameters import elements, end_shapes, replicas
from .units import EXPERTS, Units

Sent = Counter[tuple[str, str, int]]
"""(kind, axis, bytes of the full vector) -> how often."""


def sent_by_rank(job: Job, rank: int, shards: int = 0) -> Sent:
    """Every collective of one step of a rank of the pp axis. job: `carried_out`. shards: as in the
    settings; 0 = all dp ranks.
    """
    layout = job.layout
    every = Sent()
    m = int(microbatches(job, layout))
    for stage in rank_stages(job, rank):
        for _, messages in microbatch_passes(job, stage):
            for message in messages:
                if message.bytes and getattr(layout, message.axis) > 1:
                    every[message.kind, message.axis, int(message.bytes)] += m
    units = Units(job, shards)
    every += (
        of_choices(job, rank, m)
        + between_stages(job, rank, m)
        + of_norms(units, rank, m)
        + of_replicas(units, rank, m)
    )
    if job.model.tied_embeddings and any(
        s.first != s.last for s in rank_stages(job, rank)
    ):
        every += of_tied(job, rank, shards)
    return every


CHOICE = 8
"""Bytes of a number of tokens."""


def of_choices(job: Job, rank: int, m: int) -> Sent:
    """Before tokens go to their experts, how many there are for each goes: not in `count`."""
    layout, moe = job.layout, job.model.moe
    if moe is None or layout.ep == 1:
        return Sent()
    of = kinds(job.model)
    passes = sum(of[i].moe for s in rank_stages(job, rank) for i in s.layers)
    passes *= 1 if recomputation(layout.recompute) == "none" else 2
    return Sent({("all_to_all", "ep", moe.experts * CHOICE): m * passes})


def between_stages(job: Job, rank: int, m: int) -> Sent:
    """Sends: a microbatch's hidden states to the next stage, its gradient to the one before, where
    that is another rank.
    """
    layout = job.layout
    mine = stage_numbers(job.layout, rank)
    count = stage_count(layout)
    sends = sum(
        (0 <= to < count) and to not in mine
        for n in mine
        for to in (n - 1, n + 1)
    )
    return Sent(
        {
            (
                "send",
                "pp",
                int(DeviceMicrobatch.from_layout(job, layout).stage_message),
            ): m * sends
        }
        if sends
        else {}
    )


WHOLE = ("positions", "ffn.router", "ffn.shared_gate")
"""Beside norms, parameters that every tp rank has whole and uses on its shard of a sequence."""


def of_norms(units: Units, rank: int, m: int) -> Sent:
    """Gradients of norms and learned positions, made from sequence shards, are summed over tp: not
    in `count`.

    In fp32 once a step, where gradients pile up before they are reduced; else as they are made,
    after each microbatch, or (halved backward passes) once.
    """
    job, layout = units.job, units.layout
    sent = Sent()
    if layout.tp == 1 or not layout.sequence_parallel:
        return sent
    together = not reduced_at_once(layout)
    whole = not is_sharded(layout.zero, "gradients")
    chunks = {0} if whole and m > 1 else set[int]()
    if layout.pp > 1 and together:
        chunks = piled_up(order(job, rank), rank_stages(job, rank))
    for chunk, unit in units.of_rank(rank):
        width = (
            FP32 if chunk in chunks else int(job.precision.activation_bytes)
        )
        for name, shape in unit.shapes.items():
            if name.startswith(WHOLE) or "norm" in name:
                sent["all_reduce", "tp", prod(shape) * width] += (
                    1 if together else m
                )
    return sent


def reduced_at_once(layout: Layout) -> bool:
    """Gradients are reduced after each microbatch, so that a rank keeps shards of them: where the
    ZeRO stage cuts them, but for a schedule that halves backward passes.
    """
    return is_sharded(layout.zero, "gradients") and not (
        layout.pp > 1 and schedule_of(layout).split_backward
    )


def gradient_reductions(layout: Layout, m: Num) -> Num:
    """How often gradients are reduced in a step."""
    return reductions(layout.zero if reduced_at_once(layout) else 0, m)


def of_replicas(units: Units, rank: int, m: int) -> Sent:
    """Weights gathered and gradients reduced over the replicas (dp x cp), a collective a unit, as
    often as the ZeRO stage says (`step.zero`).

    But gradients of halved backward passes wait for the last microbatch, and under a pipeline
    weights are gathered as often as PyTorch lets go of their chunk (`gathered_again`).
    """
    job, layout = units.job, units.layout
    sent = Sent()
    again = Counter({0: int(over_step(gathers(layout.zero), m))})
    if layout.pp > 1 and layout.zero:
        again = gathered_again(
            order(job, rank), is_sharded(layout.zero, "weights")
        )
    dense, of_experts = replica_axis(layout), expert_axis(layout)
    scatters = int(gradient_reductions(layout, m))
    for chunk, unit in units.of_rank(rank):
        copies, inside = units.replicas(unit.name)
        axis = of_experts if unit.name == EXPERTS else dense
        size = int(unit.padded)
        if not is_sharded(layout.zero, "optimizer"):
            sent["all_reduce", axis, size] += int(copies > 1)
            continue
        if inside > 1:
            gather = size // FP32 * int(job.precision.gather_bytes)
            sent["all_gather", axis, gather] += again[chunk]
            sent["reduce_scatter", axis, size] += scatters
        if copies > 1:
            sent["all_reduce", "copies", size // inside] += scatters
    return +sent


def replica_axis(layout: Layout) -> str:
    """The axis of the replicas."""
    return "replicas" if layout.dp > 1 else "cp"


def expert_axis(layout: Layout) -> str:
    """The axis of the replicas of experts. PyTorch has one group of all ranks of a run, whatever
    axis spans them.
    """
    if layout.pp * layout.ep * layout.etp > 1:
        return "edp"
    if layout.tp == 1:
        return replica_axis(layout)
    return "tp" if layout.dp * layout.cp == 1 else "edp"


def of_tied(job: Job, rank: int, shards: int) -> Sent:
    """The gradients of a matrix that is embedding on one rank and head on another are exchanged
    between the two.
    """
    mine = rank_stages(job, rank)
    if any(s.first for s in mine) and any(s.last for s in mine):
        return Sent()
    ends = end_shapes(job, next(s for s in mine if s.first or s.last))
    rows = next(iter(ends.values()))
    name = "embedding.weight" if "embedding.weight" in rows else "head.weight"
    _, inside = replicas(job.layout, shards)
    return Sent(
        {
            (
                "send",
                "pp",
                elements({name: rows[name]}, inside) // inside * FP32,
            ): 1
        }
    )
