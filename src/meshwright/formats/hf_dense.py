"""Dense families of transformers since Llama: full and sliding attention, one width of
feed-forward.

Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..describe.read import brief
from ..errors import BadInput
from .hf_common import sliding
from .hf_family import HfFamily
from .hf_keys import Config, Fields
from .hf_layers import last_of_period, layer_count, windows
from .hf_parts import (
    LLAMA,
    PROJECTIONS,
    all_of,
    bias_flags,
    biases,
    first_of,
    if_wide,
    last_of,
    latent,
    rotary_layers,
    routed_experts,
    slid,
    window_sizes,
)


def _apertus(c: Config) -> Fields:
    """xIELU has two learned slopes in each layer."""
    slopes = 2 if c.get("hidden_act") in (None, "xielu") else 0
    return LLAMA(c) | {"vectors": slopes}


def _smollm3(c: Config) -> Fields:
    """Some layers have no rotary positions, and these a window where it is used."""
    used = c.flag("use_sliding_window") and c.whole(
        "sliding_window", default=0
    )
    usual = [
        "sliding" if used and not turned else "full"
        for turned in rotary_layers(c, 0)
    ]
    return LLAMA(c) | windows(c, usual)


def _hyperclovax(c: Config) -> Fields:
    return LLAMA(c) | {"norms_per_layer": 4 if c.flag("use_post_norm") else 2}


def _minicpm3(c: Config) -> Fields:
    width = c.whole("hidden_size") // (c.whole("num_attention_heads") or 1)
    c = c.with_default("v_head_dim", width)
    return latent(c)


def _helium(c: Config) -> Fields:
    """Its output projection is D x D, however wide its heads are."""
    width = c.whole("head_dim") * c.whole("num_attention_heads")
    if width != c.whole("hidden_size"):
        raise c.refuse("heads together are not as wide as the hidden size")
    return biases(c.flag("attention_bias"), False, c.flag("mlp_bias"))


def _stablelm(c: Config) -> Fields:
    """The heads' norms are layer norms with a scale for each head."""
    return {
        **biases(c.flag("use_qkv_bias"), False, False),
        "norms_per_layer": 1 if c.flag("use_parallel_residual") else 2,
        "qk_norm": c.flag("qk_layernorm"),
        "qk_norm_whole": c.flag("qk_layernorm"),
    }


def _cohere(c: Config) -> Fields:
    """A parallel block with one norm; heads may be normalised with a scale for each."""
    attention = c.flag("attention_bias")
    normed = c.flag("use_qk_norm") if "use_qk_norm" in c.known else False
    return biases(attention, attention, False) | {
        "qk_norm": normed,
        "qk_norm_whole": normed,
    }


def _gemma4(c: Config) -> Fields:
    """Layers that see everything have wider heads, and may read their keys as values; other inputs
    for each layer, and keys shared by layers, are not described.
    """
    for key in (
        "hidden_size_per_layer_input",
        "num_kv_shared_layers",
    ):
        if key in c.known and c.get(key):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    usual = last_of_period(layer_count(c), 6, "full", "sliding")
    usual[-1] = "full"
    base = windows(c, usual)
    base["mixers"] = [*base["mixers"][:-1], "full"]  # whatever the file says
    wide = _of_full_layers(c, base["mixers"])
    alike = c.flag("attention_k_eq_v")
    kv = c.whole("num_key_value_heads")
    heads = {
        "heads": c.whole("num_attention_heads"),
        "kv_heads": kv,
        "head_dim": c.whole("head_dim"),
    }
    c.asked.update(
        ("use_bidirectional_attention", "use_double_wide_mlp", *UNUSED)
    )
    return {
        **PROJECTIONS(c),
        **base,
        "sliding": heads if "sliding" in base["mixers"] else None,
        "head_dim": wide.get(
            "head_dim", c.whole("global_head_dim", default=512)
        ),
        "kv_heads": wide.get(
            "num_key_value_heads", _global_heads(c, kv) if alike else kv
        ),
        "key_is_value": alike,
        **(_gemma4_experts(c) if c.flag("enable_moe_block") else {}),
    }


def _gemma4_experts(c: Config) -> Fields:
    """Experts beside the feed-forward block of every layer, as beside a shared one; each output has
    a norm of its own, as has what goes to the experts and, without a name, to the router (their
    weights stand in `vectors`); a factor for each expert scales its share.
    """
    moe = routed_experts(
        c, "num_experts", "top_k_experts", "moe_intermediate_size"
    )
    return {
        "moe": {
            **moe,
            "shared_ffn": c.whole("intermediate_size"),
            "router_bias": True,
            "post_norm": True,
        },
        "ffns": ["experts"] * layer_count(c),
        "vectors": 3 * c.whole("hidden_size"),
    }


def _global_heads(c: Config, kv: int) -> int:
    return c.whole("num_global_key_value_heads", default=kv)


def _of_full_layers(c: Config, mixers: list[str]) -> Mapping[str, int]:
    """What `per_layer_config` says of the layers that see everything."""
    each = c.table("per_layer_config")
    if not each:
        return {}
    full = [i for i, kind in enumerate(mixers) if kind == "full"]
    first = next(iter(each.values()))
    named = sorted(int(key) for key in each if str(key).isdecimal())
    wrong = named != full or any(other != first for other in each.values())
    if (
        wrong
        or not isinstance(first, Mapping)
        or set(first) - {"head_dim", "num_key_value_heads"}
    ):
        raise c.refuse(
            "per_layer_config says more than the heads of full layers"
        )
    if not all(
        isinstance(v, int) and not isinstance(v, bool) and v > 0
        for v in first.values()
    ):
        raise BadInput(f"{c.where}: per_layer_config must hold whole numbers")
    return first


UNUSED = (
    "num_experts",
    "top_k_experts",
    "moe_intermediate_size",
    "vocab_size_per_layer_input",
)
GEMMA_4 = ("global_head_dim", "num_global_key_value_heads", "per_layer_config")
LAYERNORM: Fields = {"norm": "layernorm", "gated": False}
PARALLEL: Fields = {"norm": "layernorm-scale", "norms_per_layer": 1}
HEAD = ("head_dim",)
QUARTER: Fields = {"partial_rotary_factor": 0.25}
HALF: Fields = {"partial_rotary_factor": 0.5}

ONE = bias_flags(*3 * ("use_bias",))
"""One flag for all matrices."""
EXAONE = window_sizes(if_wide(last_of(("sliding_window_pattern", 0))))
"""Layers with a window between layers without positions."""
OUT = ("attention_bias", "attention_out_bias", "mlp_bias")

DENSE: dict[str, HfFamily] = {
    "apertus": HfFamily(
        {"qk_norm": True, "gated": False}, _apertus, also=HEAD
    ),
    "arcee": HfFamily({"gated": False}, LLAMA),
    "bitnet": HfFamily({"inner_norms": True}, LLAMA, also=HEAD),
    "cohere": HfFamily(PARALLEL, _cohere, also=HEAD),
    "cohere2": HfFamily(
        PARALLEL,
        all_of(_cohere, window_sizes(last_of(("sliding_window_pattern", 4)))),
        also=(*HEAD, "sliding_window_pattern"),
    ),
    "cohere_compass_text": HfFamily(
        PARALLEL, all_of(_cohere, window_sizes()), also=HEAD
    ),
    "cwm": HfFamily({}, slid(first_of(4))),
    "ernie4_5": HfFamily({}, ONE),
    "exaone4": HfFamily({"qk_norm": True}, EXAONE, also=HEAD),
    "gemma4_text": HfFamily(
        {"norms_per_layer": 4, "qk_norm": True}, _gemma4, also=GEMMA_4
    ),
    "gemma4_unified_text": HfFamily(
        {"norms_per_layer": 4, "qk_norm": True}, _gemma4, also=GEMMA_4
    ),
    "granite": HfFamily({}, LLAMA, also=HEAD),
    "granite_swa": HfFamily(
        {"attention_sinks": True},
        all_of(LLAMA, window_sizes(first_of(4))),
        also=HEAD,
    ),
    "helium": HfFamily({}, _helium),
    "hunyuan_v1_dense": HfFamily({"qk_norm": True}, LLAMA),
    "hyperclovax": HfFamily({}, _hyperclovax),
    "internlm3": HfFamily({}, LLAMA),
    "iquestcoder": HfFamily({}, LLAMA),
    "jais2": HfFamily(LAYERNORM, LLAMA),
    "minicpm3": HfFamily({}, _minicpm3),
    "ministral3": HfFamily({}, sliding),
    "nanochat": HfFamily(
        {"norm": "nonparametric", "gated": False, "final_norm": False},
        PROJECTIONS,
        also=HEAD,
    ),
    "nemotron": HfFamily(LAYERNORM, LLAMA, HALF),
    "phi4_multimodal": HfFamily({}, sliding, also=HEAD),
    "qwen2_5_vl_text": HfFamily({"qkv_bias": True}, sliding, also=HEAD),
    "qwen2_vl_text": HfFamily({"qkv_bias": True}, sliding, also=HEAD),
    "qwen3_vl_text": HfFamily({"qk_norm": True}, LLAMA),
    "seed_oss": HfFamily({}, bias_flags(*OUT)),
    "smollm3": HfFamily({}, _smollm3, also=HEAD),
    "stablelm": HfFamily({"norm": "layernorm"}, _stablelm, QUARTER, also=HEAD),
    "starcoder2": HfFamily(LAYERNORM, all_of(ONE, sliding), also=(*HEAD,)),
    "vaultgemma": HfFamily({}, all_of(LLAMA, window_sizes(last_of(2)))),
    "youtu": HfFamily({}, latent, also=("qk_head_dim", *HEAD)),
}
