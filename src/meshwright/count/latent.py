"""Multi-head latent attention: queries, keys and values rebuilt from narrow vectors. Source:
DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
"""

from __future__ import annotations

from ..num import Num
from . import blocks
from .blocks import Matrix, Messages
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import Entry, collectives, column_parallel, kept_apart
from .work import Op, Pass, also_sent


def latent(microbatch: DeviceMicrobatch) -> list[Op]:
    """Queries, keys and values of latent attention: down to the latent (on every tp rank alike), up
    to the heads (cut by tp).

    With sequence parallelism the narrow latents are gathered over tp, not the hidden state, as in
    Megatron-LM.
    """
    m = microbatch.model
    act = microbatch.act
    wgt = microbatch.wgt
    mla = m.mla
    assert mla is not None
    D = m.hidden
    t = microbatch.tokens
    H = m.heads / microbatch.tp
    rope = mla.qk_rope_head_dim

    def down(name: str, n: int, kept: Num) -> Op:
        return linear(
            microbatch,
            name=f"attention/{name} down",
            T=microbatch.shard,
            k=D,
            n=n,
            matrix=Matrix(kept=kept),
        )

    def latent_norm(name: str, width: int, *widths: int) -> Op:
        forward = tuple(
            message
            for w in (width, *widths)
            for message in collectives(microbatch.layout, t * w * act)[0]
        )
        op = blocks.norm(
            f"attention/{name} norm",
            microbatch.shard,
            width,
            parameters=1,
            act=act,
            wgt=wgt,
            sent=Messages(forward=forward),
        )
        return kept_apart(microbatch, op, microbatch.shard * width)

    def up(name: str, k: int, n: Num, gathers: bool = False) -> Op:
        entry = Entry(gathers=gathers)
        return column_parallel(
            microbatch, name=f"attention/{name}", k=k, n=n, entry=entry
        )

    q_heads = H * (mla.qk_nope_head_dim + rope)
    rank = mla.q_lora_rank
    if rank:
        queries = [
            down("q", rank, microbatch.shard),
            latent_norm("q", rank),
            up("q up", rank, q_heads),
        ]
    else:
        queries = [up("q", D, q_heads, gathers=True)]
    # the key's rotary part goes to all heads as it is
    of_rope = collectives(microbatch.layout, t * rope * act)[1]
    keys = up(
        "kv up",
        mla.kv_lora_rank,
        H * (mla.qk_nope_head_dim + mla.v_head_dim),
    )
    narrow = (rank or 0) + mla.kv_lora_rank + rope
    biases = [
        blocks.bias(
            "attention/down bias", microbatch.shard, narrow, act=act, wgt=wgt
        )
    ]
    return [
        *queries,
        down("kv", mla.kv_lora_rank + rope, 0.0),
        *(biases if m.qkv_bias else []),
        latent_norm("kv", mla.kv_lora_rank, rope),
        also_sent(keys, gradient=of_rope),
    ]


def heads_together(microbatch: DeviceMicrobatch) -> Op:
    """Queries, keys and values as the attention kernel reads them. Of each of H heads of a tp rank

        queries   [n, r]   their last r numbers are turned by their position
        keys      [n, r]   n numbers made from the latent, and the r turned ones of all heads
        values    [v]      cut from behind the n of the keys

    Bytes each way = T H k (n + v + n + r + v + x): keys and values are read as they were made and
    written apart. Queries are turned in place, x = 2 r ("plain": Megatron Core's kernel), or copied
    too, x = 2 (n + r). Backward the same numbers go the other way.

    Sources: NVIDIA/Megatron-LM@d98e8a64, core/fusions/fused_mla_yarn_rope_apply.py, and
    core/transformer/multi_latent_attention.py without it; NVIDIA-NeMo/Automodel@36044ad3,
    components/models/deepseek_v3/layers.py: torch.cat of queries and of keys, values contiguous.
    """
    mla = microbatch.model.mla
    assert mla is not None
    own, rope, v = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    in_place = microbatch.counting.rotary == "plain"
    queries = 2 * rope if in_place else 2 * (own + rope)
    act = microbatch.act
    heads = microbatch.tokens * microbatch.model.heads / microbatch.tp
    step = Pass(
        0.0,
        3 * heads * rope,
        heads * (2 * own + 2 * v + rope + queries) * act,
        kernel="rotary forward",
        sizes=(heads * (own + rope),),
    )
    return Op(
        "attention/rotary",
        "vector",
        step,
        step._replace(kernel="rotary backward"),
        needs=heads * (2 * own + rope + v) * act,
    )
