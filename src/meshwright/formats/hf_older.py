"""Families before Llama: layer norms with shifts, learned positions, biases, parallel blocks.

Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from ..errors import BadInput
from .hf_family import HfFamily
from .hf_keys import Config, Fields
from .hf_layers import layer_count
from .hf_parts import biases, decoder


def _gpt_bigcode(c: Config) -> Fields:
    """GPT-2 with one key/value head."""
    return decoder(c) | {"kv_heads": 1 if c.flag("multi_query") else None}


def _gpt_neo(c: Config) -> Fields:
    """Every second layer sees `window_size` tokens; [[[kinds], times], ...] says it otherwise."""
    types = c.listed("attention_types") or [[["global", "local"], 12]]
    kinds: list[str] = []
    for entry in types:
        if not (
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[1], int)
        ):
            raise BadInput(
                f"{c.where}: attention_types must be lists of kinds and how often"
            )
        kinds += list(entry[0]) * min(entry[1], 10**5)
    if len(kinds) != layer_count(c):
        raise BadInput(
            f"{c.where}: attention_types lists {len(kinds)} layers, not {layer_count(c)}"
        )
    if other := set(kinds) - {"global", "local"}:
        raise c.refuse(f"attention_types has {sorted(other)[0]!r}")
    mixers = ["full" if kind == "global" else "sliding" for kind in kinds]
    wide = c.whole("intermediate_size", default=4 * c.whole("hidden_size"))
    return {"mixers": mixers, "window": c.whole("window_size"), "ffn": wide}


def _opt(c: Config) -> Fields:
    """Two rows of positions more than tokens; the smallest model but one normalises afterwards."""
    width = c.whole("word_embed_proj_dim", default=c.whole("hidden_size"))
    if width != c.whole("hidden_size"):
        raise c.refuse(
            "the embedding has another width than the layers (word_embed_proj_dim)"
        )
    biased = c.flag("enable_bias")
    scaled = c.flag("layer_norm_elementwise_affine")
    before = c.flag("do_layer_norm_before")
    removed = c.flag("_remove_final_layer_norm")
    return {
        **biases(biased, biased, biased),
        "norm": "layernorm" if scaled else "nonparametric",
        "final_norm": before and not removed,
        "position_rows": c.whole("max_position_embeddings") + 2,
    }


def _biogpt(c: Config) -> Fields:
    return {"position_rows": c.whole("max_position_embeddings") + 2}


def _mpt(c: Config) -> Fields:
    """Positions by slopes, or learned ones of the published files, which transformers does not
    read.
    """
    inner = c.table("attn_config")
    for key, usual in (
        ("qk_ln", False),
        ("prefix_lm", False),
        ("attn_type", "multihead_attention"),
    ):
        if inner.get(key, usual) not in (usual, None):
            raise c.refuse(f"attn_config.{key} is {inner[key]!r}")
    if c.whole("expansion_ratio") != 4:
        raise c.refuse(
            "its class has 4 x d_model, whatever expansion_ratio says, but it"
        )
    return {"ffn": 4 * c.whole("d_model")}


def _head_norms(c: Config) -> Fields:
    """Heads may be normalised by layer norms with shifts."""
    normed = c.flag("qk_layernorm")
    return {"qk_norm": normed, "qk_norm_shift": normed}


LAYERNORM: Fields = {"norm": "layernorm", "gated": False}
BIASED: Fields = {"qkv_bias": True, "bias": True}
LEARNED: Fields = {"positions": "learned"}
GPT_J: Fields = {
    **LAYERNORM,
    **biases(False, False, True),
    "norms_per_layer": 1,
    "head_bias": True,
}
HALF: Fields = {"partial_rotary_factor": 0.5}
HEAD = ("head_dim",)

OLDER: dict[str, HfFamily] = {
    "biogpt": HfFamily({**LAYERNORM, **BIASED, **LEARNED}, _biogpt),
    "codegen": HfFamily(GPT_J),
    "ctrl": HfFamily(
        {**LAYERNORM, **BIASED, "positions": "none", "head_bias": True}
    ),
    "gpt-sw3": HfFamily({**LAYERNORM, **BIASED, **LEARNED}, decoder),
    "gpt_bigcode": HfFamily({**LAYERNORM, **BIASED, **LEARNED}, _gpt_bigcode),
    "gpt_neo": HfFamily(
        {**LAYERNORM, **biases(False, True, True), **LEARNED}, _gpt_neo
    ),
    "gptj": HfFamily(GPT_J),
    "mpt": HfFamily(
        {
            "norm": "layernorm-scale",
            "gated": False,
            "positions": "alibi",
            "activation": "gelu",
        },
        _mpt,
    ),
    "openai-gpt": HfFamily(
        {**LAYERNORM, **BIASED, **LEARNED, "final_norm": False}
    ),
    "opt": HfFamily({"gated": False, **LEARNED}, _opt),
    "persimmon": HfFamily({**LAYERNORM, **BIASED}, _head_norms, HALF),
    "phi": HfFamily(
        {**LAYERNORM, **BIASED, "norms_per_layer": 1, "head_bias": True},
        _head_norms,
        HALF,
        also=HEAD,
    ),
    "xglm": HfFamily({**LAYERNORM, **BIASED, "positions": "none"}, decoder),
}
