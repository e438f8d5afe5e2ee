"""One transformer layer with two-dimensional tensor parallelism by SUMMA: weights and activations
lie on an n1 x n2 grid (tp x cp).

Every matrix product broadcasts panels of both operands; the layer norm needs an all-reduce of its
statistics over n1. Source: Subramanian et al. 2024, Appendix A (their Table A2 gives the norm a
full-size all-reduce; the statistics suffice).
"""

from __future__ import annotations

from functools import partial

from ..describe.layers import Kind
from ..exchange.types import Message
from ..num import Num, maximum
from . import blocks
from .blocks import (
    AttentionCore,
    AttentionShape,
    Messages,
    SummaGrid,
)
from .context import exchange, heads_of
from .mask import seen
from .microbatch import DeviceMicrobatch
from .work import Op


def summa_layer(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order. Dense, multi-head
    attention.
    """
    m = microbatch.model
    q = m.h
    gates = 2 if m.gated else 1
    product = partial(_panels, microbatch)
    return [
        _norm(microbatch, "attention/norm"),
        product("attention/qkv", m.hidden, (m.heads + 2 * m.K) * q),
        *core(microbatch, kind),
        product("attention/out", m.heads * q, m.hidden),
        *after(microbatch, "attention"),
        _norm(microbatch, "ffn/norm"),
        product("ffn/up", m.hidden, m.ffn * gates),
        *_activation(microbatch),
        product("ffn/down", m.ffn, m.hidden),
        *after(microbatch, "ffn"),
    ]


def _panels(microbatch: DeviceMicrobatch, name: str, k: float, n: float) -> Op:
    """A product by SUMMA in the numbers of this job; k and n whole."""
    return blocks.summa_matmul(
        name,
        microbatch.tokens,
        k,
        n,
        grid=SummaGrid(
            n1=microbatch.tp, n2=microbatch.cp, panels=microbatch.layout.panels
        ),
        numbers=microbatch.numbers,
    )


def _norm(microbatch: DeviceMicrobatch, name: str) -> Op:
    """The norm over the columns that a rank holds; n1 ranks add up statistics, and gradients of its
    parameters.
    """
    m = microbatch.model
    act = microbatch.act
    statistics = 2 * microbatch.tokens * act
    back = 2 * m.hidden / microbatch.tp * act + statistics
    return blocks.norm(
        name,
        microbatch.tokens,
        microbatch.summa_width,
        parameters=blocks.NORM_PARAMETERS[m.norm],
        act=act,
        wgt=microbatch.wgt,
        sent=Messages(
            forward=(Message("all_reduce", "tp", statistics),),
            backward=(Message("all_reduce", "tp", back),),
        ),
    )


def core(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """softmax(Q K^T) V of H / n1 heads, keys and values exchanged over n2; the biases of queries,
    keys and values before it.
    """
    m = microbatch.model
    c = microbatch.counting
    act = microbatch.act
    q = m.h
    H = m.heads / microbatch.tp
    # fewer heads of keys than ranks are copied
    K = maximum(m.K / microbatch.tp, 1.0)
    forward, backward = exchange(
        microbatch.layout, heads_of(microbatch, H, K, q, v=q), act
    )
    attention = blocks.attention(
        "attention/core",
        AttentionShape(
            b=microbatch.b,
            H=H,
            K=K,
            lq=microbatch.T / microbatch.cp,
            l=microbatch.T,
            q=q,
            v=q,
            seen=seen(microbatch, kind.window),
        ),
        one=microbatch.numbers.one,
        act=act,
        kernel=AttentionCore(
            dropout=m.dropout,
            fused=microbatch.job.fused_attention,
            output_twice=float(c.attention_output == "twice"),
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    if not m.qkv_bias:
        return [attention]
    wide = (H + 2 * K) * q
    return [bias(microbatch, "attention/qkv bias", wide), attention]


def _activation(microbatch: DeviceMicrobatch) -> list[Op]:
    """Between the two products of the feed-forward, F / n1 columns."""
    m = microbatch.model
    act = microbatch.act
    F = m.ffn / microbatch.tp
    x = microbatch.tokens * F
    gates = 2 if m.gated else 1
    kind = blocks.gated_activation if m.gated else blocks.gelu
    ops = [bias(microbatch, "ffn/up bias", F * gates)] if m.bias else []
    ops.append(kind("ffn/activation", x, act=act))
    if m.dropout and microbatch.counting.dropout == "lbl":
        ops.append(blocks.dropout("ffn/activation dropout", x, act=act))
    return ops


def after(microbatch: DeviceMicrobatch, name: str) -> list[Op]:
    """What follows an output projection, on D / n1 columns: bias, dropout, the residual sum."""
    m = microbatch.model
    act = microbatch.act
    x = microbatch.tokens * m.hidden / microbatch.tp
    ops = []
    if m.bias:
        ops.append(bias(microbatch, f"{name}/bias", m.hidden / microbatch.tp))
    if m.dropout:
        ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
    if microbatch.counting.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops


def bias(microbatch: DeviceMicrobatch, name: str, n: Num) -> Op:
    """Add a bias to n columns."""
    return blocks.bias(
        name, microbatch.tokens, n, act=microbatch.act, wgt=microbatch.wgt
    )
