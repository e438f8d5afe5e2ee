"""What a rank of the trainer will compute and send in one step, from `count`: matrix FLOPs, and
every collective by kind, axis and bytes.

The trainer's program differs from Megatron-LM's in named ways (`carried_out`); this is the plan as
PyTorch carries it out, before it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Final

from ..count import vocabulary
from ..count.microbatch import DeviceMicrobatch
from ..count.model import kinds, layer
from ..count.recompute import recomputed_ops as again_in_count
from ..count.work import Message, Op
from ..describe.job import Job
from ..describe.layers import Kind
from ..describe.layout import Layout
from ..describe.recompute import resolve
from ..layout.stages import (
    microbatches,
    schedule_of,
    stage_count,
    stage_numbers,
)
from ..num import Num
from ..step.zero import gathers, is_sharded, reductions
from .order import Stage, gathered_again, order, piled_up, rank_stages
from .parameters import elements, end_shapes, units_of_chunks
from .tiles import share

FP32 = 4

Sent = Counter[tuple[str, str, int]]
"""(kind, axis, bytes of the full vector) -> how often."""
OPERATIONS: Final = "op"
"""The way to recompute that the trainer calls selective: operation by operation
(`train.recompute`)."""
LAST = "down"
"""Full recomputation stops before a layer's last product, whose result nobody needs."""


def carried_out(job: Job) -> Job:
    """The job with the choices of PyTorch's engine: gathered inputs, keys and values are kept,
    autograd keeps what each operation needs.

    Each tp rank sends the activation between stages as it holds it. PyTorch's formulas for the
    FLOPs of attention know nothing of the causal mask.
    """
    how = replace(
        job.how.count,
        gathered_inputs="kept",
        input_gradients="together",
        gathered_keys="kept",
        backward_needs="autograd",
        selective=OPERATIONS,
        causal="full",
        dot_product="2k",
        vocabulary=True,
        stage_message="whole",
    )
    return replace(job, assumptions=replace(job.assumptions, count=how))


LOSS = "head/loss"
"""The operation that makes the loss of the logits."""


def layer_ops(job: Job, stage: Stage, place: int = 0) -> Iterator[list[Op]]:
    """Operations of each layer of a stage for one microbatch. place: of the rank among those of
    cp.
    """
    every = kinds(job.model)
    by_kind = {kind: operations(job, kind, place) for kind in set(every)}
    return (by_kind[every[i]] for i in stage.layers)


def operations(job: Job, kind: Kind, place: int = 0) -> list[Op]:
    """Those of a layer of a kind."""
    return [
        of_tiles(job, op, kind.window, place)
        for op in layer(job, job.layout, kind)
    ]


def of_tiles(job: Job, op: Op, window: int | None, place: int) -> Op:
    """Of the core of attention, only the FLOPs of the tiles that are computed."""
    if op.name != "attention/core":
        return op
    part = share(job, job.layout, window, place)
    forward, backward = (
        way._replace(matrix=way.matrix * part)
        for way in (op.forward, op.backward)
    )
    return op._replace(forward=forward, backward=backward)


def recomputation(text: str) -> str:
    """How the trainer carries a layout's recomputation out: none, op or full."""
    return resolve(text, OPERATIONS)


def recomputed_prefix(ops: list[Op], recompute: str) -> list[Op]:
    """The operations up to which recomputation runs a layer a second time in its backward pass."""
    if recomputation(recompute) == "none":
        return []
    return ops[: next(i for i, op in enumerate(ops) if last(op.name, ops))]


def redone(
    ops: list[Op], recompute: str
) -> Iterator[tuple[float, tuple[Message, ...]]]:
    """(FLOPs, messages) of the second run. Operation by operation, results that stay are not
    computed again, and sums over tp stay."""
    ways = again_in_count(ops, recomputation(recompute))
    for op, way in zip(recomputed_prefix(ops, recompute), ways, strict=False):
        comm = op.forward.comm
        if recomputation(recompute) == OPERATIONS:
            comm = tuple(x for x in comm if not summed_over_tp(x))
        yield float(round(float(op.forward.matrix * way.share))), comm


def summed_over_tp(message: Message) -> bool:
    """It sums what row-parallel matrices make."""
    sums = message.kind in ("reduce_scatter", "all_reduce")
    return sums and message.axis == "tp"


def last(name: str, ops: list[Op]) -> bool:
    """The first operation whose result nobody needs. What experts say is kept, for the gradient of
    its weight; what shared ones say only where a gate weighs it.
    """
    every = {op.name for op in ops}
    if "experts/combine" not in every:
        return name.endswith(f"/{LAST}")
    shared = f"shared/{LAST}"
    weighed = "shared/gate" in every or shared not in every
    return name == ("ffn/residual" if weighed else shared)


def microbatch_passes(
    job: Job, stage: Stage, place: int = 0
) -> Iterator[tuple[float, tuple[Message, ...]]]:
    """(FLOPs, messages) of every pass of one microbatch through a stage."""
    ends = [
        *(
            vocabulary.embedding(DeviceMicrobatch.from_layout(job, job.layout))
            if stage.first
            else []
        ),
        *(
            vocabulary.head(DeviceMicrobatch.from_layout(job, job.layout))
            if stage.last
            else []
        ),
    ]
    for ops in (*layer_ops(job, stage, place), ends):
        for op in ops:
            yield float(op.forward.matrix), op.forward.comm
            yield float(op.backward.matrix), op.backward.comm
        if ops is not ends:
            yield from redone(ops, job.layout.recompute)


def flops(job: Job, rank: int, place: int = 0) -> float:
    """Matrix FLOPs of one step of a rank of the pp axis, the place-th of cp. job: `carried_out`."""
    return float(microbatches(job, job.layout)) * sum(
        f
        for stage in rank_stages(job, rank)
        for f, _ in microbatch_passes(job, stage, place)
    )


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
    every += (
        of_choices(job, rank, m)
        + between_stages(job, rank, m)
        + of_norms(job, rank, m)
        + of_replicas(job, rank, m, shards)
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


def of_norms(job: Job, rank: int, m: int) -> Sent:
    """Gradients of norms and learned positions, made from sequence shards, are summed over tp: not
    in `count`.

    In fp32 once a step, where gradients pile up before they are reduced; else as they are made,
    after each microbatch, or (halved backward passes) once.
    """
    layout = job.layout
    sent = Sent()
    if layout.tp == 1 or not layout.sequence_parallel:
        return sent
    together = not reduced_at_once(layout)
    whole = not is_sharded(layout.zero, "gradients")
    chunks = {0} if whole and m > 1 else set[int]()
    if layout.pp > 1 and together:
        chunks = piled_up(order(job, rank), rank_stages(job, rank))
    for chunk, shapes, _ in units_of_chunks(job, rank):
        width = (
            FP32 if chunk in chunks else int(job.precision.activation_bytes)
        )
        for name, shape in shapes.items():
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


def of_replicas(job: Job, rank: int, m: int, shards: int) -> Sent:
    """Weights gathered and gradients reduced over the replicas (dp x cp), a collective a unit, as
    often as the ZeRO stage says (`step.zero`).

    But gradients of halved backward passes wait for the last microbatch, and under a pipeline
    weights are gathered as often as PyTorch lets go of their chunk (`gathered_again`).
    """
    layout = job.layout
    sent = Sent()
    again = Counter({0: int(gathers(layout.zero, 2 * m))})
    if layout.pp > 1 and layout.zero:
        again = gathered_again(
            order(job, rank), is_sharded(layout.zero, "weights")
        )
    dense, of_experts = replica_axis(layout), expert_axis(layout)
    scatters = int(gradient_reductions(layout, m))
    for chunk, shapes, experts in units_of_chunks(job, rank):
        copies, inside = replicas(layout, shards, experts)
        axis = of_experts if experts else dense
        size = elements(shapes, inside)
        if not is_sharded(layout.zero, "optimizer"):
            every = inside * copies
            sent["all_reduce", axis, size * FP32] += int(every > 1)
            continue
        if inside > 1:
            gather = size * int(job.precision.gather_bytes)
            sent["all_gather", axis, gather] += again[chunk]
            sent["reduce_scatter", axis, size * FP32] += scatters
        if copies > 1:
            sent["all_reduce", "copies", size * FP32 // inside] += scatters
    return +sent


def replicas(
    layout: Layout, shards: int, experts: bool = False
) -> tuple[int, int]:
    """(copies, ranks that share out one copy's state). experts: of those."""
    cp = int(layout.cp)
    every = int(layout.expert_replicas if experts else layout.dp * cp)
    if not is_sharded(layout.zero, "optimizer"):
        return every, 1
    inside = shards * cp if shards else every
    return every // inside, inside


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
