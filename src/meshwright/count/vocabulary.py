"""What the first and the last pipeline stage do beside their layers: embedding, final norm, output
head, loss.

Vocabulary-parallel over tp (Megatron-LM): each rank holds V/tp rows, looks up its own and the
partial results are summed. The loss works on fp32 logits; only three numbers a token cross ranks.
"""

from __future__ import annotations

from ..describe.framework import Framework
from ..describe.loss import LossBytes, losses
from ..describe.model import Model
from ..exchange.types import Message
from ..num import Num, ceil_div
from . import blocks, traced
from .blocks import FP32, Matrix
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import Entry, collectives, column_parallel, norm
from .work import LOSS, Op, Pass, also_sent


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


def embedding(microbatch: DeviceMicrobatch) -> list[Op]:
    """First stage: look up tokens (learned positions, kinds of tokens); make them as wide as the
    layers.
    """
    m = microbatch.model
    act = microbatch.act
    wgt = microbatch.wgt
    beside = (
        traced.traced_operations(microbatch, m.traced.before)
        if m.traced
        else ()
    )
    if not (m.vocab and microbatch.counting.vocabulary):
        return list(beside)
    x = microbatch.tokens * m.embedded
    gather, reduce = collectives(microbatch.layout, x * act)
    positions = (m.position_rows or m.seq) if m.positions == "learned" else 0
    whole = (positions + m.token_types) * microbatch.part(m.embedded)
    weights = table_parameters(m, microbatch.profile, microbatch.tp) + whole
    step = Pass(0.0, 0.0, 2 * x * act + x * wgt)
    look_up = Op(
        "embedding",
        "lookup",
        step._replace(
            comm=reduce,
            kernel="embedding forward",
            sizes=(microbatch.tokens, m.embedded),
        ),
        step._replace(
            comm=gather,
            kernel="embedding backward",
            sizes=(
                microbatch.tokens,
                m.embedded,
                rows(m, microbatch.profile, microbatch.tp),
            ),
        ),
        weights=weights,
    )
    ops = [look_up, *beside]
    if m.embedding_norm:
        ops.append(norm(microbatch, "embedding/norm", width=m.embedded))
    return ops + _widened(microbatch)


def _widened(microbatch: DeviceMicrobatch) -> list[Op]:
    """The matrix that makes the layers' width of narrow rows, whole on every tp rank, like what is
    normalised there.
    """
    m, t = microbatch.model, microbatch.shard
    if m.embedding_width is None or m.traced:  # a trace has it beside
        return []
    name = "embedding/wide"
    act = microbatch.act
    wgt = microbatch.wgt
    return [
        linear(
            microbatch,
            name,
            T=t,
            k=m.embedded,
            n=m.hidden,
            matrix=Matrix(quantised=False),
        ),
        blocks.bias(f"{name} bias", t, m.hidden, act=act, wgt=wgt),
    ]


def head(microbatch: DeviceMicrobatch) -> list[Op]:
    """Last stage: final norm, logits, loss."""
    m = microbatch.model
    act = microbatch.act
    beside = (
        list(traced.traced_operations(microbatch, m.traced.after))
        if m.traced
        else []
    )
    if not (m.vocab and microbatch.counting.vocabulary):
        return beside
    width = m.embedded if m.traced else m.head_width or m.hidden
    gather, _ = collectives(microbatch.layout, microbatch.tokens * width * act)
    V = rows(m, microbatch.profile, microbatch.tp)
    narrow = bool(microbatch.profile and microbatch.profile.logits_quantised)
    logits = column_parallel(
        microbatch,
        name="head/logits",
        k=width,
        n=V,
        matrix=Matrix(quantised=narrow, engine="matrix" if narrow else "wide"),
        # the norm before it does
        entry=Entry(gathers=m.traced is not None),
    )
    if microbatch.profile and loss_bytes(microbatch.profile).again:
        logits = _made_again(logits)
    sent = () if m.head_width else gather
    final = norm(microbatch, "head/norm", sent)
    if not m.final_norm:
        final = final._replace(weights=0.0)
    bias = blocks.bias(
        "head/bias", microbatch.tokens, V, act=act, wgt=microbatch.wgt
    )
    return [
        *(beside if m.traced else [final]),
        *_transform(microbatch, gather),
        logits,
        *([bias] if m.head_bias else []),
        _loss(microbatch, V),
    ]


def _made_again(logits: Op) -> Op:
    """The product runs once more in the backward pass, where no logit was kept."""
    ahead, back = logits.forward._replace(comm=()), logits.backward
    return logits._replace(
        backward=back._replace(
            matrix=back.matrix + ahead.matrix,
            memory=back.memory + ahead.memory,
            products=(*ahead.products, *back.products),
            parts=(ahead, *back.parts) if back.parts else (),
        )
    )


def loss_bytes(profile: Framework) -> LossBytes:
    """What the loss of a framework holds and moves, for each logit that a rank has."""
    return losses()["gathered" if profile.logits_gathered else profile.loss]


def _loss(microbatch: DeviceMicrobatch, V: Num) -> Op:
    """Cross entropy of T V logits on a tp rank, which keeps them in fp32; three numbers a token
    cross ranks: the largest logit, the sum of exponentials, the target's logit. Gathered, a rank
    computes that of all T V t.

    What it moves a framework says (`describe.loss`); a set without one counts passes over fp32
    logits, three forward and two back.
    """
    tokens = microbatch.tokens
    own = tokens * V
    scores: Num = own
    sent: tuple[Message, ...] = (
        Message("all_reduce", "tp", tokens * FP32),
    ) * 3
    forward, backward = 3 * scores * FP32, 2 * scores * FP32
    kernels = "loss forward", "loss backward"
    if by := microbatch.profile:
        if by.logits_gathered:
            scores = own * microbatch.tp
            whole = scores * microbatch.act
            sent = (Message("all_gather", "tp", whole),)
        m = microbatch.model
        _, forward, backward = loss_bytes(by).whole(
            tokens, scores / tokens, m.hidden, microbatch.tp
        )
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
    microbatch: DeviceMicrobatch, gather: tuple[Message, ...]
) -> list[Op]:
    """norm(act(W h)) in front of the output matrix, on the device's shard of the sequence (BERT in
    Megatron-LM); W is whole on every tp rank.
    """
    m = microbatch.model
    t = microbatch.shard
    width = microbatch.model.head_width
    if width is None:
        return []
    act = microbatch.act
    wgt = microbatch.wgt
    name = "head/transform"
    bias = [blocks.bias(f"{name} bias", t, width, act=act, wgt=wgt)]
    return [
        linear(
            microbatch,
            name,
            T=t,
            k=m.hidden,
            n=width,
            matrix=Matrix(quantised=False),
        ),
        *(bias if m.bias else []),
        blocks.gelu(f"{name} activation", t * width, act=act),
        norm(microbatch, f"{name} norm", gather, width=width),
    ]


def join(microbatch: DeviceMicrobatch) -> list[Op]:
    """What a multi-token-prediction block does before its layer: hidden state and the next token's
    embedding, each normalised, go side by side through one matrix of 2 D x D, cut tp ways by
    columns. Source: DeepSeek-AI 2024, DeepSeek-V3, section 2.2.
    """
    D = microbatch.model.hidden
    whole = microbatch.tokens * D * microbatch.act
    columns = (Message("all_gather", "tp", whole),)
    project = also_sent(
        column_parallel(
            microbatch, name="mtp/project", k=2 * D, n=D / microbatch.tp
        ),
        result=columns,
    )
    return [
        norm(microbatch, f"mtp/{name} norm") for name in ("hidden", "token")
    ] + [project]
