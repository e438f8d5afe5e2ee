"""Families with a mixture of experts, and with sparse attention.

Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..describe.read import brief
from ..errors import BadInput
from .hf_common import ACTIVATIONS, sliding
from .hf_family import HfFamily
from .hf_keys import Config, Fields
from .hf_layers import last_of_period, layer_count, windows, words_of_list
from .hf_parts import (
    DEEPSEEK,
    MIXTRAL,
    PROJECTIONS,
    QKV,
    QWEN,
    Part,
    all_of,
    behind,
    deepseek,
    dense_first,
    expert_part,
    first_of,
    if_wide,
    last_of,
    latent,
    rotary_layers,
    routed_experts,
    sparse_steps,
    unused_keys,
    window_sizes,
)


def _beam_layers(c: Config) -> list[str]:
    """The last layer sees everything, whatever its place."""
    return [*last_of(6)(c)[:-1], "full"]


def _cohere2_moe(c: Config) -> Fields:
    """A parallel block: attention beside experts."""
    layers = layer_count(c)
    dense = c.whole("first_k_dense_replace", default=0)
    first = c.whole("prefix_dense_sliding_window_pattern", default=1)
    period = c.whole("sliding_window_pattern", default=4)
    usual = last_of_period(dense, first, "full", "sliding") + last_of_period(
        layers - dense, period, "full", "sliding"
    )
    width = c.whole("intermediate_size")
    shared = c.whole("num_shared_experts") * width
    wide = c.whole("prefix_dense_intermediate_size", default=width)
    return {
        "moe": routed_experts(c, *OLMOE, shared_ffn=shared),
        "ffn": wide,
        **PROJECTIONS(c),
        **windows(c, usual),
        **dense_first(dense)(c),
    }


def _ernie_moe(c: Config) -> Fields:
    """Experts from one layer to another, in every so many; a trained bias for each."""
    layers = layer_count(c)
    with_biases = c.flag("use_bias")
    start = c.whole("moe_layer_start_index")
    step = c.whole("moe_layer_interval") or 1
    end = c.get("moe_layer_end_index")
    if isinstance(end, bool) or not isinstance(end, int) or end < -1:
        raise BadInput(
            f"{c.where}: moe_layer_end_index must be a whole number from -1"
        )
    end = layers - 1 if end == -1 else end
    ffns = [
        "experts" if (i + 1) % step == 0 and start <= i <= end else "dense"
        for i in range(layers)
    ]
    shared = c.whole("moe_num_shared_experts") * c.whole(
        "moe_intermediate_size"
    )
    names = ("moe_num_experts", "moe_k", "moe_intermediate_size")
    if with_biases:
        raise c.refuse("experts and shared experts have biases (use_bias)")
    return {
        "moe": routed_experts(c, *names, shared_ffn=shared, router_bias=True),
        "ffns": ffns,
    }


def _flint_layers(c: Config) -> list[str]:
    layers = layer_count(c)
    return [
        "full" if i < 2 or i % 4 == 1 or i == layers - 1 else "sliding"
        for i in range(layers)
    ]


def _dbrx(c: Config) -> Fields:
    """Two tables of keys: attention's and the experts'."""
    attention = c.table("attn_config")
    ffn = c.table("ffn_config")
    told = {
        **DBRX,
        **{k: v for k, v in {**attention, **ffn}.items() if v is not None},
    }
    inner = replace(c, data=told, known=frozenset(told))
    act = told["ffn_act_fn"]
    name = act.get("name") if isinstance(act, Mapping) else None
    if name not in ACTIVATIONS:
        raise c.refuse(f"ffn_config.ffn_act_fn is {brief(act)}")
    names = ("moe_num_experts", "moe_top_k", "ffn_hidden_size")
    moe = routed_experts(inner, *names)
    c.asked.update(("num_key_value_heads", "emb_pdrop"))
    return {
        "moe": moe,
        "kv_heads": inner.whole("kv_n_heads"),
        "ffn": moe["expert_ffn"],
        "activation": ACTIVATIONS[name],
        "rope_base": inner.real("rope_theta", most=1e12, default=10000.0)
        or 10000.0,
    }


DBRX: Fields = {
    "kv_n_heads": 1,
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "ffn_act_fn": {"name": "silu"},
}
"""Defaults of the two tables' classes."""


def _laguna(c: Config) -> Fields:
    """A gate a head."""
    heads = c.whole("num_attention_heads")
    each = c.listed("num_attention_heads_per_layer")
    if each is not None and set(map(str, each)) != {str(heads)}:
        raise c.refuse(
            "layers have different numbers of heads (num_attention_heads_per_layer)"
        )
    gating = c.get("gating")
    if gating is not True:
        raise c.refuse(f"gating is {brief(gating)}")
    return {"attention_gate": "head"}


CHUNKED = {"full_attention": "full", "chunked_attention": "sliding"}


def _llama4(c: Config) -> Fields:
    """Experts in every so many layers; attention within chunks, counted as a window of their
    length, but in layers without rotary positions.
    """
    layers = layer_count(c)
    usual = ["sliding" if turned else "full" for turned in rotary_layers(c, 4)]
    step = c.whole("interleave_moe_layer_step") or 1
    sparse = c.listed("moe_layers")
    here = (
        set(range(step - 1, layers, step)) if sparse is None else set(sparse)
    )
    width = c.whole("intermediate_size")
    return {
        "moe": routed_experts(c, *MIXTRAL, shared_ffn=width),
        "ffn": c.whole("intermediate_size_mlp"),
        **PROJECTIONS(c),
        **windows(c, usual, "attention_chunk_size", CHUNKED),
        "ffns": ["experts" if i in here else "dense" for i in range(layers)],
    }


def _mimo(c: Config) -> Fields:
    """Sliding layers have twice the key/value heads, and sinks."""
    layers = layer_count(c)
    usual = [
        "full" if i == 0 or not (i + 1) % 6 else "sliding"
        for i in range(layers)
    ]
    for key, value in _mimo_says(c, usual).items():
        if c.get(key) not in (None, value):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    heads = {
        "heads": c.whole("num_attention_heads"),
        "kv_heads": 2 * c.whole("num_key_value_heads"),
        "head_dim": c.whole("head_dim"),
        "v_head_dim": c.whole("v_head_dim"),
        "sinks": True,
    }
    return {
        "moe": routed_experts(c, *DEEPSEEK),
        "v_head_dim": c.whole("v_head_dim"),
        "sliding": heads,
        **QKV(c),
        **windows(c, usual),
        **dense_first(1)(c),
    }


def _mimo_says(c: Config, usual: list[str]) -> Mapping[str, Any]:
    """What the authors' own files say, and the class does without reading it."""
    kv = c.whole("num_key_value_heads")
    return {
        "hybrid_layer_pattern": [int(kind == "sliding") for kind in usual],
        "moe_layer_freq": [0] + [1] * (len(usual) - 1),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_num_attention_heads": c.whole("num_attention_heads"),
        "swa_num_key_value_heads": 2 * kv,
        "swa_head_dim": c.whole("head_dim"),
        "swa_v_head_dim": c.whole("v_head_dim"),
    }


MIMO = (
    *("hybrid_layer_pattern", "moe_layer_freq", "swa_num_attention_heads"),
    *("add_swa_attention_sink_bias", "add_full_attention_sink_bias"),
    *("swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim"),
)


def _minimax_m2(c: Config) -> Fields:
    """All heads are normalised together; next-token modules are trained by its authors, but no part
    of the class.
    """
    if c.whole("shared_intermediate_size", default=0):
        raise c.refuse("shared experts (shared_intermediate_size)")
    c.asked.update(("use_qk_norm", "qk_norm_type", "use_routing_bias"))
    blocks = c.whole("num_mtp_modules", default=0) * c.whole(
        "mtp_transformer_layers", default=1
    )
    used = c.flag("use_mtp", default=True)
    return {
        "moe": routed_experts(c, *MIXTRAL),
        "mtp_layers": blocks if used else 0,
    }


def _minimax_m3(c: Config) -> Fields:
    """Layers with its sparse attention are not described."""
    for key in ("sparse_attention_config", "moe_layer_freq"):
        if c.get(key):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    words_of_list(c, "layer_types", {"full_attention": "full"})
    return {"ffn": c.whole("dense_intermediate_size")}


BLOCKS = (
    "index_n_heads",
    "index_head_dim",
    "index_block_size",
    "index_topk_blocks",
    "index_local_blocks",
    "rotary_dim",
)
"""Of its sparse layers, of which there are none; and of rotary positions."""


OLMOE = ("num_experts", "num_experts_per_tok", "intermediate_size")
SPARSE = {
    "indexed_attention": "sparse",
    "deepseek_sparse_attention": "sparse",
    "full_attention": "full",
}


V32 = deepseek(("first_k_dense_replace", 3))


def _indexed(c: Config) -> Fields:
    """DeepSeek-V3.2's indexer in front of latent attention."""
    sparse = {
        "heads": c.whole("index_n_heads"),
        "head_dim": c.whole("index_head_dim"),
        "top_k": c.whole("index_topk"),
    }
    mixers = words_of_list(c, "layer_types", SPARSE) or [
        "sparse"
    ] * layer_count(c)
    return {
        **latent(c),
        **V32(c),
        "sparse": sparse,
        "mixers": mixers,
    }


def _glm_dsa(c: Config) -> Fields:
    """Some layers read the keys that the layer before chose."""
    # where the file lists the layers, they say nothing more
    c.asked.update(INDEX)
    base = _indexed(c)
    layers = layer_count(c)
    kinds = words_of_list(
        c, "indexer_types", {"full": "sparse", "shared": "chosen"}
    )
    if kinds is None:
        pattern = c.get("index_topk_pattern")
        if pattern is not None:
            names = {
                "F": "sparse",
                "S": "chosen",
                "full": "sparse",
                "shared": "chosen",
            }
            if (
                not all(letter in names for letter in pattern)
                or len(pattern) < layers
            ):
                raise BadInput(
                    f"{c.where}: index_topk_pattern must say F or S of each layer"
                )
            kinds = [names[letter] for letter in pattern[:layers]]
        else:
            step = max(c.whole("index_topk_freq", default=1), 1)
            first = c.whole("index_skip_topk_offset", default=2)
            own = [max(i - first + 1, 0) % step == 0 for i in range(layers)]
            kinds = ["sparse" if here else "chosen" for here in own]
    both = zip(base["mixers"], kinds, strict=True)
    return base | {"mixers": [b if a == "sparse" else a for a, b in both]}


def _width(key: str) -> Part:
    """Dense layers are as wide as one of the experts."""
    return lambda c: {"ffn": c.whole(key)}


HEAD = ("head_dim",)
SHARED = "shared_expert_intermediate_size"
WIDTHS = ("num_shared_experts", "moe_intermediate_size")
DENSE_FIRST = (
    "first_k_dense_replace",
    "moe_layer_freq",
    "num_nextn_predict_layers",
)
NORMED: Fields = {"qk_norm": True}
WHOLE: Fields = {"qk_norm": True, "qk_norm_whole": True}
INDEX = (
    "index_topk_pattern",
    "index_topk_freq",
    "index_skip_topk_offset",
    "index_share_for_mtp_iteration",
)
MTP = ("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
QK = ("use_qk_norm", "qk_norm_type", "use_routing_bias")

FIRST = ("first_k_dense_replace", 1)
ARIA = ("moe_num_experts", "moe_topk", "intermediate_size")
GRANITE = all_of(
    expert_part(MIXTRAL, ("shared_intermediate_size", 0)), PROJECTIONS
)

EXPERTS: dict[str, HfFamily] = {
    "afmoe": HfFamily(
        {"norms_per_layer": 4, "qk_norm": True, "attention_gate": "element"},
        all_of(
            expert_part(QWEN, *WIDTHS, router_bias=True),
            PROJECTIONS,
            window_sizes(last_of(("global_attn_every_n_layers", 0))),
            dense_first("num_dense_layers"),
        ),
    ),
    "aria_text": HfFamily(
        {},
        all_of(
            expert_part(ARIA, "moe_num_shared_experts", "intermediate_size"),
            PROJECTIONS,
        ),
    ),
    "axk1": HfFamily(
        {},
        all_of(latent, deepseek(FIRST, post_norm=True)),
        also=(*HEAD, *DENSE_FIRST, "qk_head_dim"),
    ),
    "beam": HfFamily(
        {"norms_per_layer": 4, "qk_norm": True, "attention_gate": "element"},
        all_of(
            expert_part(QWEN),
            lambda c: {"vectors": c.whole("num_attention_heads")},
            PROJECTIONS,
            window_sizes(_beam_layers),
            dense_first(3),
        ),
    ),
    "cohere2_moe": HfFamily(
        {"norm": "layernorm-scale", "norms_per_layer": 1},
        _cohere2_moe,
        also=("first_k_dense_replace",),
    ),
    "dbrx": HfFamily({"norm": "layernorm-scale"}, _dbrx),
    "deepseek_v32": HfFamily(
        {}, _indexed, also=(*HEAD, *DENSE_FIRST, "qk_head_dim")
    ),
    "dots1": HfFamily(
        NORMED,
        all_of(
            PROJECTIONS,
            deepseek(("first_k_dense_replace", 0)),
            window_sizes(if_wide(behind(("max_window_layers", 0)))),
        ),
        also=(*HEAD, *DENSE_FIRST),
    ),
    "ernie4_5_moe": HfFamily({}, _ernie_moe, also=HEAD),
    "exaone_moe": HfFamily(
        NORMED,
        all_of(
            expert_part(QWEN, *WIDTHS),
            window_sizes(if_wide(last_of(("sliding_window_pattern", 0)))),
            dense_first(("first_k_dense_replace", 0)),
        ),
        also=HEAD,
    ),
    "flex_olmo": HfFamily(
        WHOLE, all_of(expert_part(OLMOE), PROJECTIONS), also=HEAD
    ),
    "flint": HfFamily(
        {**NORMED, "attention_sinks": True},
        all_of(
            expert_part(QWEN, SHARED),
            PROJECTIONS,
            window_sizes(_flint_layers),
            sparse_steps((0, 1)),
        ),
    ),
    "glm4_moe_lite": HfFamily(
        {},
        all_of(latent, deepseek(FIRST)),
        also=(*HEAD, *DENSE_FIRST, "qk_head_dim"),
    ),
    "glm_moe_dsa": HfFamily(
        {}, _glm_dsa, also=(*HEAD, *DENSE_FIRST, *INDEX, "qk_head_dim")
    ),
    "granitemoe": HfFamily(
        {}, all_of(expert_part(MIXTRAL), PROJECTIONS), also=HEAD
    ),
    "granitemoe_swa": HfFamily(
        {"attention_sinks": True},
        all_of(GRANITE, window_sizes(first_of(4))),
        also=HEAD,
    ),
    "granitemoeshared": HfFamily({}, GRANITE, also=HEAD),
    "hunyuan_v1_moe": HfFamily(
        NORMED,
        all_of(
            expert_part(
                ("num_experts", "moe_topk", "intermediate_size"),
                "intermediate_size",
            ),
            PROJECTIONS,
        ),
    ),
    "hy_v3": HfFamily(
        NORMED, all_of(expert_part(QWEN, *WIDTHS), PROJECTIONS, dense_first(1))
    ),
    "kolibri1": HfFamily(
        {**NORMED, "norms_per_layer": 4},
        all_of(
            expert_part(QWEN, SHARED), _width(SHARED), window_sizes(last_of(5))
        ),
    ),
    "laguna": HfFamily(
        NORMED,
        all_of(
            _laguna,
            expert_part(QWEN, SHARED, router_bias=True),
            PROJECTIONS,
            window_sizes(),
            dense_first(1),
        ),
    ),
    "llama4_text": HfFamily({}, _llama4),
    "mellum": HfFamily(
        NORMED,
        all_of(expert_part(QWEN), PROJECTIONS, window_sizes(), dense_first()),
    ),
    "mimo_v2_flash": HfFamily({}, _mimo, also=MIMO),
    "minimax_m2": HfFamily(
        WHOLE,
        _minimax_m2,
        also=("shared_intermediate_size", *QK, *MTP),
    ),
    "minimax_m3_vl_text": HfFamily(
        NORMED,
        all_of(
            _minimax_m3,
            unused_keys(*BLOCKS),
            expert_part(MIXTRAL, "shared_intermediate_size"),
            dense_first(),
        ),
        also=("sparse_attention_config", "moe_layer_freq"),
    ),
    "olmoe": HfFamily(
        WHOLE, all_of(expert_part(OLMOE), PROJECTIONS), also=HEAD
    ),
    "phimoe": HfFamily(
        {"norm": "layernorm"},
        all_of(
            expert_part(MIXTRAL),
            PROJECTIONS,
            lambda c: {"head_bias": c.flag("lm_head_bias")},
            sliding,
        ),
        also=HEAD,
    ),
    "solar_open": HfFamily(
        {},
        all_of(
            QKV,
            deepseek(("first_k_dense_replace", 0)),
            _width("moe_intermediate_size"),
        ),
        also=(*HEAD, *DENSE_FIRST),
    ),
}
