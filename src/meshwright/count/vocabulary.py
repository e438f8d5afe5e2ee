"""What the first and the last pipeline stage do beside their layers: embedding, final norm, output
head, loss.

Vocabulary-parallel over tp (Megatron-LM): each rank holds V/tp rows, looks up its own and the
partial results are summed. The loss works on fp32 logits; only three numbers a token cross ranks.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.loss import losses
from ..num import Num, ceil_div
from . import blocks, traced
from .blocks import FP32, Matrix
from .linear import linear
from .parallel import Entry, collectives, column_parallel, norm
from .work import LOSS, Local, Message, Op, Pass, also_sent, local


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
    """Last stage: final norm, logits, loss."""
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
        _loss(job, layout, size.tokens, V),
    ]


def _loss(job: Job, layout: Layout, tokens: Num, V: Num) -> Op:
    """Cross entropy of T V logits on a tp rank, which keeps them in fp32; three numbers a token
    cross ranks: the largest logit, the sum of exponentials, the target's logit. Gathered, a rank
    computes that of all T V t.

    What it moves a framework says (`describe.loss`); a set without one counts passes over fp32
    logits, three forward and two back.
    """
    own = tokens * V
    scores: Num = own
    sent: tuple[Message, ...] = (
        Message("all_reduce", "tp", tokens * FP32),
    ) * 3
    forward, backward = 3 * scores * FP32, 2 * scores * FP32
    kernels = "loss forward", "loss backward"
    if by := job.profile:
        kind, tp = by.loss, layout.tp
        if by.logits_gathered:
            kind, tp = "eager", 1
            scores = own * layout.tp
            whole = scores * job.precision.activation_bytes
            sent = (Message("all_gather", "tp", whole),)
        _, ahead, back = losses()[kind].over(tp)
        forward, backward = scores * ahead, scores * back
        kernels = LOSS, LOSS
    return Op(
        "head/loss",
        "vector",
        Pass(
            0.0,
            5 * scores,
            forward,
            sent,
            kernel=kernels[0],
            sizes=(scores,),
        ),
        Pass(0.0, 2 * scores, backward, kernel=kernels[1], sizes=(scores,)),
        saved=own * FP32,
    )


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
