"""What a rank of the trainer computes in one step, from `count`: the operations of a layer as
PyTorch runs them, their second run, and matrix FLOPs.

The trainer's program differs from Megatron-LM's in named ways (`carried_out`); this is the plan as
PyTorch carries it out, before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ..count import vocabulary
from ..count.microbatch import DeviceMicrobatch
from ..count.model import kinds, layer
from ..count.recompute import recomputed_ops as again_in_count
from ..count.work import Op
from ..describe.job import Job
from ..describe.layers import Kind
from ..describe.recompute import resolve
from ..exchange.types import Message
from ..layout.stages import microbatches
from .order import Stage, rank_stages
from .tiles import share

FP32 = 4

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


def layer_ops(job: Job, stage: Stage, place: int) -> Iterator[list[Op]]:
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
