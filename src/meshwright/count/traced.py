"""Operations of a traced layer under Megatron's tensor parallelism: pairs of matrices that the
trace recognised are cut, everything else is whole on every rank and works on its own tokens.

A vector operation costs the traffic of its module as one kernel, and twice that in backward; a
product that is no matrix of weights costs its FLOPs, and twice them in backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..describe.job import Job
from ..describe.layers import Kind
from ..describe.layout import Layout
from ..describe.traced import TracedOp
from ..num import Num, maximum
from . import blocks
from .blocks import AttentionCore, AttentionShape, Matrix, Messages
from .context import attended, exchange, heads_of
from .linear import linear
from .mask import seen
from .moe import combine, dispatch, inner
from .parallel import Entry, collectives, column_parallel
from .work import Local, Message, Op, Pass, local

WIDTH = 2.0
"""Bytes of a number in which bytes of a trace are stated."""


def traced_layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one traced layer for one microbatch on one device, in forward order."""
    traced = job.model.traced
    assert traced is not None
    return list(
        traced_operations(job, layout, traced.kinds[int(kind.mixer)].ops)
    )


def traced_operations(
    job: Job, layout: Layout, ops: Sequence[TracedOp]
) -> Iterator[Op]:
    """The operations of a list, with the messages around those that are cut."""
    size = local(job, layout)
    routed = [i for i, op in enumerate(ops) if op.kind == "experts"]
    gathered: set[int] = set()
    for i, op in enumerate(ops):
        if routed and i == routed[0]:
            sent = size.shard * op.rows
            width = float(op.inner)
            yield dispatch(job, layout, sent, "dispatch")
            act = job.precision.activation_bytes
            yield inner(layout, sent * layout.etp, width, act)
        yield _operation(job, layout, size, op, first=op.reads not in gathered)
        if op.cut == "column" and op.kind == "matmul":
            gathered.add(op.reads)
        if routed and i == routed[-1]:
            yield combine(job, layout, size.shard * op.rows)


def _operation(
    job: Job, layout: Layout, size: Local, op: TracedOp, first: bool
) -> Op:
    if op.kind == "matmul":
        return _matmul(job, layout, size, op=op, first=first)
    if op.kind == "experts":
        return _experts(job, layout, size, op)
    if op.kind == "attention":
        return _attention(job, layout, size, op)
    return _rest(job, layout, size, op)


def _matmul(
    job: Job, layout: Layout, size: Local, op: TracedOp, first: bool
) -> Op:
    """A matrix of weights: column- or row-parallel, or whole on the device's own tokens."""
    tp = size.tp
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
            job, layout, size, name=op.name, k=op.inner, n=n, entry=entry
        )
        extra = op.weights - op.inner * op.outer  # a bias, cut likewise
        return made._replace(weights=made.weights + extra * n / op.outer)
    shard = size.tokens if op.cut == "row" else size.shard
    k = op.inner / tp if op.cut == "row" else op.inner
    T = shard * op.rows
    volume = size.tokens * op.outer * job.precision.activation_bytes
    _, reduce = collectives(layout, volume)
    made = linear(
        job,
        layout,
        name=op.name,
        T=T,
        k=k,
        n=op.outer,
        of=Matrix(kept=T if op.keeps else 0.0, copies=op.copies),
        sent=Messages(forward=reduce if op.cut == "row" else ()),
    )
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra)


def _experts(job: Job, layout: Layout, size: Local, op: TracedOp) -> Op:
    """The grouped product of a rank's experts, each cut etp ways."""
    k = op.inner / layout.etp if op.cut == "row" else op.inner
    n = op.outer / layout.etp if op.cut == "column" else op.outer
    rows = size.shard * op.rows * layout.etp
    here = op.copies / layout.ep
    of = Matrix(copies=here, expert=True, kept=rows if op.keeps else 0.0)
    made = linear(job, layout, name=op.name, T=rows, k=k, n=n, of=of)
    extra = op.weights - float(op.copies) * op.inner * op.outer
    return made._replace(weights=made.weights + extra / layout.ep)


def _attention(job: Job, layout: Layout, size: Local, op: TracedOp) -> Op:
    """softmax(Q K^T) V of heads that tp cuts, or of all of them."""
    c = job.how.count
    act = job.precision.activation_bytes
    cut = size.tp if op.cut != "whole" else 1.0
    H = op.heads / cut
    # fewer heads of keys than ranks are copied
    K = maximum(op.kv_heads / cut, 1.0)
    heads = heads_of(size, H=H, K=K, q=op.query, v=op.value)
    work = attended(layout, heads)
    forward, backward = exchange(layout, heads, act, c.gathered_keys)
    # a summary of the sequence is masked like the sequence, and has no window
    beside = max(op.keys - 1.0, 0.0)
    share = min(op.keys, 1.0) * seen(job, op.window or None, size.T)
    share = share + beside * seen(job, None, size.T)
    made = blocks.attention(
        op.name,
        AttentionShape(
            b=size.b,
            H=work.H,
            K=work.K,
            lq=work.queries,
            l=size.T,
            q=op.query,
            v=op.value,
            seen=share,
        ),
        one=1.0 if c.dot_product == "2k-1" else 0.0,
        act=act,
        kernel=AttentionCore(
            dropout=False,
            fused=job.fused_attention,
            output_twice=c.attention_output == "twice",
            autograd=c.backward_needs == "autograd",
        ),
        sent=Messages(forward=forward, backward=backward),
    )
    return made._replace(weights=op.weights / cut)


def _rest(job: Job, layout: Layout, size: Local, op: TracedOp) -> Op:
    """A module's passes over activations, or products without weights of two sides."""
    tokens: Num = size.tokens
    share: Num = 1.0
    if op.cut == "inside":
        share = 1.0 / size.tp
    elif op.kind == "vector":
        tokens = size.shard
    scale = job.precision.activation_bytes / WIDTH

    def amount(each: float, square: float) -> Num:
        return tokens * share * (each + square * size.T)

    flops = amount(op.flops, op.flops_square)
    moved = amount(op.moved, op.moved_square) * scale
    weights = op.weights * (share if op.cut == "inside" else 1.0)
    kept = amount(op.saved, op.saved_square) * scale
    bytes_ = moved + weights * job.precision.weight_bytes
    sent = _around(job, layout, size, op)
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
    job: Job, layout: Layout, size: Local, op: TracedOp
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """A product that mixes tokens needs all of the sequence on each rank; its gradient goes back to
    shards. Without sequence parallelism every rank has it.
    """
    if op.kind != "product" or op.cut != "whole":
        return (), ()
    if not layout.sequence_parallel:
        return (), ()
    volume = size.tokens * job.model.hidden * job.precision.activation_bytes
    gather = Message("all_gather", "tp", volume)
    scatter = Message("reduce_scatter", "tp", volume)
    return (gather,), (scatter,)
