"""What the first and the last pipeline stage do beside their layers: embedding, final norm, output
head, loss.

Vocabulary-parallel over tp (Megatron-LM): each rank holds V/tp rows, looks up its own and the
partial results are summed. The loss works on fp32 logits; only three numbers a token cross ranks.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, ceil_div
from . import blocks, traced
from .blocks import FP32, Matrix
from .linear import linear
from .parallel import Entry, collectives, column_parallel, norm
from .work import IN_PLACE, Local, Message, Op, Pass, also_sent, local


def rows(job: Job, layout: Layout) -> Num:
    """Vocabulary rows a tp rank holds: V padded to a multiple of tp and of `vocab_multiple`, over
    tp.
    """
    return ceil_div(job.model.padded_vocab, layout.tp)


def table_parameters(job: Job, layout: Layout) -> Num:
    """Parameters of the embedding's rows on a tp rank."""
    return rows(job, layout) * float(job.model.embedded)


def embedding(job: Job, layout: Layout) -> list[Op]:
    """First stage: look up tokens (learned positions, kinds of tokens); make them as wide as the
    layers.
    """
    m = job.model
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    beside = (
        traced.traced_operations(job, layout, m.traced.before)
        if m.traced
        else ()
    )
    if not (m.vocab and job.how.count.vocabulary):
        return list(beside)
    size = local(job, layout)
    x = size.tokens * m.embedded
    gather, reduce = collectives(layout, x * act)
    positions = (m.position_rows or m.seq) if m.positions == "learned" else 0
    whole = (positions + m.token_types) * size.part(m.embedded)
    weights = table_parameters(job, layout) + whole
    step = Pass(0.0, 0.0, 2 * x * act + x * wgt)
    look_up = Op(
        "embedding",
        "lookup",
        step._replace(
            comm=reduce,
            kernel="embedding forward",
            sizes=(size.tokens, m.embedded),
        ),
        step._replace(
            comm=gather,
            kernel="embedding backward",
            sizes=(size.tokens, m.embedded, rows(job, layout)),
        ),
        weights=weights,
    )
    ops = [look_up, *beside]
    if m.embedding_norm:
        ops.append(norm(job, "embedding/norm", size, width=m.embedded))
    return ops + _widened(job, layout, size)


def _widened(job: Job, layout: Layout, size: Local) -> list[Op]:
    """The matrix that makes the layers' width of narrow rows, whole on every tp rank, like what is
    normalised there.
    """
    m, t = job.model, size.shard
    if m.embedding_width is None or m.traced:  # a trace has it beside
        return []
    name = "embedding/wide"
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    return [
        linear(
            job,
            layout,
            name,
            T=t,
            k=m.embedded,
            n=m.hidden,
            of=Matrix(quantised=False),
        ),
        blocks.bias(f"{name} bias", t, m.hidden, act=act, wgt=wgt),
    ]


def head(job: Job, layout: Layout) -> list[Op]:
    """Last stage: final norm, logits, loss. The logits are kept in fp32 for the backward pass."""
    m = job.model
    act = job.precision.activation_bytes
    beside = (
        list(traced.traced_operations(job, layout, m.traced.after))
        if m.traced
        else []
    )
    if not (m.vocab and job.how.count.vocabulary):
        return beside
    size = local(job, layout)
    width = m.embedded if m.traced else m.head_width or m.hidden
    gather, _ = collectives(layout, size.tokens * width * act)
    V = rows(job, layout)
    narrow = bool(job.profile and job.profile.logits_quantised)
    logits = column_parallel(
        job,
        layout,
        size,
        name="head/logits",
        k=width,
        n=V,
        of=Matrix(quantised=narrow, engine="matrix" if narrow else "wide"),
        # the norm before it does
        entry=Entry(gathers=m.traced is not None),
    )
    statistics = (
        Message("all_reduce", "tp", size.tokens * FP32),
    ) * 3  # the largest logit, the sum of exponentials, the target's logit
    scores = size.tokens * V
    # Passes over the logits: three forward and two backward, in fp32. In place: one of their own
    # numbers is read for maximum and sum, read and written as its gradient, and read and written
    # once more by the gradient of the loss, one number a token and so never skipped as 1.
    # Source: NVIDIA/TransformerEngine 1b2b4a8e, pytorch/triton/cross_entropy.py
    # (online_softmax_kernel, cross_entropy_kernel, element_mul_kernel), Apache-2.0.
    in_place = bool(job.profile and job.profile.loss == "in place")
    wide = act if in_place else FP32
    loss = Op(
        "head/loss",
        "vector",
        Pass(
            0.0,
            5 * scores,
            3 * scores * wide,
            statistics,
            kernel=IN_PLACE if in_place else "loss forward",
            sizes=(scores,),
        ),
        Pass(
            0.0,
            2 * scores,
            2 * scores * wide,
            kernel=IN_PLACE if in_place else "loss backward",
            sizes=(scores,),
        ),
        saved=scores * FP32,
    )
    sent = () if m.head_width else gather
    final = norm(job, "head/norm", size, sent)
    if not m.final_norm:
        final = final._replace(weights=0.0)
    bias = blocks.bias(
        "head/bias", size.tokens, V, act=act, wgt=job.precision.weight_bytes
    )
    return [
        *(beside if m.traced else [final]),
        *_transform(job, layout, size, gather),
        logits,
        *([bias] if m.head_bias else []),
        loss,
    ]


def _transform(
    job: Job, layout: Layout, size: Local, gather: tuple[Message, ...]
) -> list[Op]:
    """norm(act(W h)) in front of the output matrix, on the device's shard of the sequence (BERT in
    Megatron-LM); W is whole on every tp rank.
    """
    m = job.model
    t = size.shard
    width = job.model.head_width
    if width is None:
        return []
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    name = "head/transform"
    bias = [blocks.bias(f"{name} bias", t, width, act=act, wgt=wgt)]
    return [
        linear(
            job,
            layout,
            name,
            T=t,
            k=m.hidden,
            n=width,
            of=Matrix(quantised=False),
        ),
        *(bias if m.bias else []),
        blocks.gelu(f"{name} activation", t * width, act=act),
        norm(job, f"{name} norm", size, gather, width=width),
    ]


def join(job: Job, layout: Layout) -> list[Op]:
    """What a multi-token-prediction block does before its layer: hidden state and the next token's
    embedding, each normalised, go side by side through one matrix of 2 D x D, cut tp ways by
    columns. Source: DeepSeek-AI 2024, DeepSeek-V3, section 2.2.
    """
    D = job.model.hidden
    size = local(job, layout)
    whole = size.tokens * D * job.precision.activation_bytes
    columns = (Message("all_gather", "tp", whole),)
    project = also_sent(
        column_parallel(
            job, layout, size, name="mtp/project", k=2 * D, n=D / layout.tp
        ),
        result=columns,
    )
    return [
        norm(job, f"mtp/{name} norm", size) for name in ("hidden", "token")
    ] + [project]
