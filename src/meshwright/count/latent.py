"""Multi-head latent attention: queries, keys and values rebuilt from narrow vectors. Source:
DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num
from . import blocks
from .blocks import Matrix, Messages
from .linear import linear
from .parallel import Entry, collectives, column_parallel
from .work import Local, Op, also_sent


def latent(job: Job, layout: Layout, size: Local) -> list[Op]:
    """Queries, keys and values of latent attention: down to the latent (on every tp rank alike), up
    to the heads (cut by tp).

    With sequence parallelism the narrow latents are gathered over tp, not the hidden state, as in
    Megatron-LM.
    """
    m = job.model
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    mla = m.mla
    assert mla is not None
    D = m.hidden
    t = size.tokens
    H = m.heads / size.tp
    rope = mla.qk_rope_head_dim

    def down(name: str, n: int, kept: Num) -> Op:
        return linear(
            job,
            layout,
            name=f"attention/{name} down",
            T=size.shard,
            k=D,
            n=n,
            of=Matrix(kept=kept),
        )

    def latent_norm(name: str, width: int, *widths: int) -> Op:
        forward = tuple(
            message
            for w in (width, *widths)
            for message in collectives(layout, t * w * act)[0]
        )
        return blocks.norm(
            f"attention/{name} norm",
            size.shard,
            width,
            parameters=1,
            act=act,
            wgt=wgt,
            sent=Messages(forward=forward),
        )

    def up(name: str, k: int, n: Num, gathers: bool = False) -> Op:
        entry = Entry(gathers=gathers)
        return column_parallel(
            job, layout, size, name=f"attention/{name}", k=k, n=n, entry=entry
        )

    q_heads = H * (mla.qk_nope_head_dim + rope)
    rank = mla.q_lora_rank
    if rank:
        queries = [
            down("q", rank, size.shard),
            latent_norm("q", rank),
            up("q up", rank, q_heads),
        ]
    else:
        queries = [up("q", D, q_heads, gathers=True)]
    # the key's rotary part goes to all heads as it is
    of_rope = collectives(layout, t * rope * act)[1]
    keys = up(
        "kv up",
        mla.kv_lora_rank,
        H * (mla.qk_nope_head_dim + mla.v_head_dim),
    )
    narrow = (rank or 0) + mla.kv_lora_rank + rope
    biases = [
        blocks.bias(
            "attention/down bias", size.shard, narrow, act=act, wgt=wgt
        )
    ]
    return [
        *queries,
        down("kv", mla.kv_lora_rank + rope, 0.0),
        *(biases if m.qkv_bias else []),
        latent_norm("kv", mla.kv_lora_rank, rope),
        also_sent(keys, gradient=of_rope),
    ]
