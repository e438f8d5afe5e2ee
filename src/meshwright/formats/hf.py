"""Hugging Face config.json -> Model, for the decoder families people train.

One row of FAMILIES a `model_type`: what all its models share, what a file may leave out, and a function for the rest.
Old and new spellings are read (`n_embd`, `num_local_experts`, nested `text_config`, ...). What a Model cannot express,
such as experts in every second layer, is refused. Source: configuration and modeling files of transformers 4.30 to 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput, unknown
from ..spec.model import Model
from ..spec.read import brief, read
from . import parse_json, read_text

LONGEST = 8192
"""Tokens: `max_position_embeddings` is what a model may be served with; most were pre-trained on no more than this."""
MOST = 10**9
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
Fields = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """A config.json whose values are checked when they are asked for."""

    data: Mapping[str, Any]
    defaults: Mapping[str, Any]
    where: str

    def get(self, *keys: str) -> Any:
        """The first of the keys that is there and not null, else its default, else None."""
        for table in (self.data, self.defaults):
            for key in keys:
                if table.get(key) is not None:
                    return table[key]
        return None

    def whole(self, *keys: str, default: int | None = None) -> int:
        """A whole number from 0; BadInput if there is none and no default."""
        value = self.get(*keys)
        if value is None:
            if default is None:
                raise BadInput(f"{self.where} has no {' or '.join(keys)}")
            return default
        if isinstance(value, float) and value == value and abs(value) <= MOST and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
            raise BadInput(f"{self.where}: {keys[0]} must be a whole number from 0 to {MOST:,}, not {brief(value)}")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false; BadInput for anything else."""
        value = self.get(*keys)
        if value is not None and not isinstance(value, bool):
            raise BadInput(f"{self.where}: {keys[0]} must be true or false, not {brief(value)}")
        return default if value is None else value

    def listed(self, key: str) -> list[Any] | None:
        """A list, or None if there is none."""
        value: list[Any] | None = self.get(key)
        if value is not None and not isinstance(value, list):
            raise BadInput(f"{self.where}: {key} must be a list, not {brief(value)}")
        return value

    def refuse(self, what: str) -> BadInput:
        """The sentence for what a Model has no field for."""
        return BadInput(f"{self.where}: {what}, which this description of a model cannot express")


@dataclass(frozen=True)
class Family:
    """How one `model_type` is read."""

    fixed: Fields = field(default_factory=dict)
    """Model fields that are the same in all its models."""
    extra: Callable[[Config], Fields] = lambda c: {}
    """Model fields that depend on the file."""
    defaults: Fields = field(default_factory=dict)
    """Keys that a file may leave out because the configuration class has a default."""


def load_hf(path: str | Path, seq: int | None = None) -> Model:
    """The model in a config.json, or in a directory that holds one; its name is that of the directory or file."""
    file = Path(path)
    with suppress(OSError, ValueError):  # read_text says what is wrong with the path
        file = file / "config.json" if file.is_dir() else file
    name = file.parent.name if file.name == "config.json" and file.parent.name else file.stem
    return read_hf(parse_json(read_text(file), str(file)[:200]), name, seq)


def read_hf(config: Mapping[str, Any], name: str = "", seq: int | None = None) -> Model:
    """The Model that a config.json describes.

    seq: tokens of a training sequence; None takes min(max_position_embeddings, 8192), because the former is what the
    model can be served with after long-context tuning, not what it was trained on (learned positions: their number).
    Raises BadInput for an unknown architecture, and for whatever is missing, malformed or not expressible.
    """
    config = _text_part(config)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise unknown("config.json: model_type", kind if isinstance(kind, str) else brief(kind), FAMILIES)
    family = FAMILIES[kind]
    c = Config(config, family.defaults, f"config.json ({kind})")
    fields = _common(c) | family.fixed | family.extra(c)
    if fields["activation"] == ("silu" if fields.get("gated", True) else "gelu"):
        del fields["activation"]  # the usual one
    fields["name"] = name or _own_name(c) or kind
    longest = c.whole("max_position_embeddings", "n_positions", "n_ctx", "seq_length", default=2048)
    fields["seq"] = seq or (longest if fields.get("positions") == "learned" else min(longest, LONGEST))
    return read(Model, {k: v for k, v in fields.items() if v is not None}, c.where)


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model of a multimodal config; what it leaves out is looked up outside."""
    text = config.get("text_config")
    if not isinstance(text, Mapping) or "num_hidden_layers" in config:
        return config
    kind = {"gemma3": "gemma3_text"}.get(str(config.get("model_type"))[:40], config.get("model_type"))
    return {**config, "model_type": kind, **text}


def _own_name(c: Config) -> str:
    name = c.get("_name_or_path")
    return name.rstrip("/").split("/")[-1] if isinstance(name, str) else ""


def _common(c: Config) -> Fields:
    """Fields that every decoder has."""
    hidden = c.whole("hidden_size", "n_embd", "n_embed")
    heads = c.whole("num_attention_heads", "n_head")
    return {
        "layers": c.whole("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": c.whole("num_key_value_heads", default=0) or None,
        "head_dim": c.whole("head_dim", default=0) or None,
        "ffn": c.whole("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden),
        "vocab": c.whole("vocab_size"),
        "tied_embeddings": c.flag("tie_word_embeddings"),
        "norm_epsilon": _real(
            c, "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", most=1.0, default=1e-5
        ),
        "activation": _activation(c),
        **_rotary(c),
        "dropout": any(_share(c, key) for key in ("resid_pdrop", "hidden_dropout", "residual_dropout")),
    }


def _share(c: Config, key: str) -> float:
    return _real(c, key, most=1.0, default=0.0)


def _real(c: Config, *keys: str, most: float, default: float) -> float:
    """A number from 0 to `most`."""
    value = c.get(*keys)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise BadInput(f"{c.where}: {keys[0]} must be between 0 and {most:g}, not {brief(value)}")
    return float(value)


def _activation(c: Config) -> str | None:
    """The feed-forward's activation; None if the file does not say."""
    name = c.get("hidden_act", "hidden_activation", "activation_function", "activation")
    if name is not None and not isinstance(name, str):
        raise BadInput(f"{c.where}: hidden_act must be a text, not {brief(name)}")
    return ACTIVATIONS.get(name, "other") if name is not None else None


def _rotary(c: Config) -> Fields:
    """Rotary positions: transformers 5 has all of it in rope_parameters, older files in keys of their own."""
    old, new = c.get("rope_scaling"), c.get("rope_parameters")
    for table, name in ((old, "rope_scaling"), (new, "rope_parameters")):
        if table is not None and not isinstance(table, Mapping):
            raise BadInput(f"{c.where}: {name} must be a table, not {brief(table)}")
    rope = Config({**c.data, **(old or {}), **(new or {})}, c.defaults, c.where)
    base = _real(rope, "rope_theta", "rotary_emb_base", most=1e12, default=10000.0)
    share = _real(rope, "partial_rotary_factor", "rotary_pct", most=1.0, default=1.0)
    fields: Fields = {"rope_base": base or 10000.0, "rotary_share": share or 1.0}
    if any(isinstance(value, Mapping) for value in (new or {}).values()):  # other positions in other layers (Gemma 3)
        return {"rope_scaling": {"kind": "other"}}
    kind = rope.get("rope_type", "type")
    if (old is None and new is None) or kind in (None, "default"):
        return fields
    if kind not in SCALINGS:
        return {**fields, "rope_scaling": {"kind": "other"}}
    scaling = {
        "kind": kind,
        "factor": _real(rope, "factor", most=1e6, default=1.0) or 1.0,
        "low": _real(rope, "low_freq_factor", most=1e6, default=1.0) or 1.0,
        "high": _real(rope, "high_freq_factor", most=1e6, default=4.0) or 4.0,
        "original": rope.whole("original_max_position_embeddings", default=LONGEST) or LONGEST,
    }
    return {**fields, "rope_scaling": scaling}


def _biases(c: Config) -> Fields:
    """Llama: one flag for the four attention projections, one for the feed-forward."""
    attention, ffn = c.flag("attention_bias"), c.flag("mlp_bias")
    if attention != ffn:
        raise c.refuse("the attention has a bias on its output but the feed-forward has none, or the other way round")
    return {"qkv_bias": attention, "bias": ffn}


def _window(c: Config, every: int = 0) -> Fields:
    """Sliding attention in all layers but one in `every`; `layer_types` says it exactly in newer files."""
    window = c.whole("sliding_window", default=0)
    if not window or not c.flag("use_sliding_window", default=True):
        return {}
    if (types := c.listed("layer_types")) is not None:
        full = [i for i, kind in enumerate(types) if kind == "full_attention"]
        every = full[0] + 1 if full else 0
        if full != [i for i in range(len(types)) if every and i % every == every - 1]:
            raise c.refuse("the layers with full attention are not evenly spaced")
    return {"window": window, "full_every": every} if every != 1 else {}


def _mixtral(c: Config) -> Fields:
    moe = {
        "experts": c.whole("num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn": c.whole("intermediate_size"),
    }
    return {"moe": moe, **_window(c)}


def _qwen2(c: Config) -> Fields:
    first = c.whole("max_window_layers", default=0)  # the layers before it attend to everything
    if c.listed("layer_types") is not None or not c.flag("use_sliding_window") or first == 0:
        return _window(c) if c.flag("use_sliding_window") else {}
    if first < c.whole("num_hidden_layers"):
        raise c.refuse(f"the first {first} layers have full attention and the others a window")
    return {}


def _qwen3(c: Config) -> Fields:
    return _biases(c) | _qwen2(c)


def _qwen_moe(c: Config) -> Fields:
    if c.whole("decoder_sparse_step", default=1) != 1:
        raise c.refuse("only some layers have experts (decoder_sparse_step)")
    dense = c.listed("mlp_only_layers") or []
    if dense != list(range(len(dense))):
        raise c.refuse("layers without experts are not the first ones (mlp_only_layers)")
    shared = c.whole("shared_expert_intermediate_size", default=0)
    moe = {
        "experts": c.whole("num_experts", "num_local_experts"),
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn": c.whole("moe_intermediate_size"),
        "shared_ffn": shared,
        "shared_gate": shared > 0,
        "dense_layers": len(dense),
    }
    return {"moe": moe, **_qwen2(c)}


def _qwen3_moe(c: Config) -> Fields:
    return _qwen_moe(c) | _biases(c)


def _leading_dense(c: Config) -> int:
    """Layers before the first one with experts."""
    if (types := c.listed("mlp_layer_types")) is not None:
        dense = sum(kind == "dense" for kind in types)
        if any(kind == "dense" for kind in types[dense:]):
            raise c.refuse("layers without experts are not the first ones (mlp_layer_types)")
        return int(dense)
    if c.whole("moe_layer_freq", default=1) != 1:
        raise c.refuse("only some layers have experts (moe_layer_freq)")
    return c.whole("first_k_dense_replace", default=0)


def _routed(c: Config) -> Fields:
    """DeepSeek's experts. The balancing bias of V3's router is not trained by gradients: no parameter."""
    experts = c.whole("n_routed_experts", "num_experts", "num_local_experts", default=0)
    if not experts:
        return {}
    width = c.whole("moe_intermediate_size")
    moe = {
        "experts": experts,
        "top_k": c.whole("num_experts_per_tok"),
        "expert_ffn": width,
        "shared_ffn": c.whole("n_shared_experts", default=0) * width,
        "dense_layers": _leading_dense(c),
    }
    return {"moe": moe, "mtp_layers": c.whole("num_nextn_predict_layers", default=0)}


def _deepseek(c: Config) -> Fields:
    mla = {
        "kv_lora_rank": c.whole("kv_lora_rank"),
        "qk_nope_head_dim": c.whole("qk_nope_head_dim"),
        "qk_rope_head_dim": c.whole("qk_rope_head_dim"),
        "v_head_dim": c.whole("v_head_dim"),
    }
    if rank := c.whole("q_lora_rank", default=0):
        mla["q_lora_rank"] = rank
    if c.flag("attention_bias"):
        raise c.refuse("the projections of the latent attention have biases")
    return {"mla": mla, "kv_heads": None, "head_dim": None, **_routed(c)}


def _gpt_oss(c: Config) -> Fields:
    moe = {
        "experts": c.whole("num_local_experts", "num_experts"),
        "top_k": c.whole("num_experts_per_tok", "experts_per_token"),
        "expert_ffn": c.whole("intermediate_size"),
        "router_bias": True,
        "expert_bias": True,
    }
    biased = c.flag("attention_bias", default=True)
    return {"moe": moe, "qkv_bias": biased, "bias": biased, **_window(c, every=2)}


def _gemma2(c: Config) -> Fields:
    return _gemma(c) | _window(c, every=2)


def _gemma3(c: Config) -> Fields:
    return _gemma(c) | _window(c, every=c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6))


def _gemma(c: Config) -> Fields:
    if c.flag("attention_bias"):
        raise c.refuse("the attention has a bias on its output but the feed-forward has none")
    return {}


def _olmo3(c: Config) -> Fields:
    return _biases(c) | _window(c, every=4)


def _glm(c: Config) -> Fields:
    return {"qkv_bias": c.flag("attention_bias")}


def _glm4_moe(c: Config) -> Fields:
    return {"qkv_bias": c.flag("attention_bias"), "qk_norm": c.flag("use_qk_norm"), **_routed(c)}


def _gpt_neox(c: Config) -> Fields:
    if not c.flag("attention_bias", default=True):
        raise c.refuse("the feed-forward has biases but the attention has none")
    return {"qkv_bias": True, "bias": True}


def _falcon(c: Config) -> Fields:
    """7B: one key/value head, one norm before both halves of a block. 40B and 180B: a norm for each half."""
    heads, new = c.whole("num_attention_heads", "n_head"), c.flag("new_decoder_architecture")
    kv = c.whole("num_kv_heads", "n_head_kv", default=heads)
    parallel = new or c.flag("parallel_attn", default=True)
    norms = c.whole("num_ln_in_parallel_attn", default=2 if new else 1) if parallel else 2
    biased = c.flag("bias")
    return {
        "kv_heads": kv if new else 1 if c.flag("multi_query", default=True) else heads,
        "norms_per_layer": norms,
        "positions": "alibi" if c.flag("alibi") else "rope",
        "qkv_bias": biased,
        "bias": biased,
    }


LAYERNORM_GELU: Fields = {"norm": "layernorm", "gated": False}
BIASED: Fields = {"qkv_bias": True, "bias": True}
TIED: Fields = {"tie_word_embeddings": True}
GEMMA: Fields = {**TIED, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh"}
FALCON = Family(LAYERNORM_GELU, _falcon, TIED)
RMS6: Fields = {"rms_norm_eps": 1e-6}
"""What LlamaConfig and its heirs take where a file says nothing (transformers 5.23)."""
GLM: Fields = {"rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5}
DEEPSEEK = Family({}, _deepseek, RMS6)

FAMILIES: dict[str, Family] = {
    "llama": Family({}, _biases, RMS6),
    "mistral": Family({}, _window, RMS6),
    "ministral": Family({}, _window, RMS6),
    "mixtral": Family({}, _mixtral, {"rope_theta": 1e6}),
    "qwen2": Family({"qkv_bias": True}, _qwen2, RMS6),
    "qwen3": Family({"qk_norm": True}, _qwen3, RMS6),
    "qwen2_moe": Family({"qkv_bias": True}, _qwen_moe, RMS6),
    "qwen3_moe": Family({"qk_norm": True}, _qwen3_moe, RMS6),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "gpt2": Family(
        {**LAYERNORM_GELU, **BIASED, "positions": "learned"}, defaults={**TIED, "activation_function": "gelu_new"}
    ),
    "gpt_neox": Family(LAYERNORM_GELU, _gpt_neox, {"rotary_pct": 0.25}),
    "gemma": Family({}, _gemma, {**GEMMA, "head_dim": 256}),
    "gemma2": Family({"norms_per_layer": 4}, _gemma2, {**GEMMA, "head_dim": 256, "sliding_window": 4096}),
    "gemma3_text": Family(
        {"norms_per_layer": 4, "qk_norm": True},
        _gemma3,
        {
            **GEMMA,
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
            "max_position_embeddings": 131072,
        },
    ),
    "falcon": FALCON,
    "RefinedWeb": FALCON,
    "RefinedWebModel": FALCON,
    "olmo": Family({"norm": "nonparametric"}, _biases),
    "olmo2": Family({"qk_norm": True, "qk_norm_whole": True}, _biases),
    "olmo3": Family({"qk_norm": True, "qk_norm_whole": True}, _olmo3),
    "gpt_oss": Family({"attention_sinks": True}, _gpt_oss, {"rope_theta": 150000.0}),
    "phi3": Family({}, _window),
    "bloom": Family(
        {**LAYERNORM_GELU, **BIASED, "positions": "alibi", "embedding_norm": True, "activation": "gelu-tanh"},
        defaults=TIED,
    ),
    "glm": Family({}, _glm, GLM),
    "glm4": Family({"norms_per_layer": 4}, _glm, GLM),
    "glm4_moe": Family({}, _glm4_moe, {"partial_rotary_factor": 0.5}),
}
