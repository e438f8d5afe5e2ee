"""Queries and keys turned by their positions, and put where the attention kernel reads them.
Sources: Su et al. 2021, arXiv 2104.09864; DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
"""

from __future__ import annotations

from ..num import Num
from .microbatch import DeviceMicrobatch
from .work import Op, Pass

YARN_PASSES = 12.0, 12.0
"""Reads and writes of queries and keys that YaRN rotates: no fused kernel scales them too, so that
half of them is negated (1), put beside the other (2), each multiplied (2 and 2), added up (3) and
copied (2). Megatron-LM, core/models/common/embeddings/rope_utils.py: fused where mscale is 1 alone
(count of this project).
"""
COMPLEX_PASSES = 10.0, 10.0
"""Reads and writes of queries and keys that rotate as complex numbers in fp32, twice as wide:
widened (1 + 2), multiplied (2 + 2) and narrowed (2 + 1), and back the same. Source:
pytorch/torchtitan@9dec370a, models/llama/model.py (count of this project).
"""
TORCH_PASSES = 10.0, 15.0
"""Reads and writes of queries and keys that operations of torch rotate: x cos + rotate_half(x) sin
multiplies twice (2 each), negates half (1), puts halves side by side (2) and adds (3). Back:
gradients of both products (2 each) and of the negated half (1), each half in zeros of full width
(2 each), and the sum of all three (6). Source: deepspeedai/Megatron-DeepSpeed@4efb479d,
megatron/model/rotary_pos_embedding.py (count of this project).
"""
HALVES_PASSES = 9.0, 10.0
"""Reads and writes of queries and keys whose halves a and b turn by themselves: a cos - b sin and
b cos + a sin multiply four times (1 each), subtract and add (1.5 each), and put the results side by
side (2). Back: one gradient negated (1), four products (1 each), two sums (1.5 each), and both
halves side by side (2). Source: NVIDIA-NeMo/Automodel@2c236e08, components/models/gpt_oss/layers.py
(count of this project).
"""
SEVERAL = {
    "complex": COMPLEX_PASSES,
    "halves": HALVES_PASSES,
    "torch": TORCH_PASSES,
}
"""Word of `Counting.rotary` for operations of their own -> reads and writes of each element."""
ROTARY_PASSES = {**SEVERAL, "apart": (2.0, 2.0), "yarn": YARN_PASSES}
"""The same for every word that turns in passes of its own ("apart" is one pass), and for YaRN where
the word is "plain"."""


def rotated(
    microbatch: DeviceMicrobatch, H: Num, K: Num, width: int
) -> list[Op]:
    """The passes in which H heads of queries and K of keys, each so wide, turn; none where a paper
    counts none of it, or where one kernel turns them as it cuts them apart (plain).
    """
    m = microbatch.model
    way = microbatch.counting.rotary
    if m.mla:
        return [] if way == "fused" else [heads_together(microbatch)]
    if way == "plain" and m.rope_scaling and m.rope_scaling.kind == "yarn":
        way = "yarn"
    if m.positions != "rope" or way not in ROTARY_PASSES:
        return []
    x = microbatch.tokens * (H + K) * width
    forward, backward = (
        x * times * microbatch.act for times in ROTARY_PASSES[way]
    )
    return [turned(microbatch, x, x, forward, backward)]


def turned(
    microbatch: DeviceMicrobatch,
    x: Num,
    numbers: Num,
    forward: Num,
    backward: Num,
) -> Op:
    """A pass over numbers of which x turn, at 3 FLOPs each, and its bytes each way."""
    step = Pass(0.0, 3 * x, forward, kernel="rotary forward", sizes=(numbers,))
    return Op(
        "attention/rotary",
        "vector",
        step,
        step._replace(memory=backward, kernel="rotary backward"),
        needs=numbers * microbatch.act,
    )


def heads_together(microbatch: DeviceMicrobatch) -> Op:
    """Queries, keys and values as the attention kernel reads them. Of each of H heads of a tp rank

        queries   [n, r]   their last r numbers are turned by their position
        keys      [n, r]   n numbers made from the latent, and the r turned ones of all heads
        values    [v]      cut from behind the n of the keys

    Bytes each way = T H k (n + v + n + r + v + x): keys and values are read as they were made and
    written apart. Queries are turned in place, x = 2 r ("plain": Megatron Core's kernel), or copied
    too, x = 2 (n + r). Backward the same numbers go the other way. Operations of their own
    (`SEVERAL`) turn the r numbers of the queries, and those of the keys, before they are copied.

    Sources: NVIDIA/Megatron-LM@d98e8a64, core/fusions/fused_mla_yarn_rope_apply.py, and
    core/transformer/multi_latent_attention.py without it; NVIDIA-NeMo/Automodel@36044ad3,
    components/models/deepseek_v3/layers.py: products of complex numbers,
    torch.cat of queries and of keys, values contiguous.
    """
    mla = microbatch.model.mla
    assert mla is not None
    own, rope, v = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    way = microbatch.counting.rotary
    queries = 2 * (rope if way == "plain" else own + rope)
    tokens, act = microbatch.tokens, microbatch.act
    heads = tokens * microbatch.model.heads / microbatch.tp
    copies = heads * (2 * own + 2 * v + rope + queries) * act
    # the r numbers of the keys turn once for all heads
    turning = (heads + tokens) * rope * act
    forward, backward = (
        copies + times * turning for times in SEVERAL.get(way, (0.0, 0.0))
    )
    op = turned(
        microbatch, heads * rope, heads * (own + rope), forward, backward
    )
    return op._replace(needs=heads * (2 * own + rope + v) * act)
