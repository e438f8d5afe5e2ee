"""What config.json files of all decoder families have in common beside numbers: names of
activations, and tables of rotary positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    + (
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    )
)
"""Keys of rotary positions, in tables or beside them."""


def activation_named(c: Config, keys: Sequence[str]) -> str | None:
    """The feed-forward's activation by the first of the keys; None if the file does not say."""
    name = c.get(*keys)
    if name is not None and not isinstance(name, str):
        raise BadInput(
            f"{c.where}: hidden_act must be a text, not {brief(name)}"
        )
    return ACTIVATIONS.get(name, "other") if name is not None else None


def rotary_positions(c: Config) -> Fields:
    """Rotary positions: transformers 5 has all of it in rope_parameters, older files in keys of
    their own.
    """
    old = c.get("rope_scaling")
    new = c.get("rope_parameters")
    c.asked.update(ROPE_KEYS)
    if old is not None and not c.has("rope_parameters"):
        new = None  # the older key stands in its place
    for table, name in ((old, "rope_scaling"), (new, "rope_parameters")):
        if table is not None and not isinstance(table, Mapping):
            raise BadInput(
                f"{c.where}: {name} must be a table, not {brief(table)}"
            )
    rope = Config(
        {**c.data, **(old or {}), **(new or {})},
        c.defaults,
        c.where,
        c.known | ROPE_KEYS,
    )
    # other positions in other layers (Gemma 3, Step-3.5)
    tables = any(isinstance(value, Mapping) for value in (new or {}).values())
    if tables or isinstance(rope.get("rope_theta"), list):
        return {"rope_scaling": {"kind": "other"}}
    base = rope.real(
        "rope_theta", "rotary_emb_base", most=1e12, default=10000.0
    )
    share = rope.real(
        "partial_rotary_factor", "rotary_pct", most=1.0, default=1.0
    )
    fields: Fields = {
        "rope_base": base or 10000.0,
        "rotary_share": share or 1.0,
    }
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
        "original": rope.whole(
            "original_max_position_embeddings", default=LONGEST
        )
        or LONGEST,
    }
    return {**fields, "rope_scaling": scaling}
