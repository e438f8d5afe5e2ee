"""Which models a scheme of tensor parallelism counts, and what it always cuts."""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import HIDDEN_CUT, Layout
from ..describe.model import Model
from . import cuts
from .rule import LayoutRule


def plain_dense(m: Model) -> bool:
    """A dense model without what the SUMMA layer does not count."""
    return (
        m.moe is None
        and m.mla is None
        and m.traced is None
        and m.norms_per_layer == 2
        and not m.qk_norm
        and not m.attention_sinks
        and not (
            m.pattern or m.sparse or m.sliding or m.inner_norms or m.vectors
        )
        and m.attention_gate == "none"
        and m.v == m.h
        and not m.key_is_value
    )


ATTENTION = {"full", "sliding", "none"}
"""Mixers whose operations between matrices are passes over the hidden state alone."""


def hidden_cut(m: Model) -> bool:
    """A dense model in which no matrix reads a shard of the hidden state: latents, routers and
    matrices at the ends, which Megatron's ranks apply to their own tokens, would need the part of
    the hidden size that other ranks have.
    """
    return (
        m.moe is None
        and m.mla is None
        and not m.mtp_layers
        and m.embedding_width is None
        and m.head_width is None
        and cuts.mixers(m) <= ATTENTION
    )


SUMMA = LayoutRule(
    "summa models",
    lambda j, l: l.scheme != "summa" or plain_dense(j.model),
    lambda j, l: (
        "scheme summa is defined for dense models with plain attention: use scheme megatron"
    ),
)

GSPMD = LayoutRule(
    "gspmd models",
    lambda j, l: l.scheme not in HIDDEN_CUT or hidden_cut(j.model),
    lambda j, l: (
        f"scheme {l.scheme} is defined for dense models with plain or sliding attention: use scheme"
        " megatron"
    ),
)


def always_cut(m: Model, scheme: str) -> bool:
    """tp > 1 always cuts what lies between matrices, so that it cannot be whole on every rank."""
    return m.moe is not None or scheme in HIDDEN_CUT


HIDDEN_SHARDED = LayoutRule(
    "hidden size over tp",
    lambda j, l: (
        (l.tp == 1) | bool(l.sequence_parallel) | (l.scheme not in HIDDEN_CUT)
    ),
    lambda j, l: (
        f"scheme {l.scheme} always shards activations over tp: sequence_parallel must be true"
    ),
    reads=("sequence_parallel",),
)


def feed_forwards(m: Model) -> bool:
    """Dense layers of two matrices, D -> F -> D, and nothing else."""
    return (
        cuts.mixers(m) == {"none"}
        and m.moe is None
        and not m.gated
        and not m.bias
        and not m.dropout
        and not m.vocab
    )


MLP2D = LayoutRule(
    "mlp2d models",
    lambda j, l: l.scheme != "mlp2d" or feed_forwards(j.model),
    lambda j, l: (
        'scheme mlp2d is defined only for feed-forwards of two matrices: pattern = ["none"], gated'
        " = false, vocab = 0, no biases, dropout or experts"
    ),
)
MODELS = (SUMMA, GSPMD, MLP2D)


def counts_model(job: Job, scheme: str) -> bool:
    """A scheme is defined for the job's model."""
    layout = Layout(scheme=scheme)
    return all(bool(rule.holds(job, layout)) for rule in MODELS)
