"""A weight matrix as the job counts it: its precision, and what its gradient costs with m
microbatches.
"""

from __future__ import annotations

from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, where
from . import blocks
from .work import Op

APART = ("added", "copied")
"""Ways in which the sum over microbatches is no part of the product."""


def linear(
    job: Job,
    layout: Layout,
    name: str,
    T: Num,
    k: Num,
    n: Num,
    of: blocks.Matrix = blocks.PLAIN,
    sent: blocks.Messages = blocks.SILENT,
) -> Op:
    """`blocks.matmul` in the numbers of this job."""
    return blocks.matmul(
        name,
        T,
        k,
        n,
        numbers=matrix_numbers(job, layout, of),
        of=of,
        sent=sent,
    )


def matrix_numbers(
    job: Job, layout: Layout, of: blocks.Matrix = blocks.PLAIN
) -> blocks.Numbers:
    """Bytes of the numbers of a matrix and its gradient, and how a dot product is counted."""
    p = job.precision
    return blocks.Numbers(
        1.0 if job.how.count.dot_product == "2k-1" else 0.0,
        act=p.activation_bytes,
        wgt=p.weight_bytes,
        gradient=gradient_bytes(job, layout),
        summed=summed_bytes(job, layout),
        stored=p.kept_input_bytes if of.quantised else p.activation_bytes,
        sums=fp32_sums(job, layout),
    )


def gradient_bytes(job: Job, layout: Layout) -> Num | None:
    """Bytes that the gradient of one weight moves in each microbatch; None: as wide as the weight.

    Written once with one microbatch; read, added to and written with m > 1 (Megatron-LM's
    gradient accumulation fusion, into `Job.gradient_bytes` a weight).
    """
    if job.how.count.weight_gradient == "one pass":
        return None
    if job.how.count.weight_gradient in APART:
        return job.precision.weight_bytes
    return job.gradient_bytes * where(accumulates(job, layout), 2.0, 1.0)


def fp32_sums(job: Job, layout: Layout) -> Num:
    """Bytes of fp32 sums that the product of one weight's gradient reads and writes."""
    moved = gradient_bytes(job, layout)
    itself = job.how.count.weight_gradient == "apart"
    wide = job.gradient_bytes > job.precision.weight_bytes
    return moved if itself and wide and moved is not None else 0.0


def summed_bytes(job: Job, layout: Layout) -> Num | None:
    """Bytes that adding up the gradient of one weight moves in each microbatch beside the product
    that makes it; None: the product adds it up.

    Autograd reads the new gradient and the old one and writes their sum. Where gradients are kept
    wider than weights, every microbatch has a narrow one of its own, which is added to the wide
    ones (Megatron-LM's main_grad), or copied to the wide numbers and added up there (BF16Optimizer
    of DeepSpeed).
    """
    how = job.how.count.weight_gradient
    if how not in APART:
        return None
    w = job.precision.weight_bytes
    g = job.gradient_bytes
    if g > w:
        return w + 2 * g + (2 * g if how == "copied" else 0.0)
    return 3 * w * where(accumulates(job, layout), 1.0, 0.0)


def accumulates(job: Job, layout: Layout) -> Any:
    """True (element by element) where a step has several microbatches to add up: m > 1."""
    return layout.dp * layout.microbatch < job.batch
