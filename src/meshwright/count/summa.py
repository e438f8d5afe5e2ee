"""One transformer layer with two-dimensional tensor parallelism by SUMMA: weights and activations
lie on an n1 x n2 grid (tp x cp).

Every matrix product broadcasts panels of both operands; the layer norm needs an all-reduce of its
statistics over n1. Source: Subramanian et al. 2024, Appendix A (their Table A2 gives the norm a
full-size all-reduce; the statistics suffice).
"""

from __future__ import annotations

from functools import partial

from ..describe.layers import Kind
from ..num import Num, maximum
from . import blocks
from .blocks import (
    AttentionCore,
    AttentionShape,
    Messages,
    SummaGrid,
)
from .context import exchange, heads_of
from .local import Local
from .mask import seen
from .work import Message, Op


def summa_layer(local: Local, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order. Dense, multi-head
    attention.
    """
    m = local.model
    q = m.h
    gates = 2 if m.gated else 1
    product = partial(_panels, local)
    return [
        _norm(local, "attention/norm"),
        product("attention/qkv", m.hidden, (m.heads + 2 * m.K) * q),
        *core(local, kind),
        product("attention/out", m.heads * q, m.hidden),
        *after(local, "attention"),
        _norm(local, "ffn/norm"),
        product("ffn/up", m.hidden, m.ffn * gates),
        *_activation(local),
        product("ffn/down", m.ffn, m.hidden),
        *after(local, "ffn"),
    ]


def _panels(local: Local, name: str, k: float, n: float) -> Op:
    """A product by SUMMA in the numbers of this job; k and n whole."""
    return blocks.summa_matmul(
        name,
        local.tokens,
        k,
        n,
        grid=SummaGrid(n1=local.tp, n2=local.cp, panels=local.layout.panels),
        numbers=local.numbers,
    )


def _norm(local: Local, name: str) -> Op:
    """The norm over the columns that a rank holds; n1 ranks add up statistics, and gradients of its
    parameters.
    """
    m = local.model
    act = local.act
    statistics = 2 * local.tokens * act
    back = 2 * m.hidden / local.tp * act + statistics
    return blocks.norm(
        name,
        local.tokens,
        local.summa_width,
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=act,
        wgt=local.wgt,
        sent=Messages(
            forward=(Message("all_reduce", "tp", statistics),),
            backward=(Message("all_reduce", "tp", back),),
        ),
    )


def core(local: Local, kind: Kind) -> list[Op]:
    """softmax(Q K^T) V of H / n1 heads, keys and values exchanged over n2; the biases of queries,
    keys and values before it.
    """
    m = local.model
    c = local.counting
    act = local.act
    q = m.h
    H = m.heads / local.tp
    # fewer heads of keys than ranks are copied
    K = maximum(m.K / local.tp, 1.0)
    forward, backward = exchange(
        local.layout, heads_of(local, H, K, q, v=q), act
    )
    attention = blocks.attention(
        "attention/core",
        AttentionShape(
            b=local.b,
            H=H,
            K=K,
            lq=local.T / local.cp,
            l=local.T,
            q=q,
            v=q,
            seen=seen(local, kind.window),
        ),
        one=local.numbers.one,
        act=act,
        kernel=AttentionCore(
            dropout=m.dropout,
            fused=local.job.fused_attention,
            output_twice=float(c.attention_output == "twice"),
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    if not m.qkv_bias:
        return [attention]
    wide = (H + 2 * K) * q
    return [bias(local, "attention/qkv bias", wide), attention]


def _activation(local: Local) -> list[Op]:
    """Between the two products of the feed-forward, F / n1 columns."""
    m = local.model
    act = local.act
    F = m.ffn / local.tp
    x = local.tokens * F
    gates = 2 if m.gated else 1
    kind = blocks.gated_activation if m.gated else blocks.gelu
    ops = [bias(local, "ffn/up bias", F * gates)] if m.bias else []
    ops.append(kind("ffn/activation", x, act=act))
    if m.dropout and local.counting.dropout == "lbl":
        ops.append(blocks.dropout("ffn/activation dropout", x, act=act))
    return ops


def after(local: Local, name: str) -> list[Op]:
    """What follows an output projection, on D / n1 columns: bias, dropout, the residual sum."""
    m = local.model
    act = local.act
    x = local.tokens * m.hidden / local.tp
    ops = []
    if m.bias:
        ops.append(bias(local, f"{name}/bias", m.hidden / local.tp))
    if m.dropout:
        ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
    if local.counting.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops


def bias(local: Local, name: str, n: Num) -> Op:
    """Add a bias to n columns."""
    return blocks.bias(name, local.tokens, n, act=local.act, wgt=local.wgt)
