"""Matrices cut over tp in pairs, as Megatron-LM cuts them, and what stands around a pair.

    X[T, D]    W1[D, n/tp]   by columns: a rank has its own heads, or its own features
    Z[T, n/tp] W2[n/tp, D]   by rows: partial sums, which tp adds up

With sequence parallelism norms and residuals hold T/tp tokens: an all-gather before the pair, a
reduce-scatter after it; without it nothing, and an all-reduce. In backward they change places.
Source: Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num
from . import blocks, gspmd
from .blocks import PLAIN, Matrix, Messages
from .linear import matrix_numbers
from .work import Local, Message, Op


class Entry(NamedTuple):
    """What a column-parallel matrix does about its input. Where several read the same one, another
    may do it for it.
    """

    gathers: bool = True
    """Forward, over tp."""
    keeps: bool = True
    """For its own gradient."""
    reduces: bool = True
    """Backward: adds up the gradient of the input over tp."""
    modules: int = 1
    """Matrices side by side in it that a program may hold as modules of their own."""


ALONE = Entry()


def column_parallel(
    job: Job,
    layout: Layout,
    size: Local,
    name: str,
    k: Num,
    n: Num,
    of: Matrix = PLAIN,
    entry: Entry = ALONE,
) -> Op:
    """A column-parallel matrix: from all k features of all tokens to this rank's n columns.

    What stays of its input is all of it, or the rank's shard, which is gathered again in backward
    (`Count.gathered_inputs`).
    """
    inputs = job.how.count.gathered_inputs
    act = job.precision.activation_bytes
    gather, reduce = collectives(layout, size.tokens * k * act)
    sums = reduce * readers(job, layout, entry)
    back = gather + sums if inputs == "regathered" else sums
    kept = size.tokens if inputs == "kept" else size.part(size.shard)
    return blocks.matmul(
        name,
        T=size.tokens,
        k=k,
        n=n,
        numbers=matrix_numbers(job, layout, of),
        of=of._replace(kept=kept if entry.keeps else 0.0),
        sent=Messages(
            forward=gather if entry.gathers else (),
            backward=back if entry.reduces else (),
        ),
    )


def readers(job: Job, layout: Layout, entry: Entry) -> int:
    """How often the gradient of an input is added up over tp: once, or by every module that reads
    it. A shard of the sequence is gathered once for all of them, its gradient scattered once.
    """
    apart = job.how.count.input_gradients == "apart"
    return entry.modules if apart and not layout.sequence_parallel else 1


def row_parallel(
    job: Job,
    layout: Layout,
    size: Local,
    name: str,
    k: Num,
    of: Matrix = PLAIN,
    reduces: bool = True,
) -> Op:
    """A row-parallel matrix: from this rank's k features of all tokens to its part of the sum that
    is the hidden state. reduces: the sum is made here, not with that of another matrix.
    """
    D = job.model.hidden
    t = size.tokens
    _, reduce = collectives(layout, t * D * job.precision.activation_bytes)
    sent = Messages(forward=reduce if reduces else ())
    mine = matrix_numbers(job, layout, of)
    return blocks.matmul(name, T=t, k=k, n=D, numbers=mine, of=of, sent=sent)


def collectives(
    layout: Layout, volume: Num
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(gather, reduce) around a pair of column- and row-parallel matrices in the forward pass; in
    the backward pass they change places.

    With sequence parallelism an all-gather before and a reduce-scatter after the pair, without it
    an all-reduce after it: of the whole activation, b s h / cp numbers, either way (`volume`,
    bytes). A dense layer has two such pairs, attention and feed-forward: 4 b s h / cp numbers are
    reduced or gathered in each direction. Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3;
    Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.
    """
    if layout.sequence_parallel:
        return (Message("all_gather", "tp", volume),), (
            Message("reduce_scatter", "tp", volume),
        )
    return (), (Message("all_reduce", "tp", volume),)


def pre_norm(job: Job, layout: Layout, size: Local, name: str) -> Op:
    """The norm in front of a pair of matrices. In backward the gradient of what the pair gives is
    gathered (counted here).
    """
    D = job.model.hidden
    whole = size.tokens * D * job.precision.activation_bytes
    gather, _ = collectives(layout, whole)
    return norm(job, name, size, backward=gather)


def norm(
    job: Job,
    name: str,
    size: Local,
    forward: tuple[Message, ...] = (),
    backward: tuple[Message, ...] = (),
    width: int | None = None,
) -> Op:
    """A norm on the device's shard of the sequence (gspmd: of the hidden size, whose statistics
    ranks add up). width: of what is normalised; None = D.
    """
    m = job.model
    D = size.part(width or job.model.hidden)
    statistics = gspmd.statistics(m, size)
    op = blocks.norm(
        name,
        size.shard,
        D,
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=job.precision.activation_bytes,
        wgt=job.precision.weight_bytes,
        autograd=job.how.count.backward_needs == "autograd",
        sent=Messages(
            forward=(*statistics, *forward), backward=(*backward, *statistics)
        ),
    )
    extra = norm_extra(job)
    return (
        op._replace(saved=op.saved + size.shard * D * extra) if extra else op
    )


def norm_extra(job: Job) -> float:
    """Bytes of each element that a norm of separate kernels keeps beside its input."""
    how = job.how.memory
    if (
        how.resident != "held"
        or how.holding is None
        or not job.profile
        or job.profile.norm != "torch"
    ):
        return 0.0
    return how.holding.norm_extra


def inner_norm(job: Job, name: str, t: Num, width: Num) -> Op:
    """A norm in front of an output projection, over what a device holds of its input."""
    m = job.model
    p = job.precision
    parameters = blocks.NORM_PARAMETERS[m.norm]
    return blocks.norm(
        name,
        t,
        width,
        parameters=parameters,
        act=p.activation_bytes,
        wgt=p.weight_bytes,
    )


def after(
    job: Job, layout: Layout, size: Local, name: str, biased: bool
) -> list[Op]:
    """What follows a row-parallel matrix, on the device's shard of the sequence (gspmd: of the
    hidden size): its bias (experts bring their own), dropout, a post-norm, the residual sum.
    """
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    x = size.shard * size.part(m.hidden)
    # a post-norm stands between the bias and the sum
    chained = c.biases == "chained" and m.norms_per_layer < 4
    ops = []
    if biased:
        whole = layout.scheme == "megatron" and c.output_bias == "replicated"
        # LBL cuts this one by columns
        by_column = layout.scheme == "context" and name == "attention"
        width, tokens = (
            (m.hidden / size.tp, size.tokens)
            if by_column
            else (
                size.part(m.hidden),
                size.tokens if whole else size.shard,
            )
        )
        ops.append(
            blocks.bias(
                f"{name}/bias",
                tokens,
                width,
                act=act,
                wgt=wgt,
                chained=chained,
            )
        )
    if m.dropout:
        ops.append(
            blocks.dropout(f"{name}/dropout", x, act=act, chained=chained)
        )
    if m.norms_per_layer == 4:
        ops.append(norm(job, f"{name}/post norm", size))
    if c.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops
