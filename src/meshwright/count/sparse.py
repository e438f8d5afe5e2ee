"""The indexer of sparse attention (DeepSeek-V3.2): a narrow attention without values scores all
keys, the k best of which the large attention reads.

    score(t, s) = sum over heads of w_h(t) relu(q_h(t) . k(s))

Its queries come from the latent of the large one's (or from the hidden state), its one key a token
from the hidden state. It is small, so every tp rank does all of it; over cp its keys are gathered.
It is trained beside the model, by a loss of its own on its own inputs: its backward pass ends
there. Source: DeepSeek-AI 2025, DeepSeek-V3.2-Exp (arXiv 2512.02556), section 2.1.
"""

from __future__ import annotations

from ..exchange.types import Message
from ..num import Num
from . import blocks
from .blocks import Matrix
from .linear import linear
from .mask import seen
from .microbatch import DeviceMicrobatch
from .work import Op, Pass


def indexer(microbatch: DeviceMicrobatch) -> list[Op]:
    """Projections, the key's norm, and the scores of all keys."""
    m = microbatch.model
    act = microbatch.act
    wgt = microbatch.wgt
    index = m.sparse
    assert index is not None
    t = microbatch.tokens
    D = m.hidden
    heads = index.heads
    latent = m.mla.q_lora_rank if m.mla and m.mla.q_lora_rank else D

    def project(name: str, k: Num, n: Num) -> Op:
        return linear(
            microbatch,
            name=f"indexer/{name}",
            T=t,
            k=k,
            n=n,
            matrix=Matrix(kept=0.0),
        )._replace(source="attention/norm")

    norm = blocks.norm(
        "indexer/norm", t, index.head_dim, parameters=2, act=act, wgt=wgt
    )
    keys = (
        Message(
            "all_gather",
            "cp",
            microbatch.b * microbatch.T * index.head_dim * act,
        ),
    )
    rows = microbatch.b * microbatch.T / microbatch.cp
    scored = rows * microbatch.T * seen(microbatch, None)
    # of each pair: queries with the key, and the weighted sum over heads
    dots = 2 * (index.head_dim + 1) * heads
    narrow = (heads * index.head_dim + index.head_dim) * rows * act
    scores = Op(
        "indexer/scores",
        "scan",
        Pass(
            dots * scored,
            3 * heads * scored,
            narrow + 2 * scored * act,
            keys,
            engine="wide",
        ),
        Pass(
            2 * dots * scored,
            3 * heads * scored,
            2 * narrow + 2 * scored * act,
            engine="wide",
        ),
        saved=narrow + rows * index.top_k * INDEX,
        inputs=narrow,
    )
    return [
        project("queries", latent, heads * index.head_dim),
        project("key", D, index.head_dim),
        norm,
        project("weights", D, heads),
        scores,
    ]


INDEX = 4.0
"""Bytes of the position of a chosen key."""
