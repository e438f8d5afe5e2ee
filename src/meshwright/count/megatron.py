"""One transformer layer under Megatron-LM tensor parallelism (1D), with sequence and context
parallelism.

Column-parallel then row-parallel matrices: heads and feed-forward are cut tp ways, tokens cp ways.
Around each pair the activations are gathered and reduce-scattered over tp (with sequence
parallelism) or all-reduced (without). LBL's "1D TP" is this with cp = 1, its "2D TP" (`scheme =
"context"`) this with cp = n2. Source: Korthikanti et al. 2022; Subramanian et al. 2024, Tables A1
and A2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, maximum, where
from . import blocks
from .blocks import FP32 as FP32
from .context import exchange
from .linear import linear
from .moe import experts
from .work import Local, Message, Op, local


class Kind(NamedTuple):
    """What varies from layer to layer of one model."""

    window: int | None
    moe: bool


def layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order."""
    size = local(layout.microbatch, job.T, layout.tp, layout.cp, layout.sequence_parallel)
    moe = job.model.moe if kind.moe else None
    feed_forward = experts(job, layout, size) if moe else dense(job, layout, size, job.model.ffn)
    return [*attention(job, layout, size, kind.window), *feed_forward]


def attention(job: Job, layout: Layout, size: Local, window: int | None) -> list[Op]:
    """Norm, query/key/value projections, attention, output projection, residual."""
    m, c, act, wgt = (
        job.model,
        job.how.count,
        job.precision.activation_bytes,
        job.precision.weight_bytes,
    )
    one = 1.0 if c.dot_product == "2k-1" else 0.0
    D, tp, t = m.hidden, size.tp, size.tokens
    H, K = m.heads / tp, maximum(m.K / tp, 1.0)  # fewer kv heads than tp: they are copied
    gather, reduce = collectives(layout, t * D * act)
    q, v = (
        (m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim, m.mla.v_head_dim) if m.mla else (m.h, m.h)
    )
    if m.mla:
        K = H
    # a parallel block: the feed-forward gathers, keeps and reduces for both
    beside_ffn = m.norms_per_layer == 1
    ops = [norm(job, "attention/norm", size, backward=gather)]
    if m.mla:
        ops += latent(job, layout, size)
    else:
        ops.append(
            linear(
                job,
                layout,
                "attention/qkv",
                t,
                D,
                (H + 2 * K) * q,
                calls=3.0,
                columns=(H * q, K * q, K * q),
                forward=gather,
                kept=0.0 if beside_ffn else kept(c.gathered_inputs, size),
                backward=() if beside_ffn else column_backward(c.gathered_inputs, gather, reduce),
            )
        )
    if m.qkv_bias:
        ops.append(blocks.bias("attention/qkv bias", t, (H + 2 * K) * q, act=act, wgt=wgt))
    if m.qk_norm:
        ops.append(query_key_norm(job, layout, size, H, K))
    if c.rotary == "apart" and not m.mla:
        ops += (
            [blocks.rotary("attention/rotary", t * (H + K) * q, act=act)]
            if m.positions == "rope"
            else []
        )
        ops += (
            [blocks.repeat("attention/repeat", 2 * size.b * size.T * H * q, act=act)]
            if m.heads > m.K
            else []
        )
    forward, backward = exchange(layout, size, K, q, v, act, c.gathered_keys)
    ops.append(
        blocks.attention(
            "attention/core",
            size.b,
            H,
            K,
            size.T / size.cp,
            size.T,
            q,
            v,
            seen=seen(job, window),
            one=one,
            act=act,
            dropout=m.dropout,
            fused=job.fused_attention,
            output_twice=c.attention_output == "twice",
            autograd=c.backward_needs == "autograd",
            mask=where((size.cp > 1) | (window is not None), size.T / size.cp * size.T, 0.0),
            forward=forward,
            backward=backward,
        )._replace(weights=H if m.attention_sinks else 0.0)
    )
    sent = () if beside_ffn else reduce
    ops.append(linear(job, layout, "attention/out", t, H * v, D, quantised=False, forward=sent))
    return ops + after(job, layout, size, "attention")


def query_key_norm(job: Job, layout: Layout, size: Local, H: Num, K: Num) -> Op:
    """RMS norm of queries and keys: each head by itself, with the same 2 h parameters; or all heads
    together (OLMo 2).

    Then their sums of squares, one number a token for queries and one for keys, are added up over
    tp.
    """
    m, t = job.model, size.tokens
    statistics = (Message("all_reduce", "tp", 2 * t * FP32),) if m.qk_norm_whole else ()
    act, wgt = job.precision.activation_bytes, job.precision.weight_bytes
    op = blocks.norm(
        "attention/qk norm",
        t * (H + K),
        m.h,
        parameters=1,
        act=act,
        wgt=wgt,
        forward=statistics,
        backward=statistics,
        autograd=job.how.count.backward_needs == "autograd",
    )
    return op._replace(weights=(H + K) * m.h if m.qk_norm_whole else 2.0 * m.h)


def latent(job: Job, layout: Layout, size: Local) -> list[Op]:
    """Queries, keys and values of latent attention: down to the latent (on every tp rank alike), up
    to the heads (cut by tp).

    With sequence parallelism the narrow latents are gathered over tp, not the hidden state, as in
    Megatron-LM.
    """
    m, c, act, wgt = (
        job.model,
        job.how.count,
        job.precision.activation_bytes,
        job.precision.weight_bytes,
    )
    mla = m.mla
    assert mla is not None
    D, t, H = m.hidden, size.tokens, m.heads / size.tp
    rope = mla.qk_rope_head_dim

    def down(name: str, n: int, kept: Num) -> Op:
        return linear(job, layout, f"attention/{name} down", size.shard, D, n, kept=kept)

    def latent_norm(name: str, width: int, *widths: int) -> Op:
        forward = tuple(
            message for w in (width, *widths) for message in collectives(layout, t * w * act)[0]
        )
        return blocks.norm(
            f"attention/{name} norm",
            size.shard,
            width,
            parameters=1,
            act=act,
            wgt=wgt,
            forward=forward,
        )

    def up(name: str, k: int, n: Num, *beside: Message, forward: tuple[Message, ...] = ()) -> Op:
        gather, reduce = collectives(layout, t * k * act)
        backward = (*column_backward(c.gathered_inputs, gather, reduce), *beside)
        return linear(
            job,
            layout,
            f"attention/{name}",
            t,
            k,
            n,
            kept=kept(c.gathered_inputs, size),
            forward=forward,
            backward=backward,
        )

    q_heads, rank = H * (mla.qk_nope_head_dim + rope), mla.q_lora_rank
    if rank:
        queries = [down("q", rank, size.shard), latent_norm("q", rank), up("q up", rank, q_heads)]
    else:
        queries = [up("q", D, q_heads, forward=collectives(layout, t * D * act)[0])]
    # the key's rotary part goes to all heads as it is
    of_rope = collectives(layout, t * rope * act)[1]
    return [
        *queries,
        down("kv", mla.kv_lora_rank + rope, 0.0),
        latent_norm("kv", mla.kv_lora_rank, rope),
        up("kv up", mla.kv_lora_rank, H * (mla.qk_nope_head_dim + mla.v_head_dim), *of_rope),
    ]


def dense(
    job: Job, layout: Layout, size: Local, width: Num, name: str = "ffn", with_norm: bool = True
) -> list[Op]:
    """Norm, up (and gate) projection, activation, down projection, residual; width = F."""
    m, c, act, wgt = (
        job.model,
        job.how.count,
        job.precision.activation_bytes,
        job.precision.weight_bytes,
    )
    D, t, F = m.hidden, size.tokens, width / size.tp
    gather, reduce = collectives(layout, t * D * act)
    # a parallel block
    gates, shares_norm = 2 if m.gated else 1, with_norm and m.norms_per_layer == 1
    up = linear(
        job,
        layout,
        f"{name}/up",
        t,
        D,
        F * gates,
        calls=float(gates),
        columns=(F,) * gates,
        kept=kept(c.gathered_inputs, size),
        forward=() if shares_norm else gather,
        backward=column_backward(c.gathered_inputs, gather, reduce),
    )
    ops = (
        [norm(job, f"{name}/norm", size, backward=gather)] if with_norm and not shares_norm else []
    )
    ops.append(up._replace(source="attention/norm" if shares_norm else "ffn/norm"))
    if m.bias:
        ops.append(blocks.bias(f"{name}/up bias", t, F * gates, act=act, wgt=wgt))
    ops.append(
        blocks.gated_activation(
            f"{name}/activation", t * F, act=act, autograd=c.backward_needs == "autograd"
        )
        if m.gated
        else blocks.gelu(f"{name}/activation", t * F, act=act)
    )
    if m.dropout and c.dropout == "lbl":
        ops.append(blocks.dropout(f"{name}/activation dropout", t * F, act=act))
    ops.append(linear(job, layout, f"{name}/down", t, F, D, forward=reduce))
    return ops + (after(job, layout, size, name) if with_norm else [])


def after(job: Job, layout: Layout, size: Local, name: str, biased: bool = True) -> list[Op]:
    """What follows a row-parallel matrix, on the device's shard of the sequence: its bias, dropout,
    a post-norm, the residual sum.

    biased: False where experts brought their own biases.
    """
    m, c, act, wgt = (
        job.model,
        job.how.count,
        job.precision.activation_bytes,
        job.precision.weight_bytes,
    )
    x, ops = size.shard * m.hidden, []
    if m.bias and biased:
        whole = layout.scheme == "megatron" and c.output_bias == "replicated"
        # LBL cuts this one by columns
        by_column = layout.scheme == "context" and name == "attention"
        width, tokens = (
            (m.hidden / size.tp, size.tokens)
            if by_column
            else (m.hidden, size.tokens if whole else size.shard)
        )
        ops.append(blocks.bias(f"{name}/bias", tokens, width, act=act, wgt=wgt))
    if m.dropout:
        ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
    if m.norms_per_layer == 4:
        ops.append(norm(job, f"{name}/post norm", size))
    if c.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops


def norm(
    job: Job,
    name: str,
    size: Local,
    forward: tuple[Message, ...] = (),
    backward: tuple[Message, ...] = (),
) -> Op:
    """A norm on the device's shard of the sequence.

    backward: where a column-parallel matrix follows, that of the sublayer's output is gathered
    (counted here).
    """
    m = job.model
    op = blocks.norm(
        name,
        size.shard,
        m.hidden,
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=job.precision.activation_bytes,
        wgt=job.precision.weight_bytes,
        forward=forward,
        backward=backward,
        autograd=job.how.count.backward_needs == "autograd",
    )
    extra = norm_extra(job)
    return op._replace(saved=op.saved + size.shard * m.hidden * extra) if extra else op


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


def collectives(layout: Layout, volume: Num) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(gather, reduce) around a pair of column- and row-parallel matrices, forward; in backward
    they change places.

    With sequence parallelism an all-gather and a reduce-scatter, without it nothing and an
    all-reduce.
    """
    if layout.sequence_parallel:
        return (Message("all_gather", "tp", volume),), (Message("reduce_scatter", "tp", volume),)
    return (), (Message("all_reduce", "tp", volume),)


def column_backward(
    inputs: str, gather: tuple[Message, ...], reduce: tuple[Message, ...]
) -> tuple[Message, ...]:
    """What a column-parallel matrix sends in backward: its input gradient, and its input again if
    only the shard was kept.
    """
    return gather + reduce if inputs == "regathered" else reduce


def kept(inputs: str, size: Local) -> Num:
    """Tokens of a column-parallel input that stay in memory."""
    return size.tokens if inputs == "kept" else size.shard


def seen(job: Job, window: int | None) -> float:
    """Share of the T keys that a query attends to: 1, about 1/2 when causal, less in a sliding
    window.

    "window" (model FLOPs): the causal mask saves nothing, a window does. Causal: (T+1)/2T on
    average; window w: the mean of min(i, w) over positions i, over T. Only fused kernels skip what
    the mask hides; unfused ones compute and keep all T x T scores (Korthikanti et al. 2022 count 5
    a s^2 b bytes of them, uncut).
    """
    T = float(job.T)
    if job.how.count.causal == "window":
        return min(float(window or T), T) / T
    if job.how.count.causal == "full" or not job.fused_attention:
        return 1.0
    if job.model.attention == "causal":
        w = min(float(window or T), T)
        return (w * (w + 1) / 2 + (T - w) * w) / (T * T)
    return min(2 * window + 1, T) / T if window else 1.0
