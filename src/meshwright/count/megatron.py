"""One transformer layer under Megatron-LM tensor parallelism (1D), with sequence and context parallelism.

Column-parallel then row-parallel matrices: heads and feed-forward are cut tp ways, tokens cp ways. Around each pair the
activations are gathered and reduce-scattered over tp (with sequence parallelism) or all-reduced (without).
LBL's "1D TP" is this with cp = 1, its "2D TP" (`scheme = "context"`) this with cp = n2.
Source: Korthikanti et al. 2022; Subramanian et al. 2024, Tables A1 and A2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..num import Num, maximum
from ..spec.job import Job
from ..spec.layout import Layout
from . import blocks
from .context import exchange
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
    m, c, act, wgt = job.model, job.assumptions.count, job.precision.activation_bytes, job.precision.weight_bytes
    one = 1.0 if c.dot_product == "2k-1" else 0.0
    D, tp, t = m.hidden, size.tp, size.tokens
    H, K = m.heads / tp, maximum(m.K / tp, 1.0)  # fewer kv heads than tp: they are copied
    gather, scatter, both = collectives(layout, t * D * act)
    q, v = (m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim, m.mla.v_head_dim) if m.mla else (m.h, m.h)
    if m.mla:
        K = H
    ops = [norm(job, "attention/norm", size, gather, scatter)]
    ops += latent(job, layout, size, both) if m.mla else [
        blocks.matmul("attention/qkv", t, D, (H + 2 * K) * q, one=one, act=act, wgt=wgt, kept=kept(c.gathered_inputs, size),
                      backward=column_backward(c.gathered_inputs, layout, gather, scatter, both))
    ]  # fmt: skip
    if m.qkv_bias:
        ops.append(blocks.bias("attention/qkv bias", t, (H + 2 * K) * q, act=act, wgt=wgt))
    if m.qk_norm:
        ops.append(blocks.norm("attention/qk norm", t * (H + K), q, parameters=1, act=act, wgt=wgt)._replace(weights=2.0 * q))
    forward, backward = exchange(layout, size, K, q, v, act)
    ops.append(blocks.attention(
        "attention/core", size.b, H, K, size.T / size.cp, size.T, q, v, seen=seen(job, window), one=one, act=act,
        dropout=m.dropout, fused=job.attention_kernel == "flash", output_twice=c.attention_output == "twice",
        forward=forward, backward=backward)._replace(weights=H if m.attention_sinks else 0.0))  # fmt: skip
    ops.append(blocks.matmul("attention/out", t, H * v, D, one=one, act=act, wgt=wgt, forward=scatter_or_reduce(layout, scatter, both)))
    return ops + after(job, layout, size, "attention")


def latent(job: Job, layout: Layout, size: Local, both: tuple[Message, ...]) -> list[Op]:
    """Queries, keys and values of multi-head latent attention: down to the latent (on every tp rank alike), up to the heads (cut by tp)."""
    m, act, wgt = job.model, job.precision.activation_bytes, job.precision.weight_bytes
    mla = m.mla
    assert mla is not None
    one = 1.0 if job.assumptions.count.dot_product == "2k-1" else 0.0
    D, t, H = m.hidden, size.tokens, m.heads / size.tp
    q = mla.qk_nope_head_dim + mla.qk_rope_head_dim

    def product(name: str, tokens: Num, k: Num, n: Num, **kw: tuple[Message, ...]) -> Op:
        return blocks.matmul(f"attention/{name}", tokens, k, n, one=one, act=act, wgt=wgt, **kw)

    def latent_norm(name: str, width: int) -> Op:
        return blocks.norm(f"attention/{name}", size.shard, width, parameters=1, act=act, wgt=wgt)

    ops = []
    if mla.q_lora_rank:
        ops += [product("q down", size.shard, D, mla.q_lora_rank), latent_norm("q norm", mla.q_lora_rank)]
        ops += [product("q up", t, mla.q_lora_rank, H * q, backward=both)]
    else:
        ops += [product("q", t, D, H * q, backward=both)]
    ops += [product("kv down", size.shard, D, mla.kv_lora_rank + mla.qk_rope_head_dim), latent_norm("kv norm", mla.kv_lora_rank)]
    ops += [product("kv up", t, mla.kv_lora_rank, H * (mla.qk_nope_head_dim + mla.v_head_dim))]
    return ops


def dense(job: Job, layout: Layout, size: Local, width: Num, name: str = "ffn", with_norm: bool = True) -> list[Op]:
    """Norm, up (and gate) projection, activation, down projection, residual; width = F."""
    m, c, act, wgt = job.model, job.assumptions.count, job.precision.activation_bytes, job.precision.weight_bytes
    one = 1.0 if c.dot_product == "2k-1" else 0.0
    D, t, F = m.hidden, size.tokens, width / size.tp
    gather, scatter, both = collectives(layout, t * D * act)
    up = blocks.matmul(f"{name}/up", t, D, F * (2 if m.gated else 1), one=one, act=act, wgt=wgt, kept=kept(c.gathered_inputs, size),
                       backward=column_backward(c.gathered_inputs, layout, gather, scatter, both))  # fmt: skip
    parallel_block = m.norms_per_layer == 1
    ops = [norm(job, f"{name}/norm", size, gather, scatter)] if with_norm and not parallel_block else []
    ops.append(up)
    if m.bias:
        ops.append(blocks.bias(f"{name}/up bias", t, F * (2 if m.gated else 1), act=act, wgt=wgt))
    ops.append((blocks.gated_activation if m.gated else blocks.gelu)(f"{name}/activation", t * F, act=act))
    if m.dropout and c.dropout == "lbl":
        ops.append(blocks.dropout(f"{name}/activation dropout", t * F, act=act))
    ops.append(blocks.matmul(f"{name}/down", t, F, D, one=one, act=act, wgt=wgt, forward=scatter_or_reduce(layout, scatter, both)))
    return ops + (after(job, layout, size, name) if with_norm else [])


def after(job: Job, layout: Layout, size: Local, name: str) -> list[Op]:
    """What follows a row-parallel matrix: its bias, dropout, a post-norm, the residual sum; all on the device's shard of the sequence."""
    m, c, act, wgt = job.model, job.assumptions.count, job.precision.activation_bytes, job.precision.weight_bytes
    x, ops = size.shard * m.hidden, []
    if m.bias:
        whole = layout.scheme == "megatron" and c.output_bias == "replicated"
        by_column = layout.scheme == "context" and name == "attention"  # LBL cuts this one by columns
        width, tokens = (m.hidden / size.tp, size.tokens) if by_column else (m.hidden, size.tokens if whole else size.shard)
        ops.append(blocks.bias(f"{name}/bias", tokens, width, act=act, wgt=wgt))
    if m.dropout:
        ops.append(blocks.dropout(f"{name}/dropout", x, act=act))
    if m.norms_per_layer == 4:
        ops.append(norm(job, f"{name}/post norm", size, (), ()))
    if c.residual:
        ops.append(blocks.residual(f"{name}/residual", x, act=act))
    return ops


def norm(job: Job, name: str, size: Local, gather: tuple[Message, ...], scatter: tuple[Message, ...]) -> Op:
    """The norm before a column-parallel matrix: its output is gathered, and in backward the gradient of the sublayer's output is."""
    m = job.model
    return blocks.norm(
        name, size.shard, m.hidden, parameters=2 if m.norm == "layernorm" else 1,
        act=job.precision.activation_bytes, wgt=job.precision.weight_bytes, forward=gather, backward=gather,
    )  # fmt: skip


def collectives(layout: Layout, volume: Num) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """(gather, scatter, both): with sequence parallelism the first two carry the volume, without it one all-reduce does.

    `both` closes a column-parallel matrix in backward: a reduce-scatter, or the all-reduce.
    """
    if layout.sequence_parallel:
        scatter = (Message("reduce_scatter", "tp", volume),)
        return (Message("all_gather", "tp", volume),), scatter, scatter
    return (), (), (Message("all_reduce", "tp", volume),)


def scatter_or_reduce(layout: Layout, scatter: tuple[Message, ...], both: tuple[Message, ...]) -> tuple[Message, ...]:
    """What closes a row-parallel matrix in forward."""
    return scatter if layout.sequence_parallel else both


def column_backward(
    inputs: str, layout: Layout, gather: tuple[Message, ...], scatter: tuple[Message, ...], both: tuple[Message, ...]
) -> tuple[Message, ...]:
    """What a column-parallel matrix sends in backward: its input gradient, and its input again if only the shard was kept."""
    return gather + both if inputs == "regathered" and layout.sequence_parallel else both


def kept(inputs: str, size: Local) -> Num:
    """Tokens of a column-parallel input that stay in memory."""
    return size.tokens if inputs == "kept" else size.shard


def seen(job: Job, window: int | None) -> float:
    """Share of the T keys that a query attends to: 1, about 1/2 when causal, less in a sliding window.

    Causal: (T+1)/2T on average; window w: the mean of min(i, w) over positions i, over T. Only fused kernels skip what the mask
    hides; unfused ones compute and keep all T x T scores (Korthikanti et al. 2022 count 5 a s^2 b bytes of them, uncut).
    """
    T = float(job.T)
    if job.assumptions.count.causal == "full" or job.attention_kernel == "unfused":
        return 1.0
    if job.model.attention == "causal":
        w = min(float(window or T), T)
        return (w * (w + 1) / 2 + (T - w) * w) / (T * T)
    return min(2 * window + 1, T) / T if window else 1.0
