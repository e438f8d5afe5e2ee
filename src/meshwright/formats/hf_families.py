"""The decoder families of transformers: what of a config.json makes which field of a Model.

One row of FAMILIES a `model_type`: what all its models share, and a function for the rest. What a
Model cannot express, such as experts in every second layer, is refused. Source: configuration and
modeling files of transformers 4.30 to 5.23.
"""

from __future__ import annotations

from ..errors import BadInput
from .hf_bert import BERT
from .hf_common import sliding
from .hf_dense import DENSE
from .hf_experts import EXPERTS
from .hf_family import HfFamily
from .hf_hybrids import HYBRIDS
from .hf_keys import Config, Fields
from .hf_layers import layer_count
from .hf_older import OLDER
from .hf_parts import (
    DEEPSEEK,
    LLAMA,
    MIXTRAL,
    QKV,
    QWEN,
    all_of,
    behind,
    bias_flags,
    decoder,
    dense_first,
    expert_part,
    last_of,
    latent,
    routed_experts,
    slid,
    sparse_steps,
    unused_keys,
)

QWEN_2 = slid(behind(("max_window_layers", 0)))
"""With use_sliding_window the layers from max_window_layers on have a window."""


def _gated_experts(c: Config) -> Fields:
    """A shared expert with a gate."""
    shared = c.whole("shared_expert_intermediate_size", default=0)
    moe = routed_experts(c, *QWEN, shared_ffn=shared, shared_gate=shared > 0)
    return {"moe": moe}


QWEN_MOE = all_of(_gated_experts, sparse_steps())


def _qwen2_moe(c: Config) -> Fields:
    """With use_sliding_window every second layer before max_window_layers has a window."""
    first = c.whole("max_window_layers", default=0)
    if not c.whole("shared_expert_intermediate_size"):
        raise c.refuse("a shared expert has no width, but its gate is there")
    second = [
        "sliding" if (i + 1) % 2 and i < first else "full"
        for i in range(layer_count(c))
    ]
    return {
        **QWEN_MOE(c),
        "qkv_bias": c.flag("qkv_bias"),
        **sliding(c, second),
    }


V3 = all_of(
    expert_part(DEEPSEEK, "n_shared_experts", "moe_intermediate_size"),
    dense_first("first_k_dense_replace", ("moe_layer_freq", 1)),
    lambda c: {"mtp_layers": c.whole("num_mtp_layers", default=0)},
)
"""DeepSeek's experts. The balancing bias of V3's router is not trained by gradients: no
parameter.
"""


def _gpt_oss_experts(c: Config) -> Fields:
    moe = {
        "experts": c.whole("num_local_experts"),
        "top_k": c.whole("num_experts_per_tok", "experts_per_token"),
        "expert_ffn": c.whole("intermediate_size"),
        "router_bias": True,
        "expert_bias": True,
    }
    return {"moe": moe}


def _gemma3(c: Config) -> Fields:
    period = c.whole("sliding_window_pattern", default=6)
    if c.whole(
        "_sliding_window_pattern", default=period
    ) != period and not c.has("layer_types"):
        raise BadInput(
            f"{c.where}: _sliding_window_pattern is not read by transformers: give layer_types"
        )
    return _gemma(c) | slid(last_of(period))(c)


def _gemma(c: Config) -> Fields:
    base = LLAMA(c)
    # GemmaConfig takes the older value for what the models were trained with
    return (
        {**base, "activation": "gelu-tanh"}
        if c.get("hidden_act") == "gelu"
        else base
    )


def _glm4_moe(c: Config) -> Fields:
    # its class rounds down
    width = c.whole("hidden_size") // (c.whole("num_attention_heads") or 1)
    return {
        "qkv_bias": c.flag("attention_bias"),
        "qk_norm": c.flag("use_qk_norm"),
        "head_dim": c.whole("head_dim", default=width) or None,
        **V3(c),
    }


def _falcon(c: Config) -> Fields:
    """7B: one key/value head, one norm before both halves of a block. 40B and 180B: a norm for each
    half.
    """
    heads = c.whole("num_attention_heads")
    new = c.flag("new_decoder_architecture")
    kv = c.whole("num_kv_heads", default=heads)
    one = c.flag("multi_query")
    # 2: one for each half, otherwise one for both
    norms = c.whole("num_ln_in_parallel_attn", default=2 if new else 1)
    biased = c.flag("bias")
    return {
        "kv_heads": kv if new else 1 if one else heads,
        "norms_per_layer": 2
        if norms == 2 or not c.flag("parallel_attn")
        else 1,
        "positions": "alibi" if c.flag("alibi") else "rope",
        "qkv_bias": biased,
        "bias": biased,
    }


HEAD = ("head_dim",)
LAYERNORM_GELU: Fields = {"norm": "layernorm", "gated": False}
BIASED: Fields = {"qkv_bias": True, "bias": True}
HALF: Fields = {"partial_rotary_factor": 0.5}
SPARSE = ("moe_layer_freq", "mlp_layer_types")
UNTRAINED: Fields = {"num_mtp_layers": 0}
"""The class's default is 1, which transformers builds only to generate: a file must say that it is
trained.
"""
FALCON_OLD = HfFamily(
    LAYERNORM_GELU,
    _falcon,
    {
        "tie_word_embeddings": True,
        "new_decoder_architecture": False,
        "multi_query": True,
        "parallel_attn": True,
        "alibi": False,
        "bias": False,
        "activation": "gelu",
        "layer_norm_epsilon": 1e-5,
    },
    aliases={
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
        "n_embed": "hidden_size",
    },
    like="falcon",
    classes=("RWForCausalLM", "FalconForCausalLM"),
)

FAMILIES: dict[str, HfFamily] = {
    "llama": HfFamily({}, LLAMA),
    "mistral": HfFamily({}, sliding),
    "ministral": HfFamily({}, sliding),
    "mixtral": HfFamily(
        {}, all_of(expert_part(MIXTRAL), sliding), {"rope_theta": 1e6}
    ),
    "qwen2": HfFamily({"qkv_bias": True}, QWEN_2, also=HEAD),
    "qwen3": HfFamily({"qk_norm": True}, all_of(LLAMA, QWEN_2)),
    "qwen2_moe": HfFamily({}, _qwen2_moe, also=HEAD),
    "qwen3_moe": HfFamily(
        {"qk_norm": True},
        all_of(unused_keys("max_window_layers"), QWEN_MOE, LLAMA, sliding),
        also=(*HEAD, "max_window_layers"),
    ),
    "qwen3_vl_moe_text": HfFamily(
        {"qk_norm": True}, all_of(QWEN_MOE, LLAMA), also=HEAD
    ),
    "deepseek_v2": HfFamily({}, all_of(latent, V3), also=(*HEAD, *SPARSE)),
    "deepseek_v3": HfFamily(
        {}, all_of(latent, V3), UNTRAINED, also=(*HEAD, *SPARSE)
    ),
    "kimi_k2": HfFamily(
        {},
        all_of(latent, V3),
        {
            **UNTRAINED,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "hidden_act": "silu",
        },
        also=(*HEAD, *SPARSE),
        like="deepseek_v3",
        classes=("DeepseekV3ForCausalLM", "KimiK2ForCausalLM"),
    ),
    "gpt2": HfFamily(
        {**LAYERNORM_GELU, **BIASED, "positions": "learned"}, decoder
    ),
    "gpt_neox": HfFamily(
        LAYERNORM_GELU,
        bias_flags("attention_bias", "attention_bias", True),
        {"rotary_pct": 0.25},
        also=("rotary_emb_base",),
    ),
    "gemma": HfFamily({}, _gemma),
    "gemma2": HfFamily(
        {"norms_per_layer": 4}, all_of(_gemma, slid(last_of(2)))
    ),
    "gemma3_text": HfFamily(
        {"norms_per_layer": 4, "qk_norm": True},
        _gemma3,
        also=("sliding_window_pattern", "_sliding_window_pattern"),
    ),
    "falcon": HfFamily(
        LAYERNORM_GELU, _falcon, aliases={"n_embed": "hidden_size"}
    ),
    "RefinedWeb": FALCON_OLD,
    "RefinedWebModel": FALCON_OLD,
    "olmo": HfFamily({"norm": "nonparametric"}, LLAMA, also=HEAD),
    "olmo2": HfFamily(
        {"qk_norm": True, "qk_norm_whole": True}, LLAMA, also=HEAD
    ),
    "olmo3": HfFamily(
        {"qk_norm": True, "qk_norm_whole": True},
        all_of(LLAMA, slid(last_of(4))),
        {"rope_theta": 500000.0},
        also=HEAD,
    ),
    "gpt_oss": HfFamily(
        {"attention_sinks": True},
        all_of(
            _gpt_oss_experts,
            bias_flags(*3 * ("attention_bias",)),
            slid(last_of(2)),
        ),
        {"rope_theta": 150000.0},
        also=("experts_per_token",),
    ),
    "phi3": HfFamily({}, sliding, also=HEAD),
    "bloom": HfFamily(
        {
            **LAYERNORM_GELU,
            **BIASED,
            "positions": "alibi",
            "embedding_norm": True,
            "activation": "gelu-tanh",
        },
        also=("seq_length",),
        aliases={"n_embed": "hidden_size"},
    ),
    "glm": HfFamily({}, QKV, HALF),
    "glm4": HfFamily({"norms_per_layer": 4}, QKV, HALF),
    "glm4_moe": HfFamily(
        {}, _glm4_moe, {**HALF, **UNTRAINED}, also=(*HEAD, *SPARSE)
    ),
    **DENSE,
    **EXPERTS,
    **HYBRIDS,
    **OLDER,
    **BERT,
}
