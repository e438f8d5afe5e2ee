"""The model in Megatron's settings."""

from __future__ import annotations

import re
from typing import Any

from ... import catalog
from ...errors import BadInput, brief
from .keys import Keys
from .shared import ask_for_vocabulary

NO_MODEL = "num_layers"
"""Without it a file describes no model of its own."""
VOCABULARIES = {
    "gpt2bpetokenizer": 50257,
    "llama2tokenizer": 32000,
}
"""Tokenizer that has one vocabulary -> its size (Megatron-LM, training/tokenizer)."""
NULL = ("nulltokenizer", "nullmultimodaltokenizer")
"""Tokenizers of mock data: their vocabulary is --vocab-size and one token that ends documents
(Megatron-LM, training/tokenizer: _vocab_size_without_eod + 1).
"""
FREQUENCY = re.compile(r"[\[\]()0-9*+,\s]+")


def has_own_model(k: Keys) -> bool:
    """The file has a model of its own."""
    return NO_MODEL in k.said


def vocab(k: Keys) -> int | None:
    """Rows of the embedding, from the tokenizer's name where the file says no number."""
    if not has_own_model(k):
        return None
    kind = k.word("tokenizer_type")
    name = k.get("tokenizer_model")
    stated = k.whole("vocab_size")
    given = stated and stated + (kind in NULL)
    given = given or k.whole("padded_vocab_size")
    # BigScience's Megatron-DeepSpeed
    given = k.whole("pad_vocab_size_to") or given
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
        ask_for_vocabulary(k)
    return given


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
    grouped = k.flag("moe_grouped_gemm")
    if not grouped and k.title in ("Megatron-LM", "NeMo 1"):
        k.notes.append(
            "without --moe-grouped-gemm experts run one after the other: the prediction, which has"
            " them grouped, is too fast"
        )
    width = k.whole("moe_ffn_hidden_size") or k.whole("moe_intermediate_size")
    width = width or k.so_far("model.ffn")
    groups, top_groups = router_groups(k)
    return {
        "experts": experts,
        "top_k": k.whole("moe_router_topk", 2),
        "expert_ffn": width,
        "shared_ffn": k.whole("moe_shared_expert_intermediate_size")
        or (k.whole("n_shared_experts") or 0) * width,  # MindSpeed-LLM
        "dense_layers": dense_layers(k),
        "router_bias": k.flag("moe_router_enable_expert_bias"),
        "shared_gate": k.flag("moe_shared_expert_gate"),
        "groups": groups,
        "top_groups": top_groups,
    }


def router_groups(k: Keys) -> tuple[int, int]:
    """(G, M): a token's experts lie in M of G groups of them; (1, 1): anywhere. Without M there is
    no limit, whatever G is; an older name of M has as many groups as ranks of experts (Megatron-LM
    d98e8a6, core/transformer/transformer_config.py, __post_init__).
    """
    groups = k.whole("moe_router_num_groups")
    if top := k.whole("moe_router_group_topk"):
        if not groups:
            raise BadInput(
                f"{k.title}: moe_router_group_topk {top} needs moe_router_num_groups"
            )
        return groups, top
    if top := k.whole("moe_router_topk_limited_devices"):
        return k.whole("expert_model_parallel_size", 1) or 1, top
    return 1, 1


def dense_layers(k: Keys) -> int:
    """Leading layers without experts: 3 of "[0]*3+[1]*58", or as MindSpeed-LLM states them, with
    which -1 is as 1 (core/transformer/transformer_block.py).
    """
    given = k.get("moe_layer_freq")
    first = k.whole("first_k_dense_replace")
    every = ("1",) if first is None else ("1", "-1")
    if given is None or str(given) in every:
        return max(first or 0, 0)
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
    text = re.sub(r"[\s'\"]", "", str(given))  # in YAML, as a shell has it
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
