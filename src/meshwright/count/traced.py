"""Operations of a traced layer under Megatron's tensor parallelism: pairs of matrices that the
trace recognised are cut, everything else is whole on every rank and works on its own tokens.

A vector operation costs the traffic of its module as one kernel, and twice that in backward; a
product that is no matrix of weights costs its FLOPs, and twice them in backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..describe.layers import Kind
from ..describe.traced import TracedOp
from ..exchange.types import Message
from ..num import Num, maximum
from . import blocks
from .blocks import AttentionCore, AttentionShape, Matrix, Messages
from .context import attended, exchange, heads_of
from .linear import linear
from .mask import seen
from .microbatch import DeviceMicrobatch
from .moe import exchanged
from .parallel import Entry, collectives, column_parallel
from .work import Op, Pass

WIDTH = 2.0
"""Bytes of a number in which bytes of a trace are stated."""


def traced_layer(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Operations of one traced layer for one microbatch on one device, in forward order."""
    traced = microbatch.model.traced
    assert traced is not None
    return list(
        traced_operations(microbatch, traced.kinds[int(kind.mixer)].ops)
    )


def traced_operations(
    microbatch: DeviceMicrobatch, ops: Sequence[TracedOp]
) -> Iterator[Op]:
    """The operations of a list, with the messages around those that are cut."""
    routed = [i for i, op in enumerate(ops) if op.kind == "experts"]
    gathered: set[int] = set()
    for i, op in enumerate(ops):
        if routed and i == routed[0]:
            away, apart, back = exchanged(
                microbatch, microbatch.shard * op.rows, float(op.inner)
            )
            yield from (away, *apart)
        yield _operation(microbatch, op, first=op.reads not in gathered)
        if op.cut == "column" and op.kind == "matmul":
            gathered.add(op.reads)
        if routed and i == routed[-1]:
            yield back


def _operation(microbatch: DeviceMicrobatch, op: TracedOp, first: bool) -> Op:
    if op.kind == "matmul":
        return _matmul(microbatch, op=op, first=first)
    if op.kind == "experts":
        return _experts(microbatch, op)
    if op.kind == "attention":
        return _attention(microbatch, op)
    return _rest(microbatch, op)


def _matmul(microbatch: DeviceMicrobatch, op: TracedOp, first: bool) -> Op:
    """A matrix of weights: column- or row-parallel, or whole on the device's own tokens."""
    tp = microbatch.tp
    if op.cut == "column":
        pieces = op.pieces
        n = (
            # fewer pieces (heads) than ranks are copied whole
            op.outer / pieces * maximum(pieces / tp, 1.0)
            if pieces
            else (op.outer / tp)
        )
        entry = Entry(gathers=first, keeps=op.keeps, reduces=first)
        made = column_parallel(
            microbatch, name=op.name, k=op.inner, n=n, entry=entry
        )
        extra = op.weights - op.inner * op.outer  # a bias, cut likewise
        return made._replace(weights=made.weights + extra * n / op.outer)
    shard = microbatch.tokens if op.cut == "row" else microbatch.shard
    k = op.inner / tp if op.cut == "row" else op.inner
    T = shard * op.rows
    volume = microbatch.tokens * op.outer * microbatch.act
    _, reduce = collectives(microbatch.layout, volume)
    made = linear(
        microbatch,
        name=op.name,
        T=T,
        k=k,
        n=op.outer,
        matrix=Matrix(kept=T if op.keeps else 0.0, copies=op.copies),
        sent=Messages(forward=reduce if op.cut == "row" else ()),
    )
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra)


def _experts(microbatch: DeviceMicrobatch, op: TracedOp) -> Op:
    """The grouped product of a rank's experts, each cut etp ways."""
    k = op.inner / microbatch.layout.etp if op.cut == "row" else op.inner
    n = op.outer / microbatch.layout.etp if op.cut == "column" else op.outer
    rows = microbatch.shard * op.rows * microbatch.layout.etp
    here = op.copies / microbatch.layout.ep
    matrix = Matrix(copies=here, expert=True, kept=rows if op.keeps else 0.0)
    made = linear(microbatch, name=op.name, T=rows, k=k, n=n, matrix=matrix)
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra / microbatch.layout.ep)


def _attention(microbatch: DeviceMicrobatch, op: TracedOp) -> Op:
    """softmax(Q K^T) V of heads that tp cuts, or of all of them."""
    c = microbatch.counting
    act = microbatch.act
    cut = microbatch.tp if op.cut != "whole" else 1.0
    H = op.heads / cut
    # fewer heads of keys than ranks are copied
    K = maximum(op.kv_heads / cut, 1.0)
    heads = heads_of(microbatch, H=H, K=K, q=op.query, v=op.value)
    work = attended(microbatch.layout, heads)
    forward, backward = exchange(
        microbatch.layout, heads, act, c.gathered_keys
    )
    # a summary of the sequence is masked like the sequence, and has no window
    beside = max(op.keys - 1.0, 0.0)
    share = min(op.keys, 1.0) * seen(microbatch, op.window or None)
    share = share + beside * seen(microbatch, None)
    made = blocks.attention(
        op.name,
        AttentionShape(
            b=microbatch.b,
            H=work.H,
            K=work.K,
            lq=work.queries,
            l=microbatch.T,
            q=op.query,
            v=op.value,
            seen=share,
        ),
        one=microbatch.numbers.one,
        act=act,
        kernel=AttentionCore(
            dropout=False,
            fused=microbatch.job.fused_attention,
            output_twice=float(c.attention_output == "twice"),
            autograd=c.backward_needs == "autograd",
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    return made._replace(weights=op.weights / cut)


def _rest(microbatch: DeviceMicrobatch, op: TracedOp) -> Op:
    """A module's passes over activations, or products without weights of two sides."""
    tokens: Num = microbatch.tokens
    share: Num = 1.0
    if op.cut == "inside":
        share = 1.0 / microbatch.tp
    elif op.kind == "vector":
        tokens = microbatch.shard
    scale = microbatch.act / WIDTH

    def amount(each: float, square: float) -> Num:
        return tokens * share * (each + square * microbatch.T)

    flops = amount(op.flops, op.flops_square)
    moved = amount(op.moved, op.moved_square) * scale
    weights = op.weights * (share if op.cut == "inside" else 1.0)
    kept = amount(op.saved, op.saved_square) * scale
    bytes_ = moved + weights * microbatch.wgt
    sent = _around(microbatch, op)
    if op.kind == "product":
        forward = Pass(flops, 0.0, bytes_, sent[0])
        backward = Pass(2 * flops, 0.0, 2 * bytes_, sent[1])
    else:
        forward = Pass(0.0, flops, bytes_, sent[0])
        backward = Pass(0.0, 2 * flops, 2 * bytes_, sent[1])
    return Op(
        op.name,
        "vector",
        forward,
        backward,
        saved=kept,
        weights=op.weights,
        needs=kept,
    )


def _around(
    microbatch: DeviceMicrobatch, op: TracedOp
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """A product that mixes tokens needs all of the sequence on each rank; its gradient goes back to
    shards. Without sequence parallelism every rank has it.
    """
    if op.kind != "product" or op.cut != "whole":
        return (), ()
    if not microbatch.layout.sequence_parallel:
        return (), ()
    volume = microbatch.tokens * microbatch.model.hidden * microbatch.act
    gather = Message("all_gather", "tp", volume)
    scatter = Message("reduce_scatter", "tp", volume)
    return (gather,), (scatter,)
