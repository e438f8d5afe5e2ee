"""Matrices cut over tp in pairs, as Megatron-LM cuts them, and what stands around a pair.

    X[T, D]    W1[D, n/tp]   by columns: a rank has its own heads, or its own features
    Z[T, n/tp] W2[n/tp, D]   by rows: partial sums, which tp adds up

With sequence parallelism norms and residuals hold T/tp tokens: an all-gather before the pair, a
reduce-scatter after it; without it nothing, and an all-reduce. In backward they change places.
Source: Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..describe.layout import Layout
from ..exchange.types import Message
from ..num import Num
from . import blocks, gspmd
from .blocks import PLAIN, Matrix, Messages
from .microbatch import DeviceMicrobatch
from .work import Op


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
IN_BLOCKS = ("blockwise", "mxfp8", "nvfp4")
"""Recipes (`software.Recipe`) that scale blocks of a tensor, along its rows or its columns."""
OF_TENSORS = ("tensorwise", "nvfp4")
"""Recipes with a scale of the whole tensor, from its largest value now."""


def column_parallel(
    microbatch: DeviceMicrobatch,
    name: str,
    k: Num,
    n: Num,
    matrix: Matrix = PLAIN,
    entry: Entry = ALONE,
) -> Op:
    """A column-parallel matrix: from all k features of all tokens to this rank's n columns.

    What stays of its input is all of it, or the rank's shard, which is gathered again in backward
    (`Counting.gathered_inputs`).
    """
    inputs = microbatch.counting.gathered_inputs
    x = microbatch.tokens * k
    gather, reduce = collectives(microbatch.layout, x * microbatch.act)
    largest: tuple[Message, ...] = ()
    if matrix.engine == "matrix":
        gather = gather_quantised(microbatch, x)
        largest = largest_value(microbatch)
        matrix = matrix._replace(input_parts=quantising(microbatch))
    sums = reduce * readers(microbatch, entry)
    back = gather + sums if inputs == "regathered" else sums
    kept = (
        microbatch.tokens
        if inputs == "kept"
        else microbatch.part(microbatch.shard)
    )
    return blocks.matmul(
        name,
        T=microbatch.tokens,
        k=k,
        n=n,
        numbers=microbatch.numbers_of(matrix),
        matrix=matrix._replace(kept=kept if entry.keeps else 0.0),
        sent=Messages(
            forward=(*largest, *gather) if entry.gathers else (),
            backward=back if entry.reduces else (),
        ),
    )


def readers(microbatch: DeviceMicrobatch, entry: Entry) -> int:
    """How often the gradient of an input is added up over tp: once, or by every module that reads
    it. A shard of the sequence is gathered once for all of them, its gradient scattered once.
    """
    apart = microbatch.counting.input_gradients == "apart"
    return (
        entry.modules
        if apart and not microbatch.layout.sequence_parallel
        else 1
    )


def row_parallel(
    microbatch: DeviceMicrobatch,
    name: str,
    k: Num,
    matrix: Matrix = PLAIN,
    reduces: bool = True,
) -> Op:
    """A row-parallel matrix: from this rank's k features of all tokens to its part of the sum that
    is the hidden state. reduces: the sum is made here, not with that of another matrix.
    """
    D = microbatch.model.hidden
    t = microbatch.tokens
    _, reduce = collectives(microbatch.layout, t * D * microbatch.act)
    sent = Messages(forward=reduce if reduces else ())
    mine = microbatch.numbers_of(matrix)
    matrix = matrix._replace(gradient_parts=quantising(microbatch))
    return blocks.matmul(
        name, T=t, k=k, n=D, numbers=mine, matrix=matrix, sent=sent
    )


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


def quantising(microbatch: DeviceMicrobatch) -> Num:
    """Ranks of which each quantises its shard of what a product reads, before they gather it."""
    return 1.0 if microbatch.gather_bytes is None else microbatch.tp


def gather_quantised(
    microbatch: DeviceMicrobatch, numbers: Num, copies: int = 1
) -> tuple[Message, ...]:
    """The gather over tp of what a product in the job's precision reads (`collectives`), in copies
    that each rank has quantised of its shard.

    Source: NVIDIA/TransformerEngine@d0067d0da, pytorch/distributed.py, gather_along_first_dim.
    """
    one = microbatch.gather_bytes
    volume = numbers * (microbatch.act if one is None else one * copies)
    return collectives(microbatch.layout, volume)[0]


def largest_value(microbatch: DeviceMicrobatch) -> tuple[Message, ...]:
    """An all-reduce of the largest value of a tensor that ranks are about to quantise, each its
    shard of the sequence, where a scale of the whole tensor hangs on it (`OF_TENSORS`).
    """
    scaled = microbatch.job.recipe in OF_TENSORS
    if not scaled or microbatch.gather_bytes is None:
        return ()
    return (Message("all_reduce", "tp", blocks.FP32),)


def pre_norm(microbatch: DeviceMicrobatch, name: str) -> Op:
    """The norm in front of a pair of matrices. In backward the gradient of what the pair gives is
    gathered (counted here); where blocks share a scale (`IN_BLOCKS`), once along rows for the
    product that makes the gradient of the input, once along columns for that of the weights
    (NVIDIA/TransformerEngine@d0067d0da, pytorch/module/base.py, grad_output_preprocess).
    """
    whole = microbatch.tokens * microbatch.model.hidden
    copies = 2 if microbatch.job.recipe in IN_BLOCKS else 1
    gather = gather_quantised(microbatch, whole, copies)
    return norm(
        microbatch, name, backward=(*largest_value(microbatch), *gather)
    )


def norm(
    microbatch: DeviceMicrobatch,
    name: str,
    forward: tuple[Message, ...] = (),
    backward: tuple[Message, ...] = (),
    width: int | None = None,
) -> Op:
    """A norm on the device's shard of the sequence (gspmd: of the hidden size, whose statistics
    ranks add up). width: of what is normalised; None = D.
    """
    m = microbatch.model
    D = microbatch.part(width or microbatch.model.hidden)
    statistics = gspmd.statistics(microbatch)
    op = blocks.norm(
        name,
        microbatch.shard,
        D,
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=microbatch.act,
        wgt=microbatch.wgt,
        autograd=microbatch.counting.backward_needs == "autograd",
        sent=Messages(
            forward=(*statistics, *forward), backward=(*backward, *statistics)
        ),
    )
    if m.norm != "rmsnorm":
        return op
    return kept_apart(microbatch, op, microbatch.shard * D)


def kept_apart(microbatch: DeviceMicrobatch, op: Op, x: Num) -> Op:
    """An RMS norm of x elements, with what it keeps more where it is separate kernels."""
    extra = norm_extra(microbatch)
    return op._replace(saved=op.saved + x * extra) if extra else op


def norm_extra(microbatch: DeviceMicrobatch) -> float:
    """Bytes of each element that an RMS norm of separate kernels keeps over a fused one."""
    how = microbatch.job.how.memory
    if (
        not how.counts_holding
        or how.holding is None
        or not microbatch.profile
        or microbatch.profile.norm != "torch"
    ):
        return 0.0
    return how.holding.norm_extra


def inner_norm(
    microbatch: DeviceMicrobatch, name: str, t: Num, width: Num
) -> Op:
    """A norm in front of an output projection, over what a device holds of its input."""
    m = microbatch.model
    parameters = blocks.NORM_PARAMETERS[m.norm]
    return blocks.norm(
        name,
        t,
        width,
        parameters=parameters,
        act=microbatch.act,
        wgt=microbatch.wgt,
    )


def after(microbatch: DeviceMicrobatch, name: str, biased: bool) -> list[Op]:
    """What follows a row-parallel matrix, on the device's shard of the sequence (gspmd: of the
    hidden size): its bias (experts bring their own), dropout, a post-norm, the residual sum.
    """
    m = microbatch.model
    c = microbatch.counting
    act = microbatch.act
    wgt = microbatch.wgt
    x = microbatch.shard * microbatch.part(m.hidden)
    # a post-norm stands between the bias and the sum
    chained = c.biases == "chained" and m.norms_per_layer < 4
    ops = []
    if biased:
        whole = (
            microbatch.layout.scheme == "megatron"
            and c.output_bias == "replicated"
        )
        # LBL cuts this one by columns
        by_column = (
            microbatch.layout.scheme == "context" and name == "attention"
        )
        width, tokens = (
            (m.hidden / microbatch.tp, microbatch.tokens)
            if by_column
            else (
                microbatch.part(m.hidden),
                microbatch.tokens if whole else microbatch.shard,
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
        ops.append(norm(microbatch, f"{name}/post norm"))
    if c.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops
