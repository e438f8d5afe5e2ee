"""Model -> the config.json of Hugging Face transformers that describes it. What no family expresses
is refused.

A family is tried by writing its file and reading it back: it fits if `read_hf` gives the same model
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from ..describe.layers import kinds
from ..describe.model import Model
from ..errors import BadInput
from .hf import read_hf

Config = dict[str, Any]
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "olmo": "OlmoForCausalLM",
}
OF_TOKENIZER: Config = {
    "bos_token_id": None,
    "eos_token_id": None,
    "dtype": "float32",
}
"""A checkpoint does not know its tokenizer's special tokens; the families' defaults would be
wrong.
"""
NOT_COMPUTED = (
    "name",
    "seq",
    "vocab_multiple",
    "sources",
    "dropout",
    "notes",
)
"""Fields of a Model that do not change what its weights compute."""
ROPE = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "original": "original_max_position_embeddings",
}
"""Our names of rotary scaling -> theirs."""


def _llama(m: Model) -> Config:
    rope: Config = {"rope_type": "default", "rope_theta": m.rope_base}
    if m.rotary_share != 1:
        rope["partial_rotary_factor"] = m.rotary_share
    if m.rope_scaling:
        rope |= {"rope_type": m.rope_scaling.kind} | {
            theirs: getattr(m.rope_scaling, ours)
            for ours, theirs in ROPE.items()
        }
    return {
        "vocab_size": m.vocab,
        "hidden_size": m.hidden,
        "num_hidden_layers": m.layers,
        "intermediate_size": m.ffn,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.K,
        "head_dim": m.h,
        "max_position_embeddings": m.seq,
        "hidden_act": {"gelu-tanh": "gelu_pytorch_tanh"}.get(m.act, m.act),
        "rms_norm_eps": m.norm_epsilon,
        "rope_parameters": rope,
        "tie_word_embeddings": m.tied_embeddings,
        "attention_bias": m.bias,
        "mlp_bias": m.bias,
        "attention_dropout": 0.0,
    }


def _mistral(m: Model) -> Config:
    return {**_llama(m), "sliding_window": m.window}


def _qwen(m: Model) -> Config:
    if not m.window:
        return {**_llama(m), "use_sliding_window": False}
    every = m.full_every
    kinds = [
        "full_attention"
        if every and i % every == every - 1
        else "sliding_attention"
        for i in range(m.layers)
    ]
    return {
        **_llama(m),
        "use_sliding_window": True,
        "sliding_window": m.window,
        "layer_types": kinds,
    }


def _gpt2(m: Model) -> Config:
    return {
        "vocab_size": m.vocab,
        "n_embd": m.hidden,
        "n_layer": m.layers,
        "n_head": m.heads,
        "n_inner": m.ffn,
        "n_positions": m.seq,
        "activation_function": {"gelu-tanh": "gelu_new"}.get(m.act, m.act),
        "layer_norm_epsilon": m.norm_epsilon,
        "tie_word_embeddings": m.tied_embeddings,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _mixtral(m: Model) -> Config:
    experts = m.moe
    if experts is None:
        raise BadInput("mixtral has experts")
    return {
        **_mistral(m),
        "intermediate_size": experts.expert_ffn,
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
    }


def _qwen_moe(m: Model) -> Config:
    experts = m.moe
    if experts is None:
        raise BadInput("qwen-moe has experts")
    shared = experts.shared_ffn
    return {
        **_qwen(m),
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.expert_ffn,
        **({"shared_expert_intermediate_size": shared} if shared else {}),
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
    }


def _olmo(m: Model) -> Config:
    return {**_llama(m), "clip_qkv": None}


WRITERS: Mapping[str, Callable[[Model], Config]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "gpt2": _gpt2,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
    "olmo": _olmo,
}


def with_defaults(m: Model) -> Model:
    """A model with its defaults written out."""
    return replace(m, kv_heads=m.K, head_dim=m.h, activation=m.act)


def model_differences(a: Model, b: Model) -> list[str]:
    """Names of the fields in which two models compute different things."""
    names = [f.name for f in fields(Model) if f.name not in NOT_COMPUTED]
    keys = [
        name
        for name in names
        if getattr(with_defaults(a), name) != getattr(with_defaults(b), name)
        and not (name == "ffn" and all(kind.moe for kind in kinds(a)))
    ]
    return [
        *keys,
        *(
            ["seq"]
            if a.positions == b.positions == "learned" and a.seq != b.seq
            else []
        ),
    ]


def write_hf(m: Model) -> Config:
    """The config.json of a model; BadInput names what the nearest family cannot express."""
    nearest: tuple[int, str, list[str]] | None = None
    for family, writer in WRITERS.items():
        try:
            config = {
                "architectures": [ARCHITECTURES[family]],
                "model_type": family,
                **writer(m),
                **OF_TOKENIZER,
            }
            wrong = model_differences(m, read_hf(config, seq=m.seq))
        except BadInput:
            continue
        if not wrong:
            return config
        if nearest is None or len(wrong) < nearest[0]:
            nearest = len(wrong), family, wrong
    why = (
        f": {nearest[1]} is nearest, but differs in {', '.join(nearest[2])}"
        if nearest
        else ""
    )
    raise BadInput(
        f"model {m.name[:60]} cannot be written as one of {', '.join(WRITERS)}{why}"
    )
