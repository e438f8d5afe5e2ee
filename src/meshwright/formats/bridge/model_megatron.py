"""The model in Megatron's settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ... import catalog
from ...describe.job import Job
from ...errors import BadInput, brief
from .keys import Keys

NO_MODEL = "num_layers"
"""Without it a file describes no model of its own."""
VOCABULARIES = {
    "gpt2bpetokenizer": 50257,
    "gptsentencepiecetokenizer": None,
    "llama2tokenizer": 32000,
}
"""Tokenizer that has one vocabulary -> its size (Megatron-LM, training/tokenizer)."""
MLA = {
    "q_lora_rank": ("q_lora_rank", 512),
    "kv_lora_rank": ("kv_lora_rank", 512),
    "qk_nope_head_dim": ("qk_head_dim", 128),
    "qk_rope_head_dim": ("qk_pos_emb_head_dim", 64),
    "v_head_dim": ("v_head_dim", 128),
}
"""Our field -> (Megatron's, its default): MLATransformerConfig."""
FREQUENCY = re.compile(r"[\[\]()0-9*+,\s]+")


def has_own_model(k: Keys) -> bool:
    """The file has a model of its own."""
    return NO_MODEL in k.said


def ffn(k: Keys) -> int | None:
    """Four times the width, or two thirds of it where there is a gate."""
    hidden = k.degree("model.hidden")
    usual = (
        int((4 * hidden * 2 / 3) / 64) * 64 if k.flag("swiglu") else 4 * hidden
    )
    return k.whole("ffn_hidden_size") or usual


def kv_heads(k: Keys) -> int | None:
    """Groups count only where grouped queries are asked for; a provider's just by their number."""
    groups = k.whole("num_query_groups")
    asked = k.flag(
        "group_query_attention",
        "group_query_attention" not in k.said and is_dataclass_of_groups(k),
    )
    return (groups or 1) if asked and has_own_model(k) else None


def is_dataclass_of_groups(k: Keys) -> bool:
    """The keys are those of a dataclass, which has no flag of its own for grouped queries."""
    return "num_query_groups" in k.said and k.title != "Megatron-LM"


def vocab(k: Keys) -> int | None:
    """Rows of the embedding, from the tokenizer's name where the file says no number."""
    kind = k.word("tokenizer_type")
    name = k.get("tokenizer_model")
    given = k.whole("vocab_size") or k.whole("padded_vocab_size")
    if not given and (given := VOCABULARIES.get(kind)):
        k.notes.append(
            f"vocabulary {given:,}: that of {k.get('tokenizer_type')}"
        )
    if not given and name and catalog.has("models", str(name)):
        given = catalog.model(str(name)).vocab
        k.notes.append(
            f"vocabulary {given:,}: that of {name} in the catalogue"
        )
    if not given and k.said.get("merge_file") is not None and not kind:
        given = VOCABULARIES["gpt2bpetokenizer"]
        k.notes.append(
            f"vocabulary {given:,}: that of GPT-2, whose kind of tokenizer it has"
        )
    if not given:
        k.tables.setdefault("", {})["missing"] = [
            "leaves the vocabulary to its tokenizer: give it, such as --vocab-size 128256, or the"
            " model, such as --model llama3-8b"
        ]
    return given


def positions(k: Keys) -> str | None:
    kind = k.word("position_embedding_type", "learned_absolute")
    if k.flag("use_rotary_position_embeddings") or k.flag(
        "multi_latent_attention"
    ):
        kind = "rope"
    if kind == "learned_absolute" and k.flag("no_position_embedding"):
        return "none"
    return {"learned_absolute": "learned", "none": "none"}.get(kind, "rope")


def rope_scaling(k: Keys) -> dict[str, Any] | None:
    factor = k.number("rope_scaling_factor", 8.0)
    linear = k.number("rotary_seq_len_interpolation_factor")
    if linear and linear > 1:
        return {"kind": "linear", "factor": linear}
    return (
        {"kind": "llama3", "factor": factor}
        if k.flag("use_rope_scaling")
        else None
    )


def window(k: Keys) -> int | None:
    """Tokens of a sliding window: 128 of "(127, 0)"."""
    given = k.get("window_size")
    if not has_own_model(k) or not given:
        return None
    numbers = [int(n) for n in re.findall(r"-?\d+", str(given))]
    return numbers[0] + 1 if numbers and numbers[0] >= 0 else None


def full_every(k: Keys) -> int | None:
    """Every n-th layer attends to everything."""
    given = k.get("window_attn_skip_freq")
    if not has_own_model(k) or given is None:
        return None
    if str(given).isdecimal():
        return int(given)
    pattern = pattern_of(given)
    if pattern and 0 in pattern:
        return pattern.index(0) + 1
    return None


def mla(k: Keys) -> dict[str, int] | None:
    if not k.flag("multi_latent_attention"):
        return None
    ranks = {ours: k.whole(key, usual) for ours, (key, usual) in MLA.items()}
    return {ours: value for ours, value in ranks.items() if value}


def moe(k: Keys) -> dict[str, Any] | None:
    if len(str(k.get("num_experts", "")).split()) > 1:
        raise BadInput(
            f"{k.title}: num_experts {brief(k.get('num_experts'))}: layers with other numbers of"
            " experts are not described here"
        )
    experts = k.whole("num_experts") or k.whole("num_moe_experts")
    of_deepspeed = "moe_expert_parallel_size" in k.said
    if of_deepspeed and experts == 1:  # its word for none
        return None
    if of_deepspeed and experts:
        raise BadInput(
            f"{k.title}: moe_expert_parallel_size: DeepSpeed's experts, in every second layer, are"
            " not described here: give the model as config.json, with its layout as flags"
        )
    if not (has_own_model(k) and experts):
        return None
    if k.title == "Megatron-LM" and not k.flag("moe_grouped_gemm"):
        k.notes.append(
            "without --moe-grouped-gemm experts run one after the other: the prediction, which has"
            " them grouped, is too fast"
        )
    width = k.whole("moe_ffn_hidden_size") or k.so_far("model.ffn")
    return {
        "experts": experts,
        "top_k": k.whole("moe_router_topk", 2),
        "expert_ffn": width,
        "shared_ffn": k.whole("moe_shared_expert_intermediate_size", 0),
        "dense_layers": dense_layers(k),
        "router_bias": k.flag("moe_router_enable_expert_bias"),
        "shared_gate": k.flag("moe_shared_expert_gate"),
    }


def dense_layers(k: Keys) -> int:
    """Leading layers without experts: 3 of "[0]*3+[1]*58"."""
    given = k.get("moe_layer_freq")
    if given is None or str(given) == "1":
        return 0
    pattern = pattern_of(given)
    if not pattern or sorted(pattern) != pattern:
        raise BadInput(
            f"{k.title}: experts in some layers only (moe_layer_freq {str(given)[:40]}) are read "
            "from a config.json: --model config.json"
        )
    return pattern.count(0)


def pattern_of(given: object) -> list[int] | None:
    """[0, 0, 1] of a list, or of "[0]*2+[1]*1"."""
    if isinstance(given, (list, tuple)):
        whole = all(isinstance(v, int) for v in given)
        return [*given] if whole else None
    text = str(given).replace(" ", "")
    if not FREQUENCY.fullmatch(text) or len(text) > 200:
        return None
    pattern: list[int] = []
    for part in re.sub(r"[()]", "", text).split("+"):
        match = re.fullmatch(r"\[([\d,]+)\](?:\*(\d{1,4}))?", part)
        if not match:
            return None
        pattern += [int(v) for v in match[1].split(",") if v] * int(
            match[2] or 1
        )
    return pattern


def of_its_own(read: Callable[[Keys], Any]) -> Callable[[Keys], Any]:
    """Read where the file has a model of its own; in a list of changes to a recipe it is not."""
    return lambda k: read(k) if has_own_model(k) else None


SIZES: Mapping[str, Callable[[Keys], Any]] = {
    "model.ffn": ffn,
    "model.vocab": vocab,
    "model.positions": positions,
    "model.mla": mla,
}
READ_MODEL = {
    **{path: of_its_own(read) for path, read in SIZES.items()},
    "model.kv_heads": kv_heads,
    "model.rope_scaling": rope_scaling,
    "model.window": window,
    "model.full_every": full_every,
    "model.moe": moe,
}


# ---------------------------------------------------------------- writing

Out = dict[str, Any]


def write_gated(job: Job, out: Out) -> None:
    m = job.model
    if m.gated:
        out["quick_geglu" if m.act == "gelu" else "swiglu"] = True
    if (m.gated, m.act) not in {
        *((True, a) for a in ("silu", "gelu")),
        *((False, a) for a in ("gelu", "gelu-tanh", "relu")),
    }:
        raise BadInput(
            f"Megatron has no {'gated ' * m.gated}feed-forward with {m.act}"
        )


def write_activation(job: Job, out: Out) -> None:
    if not job.model.gated and job.model.act == "gelu-tanh":
        out["openai_gelu"] = True
    if not job.model.gated and job.model.act == "relu":
        out["squared_relu"] = True


def write_kv_heads(job: Job, out: Out) -> None:
    if job.model.kv_heads is not None and job.model.mla is None:
        out |= {"group_query_attention": True, "num_query_groups": job.model.K}


def write_rope_scaling(job: Job, out: Out) -> None:
    scaling = job.model.rope_scaling
    if scaling is None:
        return
    if scaling.kind == "llama3":
        out |= {
            "use_rope_scaling": True,
            "rope_scaling_factor": scaling.factor,
        }
    elif scaling.kind == "linear":
        out["rotary_seq_len_interpolation_factor"] = int(scaling.factor)
    elif scaling.kind == "yarn" and job.model.mla and scaling.original == 4096:
        # of latent attention alone; 4,096 is its only original length (MLATransformerConfig)
        out |= {"rope_type": "yarn", "rotary_scaling_factor": scaling.factor}
    else:
        raise BadInput(
            f"Megatron's arguments do not say this rope_scaling {scaling.kind}: linear and llama3,"
            " and yarn of 4,096 tokens with latent attention"
        )


def write_bias(job: Job, out: Out) -> None:
    if not job.model.bias:
        out["disable_bias_linear"] = True
    elif not job.model.qkv_bias:
        raise BadInput(
            "Megatron has biases in all linear layers, or in those of q, k and v alone"
        )


def write_qkv_bias(job: Job, out: Out) -> None:
    if job.model.qkv_bias and not job.model.bias:
        out["add_qkv_bias"] = True


def write_window(job: Job, out: Out) -> None:
    if job.model.window:
        out["window_size"] = f"{job.model.window - 1},0"


def write_full_every(job: Job, out: Out) -> None:
    if job.model.window and job.model.full_every != 1:
        if not job.model.full_every:
            return
        out["window_attn_skip_freq"] = job.model.full_every


def write_mla(job: Job, out: Out) -> None:
    if mla := job.model.mla:
        out["multi_latent_attention"] = True
        if mla.q_lora_rank is None:
            raise BadInput(
                "Megatron's arguments have no latent attention without q_lora_rank"
            )
        out |= {key: getattr(mla, ours) for ours, (key, _) in MLA.items()}


def write_moe(job: Job, out: Out) -> None:
    e = job.model.moe
    if e is None:
        return
    if e.expert_bias:
        raise BadInput("Megatron's arguments have no biases of experts alone")
    out |= {
        "num_experts": e.experts,
        "moe_router_topk": e.top_k,
        "moe_ffn_hidden_size": e.expert_ffn,
        "moe_grouped_gemm": True,
    }
    if e.shared_ffn:
        out["moe_shared_expert_intermediate_size"] = e.shared_ffn
    if e.shared_gate:
        out["moe_shared_expert_gate"] = True
    if e.dense_layers:
        rest = job.model.layers - e.dense_layers
        out["moe_layer_freq"] = f"([0]*{e.dense_layers}+[1]*{rest})"
    if e.router_bias:
        out |= {
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
        }


WRITE_MODEL: Mapping[str, Any] = {
    "model.gated": write_gated,
    "model.activation": write_activation,
    "model.kv_heads": write_kv_heads,
    "model.seq": lambda job, out: out.update(
        max_position_embeddings=max(job.model.seq, job.T)
    ),
    "model.rope_scaling": write_rope_scaling,
    "model.bias": write_bias,
    "model.qkv_bias": write_qkv_bias,
    "model.window": write_window,
    "model.full_every": write_full_every,
    "model.mla": write_mla,
    "model.moe": write_moe,
}
