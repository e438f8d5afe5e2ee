"""Operations of a traced layer under Megatron's tensor parallelism: pairs of matrices that the
trace recognised are cut, everything else is whole on every rank and works on its own tokens.

A vector operation costs the traffic of its module as one kernel, and twice that in backward; a
product that is no matrix of weights costs its FLOPs, and twice them in backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..describe.layers import Kind
from ..describe.traced import TracedOp
from ..num import Num, maximum
from . import blocks
from .blocks import AttentionCore, AttentionShape, Matrix, Messages
from .context import attended, exchange, heads_of
from .linear import linear
from .local import Local
from .mask import seen
from .moe import combine, dispatch, inner
from .parallel import Entry, collectives, column_parallel
from .work import Message, Op, Pass

WIDTH = 2.0
"""Bytes of a number in which bytes of a trace are stated."""


def traced_layer(local: Local, kind: Kind) -> list[Op]:
    """Operations of one traced layer for one microbatch on one device, in forward order."""
    traced = local.model.traced
    assert traced is not None
    return list(traced_operations(local, traced.kinds[int(kind.mixer)].ops))


def traced_operations(local: Local, ops: Sequence[TracedOp]) -> Iterator[Op]:
    """The operations of a list, with the messages around those that are cut."""
    routed = [i for i, op in enumerate(ops) if op.kind == "experts"]
    gathered: set[int] = set()
    for i, op in enumerate(ops):
        if routed and i == routed[0]:
            sent = local.shard * op.rows
            width = float(op.inner)
            yield dispatch(local, sent, "dispatch")
            yield inner(local, sent * local.layout.etp, width)
        yield _operation(local, op, first=op.reads not in gathered)
        if op.cut == "column" and op.kind == "matmul":
            gathered.add(op.reads)
        if routed and i == routed[-1]:
            yield combine(local, local.shard * op.rows)


def _operation(local: Local, op: TracedOp, first: bool) -> Op:
    if op.kind == "matmul":
        return _matmul(local, op=op, first=first)
    if op.kind == "experts":
        return _experts(local, op)
    if op.kind == "attention":
        return _attention(local, op)
    return _rest(local, op)


def _matmul(local: Local, op: TracedOp, first: bool) -> Op:
    """A matrix of weights: column- or row-parallel, or whole on the device's own tokens."""
    tp = local.tp
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
            local, name=op.name, k=op.inner, n=n, entry=entry
        )
        extra = op.weights - op.inner * op.outer  # a bias, cut likewise
        return made._replace(weights=made.weights + extra * n / op.outer)
    shard = local.tokens if op.cut == "row" else local.shard
    k = op.inner / tp if op.cut == "row" else op.inner
    T = shard * op.rows
    volume = local.tokens * op.outer * local.act
    _, reduce = collectives(local.layout, volume)
    made = linear(
        local,
        name=op.name,
        T=T,
        k=k,
        n=op.outer,
        matrix=Matrix(kept=T if op.keeps else 0.0, copies=op.copies),
        sent=Messages(forward=reduce if op.cut == "row" else ()),
    )
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra)


def _experts(local: Local, op: TracedOp) -> Op:
    """The grouped product of a rank's experts, each cut etp ways."""
    k = op.inner / local.layout.etp if op.cut == "row" else op.inner
    n = op.outer / local.layout.etp if op.cut == "column" else op.outer
    rows = local.shard * op.rows * local.layout.etp
    here = op.copies / local.layout.ep
    matrix = Matrix(copies=here, expert=True, kept=rows if op.keeps else 0.0)
    made = linear(local, name=op.name, T=rows, k=k, n=n, matrix=matrix)
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra / local.layout.ep)


def _attention(local: Local, op: TracedOp) -> Op:
    """softmax(Q K^T) V of heads that tp cuts, or of all of them."""
    c = local.counting
    act = local.act
    cut = local.tp if op.cut != "whole" else 1.0
    H = op.heads / cut
    # fewer heads of keys than ranks are copied
    K = maximum(op.kv_heads / cut, 1.0)
    heads = heads_of(local, H=H, K=K, q=op.query, v=op.value)
    work = attended(local.layout, heads)
    forward, backward = exchange(local.layout, heads, act, c.gathered_keys)
    # a summary of the sequence is masked like the sequence, and has no window
    beside = max(op.keys - 1.0, 0.0)
    share = min(op.keys, 1.0) * seen(local, op.window or None)
    share = share + beside * seen(local, None)
    made = blocks.attention(
        op.name,
        AttentionShape(
            b=local.b,
            H=work.H,
            K=work.K,
            lq=work.queries,
            l=local.T,
            q=op.query,
            v=op.value,
            seen=share,
        ),
        one=local.numbers.one,
        act=act,
        kernel=AttentionCore(
            dropout=False,
            fused=local.job.fused_attention,
            output_twice=float(c.attention_output == "twice"),
            autograd=c.backward_needs == "autograd",
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    return made._replace(weights=op.weights / cut)


def _rest(local: Local, op: TracedOp) -> Op:
    """A module's passes over activations, or products without weights of two sides."""
    tokens: Num = local.tokens
    share: Num = 1.0
    if op.cut == "inside":
        share = 1.0 / local.tp
    elif op.kind == "vector":
        tokens = local.shard
    scale = local.act / WIDTH

    def amount(each: float, square: float) -> Num:
        return tokens * share * (each + square * local.T)

    flops = amount(op.flops, op.flops_square)
    moved = amount(op.moved, op.moved_square) * scale
    weights = op.weights * (share if op.cut == "inside" else 1.0)
    kept = amount(op.saved, op.saved_square) * scale
    bytes_ = moved + weights * local.wgt
    sent = _around(local, op)
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
    local: Local, op: TracedOp
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """A product that mixes tokens needs all of the sequence on each rank; its gradient goes back to
    shards. Without sequence parallelism every rank has it.
    """
    if op.kind != "product" or op.cut != "whole":
        return (), ()
    if not local.layout.sequence_parallel:
        return (), ()
    volume = local.tokens * local.model.hidden * local.act
    gather = Message("all_gather", "tp", volume)
    scatter = Message("reduce_scatter", "tp", volume)
    return (gather,), (scatter,)
