"""What PyTorch's engine holds of single operations while it runs a layer backward: shared by the
walk and its bound.

Every function takes a layout whose numbers may be arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..count.recompute import recomputed_ops
from ..count.work import Op
from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, minimum, where
from ..schedule.schedule import Schedule
from .operations import (
    FP32,
    OPERATIONS,
    recomputation,
    summed_over_tp,
)

NORM_GRADIENTS = 5.0
"""fp32 tensors of a hidden state's size in the backward pass of PyTorch's RMS norm on CPUs."""
NORM_SAVED = 2.0
"""fp32 tensors of that size that it keeps from its forward pass."""

ROWS = ("experts/dispatch", "experts/combine")
"""What sorts rows for experts and back."""
SORTED = 3.0
"""Copies of all rows in the backward pass of sorting: gradients, zeros in their place, and the sum
of both.
"""


LOGITS_AT_ONCE = 2**24
"""Logits that the loss works on in fp32 together: 64 MiB."""


def logits(job: Job, loss: Num) -> Num:
    """Bytes of the logits in the numbers of the products. loss: in fp32."""
    return loss * (job.precision.activation_bytes / FP32)


def in_loss(job: Job, loss: Num) -> Num:
    """Bytes that live while the gradient of the logits is made, beside them: itself, and some rows
    in fp32.
    """
    return logits(job, loss) + minimum(loss, FP32 * LOGITS_AT_ONCE)


def early(schedule: Schedule, p: Num, v: Num, first: Any) -> Num:
    """Receive buffers that are there before their microbatch is worked on: with several chunks
    PyTorch posts a receive when the sender has computed what it sends. On the first rank of a
    pipeline that is not folded, p: there the next chunk follows when p microbatches are through.
    """
    several = where(schedule.chunks(v) > 1, 1.0, 0.0)
    return several * where(first & (not schedule.folded), p, 2.0)


def makes_16_bit_gradients(job: Job) -> bool:
    """Gradients are made in 16 bits and become fp32 when all of a layer's are there; else they are
    added up as they are made.
    """
    return job.precision.compute != "fp32"


def as_made(job: Job, weights: Num) -> Num:
    """Bytes of gradients that wait to be added up."""
    return (
        job.precision.activation_bytes * weights
        if makes_16_bit_gradients(job)
        else 0.0 * weights
    )


def input_is_saved(job: Job, recompute: str) -> bool:
    """The first thing a layer keeps is its input itself."""
    whole = recomputation(recompute) != "none"
    return (
        whole or job.model.norm != "rmsnorm" or not makes_16_bit_gradients(job)
    )


def moving(job: Job, boundary: Num, op: Op) -> Num:
    """Bytes of the gradients of an operation's inputs and results, with that of the residual stream
    (`boundary`).
    """
    if "norm" in op.name and job.model.norm == "rmsnorm":
        return boundary + NORM_GRADIENTS / NORM_SAVED * op.saved
    if op.kind == "matmul":
        width = job.precision.activation_bytes
        # experts come one after the other, and their gradients are stacked
        stacked = width * op.weights if op.expert else 0.0
        return (
            boundary
            + stacked
            + width
            * sum((y.out + y.inner) * y.tokens for y in op.forward.products)
        )
    if op.name.startswith(ROWS):
        # what it kept is gone by then
        rows = sum(message.bytes for message in op.forward.comm)
        return boundary + SORTED * rows - op.saved
    # one tensor in, one out; what is gated keeps three, and has three gradients
    pair = op.kind == "vector" and not job.model.gated
    return boundary + (2 if pair else 1) * op.saved + op.scratch


def results(job: Job, ops: Iterable[Op]) -> Num:
    """Bytes of the results of all operations with weights: of a norm with several operations, in
    fp32.
    """
    width = job.precision.activation_bytes
    saved: Num = 0.0
    for op in ops:
        if "norm" in op.name:
            # RMS norm of the hidden state
            several = op.weights == job.model.hidden
            saved = saved + op.saved / (NORM_SAVED if several else 1.0)
        if op.kind == "matmul":
            saved = saved + width * sum(
                y.out * y.tokens for y in op.forward.products
            )
    return saved


def results_kept(
    job: Job, tp: Num, ops: list[Op], recompute: str
) -> list[Num]:
    """Bytes of the result of each operation of a layer that stays where it is recomputed operation
    by operation: products that are not made again, attention with its logarithms, sums over tp.
    """
    if recomputation(recompute) != OPERATIONS:
        return [0.0] * len(ops)
    width = job.precision.activation_bytes
    sizes = list[Num]()
    ways = recomputed_ops(ops, OPERATIONS)
    for op, way, after in zip(ops, ways, (*ops[1:], *ops[-1:]), strict=True):
        size: Num = 0.0
        if op.kind == "matmul" and not op.expert:
            rows = sum(y.out * y.tokens for y in op.forward.products)
            size = (1.0 - way.share) * width * rows
        if op.kind == "attention":
            size = op.saved - op.inputs + after.saved
        for message in op.forward.comm:
            if summed_over_tp(message):
                cut = tp if message.kind == "reduce_scatter" else 1.0
                size = size + where(tp > 1, message.bytes / cut, 0.0)
        sizes.append(size)
    return sizes


def copies_weights(job: Job, layout: Layout) -> Any:
    """FSDP is at work: the weights a product sees are other tensors than those the optimizer
    changes.
    """
    several = layout.replicas > 1
    if job.model.moe:
        several = several | (layout.expert_replicas > 1)
    return several | makes_16_bit_gradients(job)
