"""What no row of the table of families says: lists and tables inside a config.json.

Each function takes the file and the fields that its family's row made, and gives more fields.
Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..describe.read import brief
from ..errors import BadInput
from .hf_common import ACTIVATIONS
from .hf_keys import Config, Fields
from .hf_layers import layer_count, windows, words_of_list


def attention_types(c: Config, fields: Fields) -> Fields:
    """GPT-Neo: every second layer sees `window_size` tokens; [[[kinds], times], ...] says it
    otherwise.
    """
    types = c.listed("attention_types") or [[["global", "local"], 12]]
    kinds: list[Any] = []
    for entry in types:
        if not (
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], list)
            and isinstance(entry[1], int)
        ):
            raise BadInput(
                f"{c.where}: attention_types must be lists of kinds and how often"
            )
        kinds += entry[0] * min(entry[1], 10**5)  # more layers are refused
    layers = layer_count(c)
    if len(kinds) != layers:
        raise BadInput(
            f"{c.where}: attention_types lists {len(kinds)} layers, not {layers}"
        )
    named = {"global": "full", "local": "sliding"}
    if other := [kind for kind in kinds if str(kind) not in named]:
        raise c.refuse(f"attention_types has {brief(other[0])}")
    return {"mixers": [named[kind] for kind in kinds]}


DBRX: Fields = {
    "kv_n_heads": 1,
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "ffn_act_fn": {"name": "silu"},
}
"""Defaults of the classes of DBRX's two tables."""


def dbrx(c: Config, fields: Fields) -> Fields:
    """Two tables of keys: attention's and the experts'."""
    both = {**c.table("attn_config"), **c.table("ffn_config")}
    said = {**DBRX, **{k: v for k, v in both.items() if v is not None}}
    inner = replace(c, data=said, known=frozenset(said))
    act = said["ffn_act_fn"]
    name = act.get("name") if isinstance(act, Mapping) else None
    if name not in ACTIVATIONS:
        raise c.refuse(f"ffn_config.ffn_act_fn is {brief(act)}")
    width = inner.whole("ffn_hidden_size")
    c.asked.update(("num_key_value_heads", "emb_pdrop"))
    base = inner.real("rope_theta", most=1e12, default=10000.0)
    return {
        "moe": {
            "experts": inner.whole("moe_num_experts"),
            "top_k": inner.whole("moe_top_k"),
            "expert_ffn": width,
        },
        "kv_heads": inner.whole("kv_n_heads"),
        "ffn": width,
        "activation": ACTIVATIONS[name],
        "rope_base": base or 10000.0,
    }


def own_words(c: Config, fields: Fields) -> Fields:
    """MiMo-V2: what the authors' own files say, and the class does without reading it."""
    heads, kv = c.whole("num_attention_heads"), c.whole("num_key_value_heads")
    mixers = fields["mixers"]
    for key, value in {
        "hybrid_layer_pattern": [int(kind == "sliding") for kind in mixers],
        "moe_layer_freq": [0] + [1] * (len(mixers) - 1),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": 2 * kv,
        "swa_head_dim": c.whole("head_dim"),
        "swa_v_head_dim": c.whole("v_head_dim"),
    }.items():
        if c.get(key) not in (None, value):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    return {}


def chosen_keys(c: Config, fields: Fields) -> Fields:
    """GLM with DeepSeek's indexer: some layers read the keys that the layer before chose."""
    # where the file lists the layers, the other keys say nothing more
    c.asked.update(("index_topk_pattern", "index_topk_freq"))
    c.asked.update(("index_skip_topk_offset", "index_share_for_mtp_iteration"))
    names = {
        "F": "sparse",
        "S": "chosen",
        "full": "sparse",
        "shared": "chosen",
    }
    layers = layer_count(c)
    words = {key: names[key] for key in ("full", "shared")}
    kinds = words_of_list(c, "indexer_types", words)
    pattern = c.get("index_topk_pattern")
    if kinds is None and pattern is None:
        step = max(c.whole("index_topk_freq", default=1), 1)
        first = c.whole("index_skip_topk_offset", default=2)
        own = [max(i - first + 1, 0) % step == 0 for i in range(layers)]
        kinds = ["sparse" if here else "chosen" for here in own]
    elif kinds is None:
        if (
            not isinstance(pattern, (str, list))
            or len(pattern) < layers
            or not all(str(letter) in names for letter in pattern)
        ):
            raise BadInput(
                f"{c.where}: index_topk_pattern must say F or S of each layer"
            )
        kinds = [names[str(letter)] for letter in pattern[:layers]]
    both = zip(fields["mixers"], kinds, strict=True)
    return {"mixers": [b if a == "sparse" else a for a, b in both]}


BLOCKS = {
    "linear_attention": ("ssm", "none"),
    "mamba": ("ssm", "none"),
    "full_attention": ("full", "none"),
    "attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "experts"),
}
"""Nemotron-H's word for a layer -> what its attention is, and its feed-forward."""
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def single_blocks(c: Config, fields: Fields) -> Fields:
    """Nemotron-H: each layer is one thing under one norm, by words or by letters."""
    given = c.listed("layers_block_type")
    letters = c.get("hybrid_override_pattern")
    if given is None and letters is None:
        given = ["linear_attention", "moe", "full_attention", "mlp"]
    if given is None:
        if (
            not isinstance(letters, str)
            or not letters
            or not {*letters} <= {*LETTERS}
        ):
            raise BadInput(
                f"{c.where}: hybrid_override_pattern must be of the letters M * - E"
            )
        given = [LETTERS[letter] for letter in letters]
    if other := [kind for kind in given if str(kind) not in BLOCKS]:
        raise c.refuse(f"layers_block_type has {brief(other[0])}")
    mixers, ffns = zip(*(BLOCKS[kind] for kind in given), strict=True)
    shared = fields["moe"]["shared_ffn"]
    if fields["bias"] and shared and "experts" in ffns:
        raise c.refuse("experts have biases (mlp_bias)")
    return {"layers": len(given), "mixers": [*mixers], "ffns": [*ffns]}


def gemma4(c: Config, fields: Fields) -> Fields:
    """Layers that see everything have wider heads, and may read their keys as values; other inputs
    for each layer, and keys shared by layers, are not described.
    """
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if key in c.known and c.get(key):
            raise c.refuse(f"{key} is {brief(c.get(key))}")
    usual = [
        "sliding" if (i + 1) % 6 else "full" for i in range(layer_count(c))
    ]
    base = windows(c, [*usual[:-1], "full"])
    base["mixers"][-1] = "full"  # whatever the file says
    wide = of_full_layers(c, base["mixers"])
    alike, kv = c.flag("attention_k_eq_v"), c.whole("num_key_value_heads")
    heads = {
        "heads": c.whole("num_attention_heads"),
        "kv_heads": kv,
        "head_dim": c.whole("head_dim"),
    }
    c.asked.update(GEMMA_4)
    few = c.whole("num_global_key_value_heads", default=kv) if alike else kv
    return {
        **base,
        "sliding": heads if "sliding" in base["mixers"] else None,
        "head_dim": wide.get(
            "head_dim", c.whole("global_head_dim", default=512)
        ),
        "kv_heads": wide.get("num_key_value_heads", few),
        "key_is_value": alike,
        **(gemma4_experts(c) if c.flag("enable_moe_block") else {}),
    }


GEMMA_4 = (
    "use_bidirectional_attention",
    "use_double_wide_mlp",
    "num_experts",
    "top_k_experts",
    "moe_intermediate_size",
    "vocab_size_per_layer_input",
)
"""Keys of Gemma 4 that say nothing without the part that they are about."""


def gemma4_experts(c: Config) -> Fields:
    """Experts beside the feed-forward block of every layer, as beside a shared one; each output has
    a norm of its own, as has what goes to the experts and, without a name, to the router (their
    weights stand in `vectors`); a factor for each expert scales its share.
    """
    moe = {
        "experts": c.whole("num_experts"),
        "top_k": c.whole("top_k_experts"),
        "expert_ffn": c.whole("moe_intermediate_size"),
        "shared_ffn": c.whole("intermediate_size"),
        "router_bias": True,
        "post_norm": True,
    }
    return {
        "moe": moe,
        "ffns": ["experts"] * layer_count(c),
        "vectors": 3 * c.whole("hidden_size"),
    }


def of_full_layers(c: Config, mixers: list[str]) -> Mapping[str, int]:
    """What `per_layer_config` says of the layers that see everything."""
    each = c.table("per_layer_config")
    if not each:
        return {}
    full = [i for i, kind in enumerate(mixers) if kind == "full"]
    first = next(iter(each.values()))
    named = sorted(int(key) for key in each if str(key).isdecimal())
    if (
        named != full
        or any(other != first for other in each.values())
        or not isinstance(first, Mapping)
        or {*first} - {"head_dim", "num_key_value_heads"}
    ):
        raise c.refuse(
            "per_layer_config says more than the heads of full layers"
        )
    if not all(type(v) is int and v > 0 for v in first.values()):
        raise BadInput(f"{c.where}: per_layer_config must hold whole numbers")
    return first


STRUCTURES: Mapping[str, Callable[[Config, Fields], Fields]] = {
    f.__name__: f
    for f in (
        attention_types,
        single_blocks,
        chosen_keys,
        dbrx,
        gemma4,
        own_words,
    )
}
"""Name in a row's `code` -> what reads it."""
