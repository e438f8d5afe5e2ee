"""What the first and the last pipeline stage do beside their layers: embedding, final norm, output
head, loss.

Vocabulary-parallel over tp (Megatron-LM): each rank holds V/tp rows, looks up its own and the
partial results are summed. The loss works on fp32 logits; only three numbers a token cross ranks.
"""

from __future__ import annotations

from ..describe.framework import Framework
from ..describe.loss import losses
from ..describe.model import Model
from ..num import Num, ceil_div
from . import blocks, traced
from .blocks import FP32, Matrix
from .linear import linear
from .local import Local
from .parallel import Entry, collectives, column_parallel, norm
from .work import LOSS, Message, Op, Pass, also_sent


def rows(model: Model, profile: Framework | None, tp: Num) -> Num:
    """Vocabulary rows a tp rank holds: V padded to a multiple of `vocab_multiple`, over tp and
    rounded up; or each rank's are such a multiple (`Framework.vocabulary_rows`).
    """
    if not (profile and profile.vocabulary_rows):
        return ceil_div(model.padded_vocab, tp)
    each = model.vocab_multiple or profile.vocabulary_rows
    return ceil_div(model.vocab, each * tp) * each


def table_parameters(model: Model, profile: Framework | None, tp: Num) -> Num:
    """Parameters of the embedding's rows on a tp rank."""
    return rows(model, profile, tp) * float(model.embedded)


def embedding(local: Local) -> list[Op]:
    """First stage: look up tokens (learned positions, kinds of tokens); make them as wide as the
    layers.
    """
    m = local.model
    act = local.act
    wgt = local.wgt
    beside = (
        traced.traced_operations(local, m.traced.before) if m.traced else ()
    )
    if not (m.vocab and local.counting.vocabulary):
        return list(beside)
    x = local.tokens * m.embedded
    gather, reduce = collectives(local.layout, x * act)
    positions = (m.position_rows or m.seq) if m.positions == "learned" else 0
    whole = (positions + m.token_types) * local.part(m.embedded)
    weights = table_parameters(m, local.profile, local.tp) + whole
    step = Pass(0.0, 0.0, 2 * x * act + x * wgt)
    look_up = Op(
        "embedding",
        "lookup",
        step._replace(
            comm=reduce,
            kernel="embedding forward",
            sizes=(local.tokens, m.embedded),
        ),
        step._replace(
            comm=gather,
            kernel="embedding backward",
            sizes=(local.tokens, m.embedded, rows(m, local.profile, local.tp)),
        ),
        weights=weights,
    )
    ops = [look_up, *beside]
    if m.embedding_norm:
        ops.append(norm(local, "embedding/norm", width=m.embedded))
    return ops + _widened(local)


def _widened(local: Local) -> list[Op]:
    """The matrix that makes the layers' width of narrow rows, whole on every tp rank, like what is
    normalised there.
    """
    m, t = local.model, local.shard
    if m.embedding_width is None or m.traced:  # a trace has it beside
        return []
    name = "embedding/wide"
    act = local.act
    wgt = local.wgt
    return [
        linear(
            local,
            name,
            T=t,
            k=m.embedded,
            n=m.hidden,
            matrix=Matrix(quantised=False),
        ),
        blocks.bias(f"{name} bias", t, m.hidden, act=act, wgt=wgt),
    ]


def head(local: Local) -> list[Op]:
    """Last stage: final norm, logits, loss."""
    m = local.model
    act = local.act
    beside = (
        list(traced.traced_operations(local, m.traced.after))
        if m.traced
        else []
    )
    if not (m.vocab and local.counting.vocabulary):
        return beside
    width = m.embedded if m.traced else m.head_width or m.hidden
    gather, _ = collectives(local.layout, local.tokens * width * act)
    V = rows(m, local.profile, local.tp)
    narrow = bool(local.profile and local.profile.logits_quantised)
    logits = column_parallel(
        local,
        name="head/logits",
        k=width,
        n=V,
        matrix=Matrix(quantised=narrow, engine="matrix" if narrow else "wide"),
        # the norm before it does
        entry=Entry(gathers=m.traced is not None),
    )
    sent = () if m.head_width else gather
    final = norm(local, "head/norm", sent)
    if not m.final_norm:
        final = final._replace(weights=0.0)
    bias = blocks.bias("head/bias", local.tokens, V, act=act, wgt=local.wgt)
    return [
        *(beside if m.traced else [final]),
        *_transform(local, gather),
        logits,
        *([bias] if m.head_bias else []),
        _loss(local, V),
    ]


def _loss(local: Local, V: Num) -> Op:
    """Cross entropy of T V logits on a tp rank, which keeps them in fp32; three numbers a token
    cross ranks: the largest logit, the sum of exponentials, the target's logit. Gathered, a rank
    computes that of all T V t.

    What it moves a framework says (`describe.loss`); a set without one counts passes over fp32
    logits, three forward and two back.
    """
    tokens = local.tokens
    own = tokens * V
    scores: Num = own
    sent: tuple[Message, ...] = (
        Message("all_reduce", "tp", tokens * FP32),
    ) * 3
    forward, backward = 3 * scores * FP32, 2 * scores * FP32
    kernels = "loss forward", "loss backward"
    if by := local.profile:
        kind, tp = by.loss, local.tp
        if by.logits_gathered:
            kind, tp = "eager", 1
            scores = own * local.tp
            whole = scores * local.act
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


def _transform(local: Local, gather: tuple[Message, ...]) -> list[Op]:
    """norm(act(W h)) in front of the output matrix, on the device's shard of the sequence (BERT in
    Megatron-LM); W is whole on every tp rank.
    """
    m = local.model
    t = local.shard
    width = local.model.head_width
    if width is None:
        return []
    act = local.act
    wgt = local.wgt
    name = "head/transform"
    bias = [blocks.bias(f"{name} bias", t, width, act=act, wgt=wgt)]
    return [
        linear(
            local,
            name,
            T=t,
            k=m.hidden,
            n=width,
            matrix=Matrix(quantised=False),
        ),
        *(bias if m.bias else []),
        blocks.gelu(f"{name} activation", t * width, act=act),
        norm(local, f"{name} norm", gather, width=width),
    ]


def join(local: Local) -> list[Op]:
    """What a multi-token-prediction block does before its layer: hidden state and the next token's
    embedding, each normalised, go side by side through one matrix of 2 D x D, cut tp ways by
    columns. Source: DeepSeek-AI 2024, DeepSeek-V3, section 2.2.
    """
    D = local.model.hidden
    whole = local.tokens * D * local.act
    columns = (Message("all_gather", "tp", whole),)
    project = also_sent(
        column_parallel(local, name="mtp/project", k=2 * D, n=D / local.tp),
        result=columns,
    )
    return [
        norm(local, f"mtp/{name} norm") for name in ("hidden", "token")
    ] + [project]
