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
from .hf_family import Family, biases, latent, routed
from .hf_keys import Config, Fields
from .hf_layers import FEED_FORWARD, count, every, listed, windows


def _feed_forwards(c: Config, dense: int = 0, step: int = 1) -> list[str]:
    """By `mlp_layer_types`, or experts from a layer on, in every `step`-th."""
    usual = [
        "experts" if i >= dense and i % step == 0 else "dense"
        for i in range(count(c))
    ]
    return listed(c, "mlp_layer_types", FEED_FORWARD) or usual


def _attention(c: Config) -> Fields:
    """One flag for the projections of attention; experts have no biases."""
    attention = c.flag("attention_bias")
    return biases(attention, attention, False)


def _qkv(c: Config) -> Fields:
    return biases(c.flag("attention_bias"), False, False)


def _afmoe(c: Config) -> Fields:
    """Four norms, a gate on the attention, a trained bias for each expert."""
    period = c.whole("global_attn_every_n_layers", default=0)
    width = c.whole("moe_intermediate_size")
    more = {
        "shared_ffn": c.whole("num_shared_experts") * width,
        "router_bias": True,
    }
    moe = routed(
        c,
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        **more,
    )
    mixers = windows(c, every(count(c), period, "full", "sliding"))
    ffns = _feed_forwards(c, c.whole("num_dense_layers"))
    return {"moe": moe, **_attention(c), **mixers, "ffns": ffns}


def _aria(c: Config) -> Fields:
    shared = c.whole("moe_num_shared_experts") * c.whole("intermediate_size")
    moe = routed(
        c,
        "moe_num_experts",
        "moe_topk",
        "intermediate_size",
        shared_ffn=shared,
    )
    return {"moe": moe, **_attention(c)}


def _deepseek_like(c: Config, dense: int, **more: Any) -> Fields:
    """DeepSeek's experts, with the names of its keys."""
    shared = c.whole("n_shared_experts", default=0) * c.whole(
        "moe_intermediate_size"
    )
    names = (
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
    )
    first = c.whole("first_k_dense_replace", default=dense)
    step = c.whole("moe_layer_freq", default=1) or 1
    return {
        "moe": routed(c, *names, shared_ffn=shared, **more),
        "ffns": _feed_forwards(c, first, step),
        "mtp_layers": c.whole("num_nextn_predict_layers", default=0),
    }


def _axk1(c: Config) -> Fields:
    return latent(c) | _deepseek_like(c, 1, post_norm=True)


def _glm4_moe_lite(c: Config) -> Fields:
    return latent(c) | _deepseek_like(c, 1)


def _beam(c: Config) -> Fields:
    """Four norms, a gate on the attention with a learned number a head."""
    layers = count(c)
    usual = every(layers, 6, "full", "sliding")
    usual[-1] = "full"  # whatever its place
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    ffns = _feed_forwards(c, min(3, layers))
    heads = c.whole("num_attention_heads")
    return {
        "moe": routed(c, *names),
        "vectors": heads,
        **_attention(c),
        **windows(c, usual),
        "ffns": ffns,
    }


def _cohere2_moe(c: Config) -> Fields:
    """A parallel block: attention beside experts."""
    layers = count(c)
    dense = c.whole("first_k_dense_replace", default=0)
    first = c.whole("prefix_dense_sliding_window_pattern", default=1)
    period = c.whole("sliding_window_pattern", default=4)
    usual = every(dense, first, "full", "sliding") + every(
        layers - dense, period, "full", "sliding"
    )
    width = c.whole("intermediate_size")
    shared = c.whole("num_shared_experts") * width
    names = ("num_experts", "num_experts_per_tok", "intermediate_size")
    ffns = _feed_forwards(c, dense)
    wide = c.whole("prefix_dense_intermediate_size", default=width)
    return {
        "moe": routed(c, *names, shared_ffn=shared),
        "ffn": wide,
        **_attention(c),
        **windows(c, usual),
        "ffns": ffns,
    }


def _dots1(c: Config) -> Fields:
    first = c.whole("max_window_layers", default=0)
    window = c.whole("sliding_window", default=0)
    usual = [
        "sliding" if window and i >= first else "full" for i in range(count(c))
    ]
    return _attention(c) | _deepseek_like(c, 0) | windows(c, usual)


def _ernie_moe(c: Config) -> Fields:
    """Experts from one layer to another, in every so many; a trained bias for each."""
    layers = count(c)
    biased = c.flag("use_bias")
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
    if biased:
        raise c.refuse("experts and shared experts have biases (use_bias)")
    return {
        "moe": routed(c, *names, shared_ffn=shared, router_bias=True),
        "ffns": ffns,
    }


def _exaone_moe(c: Config) -> Fields:
    layers = count(c)
    period = c.whole("sliding_window_pattern", default=0)
    window = c.whole("sliding_window", default=0)
    usual = (
        every(layers, period, "full", "sliding")
        if window
        else ["full"] * layers
    )
    shared = c.whole("num_shared_experts") * c.whole("moe_intermediate_size")
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    ffns = _feed_forwards(c, c.whole("first_k_dense_replace", default=0))
    return {
        "moe": routed(c, *names, shared_ffn=shared),
        **windows(c, usual),
        "ffns": ffns,
    }


def _flint(c: Config) -> Fields:
    """Attention sinks, shared experts without a gate; the first two layers are dense."""
    layers = count(c)
    usual = [
        "full" if i < 2 or i % 4 == 1 or i == layers - 1 else "sliding"
        for i in range(layers)
    ]
    step = c.whole("decoder_sparse_step") or 1
    plain = c.listed("mlp_only_layers")
    dense = [0, 1] if plain is None else plain
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(layers)]
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    shared = c.whole("shared_expert_intermediate_size")
    return {
        "moe": routed(c, *names, shared_ffn=shared),
        **_attention(c),
        **windows(c, usual),
        "ffns": ["experts" if here else "dense" for here in sparse],
    }


def _granitemoe(c: Config) -> Fields:
    shared = (
        c.whole("shared_intermediate_size", default=0)
        if _knows(c, "shared")
        else 0
    )
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    return {"moe": routed(c, *names, shared_ffn=shared), **_attention(c)}


def _knows(c: Config, prefix: str) -> bool:
    return f"{prefix}_intermediate_size" in c.known


def _granitemoe_swa(c: Config) -> Fields:
    usual = ["sliding" if i % 4 else "full" for i in range(count(c))]
    return _granitemoe(c) | windows(c, usual)


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
    moe = routed(inner, *names)
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


def _hunyuan(c: Config) -> Fields:
    """A shared expert as wide as a routed one; other versions' lists of a number for each layer are
    refused.
    """
    names = ("num_experts", "moe_topk", "intermediate_size")
    moe = routed(c, *names, shared_ffn=c.whole("intermediate_size"))
    return {"moe": moe, **_attention(c)}


def _hy_v3(c: Config) -> Fields:
    shared = c.whole("num_shared_experts") * c.whole("moe_intermediate_size")
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    found = {"moe": routed(c, *names, shared_ffn=shared), **_attention(c)}
    return found | {"ffns": _feed_forwards(c, 1)}


def _kolibri1(c: Config) -> Fields:
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    shared = c.whole("shared_expert_intermediate_size")
    usual = every(count(c), 5, "full", "sliding")
    return {
        "moe": routed(c, *names, shared_ffn=shared),
        "ffn": shared,
        **windows(c, usual),
    }


def _laguna(c: Config) -> Fields:
    """A gate a head; a trained bias for each expert."""
    heads = c.whole("num_attention_heads")
    each = c.listed("num_attention_heads_per_layer")
    if each is not None and set(map(str, each)) != {str(heads)}:
        raise c.refuse(
            "layers have different numbers of heads (num_attention_heads_per_layer)"
        )
    gating = c.get("gating")
    if gating is not True:
        raise c.refuse(f"gating is {brief(gating)}")
    shared = c.whole("shared_expert_intermediate_size")
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    return {
        "moe": routed(c, *names, shared_ffn=shared, router_bias=True),
        "attention_gate": "head",
        **_attention(c),
        **windows(c, ["full"] * count(c)),
        "ffns": _feed_forwards(c, 1),
    }


CHUNKED = {"full_attention": "full", "chunked_attention": "sliding"}


def _llama4(c: Config) -> Fields:
    """Experts in every so many layers; attention within chunks, counted as a window of their
    length, but in layers without rotary positions.
    """
    layers = count(c)
    period = c.whole("no_rope_layer_interval", default=4) or 1
    rope = c.listed("no_rope_layers") or [
        int((i + 1) % period != 0) for i in range(layers)
    ]
    usual = ["sliding" if turned else "full" for turned in rope[:layers]]
    step = c.whole("interleave_moe_layer_step") or 1
    sparse = c.listed("moe_layers")
    here = (
        set(range(step - 1, layers, step)) if sparse is None else set(sparse)
    )
    width = c.whole("intermediate_size")
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    return {
        "moe": routed(c, *names, shared_ffn=width),
        "ffn": c.whole("intermediate_size_mlp"),
        **_attention(c),
        **windows(c, usual, "attention_chunk_size", CHUNKED),
        "ffns": ["experts" if i in here else "dense" for i in range(layers)],
    }


def _mellum(c: Config) -> Fields:
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    return {
        "moe": routed(c, *names),
        **_attention(c),
        **windows(c, ["full"] * count(c)),
        "ffns": _feed_forwards(c),
    }


def _mimo(c: Config) -> Fields:
    """Sliding layers have twice the key/value heads, and sinks."""
    layers = count(c)
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
    names = (
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
    )
    return {
        "moe": routed(c, *names),
        "v_head_dim": c.whole("v_head_dim"),
        "sliding": heads,
        **_qkv(c),
        **windows(c, usual),
        "ffns": _feed_forwards(c, 1),
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
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    blocks = c.whole("num_mtp_modules", default=0) * c.whole(
        "mtp_transformer_layers", default=1
    )
    used = c.flag("use_mtp", default=True)
    return {"moe": routed(c, *names), "mtp_layers": blocks if used else 0}


def _minimax_m3(c: Config) -> Fields:
    """Shared experts; layers with its sparse attention are not described."""
    for key in ("sparse_attention_config", "moe_layer_freq"):
        if c.get(key):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    listed(c, "layer_types", {"full_attention": "full"})
    c.asked.update(BLOCKS)
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    return {
        "moe": routed(
            c, *names, shared_ffn=c.whole("shared_intermediate_size")
        ),
        "ffn": c.whole("dense_intermediate_size"),
        "ffns": _feed_forwards(c),
    }


BLOCKS = (
    "index_n_heads",
    "index_head_dim",
    "index_block_size",
    "index_topk_blocks",
    "index_local_blocks",
    "rotary_dim",
)
"""Of its sparse layers, of which there are none; and of rotary positions."""


def _olmoe(c: Config) -> Fields:
    return {
        "moe": routed(
            c, "num_experts", "num_experts_per_tok", "intermediate_size"
        ),
        **_attention(c),
    }


def _phimoe(c: Config) -> Fields:
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    head = {"head_bias": c.flag("lm_head_bias")}
    return {"moe": routed(c, *names), **_attention(c), **head, **sliding(c)}


def _solar(c: Config) -> Fields:
    found = _deepseek_like(c, 0)
    return _qkv(c) | found | {"ffn": c.whole("moe_intermediate_size")}


SPARSE = {
    "indexed_attention": "sparse",
    "deepseek_sparse_attention": "sparse",
    "full_attention": "full",
}


def _indexed(c: Config) -> Fields:
    """DeepSeek-V3.2's indexer in front of latent attention."""
    sparse = {
        "heads": c.whole("index_n_heads"),
        "head_dim": c.whole("index_head_dim"),
        "top_k": c.whole("index_topk"),
    }
    mixers = listed(c, "layer_types", SPARSE) or ["sparse"] * count(c)
    return {
        **latent(c),
        **_deepseek_like(c, 3),
        "sparse": sparse,
        "mixers": mixers,
    }


def _glm_dsa(c: Config) -> Fields:
    """Some layers read the keys that the layer before chose."""
    # where the file lists the layers, they say nothing more
    c.asked.update(INDEX)
    found = _indexed(c)
    layers = count(c)
    kinds = listed(c, "indexer_types", {"full": "sparse", "shared": "chosen"})
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
    both = zip(found["mixers"], kinds, strict=True)
    return found | {"mixers": [b if a == "sparse" else a for a, b in both]}


HEAD = ("head_dim",)
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

EXPERTS: dict[str, Family] = {
    "afmoe": Family(
        {"norms_per_layer": 4, "qk_norm": True, "attention_gate": "element"},
        _afmoe,
    ),
    "aria_text": Family({}, _aria),
    "axk1": Family({}, _axk1, also=(*HEAD, *DENSE_FIRST, "qk_head_dim")),
    "beam": Family(
        {"norms_per_layer": 4, "qk_norm": True, "attention_gate": "element"},
        _beam,
    ),
    "cohere2_moe": Family(
        {"norm": "layernorm-scale", "norms_per_layer": 1},
        _cohere2_moe,
        also=("first_k_dense_replace",),
    ),
    "dbrx": Family({"norm": "layernorm-scale"}, _dbrx),
    "deepseek_v32": Family(
        {}, _indexed, also=(*HEAD, *DENSE_FIRST, "qk_head_dim")
    ),
    "dots1": Family(NORMED, _dots1, also=(*HEAD, *DENSE_FIRST)),
    "ernie4_5_moe": Family({}, _ernie_moe, also=HEAD),
    "exaone_moe": Family(NORMED, _exaone_moe, also=HEAD),
    "flex_olmo": Family(WHOLE, _olmoe, also=HEAD),
    "flint": Family({**NORMED, "attention_sinks": True}, _flint),
    "glm4_moe_lite": Family(
        {}, _glm4_moe_lite, also=(*HEAD, *DENSE_FIRST, "qk_head_dim")
    ),
    "glm_moe_dsa": Family(
        {}, _glm_dsa, also=(*HEAD, *DENSE_FIRST, *INDEX, "qk_head_dim")
    ),
    "granitemoe": Family({}, _granitemoe, also=HEAD),
    "granitemoe_swa": Family(
        {"attention_sinks": True}, _granitemoe_swa, also=HEAD
    ),
    "granitemoeshared": Family({}, _granitemoe, also=HEAD),
    "hunyuan_v1_moe": Family(NORMED, _hunyuan),
    "hy_v3": Family(NORMED, _hy_v3),
    "kolibri1": Family({**NORMED, "norms_per_layer": 4}, _kolibri1),
    "laguna": Family(NORMED, _laguna),
    "llama4_text": Family({}, _llama4),
    "mellum": Family(NORMED, _mellum),
    "mimo_v2_flash": Family({}, _mimo, also=MIMO),
    "minimax_m2": Family(
        WHOLE,
        _minimax_m2,
        also=("shared_intermediate_size", *QK, *MTP),
    ),
    "minimax_m3_vl_text": Family(
        NORMED, _minimax_m3, also=("sparse_attention_config", "moe_layer_freq")
    ),
    "olmoe": Family(WHOLE, _olmoe, also=HEAD),
    "phimoe": Family({"norm": "layernorm"}, _phimoe, also=HEAD),
    "solar_open": Family({}, _solar, also=(*HEAD, *DENSE_FIRST)),
}
