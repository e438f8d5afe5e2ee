"""Attention of every kind, cut over tp by heads and over cp by tokens: queries, keys and values,
their meeting, the way out. Source: Korthikanti et al. 2022; Subramanian et al. 2024, Tables A1 and
A2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..describe.layers import Kind
from ..describe.model import Model
from ..exchange import EXCHANGES
from ..exchange.types import Message
from ..num import Num, maximum, where
from . import blocks
from .blocks import FP32, AttentionCore, AttentionShape, Matrix, Messages
from .context import attended, exchange, heads_of
from .feed_forward import parallel_block
from .latent import latent
from .mask import seen
from .microbatch import DeviceMicrobatch
from .parallel import (
    Entry,
    after,
    column_parallel,
    inner_norm,
    kept_apart,
    pre_norm,
    row_parallel,
)
from .rotary import rotated
from .sparse import indexer
from .work import Op

SPARSE = ("sparse", "chosen")
"""Mixers that read the keys which an indexer picked."""

CAUSAL_SOFTMAX = 4096
"""Longest sequence of Megatron-LM's softmax for causal masks (megatron/core/fusions/
fused_softmax.py, is_kernel_available)."""


class DeviceHeads(NamedTuple):
    """Heads of one kind of attention on one device."""

    H: Num
    """Query heads."""
    K: Num
    """Key/value heads."""
    q: int
    """Width of a query or key head."""
    v: int
    """Width of a value head."""
    sinks: bool
    shared: bool = False
    """Keys are values too."""


def device_heads(m: Model, kind: Kind, tp: Num) -> DeviceHeads:
    """Heads of a layer on one tp rank; fewer key/value heads than tp are copied."""
    if m.mla:
        q = m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim
        v = m.mla.v_head_dim
        return DeviceHeads(
            m.heads / tp,
            K=m.heads / tp,
            q=q,
            v=v,
            sinks=m.attention_sinks,
        )
    if m.sliding and kind.window is not None:
        sliding = m.sliding
        v = sliding.v_head_dim or sliding.head_dim
        return DeviceHeads(
            sliding.heads / tp,
            # fewer heads of keys than ranks are copied: each rank has one (Megatron Core, GQA)
            K=maximum(sliding.kv_heads / tp, 1.0),
            q=sliding.head_dim,
            v=v,
            sinks=sliding.sinks,
        )
    shared = m.key_is_value and kind.window is None
    return DeviceHeads(
        m.heads / tp,
        # fewer heads of keys than ranks are copied
        K=maximum(m.K / tp, 1.0),
        q=m.h,
        v=m.v,
        sinks=m.attention_sinks,
        shared=shared,
    )


def attention(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Norm, query/key/value projections, attention, output projection, residual."""
    m = microbatch.model
    heads = device_heads(m, kind, microbatch.tp)
    # the feed-forward keeps, and reduces, for both
    beside_ffn = parallel_block(m, kind) and not kind.moe
    ops = [pre_norm(microbatch, "attention/norm")]
    ops += (
        latent(microbatch)
        if m.mla
        else projections(microbatch, heads=heads, beside_ffn=beside_ffn)
    )
    ops += query_key_passes(microbatch, heads)
    if kind.mixer == "sparse":
        ops += indexer(microbatch)
    ops.append(core(microbatch, heads=heads, kind=kind))
    if m.attention_gate != "none":
        ops += gate(microbatch, heads)
    wide = heads.H * heads.v
    if m.inner_norms:
        name = "attention/inner norm"
        ops.append(inner_norm(microbatch, name, microbatch.tokens, wide))
    out = row_parallel(
        microbatch,
        name="attention/out",
        k=wide,
        matrix=Matrix(quantised=False),
        reduces=not beside_ffn,
    )
    return [
        *ops,
        out,
        *after(microbatch, name="attention", biased=m.biased_out),
    ]


def projections(
    microbatch: DeviceMicrobatch, heads: DeviceHeads, beside_ffn: bool
) -> list[Op]:
    """Queries, keys and values in one matrix, cut by heads, and their biases."""
    m = microbatch.model
    act = microbatch.act
    wgt = microbatch.wgt
    queries, keys = heads.H * heads.q, heads.K * heads.q
    # of shared heads the keys are the values too
    values = 0.0 if heads.shared else heads.K * heads.v
    columns = (queries, keys) if heads.shared else (queries, keys, values)
    width = queries + keys + values
    alone = not beside_ffn
    qkv = column_parallel(
        microbatch,
        name="attention/qkv",
        k=m.hidden,
        n=width,
        matrix=Matrix(calls=float(len(columns)), columns=columns),
        entry=Entry(keeps=alone, reduces=alone),
    )
    if not m.qkv_bias:
        return [qkv]
    name = "attention/qkv bias"
    return [qkv, blocks.bias(name, microbatch.tokens, width, act=act, wgt=wgt)]


def query_key_passes(
    microbatch: DeviceMicrobatch, heads: DeviceHeads
) -> list[Op]:
    """What happens to queries and keys before they meet, as passes of their own."""
    m = microbatch.model
    ops = [query_key_norm(microbatch, heads)] if m.qk_norm else []
    return [*ops, *rotated(microbatch, heads.H, heads.K, heads.q)]


def query_key_norm(microbatch: DeviceMicrobatch, heads: DeviceHeads) -> Op:
    """RMS norm of queries and keys: each head by itself, with the same 2 h parameters; or all heads
    together (OLMo 2).

    Then their sums of squares, one number a token for queries and one for keys, are added up over
    tp.
    """
    m = microbatch.model
    t = microbatch.tokens
    count = heads.H + heads.K
    statistics = (
        (Message("all_reduce", "tp", 2 * t * FP32),) if m.qk_norm_whole else ()
    )
    act = microbatch.act
    wgt = microbatch.wgt
    op = blocks.norm(
        "attention/qk norm",
        t * count,
        heads.q,
        parameters=1,
        act=act,
        wgt=wgt,
        autograd=microbatch.counting.backward_needs == "autograd",
        sent=Messages(forward=statistics, backward=statistics),
    )
    each = 2.0 if m.qk_norm_shift else 1.0
    op = kept_apart(microbatch, op, t * count * heads.q)
    return op._replace(
        weights=each * heads.q * (count if m.qk_norm_whole else 2.0)
    )


def softmax(microbatch: DeviceMicrobatch) -> str:
    """What makes the softmax of unfused attention, a word of `blocks.SCORES`."""
    kernel = microbatch.job.how.chip.stack.kernel
    if kernel == "torch-fp32":
        return "fp32"
    chained = (
        microbatch.counting.biases == "chained"
        and microbatch.job.T <= CAUSAL_SOFTMAX
    )
    return "causal" if chained and kernel == "fused-softmax" else ""


def output_copies(microbatch: DeviceMicrobatch) -> Num:
    """1 where the kernel keeps its output beside what the next product keeps as its input: by the
    count of a set (`Counting.attention_output`), or because that was sent over cp.
    """
    if microbatch.counting.attention_output == "twice":
        return 1.0
    sent = EXCHANGES[microbatch.layout.cp_exchange].output_sent
    return where(microbatch.cp > 1, 1.0, 0.0) if sent else 0.0


def core(microbatch: DeviceMicrobatch, heads: DeviceHeads, kind: Kind) -> Op:
    """softmax(Q K^T) V."""
    m = microbatch.model
    c = microbatch.counting
    act = microbatch.act
    rank = heads_of(microbatch, H=heads.H, K=heads.K, q=heads.q, v=heads.v)
    work = attended(microbatch.layout, rank)
    forward, backward = exchange(microbatch.layout, rank, act, c.gathered_keys)
    tiled = (microbatch.cp > 1) | (
        kind.window is not None and kind.window < microbatch.job.T
    )
    op = blocks.attention(
        "attention/core",
        AttentionShape(
            b=microbatch.b,
            H=work.H,
            K=work.K,
            lq=work.queries,
            l=microbatch.T,
            q=heads.q,
            v=heads.v,
            seen=seen(microbatch, visible(m, kind)),
        ),
        one=microbatch.numbers.one,
        act=act,
        kernel=AttentionCore(
            dropout=m.dropout,
            fused=microbatch.job.fused_attention,
            output_twice=output_copies(microbatch),
            softmax=softmax(microbatch),
            autograd=c.backward_needs == "autograd",
            tiled=where(tiled, 1.0, 0.0),
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    return op._replace(weights=(heads.H if heads.sinks else 0.0) + m.vectors)


def visible(m: Model, kind: Kind) -> int | None:
    """Keys that a query of a layer reads at most; None: all that the mask leaves."""
    return m.sparse.top_k if m.sparse and kind.mixer in SPARSE else kind.window


def gate(microbatch: DeviceMicrobatch, heads: DeviceHeads) -> list[Op]:
    """sigmoid(W h) times the result of attention: a number for each of its elements, or a head."""
    m = microbatch.model
    t = microbatch.tokens
    act = microbatch.act
    width = heads.H * (heads.v if m.attention_gate == "element" else 1)
    # its input is that of queries, keys and values, gathered and kept there
    shared = Entry(gathers=False, keeps=False)
    project = column_parallel(
        microbatch,
        name="attention/gate",
        k=m.hidden,
        n=width,
        entry=shared,
    )
    product = blocks.gate(
        "attention/gated", t * heads.H * heads.v, t * width, act=act
    )
    return [
        project._replace(source="attention/norm"),
        product._replace(source="attention/core"),
    ]
