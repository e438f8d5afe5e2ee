"""One transformer layer with two-dimensional tensor parallelism by SUMMA: weights and activations
lie on an n1 x n2 grid (tp x cp).

Every matrix product broadcasts panels of both operands; the layer norm needs an all-reduce of its
statistics over n1. Source: Subramanian et al. 2024, Appendix A (their Table A2 gives the norm a
full-size all-reduce; the statistics suffice).
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, maximum
from . import blocks
from .blocks import Grid, Heads, Kernel, Numbers, Sent
from .context import exchange, heads_of
from .linear import gradient_bytes
from .megatron import Kind, seen
from .work import Message, Op, local


def width(job: Job, layout: Layout) -> Num:
    """Columns of an activation that a rank holds between two products: D / n1."""
    injected = job.how.count.summa_width
    return injected(job, layout) if injected else job.model.hidden / layout.tp


def layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order. Dense, multi-head
    attention.
    """
    m = job.model
    c = job.how.count
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    one = 1.0 if c.dot_product == "2k-1" else 0.0
    size = local(job, layout)
    n1 = layout.tp
    n2 = layout.cp
    t = size.tokens
    D = m.hidden
    H = m.heads / n1
    K = maximum(m.K / n1, 1.0)
    q = m.h
    gates = 2 if m.gated else 1
    F = m.ffn / n1

    def product(name: str, k: float, n: float) -> Op:
        return blocks.summa_matmul(
            name,
            t,
            k,
            n,
            grid=Grid(n1=n1, n2=n2, panels=layout.panels),
            numbers=Numbers(
                one=one,
                act=act,
                wgt=wgt,
                gradient=gradient_bytes(job, layout),
                stored=job.precision.kept_input_bytes,
            ),
        )

    def norm(name: str) -> Op:
        statistics = 2 * t * act
        return blocks.norm(
            name,
            t,
            width(job, layout),
            parameters=blocks.NORM_PARAMETERS[m.norm],
            act=act,
            wgt=wgt,
            sent=Sent(
                forward=(Message("all_reduce", "tp", statistics),),
                backward=(
                    Message("all_reduce", "tp", 2 * D / n1 * act + statistics),
                ),
            ),
        )

    def after(name: str) -> list[Op]:
        x, ops = t * D / n1, []
        if m.bias:
            ops.append(
                blocks.bias(f"{name}/bias", t, D / n1, act=act, wgt=wgt)
            )
        if m.dropout:
            ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
        if c.residual:
            ops.append(blocks.residual(f"{name}/residual", x, act=act))
        return ops

    forward, backward = exchange(
        layout,
        heads_of(size, H, K, q, q),
        act,
    )
    core = blocks.attention(
        "attention/core",
        Heads(
            b=size.b,
            H=H,
            K=K,
            lq=size.T / n2,
            l=size.T,
            q=q,
            v=q,
            seen=seen(job, kind.window),
        ),
        one=one,
        act=act,
        kernel=Kernel(
            dropout=m.dropout,
            fused=job.fused_attention,
            output_twice=c.attention_output == "twice",
        ),
        sent=Sent(forward=forward, backward=backward),
    )
    activation = (blocks.gated_activation if m.gated else blocks.gelu)(
        "ffn/activation", t * F, act=act
    )
    extra = (
        [
            blocks.bias(
                "ffn/up bias",
                t,
                F * gates,
                act=act,
                wgt=wgt,
            )
        ]
        if m.bias
        else []
    )
    qkv_bias = (
        [
            blocks.bias(
                "attention/qkv bias", t, (H + 2 * K) * q, act=act, wgt=wgt
            )
        ]
        if m.qkv_bias
        else []
    )
    drop = (
        [blocks.dropout("ffn/activation dropout", t * F, act=act)]
        if m.dropout and c.dropout == "lbl"
        else []
    )
    return [
        norm("attention/norm"),
        product("attention/qkv", D, (m.heads + 2 * m.K) * q),
        *qkv_bias,
        core,
        product("attention/out", m.heads * q, D),
        *after("attention"),
        norm("ffn/norm"),
        product("ffn/up", D, m.ffn * gates),
        *extra,
        activation,
        *drop,
        product("ffn/down", m.ffn, D),
        *after("ffn"),
    ]
