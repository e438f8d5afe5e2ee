"""What config.json files of all decoder families have in common: shape, activation, positions,
biases, windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..describe.read import brief
from ..errors import BadInput
from .hf_keys import Config, Fields

LONGEST = 8192
"""Tokens: `max_position_embeddings` is what a model may be served with; most were pre-trained on no
more than this.
"""
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}
"""hidden_act -> Model.activation."""
SCALINGS = ("linear", "llama3", "yarn", "dynamic", "longrope")
FULL, SLIDING = "full_attention", "sliding_attention"
"""What `layer_types` may say of a layer."""
FFN = ("intermediate_size", "ffn_hidden_size", "n_inner")
"""Names of the feed-forward's width; classes with one of the latter, or none, have 4 x hidden_size
where it is null.
"""
ROPE_KEYS = frozenset(
    (
        "rope_theta",
        "rotary_emb_base",
        "partial_rotary_factor",
        "rotary_pct",
        "rope_type",
        "type",
        "factor",
    )
    + ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
)
"""Keys of rotary positions, in tables or beside them."""


def common(c: Config) -> Fields:
    """Fields that every decoder has."""
    if (
        "sliding_window" not in c.known
        and (types := c.listed("layer_types")) is not None
        and spacing(c, types) != 1
    ):
        raise c.refuse(f"layer_types has {SLIDING}, of which its class knows nothing")
    hidden = c.whole("hidden_size", "n_embd")
    heads = c.whole("num_attention_heads", "n_head")
    return {
        "layers": c.whole("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": c.whole("num_key_value_heads", default=0) or None,
        "head_dim": c.whole("head_dim", default=0) or None,
        "ffn": c.whole(*FFN, default=None if FFN[0] in c.known else 4 * hidden),
        "vocab": c.whole("vocab_size"),
        "tied_embeddings": c.flag("tie_word_embeddings"),
        "norm_epsilon": c.real(
            "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", most=1.0, default=1e-5
        ),
        "activation": activation(c),
        **rotary(c),
        "dropout": (
            max(c.real(key, most=1.0, default=0.0) for key in ("resid_pdrop", "hidden_dropout")) > 0
        ),
    }


def activation(c: Config) -> str | None:
    """The feed-forward's activation; None if the file does not say."""
    name = c.get("hidden_act", "hidden_activation", "activation_function", "activation")
    if name is not None and not isinstance(name, str):
        raise BadInput(f"{c.where}: hidden_act must be a text, not {brief(name)}")
    return ACTIVATIONS.get(name, "other") if name is not None else None


def rotary(c: Config) -> Fields:
    """Rotary positions: transformers 5 has all of it in rope_parameters, older files in keys of
    their own.
    """
    old, new = c.get("rope_scaling"), c.get("rope_parameters")
    c.asked.update(ROPE_KEYS)
    if old is not None and not c.has("rope_parameters"):
        new = None  # the older key stands in its place
    for table, name in ((old, "rope_scaling"), (new, "rope_parameters")):
        if table is not None and not isinstance(table, Mapping):
            raise BadInput(f"{c.where}: {name} must be a table, not {brief(table)}")
    rope = Config(
        {**c.data, **(old or {}), **(new or {})}, c.defaults, c.where, c.known | ROPE_KEYS
    )
    base = rope.real("rope_theta", "rotary_emb_base", most=1e12, default=10000.0)
    share = rope.real("partial_rotary_factor", "rotary_pct", most=1.0, default=1.0)
    fields: Fields = {"rope_base": base or 10000.0, "rotary_share": share or 1.0}
    # other positions in other layers (Gemma 3)
    if any(isinstance(value, Mapping) for value in (new or {}).values()):
        return {"rope_scaling": {"kind": "other"}}
    kind = rope.get("rope_type", "type")
    if (old is None and new is None) or kind in (None, "default"):
        return fields
    if kind not in SCALINGS:
        return {**fields, "rope_scaling": {"kind": "other"}}
    scaling = {
        "kind": kind,
        "factor": rope.real("factor", most=1e6, default=1.0) or 1.0,
        "low": rope.real("low_freq_factor", most=1e6, default=1.0) or 1.0,
        "high": rope.real("high_freq_factor", most=1e6, default=4.0) or 4.0,
        "original": rope.whole("original_max_position_embeddings", default=LONGEST) or LONGEST,
    }
    return {**fields, "rope_scaling": scaling}


def biases(c: Config) -> Fields:
    """Llama: one flag for the four attention projections, one for the feed-forward."""
    attention, ffn = c.flag("attention_bias"), c.flag("mlp_bias")
    if attention != ffn:
        raise c.refuse(
            "the attention has a bias on its output but the feed-forward has none, or the other way"
            " round"
        )
    return {"qkv_bias": attention, "bias": ffn}


def sliding(c: Config, every: int = 0) -> Fields:
    """Sliding attention in all layers but one in `every` (1: in none); where the class has
    `layer_types`, they decide.
    """
    window, every = (
        c.whole("sliding_window", default=0),
        every if c.flag("use_sliding_window", default=True) else 1,
    )
    if (types := c.listed("layer_types")) is not None:
        said = spacing(c, types)
        if "layer_types" not in c.defaults and said != (every if window else 1):
            raise c.refuse("its class takes no layer_types, and they are not what it does")
        every = said
    if not window and (every > 1 or types is not None and every == 0):
        raise BadInput(
            f"{c.where}: layer_types has {SLIDING}, but sliding_window is"
            f" {brief(c.get('sliding_window'))}"
        )
    return {"window": window, "full_every": every} if window and every != 1 else {}


def spacing(c: Config, types: list[Any]) -> int:
    """One layer in how many attends to everything: 1 all, 0 none."""
    if other := [kind for kind in types if kind not in (FULL, SLIDING)]:
        raise c.refuse(f"layer_types has {brief(other[0])}")
    layers = c.whole("num_hidden_layers", "n_layer")
    if len(types) != layers:
        raise BadInput(
            f"{c.where}: layer_types lists {len(types)} layers, num_hidden_layers is {layers}"
        )
    full = [i for i, kind in enumerate(types) if kind == FULL]
    every = full[0] + 1 if full else 0
    if full != [i for i in range(len(types)) if every and i % every == every - 1]:
        raise c.refuse("the layers with full attention are not evenly spaced")
    return every
