"""A weight matrix as the job counts it: its precision, and what its gradient costs with m
microbatches.
"""

from __future__ import annotations

from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, where
from . import blocks
from .work import Message, Op


def linear(
    job: Job,
    layout: Layout,
    name: str,
    T: Num,
    k: Num,
    n: Num,
    *,
    quantised: bool = True,
    kept: Num | None = None,
    copies: Num = 1.0,
    expert: bool = False,
    engine: str = "matrix",
    forward: tuple[Message, ...] = (),
    backward: tuple[Message, ...] = (),
    calls: float = 1.0,
    columns: tuple[Num, ...] = (),
) -> Op:
    """`blocks.matmul` in the numbers of this job.

    quantised: in FP8 and FP4, X is kept in that precision, with its scales; not where 16 bits are
    kept anyway (the output of attention, which its own backward pass reads).
    """
    p = job.precision
    return blocks.matmul(
        name,
        T,
        k,
        n,
        one=1.0 if job.how.count.dot_product == "2k-1" else 0.0,
        act=p.activation_bytes,
        wgt=p.weight_bytes,
        gradient=gradient_bytes(job, layout),
        stored=p.kept_input_bytes if quantised else p.activation_bytes,
        kept=kept,
        copies=copies,
        expert=expert,
        engine=engine,
        forward=forward,
        backward=backward,
        calls=calls,
        columns=columns,
    )


def gradient_bytes(job: Job, layout: Layout) -> Num | None:
    """Bytes that the gradient of one weight moves in each microbatch; None: as wide as the weight.

    Written once with one microbatch; read, added to and written with m > 1 (Megatron-LM's
    gradient accumulation fusion, into `Precision.gradient_bytes` a weight).
    """
    if job.how.count.weight_gradient == "one pass":
        return None
    return job.precision.gradient_bytes * where(
        accumulates(job, layout), 2.0, 1.0
    )


def accumulates(job: Job, layout: Layout) -> Any:
    """True (element by element) where a step has several microbatches to add up: m > 1."""
    return layout.dp * layout.microbatch < job.batch
