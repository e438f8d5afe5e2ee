"""One decoder family of transformers: what of a config.json makes which field of a Model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .hf_keys import Config, Fields


@dataclass(frozen=True)
class Family:
    """How one `model_type` is read."""

    fixed: Fields = field(default_factory=dict)
    """Model fields that are the same in all its models."""
    extra: Callable[[Config], Fields] = lambda c: {}
    """Model fields that depend on the file."""
    defaults: Fields = field(default_factory=dict)
    """Defaults that are not among the fields of the class."""
    also: tuple[str, ...] = ()
    """Keys that the model's code or older versions read, though they are no fields of the class."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Older name of a key -> its name."""
    like: str = ""
    """The class whose keys it has, if transformers has none of that name; then nothing may be left
    out but `defaults`.
    """
    classes: tuple[str, ...] = ()
    """Names of its language model's class, where they are not that of transformers."""


def biases(qkv: bool, out: bool, ffn: bool) -> Fields:
    """Biases of queries, keys and values, of the attention's output, and of the feed-forward."""
    fields: Fields = {"qkv_bias": qkv, "bias": ffn}
    return fields if out == ffn else {**fields, "out_bias": out}


def attention_bias(c: Config) -> Fields:
    """Llama: one flag for the four attention projections, one for the feed-forward."""
    attention = c.flag("attention_bias")
    return biases(attention, attention, c.flag("mlp_bias"))


def latent(c: Config) -> Fields:
    """DeepSeek's latent attention; `attention_bias` gives biases to what goes down and to what goes
    out.
    """
    mla = {
        "kv_lora_rank": c.whole("kv_lora_rank"),
        "qk_nope_head_dim": c.whole("qk_nope_head_dim"),
        "qk_rope_head_dim": c.whole("qk_rope_head_dim"),
        "v_head_dim": c.whole("v_head_dim"),
    }
    if rank := c.whole("q_lora_rank", default=0):
        mla["q_lora_rank"] = rank
    c.asked.update(("head_dim", "qk_head_dim", "num_key_value_heads"))
    biased = c.flag("attention_bias")
    return {
        "mla": mla,
        "kv_heads": None,
        "head_dim": None,
        **biases(biased, biased, False),
    }


def routed(
    c: Config, experts: str, top: str, width: str, **more: object
) -> Fields:
    """A mixture of experts by the names of its keys."""
    return {
        "experts": c.whole(experts),
        "top_k": c.whole(top),
        "expert_ffn": c.whole(width),
        **more,
    }
