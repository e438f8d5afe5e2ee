"""What families of transformers are made of: biases, experts, layers with windows, dense layers.

A part reads some keys of a config.json into fields of a model; a family is a row of parts. A
number in a row is a `Number`: itself, the key that says it, or (key, what null means).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..errors import BadInput
from .hf_common import sliding
from .hf_keys import Config, Fields
from .hf_layers import (
    ATTENTION,
    FEED_FORWARD,
    Names,
    last_of_period,
    layer_count,
    windows,
    words_of_list,
)

Part = Callable[[Config], Fields]
Layers = Callable[[Config], list[str]]
"""A word for each layer, as the class has them where the file does not list them."""
Number = int | str | tuple[str, int]

QWEN = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
DEEPSEEK = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
KIMI = ("num_local_experts", "num_experts_per_tok", "moe_intermediate_size")
MIXTRAL = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
"""Names of the number of experts, of those that a token goes to, and of their width."""


def all_of(*parts: Part) -> Part:
    """The fields of all parts, read in this order."""

    def read(c: Config) -> Fields:
        return {k: v for part in parts for k, v in part(c).items()}

    return read


def number_of_row(c: Config, what: Number) -> int:
    """A number of a row, read where it is a key."""
    if isinstance(what, int):
        return what
    key, usual = (what, None) if isinstance(what, str) else what
    return c.whole(key, default=usual)


def unused_keys(*keys: str) -> Part:
    """Keys that files have and the class has no use for."""

    def read(c: Config) -> Fields:
        c.asked.update(keys)
        return {}

    return read


def decoder(c: Config) -> Fields:
    """No cross-attention, which these classes can have."""
    if c.flag("add_cross_attention"):
        raise c.refuse("add_cross_attention is set")
    return {}


# ---------------------------------------------------------------- attention


def biases(qkv: bool, out: bool, ffn: bool) -> Fields:
    """Biases of queries, keys and values, of the attention's output, and of the feed-forward."""
    fields: Fields = {"qkv_bias": qkv, "bias": ffn}
    return fields if out == ffn else {**fields, "out_bias": out}


def bias_flags(
    qkv: str | bool, out: str | bool = False, ffn: str | bool = False
) -> Part:
    """Biases of attention, its output and the feed-forward: by flags, or as the class has them."""

    def read(c: Config) -> Fields:
        flags = (
            c.flag(key) if isinstance(key, str) else key
            for key in (qkv, out, ffn)
        )
        return biases(*flags)

    return read


LLAMA = bias_flags("attention_bias", "attention_bias", "mlp_bias")
"""One flag for the four attention projections, one for the feed-forward."""
PROJECTIONS = bias_flags("attention_bias", "attention_bias")
"""One flag for the four attention projections."""
QKV = bias_flags("attention_bias")


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
    return {"mla": mla, "kv_heads": None, "head_dim": None, **PROJECTIONS(c)}


# ---------------------------------------------------------------- layers with windows


def last_of(
    period: Number, last: str = "full", others: str = "sliding"
) -> Layers:
    """The last of each `period` layers is another; 0: none is."""
    return lambda c: last_of_period(
        layer_count(c), number_of_row(c, period), last, others
    )


def first_of(period: int) -> Layers:
    """The first of each `period` layers sees everything."""
    return lambda c: [
        "sliding" if i % period else "full" for i in range(layer_count(c))
    ]


def behind(first: Number) -> Layers:
    """Windows from a layer on."""

    def layers(c: Config) -> list[str]:
        start = number_of_row(c, first)
        return [
            "sliding" if i >= start else "full" for i in range(layer_count(c))
        ]

    return layers


def full(c: Config) -> list[str]:
    """Every layer sees everything."""
    return ["full"] * layer_count(c)


def if_wide(layers: Layers) -> Layers:
    """These, where the file says how wide a window is; else none has one."""

    def mixers(c: Config) -> list[str]:
        usual = layers(c)
        return usual if c.whole("sliding_window", default=0) else full(c)

    return mixers


def window_sizes(
    usual: Layers = full, key: str = "sliding_window", names: Names = ATTENTION
) -> Part:
    """`layer_types`, or as the class has them; `key` says how wide a window is."""
    return lambda c: windows(c, usual(c), key, names)


def slid(usual: Layers) -> Part:
    """Sliding windows of classes that may leave all windows out (`use_sliding_window`)."""
    return lambda c: sliding(c, usual(c))


def rotary_layers(c: Config, period: int) -> list[bool]:
    """Layers with rotary positions: those of `no_rope_layers`, or all but each period-th."""
    layers = layer_count(c)
    each = c.whole("no_rope_layer_interval", default=period) or 1
    given = c.listed("no_rope_layers")
    if not given:
        return [bool((i + 1) % each) for i in range(layers)]
    if len(given) < layers:
        raise BadInput(
            f"{c.where}: no_rope_layers lists {len(given)} layers,"
            f" num_hidden_layers is {layers}"
        )
    return [bool(turned) for turned in given[:layers]]


# ---------------------------------------------------------------- experts


def routed_experts(
    c: Config, experts: str, top: str, width: str, **more: Any
) -> Fields:
    """A mixture of experts by the names of its keys."""
    return {
        "experts": c.whole(experts),
        "top_k": c.whole(top),
        "expert_ffn": c.whole(width),
        **more,
    }


def expert_part(
    names: tuple[str, str, str], *shared: Number, **more: object
) -> Part:
    """A mixture of experts. shared: numbers whose product is the width of the shared ones."""

    def read(c: Config) -> Fields:
        moe = routed_experts(c, *names) | more
        if shared:
            moe["shared_ffn"] = prod(number_of_row(c, key) for key in shared)
        return {"moe": moe}

    return read


def dense_first(first: Number = 0, step: Number = 1) -> Part:
    """By `mlp_layer_types`, or experts from a layer on, in every `step`-th."""

    def read(c: Config) -> Fields:
        start, each = number_of_row(c, first), number_of_row(c, step) or 1
        usual = [
            "experts" if i >= start and i % each == 0 else "dense"
            for i in range(layer_count(c))
        ]
        return {
            "ffns": words_of_list(c, "mlp_layer_types", FEED_FORWARD) or usual
        }

    return read


def sparse_steps(dense: tuple[int, ...] = ()) -> Part:
    """Experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.

    dense: layers without experts where the file does not list them.
    """

    def read(c: Config) -> Fields:
        plain = c.listed("mlp_only_layers")
        step = c.whole("decoder_sparse_step", default=1)
        if not step:
            raise BadInput(
                f"{c.where}: decoder_sparse_step must be at least 1"
            )
        left = dense if plain is None else plain
        return {
            "ffns": [
                "dense" if i in left or (i + 1) % step else "experts"
                for i in range(layer_count(c))
            ]
        }

    return read


def deepseek(dense: Number, **more: object) -> Part:
    """DeepSeek's experts and next-token blocks. dense: leading layers without experts."""
    return all_of(
        expert_part(
            DEEPSEEK, ("n_shared_experts", 0), "moe_intermediate_size", **more
        ),
        dense_first(dense, ("moe_layer_freq", 1)),
    )
