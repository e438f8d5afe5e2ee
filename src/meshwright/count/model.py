"""A model counted: one microbatch of it as one device sees it and, of one sequence on one chip, the
totals: operations, parameters, FLOPs of a token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from ..describe.assumptions import Counting
from ..describe.job import ONE_DEVICE, Job
from ..describe.layers import Kind as Kind
from ..describe.layers import kinds as kinds
from ..describe.layers import leading, sorts
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.recompute import resolve
from ..layout.placement import placed
from . import mlp2d, summa, vocabulary
from .megatron import megatron_layer
from .microbatch import DeviceMicrobatch
from .recompute import recomputed_ops
from .work import Op

REFERENCE = Counting(causal="full")
"""Every score counts, as torch's FLOP counter does: 2k a dot product, nothing skipped, nothing
recomputed.
"""
MODEL_FLOPS = Counting(causal="window")
"""The field's convention for "model FLOPs": 2k a dot product, attention uncut by the causal mask
but cut by windows, nothing recomputed.
"""


SCHEMES: dict[str, Callable[[DeviceMicrobatch, Kind], list[Op]]] = {
    "megatron": megatron_layer,
    "context": megatron_layer,
    "gspmd": megatron_layer,
    "summa": summa.summa_layer,
    "mlp2d": mlp2d.mlp2d_layer,
}
"""Scheme of tensor parallelism -> the operations of a layer."""


def layer(job: Job, layout: Layout, kind: Kind) -> list[Op]:
    """Operations of one layer under the layout's tensor-parallel scheme."""
    return SCHEMES[layout.scheme](
        DeviceMicrobatch.from_layout(job, layout), kind
    )


class Counts(NamedTuple):
    """What one device does for one microbatch in each part of the model."""

    microbatch: DeviceMicrobatch
    """The microbatch."""
    layers: list[list[Op]]
    """A layer of each kind, in the order of `describe.layers.sorts`."""
    embedding: list[Op]
    head: list[Op]
    """Final norm, logits and loss."""
    next_token: list[Op]
    """What a multi-token-prediction block does beside its layer, where the model has any."""

    @property
    def operations(self) -> Iterator[Op]:
        """Operations of one microbatch: embedding, layers, head."""
        return chain(*self.layers, self.embedding, self.head, self.next_token)


def count_microbatch(job: Job, layout: Layout) -> Counts:
    """One microbatch on one device: every part of the model, counted once."""
    microbatch, scheme = (
        DeviceMicrobatch.from_layout(job, layout),
        SCHEMES[layout.scheme],
    )
    layers = []
    for kind in sorts(job.model):
        layers.append(scheme(microbatch, kind))
    return Counts(
        microbatch,
        layers,
        vocabulary.embedding(microbatch),
        vocabulary.head(microbatch),
        next_token(microbatch) if job.model.mtp_layers else [],
    )


@lru_cache(maxsize=4096)
def kind_counts(
    model: Model,
) -> tuple[tuple[tuple[Kind, int], ...], tuple[tuple[Kind, int], ...]]:
    """(leading, body): how many layers of each kind stand among the leading dense ones of a mixture
    of experts, and in the rest.
    """
    lead = leading(model)
    every = kinds(model)
    return tuple(Counter(every[:lead]).items()), tuple(
        Counter(every[lead:]).items()
    )


def _model_on_one_chip(
    model: Model, seq: int, counting: Counting, kernel: str
) -> DeviceMicrobatch:
    """One sequence on one chip: its counts are those of the model itself."""
    from ..describe.assumptions import REALISTIC
    from ..describe.cluster import NOWHERE

    # no framework's padding is part of the model
    own = replace(model, vocab_multiple=model.vocab_multiple or 1)
    job = Job(
        own,
        NOWHERE,
        1,
        seq=seq,
        attention_kernel=kernel,
        assumptions=replace(REALISTIC, count=counting),
    )
    return DeviceMicrobatch.from_layout(job, placed(ONE_DEVICE, (1,)))


def operations(
    model: Model,
    seq: int = 0,
    counting: Counting = REFERENCE,
    kernel: str = "unfused",
) -> list[tuple[Op, int]]:
    """Every operation of the whole model for one sequence of `seq` tokens (0: the model's), with
    how often it occurs.
    """
    microbatch = _model_on_one_chip(model, seq, counting, kernel)
    lead, body = kind_counts(model)
    ops = [
        (op, n)
        for kind, n in (*lead, *body)
        for op in megatron_layer(microbatch, kind)
    ]
    ops += [
        (op, 1)
        for op in (
            *vocabulary.embedding(microbatch),
            *vocabulary.head(microbatch),
        )
    ]
    if model.mtp_layers:
        more = (
            *next_token(microbatch),
            *megatron_layer(microbatch, kinds(model)[-1]),
        )
        ops += [(op, model.mtp_layers) for op in more]
    return ops


def next_token(microbatch: DeviceMicrobatch) -> list[Op]:
    """One multi-token-prediction block, but for its layer, which is like the model's last one: join
    and the head again, whose matrix is that of the model.
    """
    head = [
        op._replace(weights=0.0) if op.name == "head/logits" else op
        for op in vocabulary.head(microbatch)
    ]
    return [*vocabulary.join(microbatch), *head]


@lru_cache(maxsize=4096)
def parameters(
    model: Model, active: bool = False, embedding: bool = True
) -> float:
    """Parameters of the model; active: only those a token passes through (k of E experts), with
    embedding and head, as most model cards count them; embedding: without, as that of gpt-oss does.

    The output head shares the embedding if tied; multi-token-prediction blocks are left out, as
    model cards do.

    >>> from meshwright import model, parameters
    >>> f"{parameters(model('deepseek-v3')):.3g} {parameters(model('deepseek-v3'), True):.3g}"
    '6.71e+11 3.76e+10'
    """
    total = 0.0
    for op, n in operations(replace(model, mtp_layers=0)):
        if op.name == "head/logits" and model.tied_embeddings:
            continue
        # a tied table is the head's too
        if op.name == "embedding" and not (embedding or model.tied_embeddings):
            continue
        share = (
            model.moe.top_k / model.moe.experts
            if active and op.expert and model.moe
            else 1.0
        )
        total += float(op.weights) * n * share
    return total


@lru_cache(maxsize=4096)
def model_flops(model: Model, seq: int = 0) -> float:
    """Model FLOPs of one token, forward and backward, matrix products only (the numerator of MFU).

    Counted as the field does (Chowdhery et al. 2022, appendix B): 2 FLOPs a multiply-add, backward
    twice forward, attention without the causal saving, no recomputation.

    >>> from meshwright import model, model_flops
    >>> f"{model_flops(model('llama3-8b'), seq=8192):.2e}"
    '5.79e+10'
    """
    total = sum(
        float(op.forward.matrix + op.backward.matrix) * n
        for op, n in operations(model, seq, MODEL_FLOPS)
    )
    return total / (seq or model.seq)


@lru_cache(maxsize=4096)
def executed_flops(
    model: Model,
    seq: int,
    counting: Counting,
    kernel: str,
    recompute: str,
    share: float = 1.0,
) -> float:
    """FLOPs of matrix products that the kernels of one sequence execute, forward and backward (the
    numerator of HFU).

    Under `counting`: only the causal half where kernels skip the rest, the scores that flash
    attention computes a second time, and what recomputation runs again (`describe.recompute`), in
    that share of the layers.
    """
    total = sum(
        float(op.forward.matrix + op.backward.matrix) * n
        for op, n in operations(model, seq, counting, kernel)
    )
    if recompute == "none":
        return total
    microbatch = _model_on_one_chip(model, seq, counting, kernel)
    lead, body = kind_counts(model)
    for kind, n in (*lead, *body):
        ops = megatron_layer(microbatch, kind)
        redone = recomputed_ops(
            ops, resolve(recompute, counting.selective, counting.full)
        )
        total += (
            sum(
                float(op.forward.matrix * one.share)
                for op, one in zip(ops, redone, strict=True)
            )
            * n
            * share
        )
    return total
