"""One transformer layer under Megatron-LM tensor parallelism (1D), with sequence and context
parallelism.

Column-parallel then row-parallel matrices: heads and feed-forward are cut tp ways, tokens cp ways.
Around each pair the activations are gathered and reduce-scattered over tp (with sequence
parallelism) or all-reduced (without). LBL's "1D TP" is this with cp = 1, its "2D TP" (`scheme =
"context"`) this with cp = n2; what `scheme = "gspmd"` does otherwise stands in `gspmd`. Source:
Korthikanti et al. 2022; Subramanian et al. 2024, Tables A1 and A2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..describe.job import Job
from ..describe.layers import Kind as Kind
from ..describe.layout import Layout
from ..describe.model import Model
from ..num import Num, maximum, where
from . import blocks, gspmd
from .blocks import FP32 as FP32
from .blocks import Heads, Kernel, Matrix, Sent
from .context import exchange, heads_of, worked
from .convolution import convolution
from .linear import linear
from .linear_attention import linear_attention
from .moe import experts
from .sparse import indexer
from .state_space import state_space
from .work import Local, Message, Op, local


def layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order."""
    size = local(job, layout)
    ops: list[Op] = []
    for word in kind.mixers:
        mixed = MIXERS[word](job, layout, size, kind)
        ops += mixed[1:] if ops else mixed  # side by side they share a norm
    if kind.moe:
        return ops + experts(job, layout, size, beside=beside(job.model, kind))
    return ops + (
        dense(job, layout, size, job.model.ffn, kind) if kind.ffn else []
    )


def beside(m: Model, kind: Kind) -> bool:
    """A parallel block: mixer and feed-forward read the same norm."""
    return m.norms_per_layer == 1 and kind.ffn and kind.mixer != "none"


SPARSE = ("sparse", "chosen")
"""Mixers that read the keys which an indexer picked."""


class Shape(NamedTuple):
    """Heads of one kind of attention on one device."""

    H: Num
    K: Num
    """Query and key/value heads."""
    q: int
    v: int
    """Widths of a query or key head and of a value head."""
    sinks: bool
    shared: bool = False
    """Keys are values too."""


def heads(m: Model, kind: Kind, tp: Num) -> Shape:
    """Of a layer; fewer key/value heads than tp are copied."""
    if m.mla:
        q = m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim
        v = m.mla.v_head_dim
        return Shape(
            m.heads / tp,
            m.heads / tp,
            q,
            v,
            m.attention_sinks,
        )
    if m.sliding and kind.window is not None:
        of = m.sliding
        v = m.sliding.v_head_dim or m.sliding.head_dim
        return Shape(
            of.heads / tp,
            maximum(of.kv_heads / tp, 1.0),
            of.head_dim,
            v,
            of.sinks,
        )
    shared = m.key_is_value and kind.window is None
    return Shape(
        m.heads / tp,
        maximum(m.K / tp, 1.0),
        m.h,
        m.v,
        m.attention_sinks,
        shared,
    )


def attention(job: Job, layout: Layout, size: Local, kind: Kind) -> list[Op]:
    """Norm, query/key/value projections, attention, output projection, residual."""
    m = job.model
    act = job.precision.activation_bytes
    D = m.hidden
    t = size.tokens
    of = heads(m, kind, size.tp)
    gather, reduce = collectives(layout, t * D * act)
    # the feed-forward gathers, keeps and reduces for both
    beside_ffn = beside(m, kind) and not kind.moe
    ops = [norm(job, "attention/norm", size, backward=gather)]
    ops += (
        latent(job, layout, size)
        if m.mla
        else projections(
            job,
            layout,
            size,
            of,
            beside_ffn,
        )
    )
    ops += between(job, layout, size, of)
    if kind.mixer == "sparse":
        ops += indexer(job, layout, size)
    ops.append(core(job, layout, size, of, kind))
    if m.attention_gate != "none":
        ops += gate(job, layout, size, of)
    if m.inner_norms:
        ops.append(inner_norm(job, "attention/inner norm", t, of.H * of.v))
    sent = () if beside_ffn else reduce
    ops.append(
        linear(
            job,
            layout,
            "attention/out",
            t,
            of.H * of.v,
            D,
            of=Matrix(quantised=False),
            sent=Sent(forward=sent),
        )
    )
    return ops + after(
        job,
        layout,
        size,
        "attention",
        biased=m.biased_out,
    )


def projections(
    job: Job, layout: Layout, size: Local, of: Shape, beside_ffn: bool
) -> list[Op]:
    """Queries, keys and values in one matrix, cut by heads, and their biases."""
    m = job.model
    c = job.how.count
    t = size.tokens
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    gather, reduce = collectives(layout, t * m.hidden * act)
    values = 0.0 if of.shared else of.K * of.v
    columns = (of.H * of.q, of.K * of.q, of.K * of.v)[: 2 if of.shared else 3]
    width = of.H * of.q + of.K * of.q + values
    back = column_backward(c.gathered_inputs, gather, reduce)
    qkv = linear(
        job,
        layout,
        "attention/qkv",
        t,
        m.hidden,
        width,
        of=Matrix(
            calls=float(len(columns)),
            columns=columns,
            kept=0.0 if beside_ffn else kept(c.gathered_inputs, size),
        ),
        sent=Sent(forward=gather, backward=() if beside_ffn else back),
    )
    biases = (
        [
            blocks.bias(
                "attention/qkv bias",
                t,
                width,
                act=act,
                wgt=wgt,
            )
        ]
        if m.qkv_bias
        else []
    )
    return [qkv, *biases]


def between(job: Job, layout: Layout, size: Local, of: Shape) -> list[Op]:
    """What happens to queries and keys before they meet, as passes of their own."""
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    ops = [query_key_norm(job, layout, size, of)] if m.qk_norm else []
    if c.rotary == "apart" and not m.mla and m.positions == "rope":
        turned = size.tokens * (of.H + of.K) * of.q
        ops.append(blocks.rotary("attention/rotary", turned, act=act))
    return ops


def core(job: Job, layout: Layout, size: Local, of: Shape, kind: Kind) -> Op:
    """softmax(Q K^T) V."""
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    heads = heads_of(size, of.H, of.K, of.q, of.v)
    work = worked(layout, heads)
    forward, backward = exchange(layout, heads, act, c.gathered_keys)
    tiled = (size.cp > 1) | (kind.window is not None and kind.window < job.T)
    op = blocks.attention(
        "attention/core",
        Heads(
            b=size.b,
            H=work.H,
            K=work.K,
            lq=work.queries,
            l=size.T,
            q=of.q,
            v=of.v,
            seen=seen(job, visible(m, kind)),
        ),
        one=1.0 if c.dot_product == "2k-1" else 0.0,
        act=act,
        kernel=Kernel(
            dropout=m.dropout,
            fused=job.fused_attention,
            output_twice=c.attention_output == "twice",
            autograd=c.backward_needs == "autograd",
            tiled=where(tiled, 1.0, 0.0),
        ),
        sent=Sent(forward=forward, backward=backward),
    )
    return op._replace(weights=(of.H if of.sinks else 0.0) + m.vectors)


def visible(m: Model, kind: Kind) -> int | None:
    """Keys that a query of a layer reads at most; None: all that the mask leaves."""
    return m.sparse.top_k if m.sparse and kind.mixer in SPARSE else kind.window


def gate(job: Job, layout: Layout, size: Local, of: Shape) -> list[Op]:
    """sigmoid(W h) times the result of attention: a number for each of its elements, or a head."""
    m = job.model
    c = job.how.count
    t = size.tokens
    act = job.precision.activation_bytes
    width = of.H * (of.v if m.attention_gate == "element" else 1)
    gather, reduce = collectives(layout, t * m.hidden * act)
    back = column_backward(c.gathered_inputs, gather, reduce)
    # its input is that of queries, keys and values, gathered and kept there
    project = linear(
        job,
        layout,
        "attention/gate",
        t,
        m.hidden,
        width,
        of=Matrix(kept=0.0),
        sent=Sent(backward=back),
    )
    product = blocks.scaled(
        "attention/gated", t * of.H * of.v, t * width, act=act
    )
    return [
        project._replace(source="attention/norm"),
        product._replace(source="attention/core"),
    ]


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


def query_key_norm(job: Job, layout: Layout, size: Local, of: Shape) -> Op:
    """RMS norm of queries and keys: each head by itself, with the same 2 h parameters; or all heads
    together (OLMo 2).

    Then their sums of squares, one number a token for queries and one for keys, are added up over
    tp.
    """
    m = job.model
    t = size.tokens
    count = of.H + of.K
    statistics = (
        (Message("all_reduce", "tp", 2 * t * FP32),) if m.qk_norm_whole else ()
    )
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    op = blocks.norm(
        "attention/qk norm",
        t * count,
        of.q,
        parameters=1,
        act=act,
        wgt=wgt,
        autograd=job.how.count.backward_needs == "autograd",
        sent=Sent(forward=statistics, backward=statistics),
    )
    each = 2.0 if m.qk_norm_shift else 1.0
    return op._replace(
        weights=each * of.q * (count if m.qk_norm_whole else 2.0)
    )


def latent(job: Job, layout: Layout, size: Local) -> list[Op]:
    """Queries, keys and values of latent attention: down to the latent (on every tp rank alike), up
    to the heads (cut by tp).

    With sequence parallelism the narrow latents are gathered over tp, not the hidden state, as in
    Megatron-LM.
    """
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    mla = m.mla
    assert mla is not None
    D = m.hidden
    t = size.tokens
    H = m.heads / size.tp
    rope = mla.qk_rope_head_dim

    def down(name: str, n: int, kept: Num) -> Op:
        return linear(
            job,
            layout,
            f"attention/{name} down",
            size.shard,
            D,
            n,
            of=Matrix(kept=kept),
        )

    def latent_norm(name: str, width: int, *widths: int) -> Op:
        forward = tuple(
            message
            for w in (width, *widths)
            for message in collectives(layout, t * w * act)[0]
        )
        return blocks.norm(
            f"attention/{name} norm",
            size.shard,
            width,
            parameters=1,
            act=act,
            wgt=wgt,
            sent=Sent(forward=forward),
        )

    def up(
        name: str,
        k: int,
        n: Num,
        *beside: Message,
        forward: tuple[Message, ...] = (),
    ) -> Op:
        gather, reduce = collectives(layout, t * k * act)
        backward = (
            *column_backward(c.gathered_inputs, gather, reduce),
            *beside,
        )
        return linear(
            job,
            layout,
            f"attention/{name}",
            t,
            k,
            n,
            of=Matrix(kept=kept(c.gathered_inputs, size)),
            sent=Sent(forward=forward, backward=backward),
        )

    q_heads = H * (mla.qk_nope_head_dim + rope)
    rank = mla.q_lora_rank
    if rank:
        queries = [
            down("q", rank, size.shard),
            latent_norm("q", rank),
            up("q up", rank, q_heads),
        ]
    else:
        queries = [
            up("q", D, q_heads, forward=collectives(layout, t * D * act)[0])
        ]
    # the key's rotary part goes to all heads as it is
    of_rope = collectives(layout, t * rope * act)[1]
    narrow = (rank or 0) + mla.kv_lora_rank + rope
    biases = [
        blocks.bias(
            "attention/down bias", size.shard, narrow, act=act, wgt=wgt
        )
    ]
    return [
        *queries,
        down("kv", mla.kv_lora_rank + rope, 0.0),
        *(biases if m.qkv_bias else []),
        latent_norm("kv", mla.kv_lora_rank, rope),
        up(
            "kv up",
            mla.kv_lora_rank,
            H * (mla.qk_nope_head_dim + mla.v_head_dim),
            *of_rope,
        ),
    ]


def dense(
    job: Job,
    layout: Layout,
    size: Local,
    width: Num,
    kind: Kind | None = None,
    name: str = "ffn",
) -> list[Op]:
    """Norm, up (and gate) projection, activation, down projection, residual; width = F.

    kind: the layer it ends; None: shared experts, which stand beside others.
    """
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    D = m.hidden
    t = size.tokens
    F = width / size.tp
    gather, reduce = collectives(layout, t * D * act)
    gates = 2 if m.gated else 1
    shares_norm = kind is not None and beside(m, kind)
    up = linear(
        job,
        layout,
        f"{name}/up",
        t,
        D,
        F * gates,
        of=Matrix(
            calls=float(gates),
            columns=(F,) * gates,
            kept=kept(c.gathered_inputs, size),
        ),
        sent=Sent(
            forward=() if shares_norm else gather,
            backward=column_backward(c.gathered_inputs, gather, reduce),
        ),
    )
    ops = (
        [norm(job, f"{name}/norm", size, backward=gather)]
        if kind and not shares_norm
        else []
    )
    ops.append(
        up._replace(source="attention/norm" if shares_norm else "ffn/norm")
    )
    if m.bias:
        ops.append(
            blocks.bias(f"{name}/up bias", t, F * gates, act=act, wgt=wgt)
        )
    ops.append(
        blocks.gated_activation(
            f"{name}/activation",
            t * F,
            act=act,
            autograd=c.backward_needs == "autograd",
        )
        if m.gated
        else blocks.gelu(f"{name}/activation", t * F, act=act)
    )
    if m.dropout and c.dropout == "lbl":
        ops.append(
            blocks.dropout(f"{name}/activation dropout", t * F, act=act)
        )
    if m.inner_norms:
        ops.append(inner_norm(job, f"{name}/inner norm", t, F))
    ops.append(
        linear(job, layout, f"{name}/down", t, F, D, sent=Sent(forward=reduce))
    )
    return ops + (after(job, layout, size, name, m.bias) if kind else [])


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
            blocks.bias(f"{name}/bias", tokens, width, act=act, wgt=wgt)
        )
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
    width: int | None = None,
) -> Op:
    """A norm on the device's shard of the sequence (gspmd: of the hidden size, whose statistics
    ranks add up). width: of what is normalised; None = D.

    backward: where a column-parallel matrix follows, that of the sublayer's output is gathered
    (counted here).
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
        sent=Sent(
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


def collectives(
    layout: Layout, volume: Num
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(gather, reduce) around a pair of column- and row-parallel matrices, forward; in backward
    they change places.

    With sequence parallelism an all-gather and a reduce-scatter, without it nothing and an
    all-reduce.
    """
    if layout.sequence_parallel:
        return (Message("all_gather", "tp", volume),), (
            Message("reduce_scatter", "tp", volume),
        )
    return (), (Message("all_reduce", "tp", volume),)


def column_backward(
    inputs: str, gather: tuple[Message, ...], reduce: tuple[Message, ...]
) -> tuple[Message, ...]:
    """What a column-parallel matrix sends in backward: its input gradient, and its input again if
    only the shard was kept.
    """
    return gather + reduce if inputs == "regathered" else reduce


def kept(inputs: str, size: Local) -> Num:
    """Tokens of a column-parallel input that stay in memory, or as many as its shard amounts to."""
    return size.tokens if inputs == "kept" else size.part(size.shard)


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


def nothing(job: Job, layout: Layout, size: Local, kind: Kind) -> list[Op]:
    """A layer that only feeds forward."""
    return []


MIXERS: dict[str, Callable[[Job, Layout, Local, Kind], list[Op]]] = {
    "full": attention,
    "sliding": attention,
    "sparse": attention,
    "chosen": attention,
    "linear": linear_attention,
    "ssm": state_space,
    "conv": convolution,
    "none": nothing,
}
"""Word of a layer's pattern -> its operations."""
