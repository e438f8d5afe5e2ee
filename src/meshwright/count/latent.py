"""Multi-head latent attention: queries, keys and values rebuilt from narrow vectors. Source:
DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
"""

from __future__ import annotations

from ..num import Num
from . import blocks
from .blocks import SILENT, Matrix, Messages
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import ALONE, Entry, collectives, column_parallel, kept_apart
from .work import Op

READ_BESIDE = Entry(gathers=False, keeps=False, reduces=False)
"""Of a matrix that reads what another one does."""


def latent(microbatch: DeviceMicrobatch) -> list[Op]:
    """Queries, keys and values of latent attention: down to the latents by matrices that every tp
    rank has whole, up to its own heads. Two programs (`Framework.latents`):

        shard   a rank makes the latents of its tokens; between tp ranks go the narrow latents
                (NVIDIA/Megatron-LM@d98e8a64, core/transformer/multi_latent_attention.py:
                linear_q_down_proj and linear_kv_down_proj are duplicated, what goes up is column
                parallel, its norm fused with it)
        whole   the hidden state is gathered, as by any column-parallel matrix, and every rank makes
                the latents of all tokens (pytorch/torchtitan@b5bcd76c,
                models/deepseek_v3/sharding.py: wq_a, wkv_a and their norms are replicated)

    Without sequence parallelism ranks have all tokens in both; the first then adds up the gradients
    of the latents, the second that of the hidden state.
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
    by = microbatch.profile
    whole = bool(by and by.latents == "whole")
    here = t if whole else microbatch.shard

    def down(name: str, n: int, entry: Entry, apart: Messages = SILENT) -> Op:
        """apart: messages of what does not go up again."""
        name = f"attention/{name} down"
        if whole:
            return column_parallel(microbatch, name, k=D, n=n, entry=entry)
        matrix = Matrix(kept=here if entry.keeps else 0.0)
        return linear(
            microbatch, name, T=here, k=D, n=n, matrix=matrix, sent=apart
        )

    def latent_norm(name: str, width: int) -> Op:
        op = blocks.norm(
            f"attention/{name} norm",
            here,
            width,
            parameters=1,
            act=act,
            wgt=wgt,
        )
        return kept_apart(microbatch, op, here * width)

    def up(name: str, k: int, n: Num) -> Op:
        name = f"attention/{name} up"
        if whole:
            return linear(microbatch, name, T=t, k=k, n=n)
        return column_parallel(microbatch, name, k=k, n=n)

    q_heads = H * (mla.qk_nope_head_dim + rope)
    rank = mla.q_lora_rank
    queries = (
        [
            down("q", rank, ALONE),
            latent_norm("q", rank),
            up("q", rank, q_heads),
        ]
        if rank
        else [column_parallel(microbatch, "attention/q", k=D, n=q_heads)]
    )
    # the key's rotary part goes to all heads as it is, in 16 bits
    turned = Messages(*collectives(microbatch.layout, t * rope * act))
    narrow = (rank or 0) + mla.kv_lora_rank + rope
    biases = [
        blocks.bias("attention/down bias", here, narrow, act=act, wgt=wgt)
    ]
    return [
        *queries,
        # its input is that of the queries, gathered and kept there
        down("kv", mla.kv_lora_rank + rope, READ_BESIDE, turned),
        *(biases if m.qkv_bias else []),
        latent_norm("kv", mla.kv_lora_rank),
        up(
            "kv", mla.kv_lora_rank, H * (mla.qk_nope_head_dim + mla.v_head_dim)
        ),
    ]
