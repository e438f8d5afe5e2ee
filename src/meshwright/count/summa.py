"""One transformer layer with two-dimensional tensor parallelism by SUMMA: weights and activations
lie on an n1 x n2 grid (tp x cp).

Every matrix product broadcasts panels of both operands; the layer norm needs an all-reduce of its
statistics over n1. Source: Subramanian et al. 2024, Appendix A (their Table A2 gives the norm a
full-size all-reduce; the statistics suffice).
"""

from __future__ import annotations

from functools import partial

from ..describe.job import Job
from ..describe.layers import Kind
from ..describe.layout import Layout
from ..num import Num, maximum
from . import blocks
from .blocks import (
    AttentionCore,
    AttentionShape,
    Messages,
    Numbers,
    SummaGrid,
)
from .context import exchange, heads_of
from .linear import gradient_bytes
from .mask import seen
from .work import Local, Message, Op, local


def width(job: Job, layout: Layout) -> Num:
    """Columns of an activation that a rank holds between two products: D / n1."""
    injected = job.how.count.summa_width
    return injected(job, layout) if injected else job.model.hidden / layout.tp


def summa_layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order. Dense, multi-head
    attention.
    """
    m = job.model
    q = m.h
    gates = 2 if m.gated else 1
    product = partial(_panels, job, layout)
    size = local(job, layout)
    return [
        _norm(job, layout, size, "attention/norm"),
        product("attention/qkv", m.hidden, (m.heads + 2 * m.K) * q),
        *core(job, layout, size, kind),
        product("attention/out", m.heads * q, m.hidden),
        *after(job, layout, size, "attention"),
        _norm(job, layout, size, "ffn/norm"),
        product("ffn/up", m.hidden, m.ffn * gates),
        *_activation(job, layout, size),
        product("ffn/down", m.ffn, m.hidden),
        *after(job, layout, size, "ffn"),
    ]


def _panels(job: Job, layout: Layout, name: str, k: float, n: float) -> Op:
    """A product by SUMMA in the numbers of this job; k and n whole."""
    p = job.precision
    return blocks.summa_matmul(
        name,
        local(job, layout).tokens,
        k,
        n,
        grid=SummaGrid(n1=layout.tp, n2=layout.cp, panels=layout.panels),
        numbers=Numbers(
            one=1.0 if job.how.count.dot_product == "2k-1" else 0.0,
            act=p.activation_bytes,
            wgt=p.weight_bytes,
            gradient=gradient_bytes(job, layout),
            stored=p.kept_input_bytes,
        ),
    )


def _norm(job: Job, layout: Layout, size: Local, name: str) -> Op:
    """The norm over the columns that a rank holds; n1 ranks add up statistics, and gradients of its
    parameters.
    """
    m = job.model
    act = job.precision.activation_bytes
    statistics = 2 * size.tokens * act
    back = 2 * m.hidden / layout.tp * act + statistics
    return blocks.norm(
        name,
        size.tokens,
        width(job, layout),
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=act,
        wgt=job.precision.weight_bytes,
        sent=Messages(
            forward=(Message("all_reduce", "tp", statistics),),
            backward=(Message("all_reduce", "tp", back),),
        ),
    )


def core(job: Job, layout: Layout, size: Local, kind: Kind) -> list[Op]:
    """softmax(Q K^T) V of H / n1 heads, keys and values exchanged over n2; the biases of queries,
    keys and values before it.
    """
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    q = m.h
    H = m.heads / layout.tp
    # fewer heads of keys than ranks are copied
    K = maximum(m.K / layout.tp, 1.0)
    forward, backward = exchange(layout, heads_of(size, H, K, q, v=q), act)
    attention = blocks.attention(
        "attention/core",
        AttentionShape(
            b=size.b,
            H=H,
            K=K,
            lq=size.T / layout.cp,
            l=size.T,
            q=q,
            v=q,
            seen=seen(job, kind.window, size.T),
        ),
        one=1.0 if c.dot_product == "2k-1" else 0.0,
        act=act,
        kernel=AttentionCore(
            dropout=m.dropout,
            fused=job.fused_attention,
            output_twice=c.attention_output == "twice",
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    if not m.qkv_bias:
        return [attention]
    wide = (H + 2 * K) * q
    return [bias(job, size, "attention/qkv bias", wide), attention]


def _activation(job: Job, layout: Layout, size: Local) -> list[Op]:
    """Between the two products of the feed-forward, F / n1 columns."""
    m = job.model
    act = job.precision.activation_bytes
    F = m.ffn / layout.tp
    x = size.tokens * F
    gates = 2 if m.gated else 1
    kind = blocks.gated_activation if m.gated else blocks.gelu
    ops = [bias(job, size, "ffn/up bias", F * gates)] if m.bias else []
    ops.append(kind("ffn/activation", x, act=act))
    if m.dropout and job.how.count.dropout == "lbl":
        ops.append(blocks.dropout("ffn/activation dropout", x, act=act))
    return ops


def after(job: Job, layout: Layout, size: Local, name: str) -> list[Op]:
    """What follows an output projection, on D / n1 columns: bias, dropout, the residual sum."""
    m = job.model
    act = job.precision.activation_bytes
    x = size.tokens * m.hidden / layout.tp
    ops = []
    if m.bias:
        ops.append(bias(job, size, f"{name}/bias", m.hidden / layout.tp))
    if m.dropout:
        ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
    if job.how.count.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops


def bias(job: Job, size: Local, name: str, n: Num) -> Op:
    """Add a bias to n columns."""
    p = job.precision
    return blocks.bias(
        name, size.tokens, n, act=p.activation_bytes, wgt=p.weight_bytes
    )
