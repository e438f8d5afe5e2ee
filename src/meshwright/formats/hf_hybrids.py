"""Hybrid families: linear attention, state spaces and convolutions, alone or between layers of
full attention.

Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from ..errors import BadInput
from .hf_family import HfFamily
from .hf_keys import Config, Fields
from .hf_layers import (
    LINEAR,
    MAMBA,
    last_of_period,
    layer_count,
    windows,
    words_of_list,
)
from .hf_parts import (
    DEEPSEEK,
    KIMI,
    LLAMA,
    MIXTRAL,
    PROJECTIONS,
    QWEN,
    all_of,
    biases,
    dense_first,
    expert_part,
    last_of,
    latent,
    routed_experts,
    sparse_steps,
    unused_keys,
    window_sizes,
)


def _delta(c: Config) -> Fields:
    """Qwen3-Next's gated delta net: queries, keys, values and gate, a decay and a write strength a
    head; its decay rates and step biases are two numbers a head.
    """
    heads = c.whole("linear_num_value_heads")
    return {
        "heads": heads,
        "key_heads": c.whole("linear_num_key_heads"),
        "key_dim": c.whole("linear_key_head_dim"),
        "value_dim": c.whole("linear_value_head_dim"),
        "conv": c.whole("linear_conv_kernel_dim"),
        "vectors": 2 * heads,
    }


def _plain_attention(c: Config) -> Fields:
    """Without biases: those of queries would belong to their gates too."""
    if c.flag("attention_bias"):
        raise c.refuse("gated attention has biases (attention_bias)")
    return biases(False, False, False)


FOURTH = window_sizes(
    last_of(("full_attention_interval", 4), "full", "linear"), names=LINEAR
)


def _next_token(c: Config) -> Fields:
    """Next-token blocks that files name, and the class does not build."""
    c.asked.add("mtp_use_dedicated_embeddings")
    return {"mtp_layers": c.whole("mtp_num_hidden_layers", default=0)}


def _qwen3_5(c: Config) -> Fields:
    c.asked.add("mlp_only_layers")
    return {
        "linear": _delta(c),
        **_plain_attention(c),
        **FOURTH(c),
        **_next_token(c),
    }


def _qwen3_next(c: Config) -> Fields:
    """A shared expert with a gate."""
    shared = c.whole("shared_expert_intermediate_size")
    if not shared:
        raise c.refuse("a shared expert has no width, but its gate is there")
    return {
        "linear": _delta(c),
        "moe": routed_experts(c, *QWEN, shared_ffn=shared, shared_gate=True),
        "ffn": c.whole("intermediate_size", default=shared),
        **sparse_steps()(c),
        **_plain_attention(c),
        **FOURTH(c),
        **_next_token(c),
    }


def _channel_decay(heads: int, width: int) -> Fields:
    """Kimi's delta rule: a decay for each channel of the key."""
    return {
        "heads": heads,
        "key_dim": width,
        "value_dim": width,
        "decay": "channel",
        "vectors": heads + heads * width,
    }


def _kimi_linear(c: Config) -> Fields:
    """Kimi's delta attention between layers of latent attention; the gates have a narrow matrix as
    wide as a head.
    """
    inner = c.table("linear_attn_config")
    layers = layer_count(c)
    heads = inner.get("num_heads", c.whole("linear_num_heads"))
    width = inner.get("head_dim", c.whole("linear_head_dim"))
    conv = inner.get(
        "short_conv_kernel_size", c.whole("linear_conv_kernel_dim")
    )
    usual = ["full" if i and i % 4 == 0 else "linear" for i in range(layers)]
    if "full_attn_layers" in inner and "kda_layers" in inner:
        full = set(inner["full_attn_layers"])  # counted from 1
        usual = ["full" if i + 1 in full else "linear" for i in range(layers)]
    linear = _channel_decay(heads, width)
    linear |= {"conv": conv, "decay_rank": width, "gate_rank": width}
    return {
        "linear": linear,
        "mixers": words_of_list(c, "layer_types", LINEAR) or usual,
    }


DERIVED = ("linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim")
"""Keys that the class works out from others, unless a file has them."""


def _bailing(c: Config) -> Fields:
    """The same with whole matrices for the gates, and a gate a head in latent attention."""
    layers = layer_count(c)
    heads = c.whole("linear_num_heads", "num_attention_heads")
    width = c.whole("linear_head_dim", "head_dim")
    taps = c.whole("linear_conv_kernel_dim", "short_conv_kernel_size")
    linear = _channel_decay(heads, width) | {"conv": taps}
    usual = last_of_period(
        layers, c.whole("layer_group_size"), "full", "linear"
    )
    return {
        "linear": linear,
        "mixers": words_of_list(c, "layer_types", LINEAR) or usual,
    }


def _olmo_hybrid(c: Config) -> Fields:
    """A gated delta net whose keys are 3/4 of D wide together, and values twice as wide."""
    layers = layer_count(c)
    heads = c.whole("num_attention_heads")
    keys = c.whole("linear_num_key_heads", default=heads)
    values = c.whole("linear_num_value_heads", default=heads)
    width = c.whole(
        "linear_key_head_dim",
        default=int(0.75 * c.whole("hidden_size") / (keys or 1)),
    )
    usual = last_of_period(layers, 4, "full", "linear")
    if "full" not in usual:
        usual[-1] = "full"
    linear = {
        "heads": values,
        "key_heads": keys,
        "key_dim": width,
        "value_dim": c.whole("linear_value_head_dim", default=2 * width),
        "conv": c.whole("linear_conv_kernel_dim"),
        "vectors": 2 * values,
    }
    return {
        "linear": linear,
        **PROJECTIONS(c),
        **windows(c, usual, names=LINEAR),
    }


def _minimax(c: Config) -> Fields:
    """Lightning attention: a fixed decay a head, a gate, one norm over all heads."""
    heads = c.whole("num_attention_heads")
    width = c.whole("head_dim", default=c.whole("hidden_size") // (heads or 1))
    linear = {
        "kind": "lightning",
        "heads": heads,
        "key_dim": width,
        "value_dim": width,
        "chunk": c.whole("block_size"),
        "decay": "fixed",
        "write_gate": False,
        "norm": "whole",
    }
    return {"linear": linear}


def _xlstm(c: Config) -> Fields:
    """mLSTM: an input and a forget gate a head, with biases; a norm over all heads."""
    D = c.whole("hidden_size")
    heads = c.whole("num_heads")
    if c.whole("embedding_dim", default=D) != D:
        raise c.refuse(
            "the embedding has another width than the layers (embedding_dim)"
        )
    layers = c.whole("num_blocks", default=layer_count(c))
    c.asked.add("add_out_norm")  # there is a norm in any case
    biased = c.flag("use_bias")
    single = c.get("weight_mode")
    if biased or single != "single":
        raise c.refuse(
            "projections with biases, or fused ones (use_bias, weight_mode)"
        )
    keys = int(D * c.real("qk_dim_factor", most=100.0, default=0.5))
    values = int(D * c.real("v_dim_factor", most=100.0, default=1.0))
    unit = c.whole("ffn_round_up_to_multiple_of") or 1
    wide = c.real("ffn_proj_factor", most=100.0, default=2.667) * D
    if keys % heads or values % heads:
        raise BadInput(
            f"{c.where}: num_heads {heads} must divide the widths of keys and values"
        )
    linear = {
        "kind": "gated",
        "heads": heads,
        "key_dim": keys // heads,
        "value_dim": values // heads,
        "chunk": c.whole("chunk_size"),
        "norm": "whole",
        "vectors": 2 * heads,
    }
    return {
        "layers": layers,
        "heads": heads,
        "head_dim": values // heads,
        "tied_embeddings": False,  # whatever the file says
        "linear": linear,
        "ffn": int(unit * ceil(wide / unit)),
        "mixers": ["linear"] * layers,
    }


PREFIXED = (
    *("mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_chunk_size"),
    *("mamba_conv_bias", "mamba_proj_bias"),
)
BARE = (
    *("state_size", "n_groups", "conv_kernel", "chunk_size"),
    *("use_conv_bias", "use_bias"),
)
"""Names of a state's size, groups, taps, tokens of a chunk, and of both biases."""


def _mamba2(
    c: Config, inner: int, heads: int, names: tuple[str, ...] = PREFIXED
) -> dict[str, Any]:
    """Mamba-2 by the names of its keys."""
    state, groups, taps, chunk, conv_bias, bias = names
    return {
        "inner": inner,
        "heads": heads,
        "state": c.whole(state),
        "groups": c.whole(groups),
        "conv": c.whole(taps),
        "chunk": c.whole(chunk),
        "conv_bias": c.flag(conv_bias),
        "bias": c.flag(bias),
    }


def _expanded(c: Config) -> dict[str, Any]:
    """Mamba-2 in `mamba_expand` times the hidden size."""
    heads = c.whole("mamba_n_heads")
    each = c.get("mamba_d_head")
    inner = c.whole("mamba_expand") * c.whole("hidden_size")
    if each == "auto":
        each = inner // (heads or 1)
    if not isinstance(each, int) or isinstance(each, bool):
        raise BadInput(
            f"{c.where}: mamba_d_head must be a whole number or auto"
        )
    return _mamba2(c, inner, heads)


def _alone(c: Config, ssm: Fields) -> Fields:
    """Layers of a state space and nothing else."""
    layers = layer_count(c)
    return {
        "ssm": ssm,
        "mixers": ["ssm"] * layers,
        "ffns": ["none"] * layers,
        "ffn": 0,
        "positions": "none",
    }


def _bamba(c: Config) -> Fields:
    """Mamba-2, and full attention in the layers that are named."""
    layers = layer_count(c)
    named = c.listed("attn_layer_indices") or []
    usual = ["full" if i in named else "ssm" for i in range(layers)]
    mixers = words_of_list(c, "layers_block_type", MAMBA) or usual
    return {
        "ssm": _expanded(c),
        "mixers": mixers,
        **LLAMA(c),
    }


def _granite_hybrid(c: Config) -> Fields:
    """Mamba-2 and full attention; experts, if there are any, beside shared ones."""
    shared = c.whole("shared_intermediate_size")
    layers = layer_count(c)
    fields: Fields = {
        "ssm": _expanded(c),
        "ffn": shared,
        "mixers": words_of_list(c, "layer_types", MAMBA) or ["ssm"] * layers,
        **PROJECTIONS(c),
    }
    if c.whole("num_local_experts"):
        fields["moe"] = routed_experts(c, *MIXTRAL, shared_ffn=shared)
    return fields


def _falcon_h1(c: Config) -> Fields:
    """Mamba-2 beside full attention in every layer, under one norm."""
    heads = c.whole("mamba_n_heads")
    expanded = c.whole("mamba_expand") * c.whole("hidden_size")
    inner = c.whole("mamba_d_ssm", default=expanded)
    each = c.get("mamba_d_head")
    if each not in ("auto", inner // (heads or 1)):
        raise c.refuse("mamba_d_head x mamba_n_heads is not mamba_d_ssm")
    ssm = _mamba2(c, inner, heads) | {"norm": c.flag("mamba_rms_norm")}
    if c.flag("projectors_bias") != ssm["bias"]:
        raise c.refuse(
            "only one projection of the state space has a bias (projectors_bias)"
        )
    return {"ssm": ssm, "mixers": ["ssm&full"] * layer_count(c), **LLAMA(c)}


def _jamba(c: Config) -> Fields:
    """Mamba with norms of its own; attention and experts in every so many layers."""
    layers = layer_count(c)
    D = c.whole("hidden_size")
    period = c.whole("attn_layer_period") or 1
    offset = c.whole("attn_layer_offset")
    sparse = c.whole("expert_layer_period") or 1
    first = c.whole("expert_layer_offset")
    rank = c.get("mamba_dt_rank")
    rank = ceil(D / 16) if rank == "auto" else c.whole("mamba_dt_rank")
    if c.flag("mamba_proj_bias"):
        raise c.refuse(
            "projections of the state space have biases (mamba_proj_bias)"
        )
    experts = c.whole("num_experts")
    here = [i % sparse == first and experts > 1 for i in range(layers)]
    usual = ["full" if i % period == offset else "ssm" for i in range(layers)]
    ssm = {
        "kind": "mamba",
        "inner": c.whole("mamba_expand") * D,
        "state": c.whole("mamba_d_state"),
        "dt_rank": rank,
        "conv": c.whole("mamba_d_conv"),
        "conv_bias": c.flag("mamba_conv_bias"),
        "inner_norms": True,
    }
    fields: Fields = {
        "ssm": ssm,
        "mixers": words_of_list(c, "layer_types", MAMBA) or usual,
    }
    if any(here):
        fields["moe"] = routed_experts(
            c, "num_experts", "num_experts_per_tok", "intermediate_size"
        )
        fields["ffns"] = ["experts" if one else "dense" for one in here]
    return fields


def _mamba(c: Config) -> Fields:
    """Layers of Mamba alone."""
    D = c.whole("hidden_size")
    rank = c.get("time_step_rank")
    if c.flag("use_bias"):
        raise c.refuse("projections of the state space have biases (use_bias)")
    inner = int(c.real("expand", most=1e3, default=2.0) * D)
    ssm = {
        "kind": "mamba",
        "inner": c.whole("intermediate_size", default=inner),
        "state": c.whole("state_size"),
        "dt_rank": ceil(D / 16)
        if rank == "auto"
        else c.whole("time_step_rank"),
        "conv": c.whole("conv_kernel"),
        "conv_bias": c.flag("use_conv_bias"),
    }
    return _alone(c, ssm) | {"heads": 1, "head_dim": D}


def _mamba_2(c: Config) -> Fields:
    """Layers of Mamba-2 alone."""
    heads = c.whole("num_heads")
    D = c.whole("hidden_size")
    inner = int(c.real("expand", most=1e3, default=2.0) * D)
    if heads * c.whole("head_dim") != inner:
        raise BadInput(
            f"{c.where}: num_heads x head_dim must be expand x hidden_size"
        )
    return _alone(c, _mamba2(c, inner, heads, BARE)) | {"heads": heads}


BLOCKS = {
    "linear_attention": ("ssm", "none"),
    "mamba": ("ssm", "none"),
    "full_attention": ("full", "none"),
    "attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "experts"),
}
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_h(c: Config) -> Fields:
    """Each layer is one thing under one norm: Mamba-2, attention, a feed-forward or experts."""
    given = c.listed("layers_block_type")
    letters = c.get("hybrid_override_pattern")
    if given is None and letters is None:
        given = ["linear_attention", "moe", "full_attention", "mlp"]
    if given is None:
        if (
            not isinstance(letters, str)
            or not letters
            or not set(letters) <= set(LETTERS)
        ):
            raise BadInput(
                f"{c.where}: hybrid_override_pattern must be of the letters M * - E"
            )
        given = [LETTERS[letter] for letter in letters]
    if other := [
        kind
        for kind in given
        if not isinstance(kind, str) or kind not in BLOCKS
    ]:
        raise c.refuse(f"layers_block_type has {str(other[0])[:40]!r}")
    blocks = [BLOCKS[kind] for kind in given]
    heads = c.whole("mamba_num_heads")
    D = c.whole("hidden_size")
    c.asked.update(("expand", "num_hidden_layers"))
    inner = heads * c.whole("mamba_head_dim")
    ssm = _mamba2(c, inner, heads, ("ssm_state_size", *BARE[1:]))
    if c.flag("mamba_proj_bias"):
        raise c.refuse(
            "projections of the state space have biases (mamba_proj_bias)"
        )
    blocks_ahead = c.whole("num_nextn_predict_layers", default=0)
    c.asked.update(("mtp_layers_block_type", "mtp_hybrid_override_pattern"))
    ahead = f"{blocks_ahead} next-token blocks (num_nextn_predict_layers) are left out"
    shared = c.whole("moe_shared_expert_intermediate_size")
    moe = routed_experts(
        c, *DEEPSEEK, shared_ffn=shared * bool(c.whole("n_shared_experts"))
    )
    moe["latent"] = c.whole("moe_latent_size", default=0)
    mlp = c.flag("mlp_bias")
    # the class has it, and its attention has none
    c.asked.add("attention_bias")
    if (
        mlp
        and moe["shared_ffn"]
        and any(kind == "experts" for _, kind in blocks)
    ):
        raise c.refuse("experts have biases (mlp_bias)")
    return {
        "layers": len(blocks),
        "hidden": D,
        "ssm": ssm,
        "moe": moe,
        "mixers": [mixer for mixer, _ in blocks],
        "ffns": [ffn for _, ffn in blocks],
        "told": (f"{c.where}: {ahead}",) if blocks_ahead else (),
        "tied_embeddings": False,  # whatever the file says
        **biases(False, False, mlp),
    }


CONVOLUTION = {
    "full_attention": "full",
    "conv": "conv",
    "sliding_attention": "sliding",
}


def _convolution(c: Config) -> Fields:
    return {"taps": c.whole("conv_L_cache"), "bias": c.flag("conv_bias")}


def _lfm2(c: Config) -> Fields:
    """Gated short convolutions between layers of attention; the width of the feed-forward is two
    thirds of what the file says, rounded up.
    """
    layers = layer_count(c)
    wide = c.whole("block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim"):
        unit = c.whole("block_multiple_of") or 1
        wide = int(
            c.real("block_ffn_dim_multiplier", most=100.0, default=1.0)
            * int(2 * wide / 3)
        )
        wide = unit * -(-wide // unit)
    full = c.listed("full_attn_idxs")
    usual = [
        "full" if full is None or i in full else "conv" for i in range(layers)
    ]
    tied = c.flag("tie_embedding", "tie_word_embeddings")
    return {
        "conv": _convolution(c),
        "ffn": wide,
        "tied_embeddings": tied,
        "mixers": words_of_list(c, "layer_types", CONVOLUTION) or usual,
    }


def _lfm2_moe(c: Config) -> Fields:
    layers = layer_count(c)
    types = words_of_list(c, "layer_types", CONVOLUTION)
    if types is None:
        raise BadInput(f"{c.where} has no layer_types")
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    first = c.whole("num_dense_layers")
    return {
        "conv": _convolution(c),
        "moe": routed_experts(c, *names),
        "tied_embeddings": c.flag("tie_embedding", "tie_word_embeddings"),
        "mixers": types,
        "ffns": ["experts" if i >= first else "dense" for i in range(layers)],
    }


def _lfm3(c: Config) -> Fields:
    """Four norms, a gate a head, windows in half of the attention layers."""
    layers = layer_count(c)
    usual = [
        "full" if i % 4 == 2 else "sliding" if i % 4 == 0 and i else "conv"
        for i in range(layers)
    ]
    return {
        "conv": _convolution(c),
        "norms_per_layer": 4 if c.flag("use_sandwich_norm") else 2,
        "attention_gate": "head" if c.flag("use_attention_gate") else "none",
        **PROJECTIONS(c),
        **windows(c, usual, names=CONVOLUTION),
    }


HEAD = ("head_dim",)
NEXT: Fields = {"qk_norm": True, "attention_gate": "element"}
NEXT_KEYS = (
    "full_attention_interval",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
)
PLAIN: Fields = {"positions": "none"}

UNTIED: Fields = {"tied_embeddings": False}
"""Whatever the file says."""
LATENT = all_of(
    latent, expert_part(KIMI, "n_shared_experts", "moe_intermediate_size")
)

HYBRIDS: dict[str, HfFamily] = {
    "bailing_hybrid": HfFamily(
        {"attention_gate": "head", **UNTIED},
        all_of(_bailing, LATENT, dense_first("first_k_dense_replace")),
        also=("qk_head_dim", *DERIVED),
    ),
    "bamba": HfFamily({}, _bamba, also=HEAD),
    "falcon_h1": HfFamily({}, _falcon_h1, also=HEAD),
    "falcon_mamba": HfFamily({}, _mamba, also=("intermediate_size",)),
    "granitemoehybrid": HfFamily({}, _granite_hybrid, also=HEAD),
    "jamba": HfFamily(PLAIN, _jamba, also=HEAD),
    "kimi_linear": HfFamily(
        {**PLAIN, **UNTIED},
        all_of(
            _kimi_linear, LATENT, dense_first(("first_k_dense_replace", 1))
        ),
        also=(
            "linear_attn_config",
            "first_k_dense_replace",
            "qk_head_dim",
            *HEAD,
        ),
    ),
    "lfm2": HfFamily(
        {"qk_norm": True}, _lfm2, also=("tie_embedding", "block_ff_dim", *HEAD)
    ),
    "lfm2_moe": HfFamily(
        {"qk_norm": True}, _lfm2_moe, also=("tie_embedding", *HEAD)
    ),
    "lfm3": HfFamily({"qk_norm": True}, _lfm3),
    "mamba": HfFamily({}, _mamba, also=("intermediate_size",)),
    "mamba2": HfFamily({}, _mamba_2),
    "minimax": HfFamily(
        {},
        all_of(
            _minimax,
            expert_part(MIXTRAL),
            window_sizes(last_of(2, "linear", "full"), names=LINEAR),
        ),
    ),
    "nemotron_h": HfFamily(
        {"gated": False, **PLAIN},
        _nemotron_h,
        {"num_hidden_layers": 1},  # its class counts the list
        also=("hybrid_override_pattern", "mtp_hybrid_override_pattern"),
    ),
    "olmo_hybrid": HfFamily(
        {"qk_norm": True, "qk_norm_whole": True}, _olmo_hybrid, also=HEAD
    ),
    "qwen3_5_moe_text": HfFamily(
        NEXT,
        all_of(unused_keys("mlp_only_layers"), _qwen3_next),
        also=(*NEXT_KEYS, "mlp_only_layers"),
    ),
    "qwen3_5_text": HfFamily(
        NEXT, _qwen3_5, also=(*NEXT_KEYS, "mlp_only_layers")
    ),
    "qwen3_next": HfFamily(NEXT, _qwen3_next, also=NEXT_KEYS),
    "xlstm": HfFamily(PLAIN, _xlstm),
}
