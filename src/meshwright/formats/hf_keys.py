"""The keys of a config.json: read with the defaults of the family's class, known to change nothing,
or reported.

A key that is left out is the class's default (catalog/transformers.json); one that is null is null,
as for transformers. What is neither read nor listed here is refused if its name speaks of another
architecture, and otherwise noted: nothing is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..describe import shipped
from ..describe.read import brief
from ..errors import BadInput

MOST = 10**9
Fields = dict[str, Any]
MISSING = object()

EVERYWHERE = (
    "tie_word_embeddings",
    "layer_types",
    "architectures",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
)
"""Keys that any class takes, though it may not list them among its fields."""
HARMLESS = re.compile(
    "|".join(
        (
            r"model_type|_?name_or_path|_commit_hash|transformers_version|auto_map|finetuning_task|is_llama_config",
            r"(\w+_)?dtype|torchscript|use_bfloat16|tf_legacy_loss|return_dict\w*|output_(hidden_states|attentions|scores|logits)|use_cache|cache_implementation",
            r"_?attn_implementation\w*|attention_backend|use_flash_att\w*|_flash_attn\w*|gradient_checkpointing|use_kernels",
            r"\w*_token_ids?|\w*_token_index|(?!.*expert)\w*_token|(pad|bos|eos|sep|mask_init)_id|tokenizer_\w+|prefix|org_vocab_size",
            r"id2label|label2id|num_labels|problem_type|task_specific_params|summary_\w+|classifier_\w+|pruned_heads|loss_type",
            r"initializer_\w+|init_\w+|\w+_init(_std|_range)?|initialization",
            r"attention_dropout|attn_pdrop|embd_pdrop|embedding_dropout|mlp_dropout|ffn_dropout|layerdrop",
            r"norm_topk_prob|routed_scaling_factor|scoring_func|topk_method|seq_aux|ep_size|moe_aux_loss\w*",
            r"router_(aux_loss_coef|jitter_noise|z_loss\w*)|aux_loss_\w+|output_router_logits",
            r"pretraining_tp|slow_but_exact|reorder_and_upcast_attn|scale_attn_\w+|use_parallel_residual",
            r"apply_residual_connection_post_layernorm|query_pre_attn_scalar|(attn|final)_logit_softcapping|clip_qkv|swiglu_\w+",
            r"use_mrope|attn_temperature_tuning|for_llm_compressor|indexer_rope_interleave",
            # how a checkpoint stores its weights; a job says what training computes in
            r"(quantization|compression)_config",
            # a class takes one of them, and files have the others' too
            r"\w*norm_eps(ilon)?|(\w+_)?rope_theta|rope_local_base_freq|interpolate_factor",
            r"time_step_\w+|num_logits_to_keep|input_jitter_noise|fuse_\w+",
            r"rope_interleaved?|qk_head_dim|is_decoder|n_special|predict_special_tokens|hidden_act(ivation)?|use_rotary_pos_emb",
            r"n_ctx|seq_length|initial_context_length|(original_)?max_(sequence_length|seq_len|position_embeddings)|model_max_length|name",
            # what older versions wrote of generation, into every file
            r"chunk_size_feed_forward|(max|min)_(new_)?(length|tokens)|do_sample|early_stopping|num_(beams|beam_groups|return_sequences)",
            r"diversity_penalty|temperature|top_[kp]|typical_p|(repetition|length)_penalty|(encoder_)?no_repeat_ngram_size",
            r"bad_words_ids|remove_invalid_values|exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens",
        )
    )
)
"""Names that change neither shapes nor products: texts, ids, dropout of weights we do not keep,
routing rules, scales, positions.
"""
OTHER_ARCHITECTURE = re.compile(
    r"expert|(^|_)moe(_|$)|layer_types|layers_block_type|block_(configs|types|pattern)|cross_attention|encoder_decoder|mamba|(^|_)ssm"
    r"|linear_(attn|attention|num|conv|key|value)|lora_rank|^index_|mtp|nextn|(no|nope)_rope|rope_layers|dual_chunk|hybrid"
    r"|(^|_)bias$|_bias_|bidirectional|sparse|(^|_)conv|recurrent|altup|laurel|hyper_connection|per_layer"
)
"""Names of parts that a family does not have; set to anything but false they make another model."""
SCALES = re.compile(
    r"\w*multipliers?|\w+_scaling|\w*logit_scale|scale_\w+|dim_model_base|rescale_\w+|\w+_factor"
    r"|residual_in_fp32|use_mamba\w*|use_associative_scan"
    r"|\w+_dropout|\w+_soft_?cap(ping)?|swiglu_\w+|lambda_std_dev|linear_(a_log|dt)_\w+|kda_\w+"
    r"|\w+_kernel|mode|eps|mixer_rms_eps|return_last_states|linear_allow_neg_eigval"
)
"""Names of factors and numerics, which change no product in a class that has them."""
NAMES = {
    "layers": ("num_layers", "n_layers", "n_layer", "num_hidden_layers"),
    "hidden": (
        *("d_model", "dim", "n_embd", "n_embed", "hidden_size", "embed_dim"),
        "hidden_dim",
    ),
    "heads": ("num_heads", "n_heads", "n_head", "num_attention_heads"),
    "ffn": (
        *("ffn_embed_dim", "ffn_dim", "d_ff", "intermediate_size"),
        *("ffn_hidden_size", "n_inner", "hidden_dim"),
    ),
    "kv_heads": (
        "n_kv_heads",
        "num_kv_heads",
        "num_key_value_heads",
        "n_head_kv",
    ),
    "head_dim": (
        "attention_head_dim",
        "head_dim",
        "kv_channels",
        "head_size",
    ),
    "vocab": ("n_vocab",),
    "experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "window": ("sliding_window_size",),
}
"""Field of a Model -> its names in files of programs and families."""
SYNONYMS = {
    key: [field for field, keys in NAMES.items() if key in keys]
    for keys in NAMES.values()
    for key in keys
}
"""Names that other programs or families have for a Model's field: silently one, or refused."""
OF_EXPERTS = (
    *NAMES["experts"],
    "moe_intermediate_size",
    "num_experts_per_tok",
)
SIZES = (*SYNONYMS, "vocab_size", *OF_EXPERTS)
"""Keys that say how large the model is."""
SHOWN = 8
"""Keys that a note names."""


@cache
def classes() -> Mapping[str, Any]:
    """model_type -> its class, the aliases of its keys and their defaults."""
    text = shipped.text("transformers.json")
    families: Mapping[str, Any] = json.loads(text)["families"]
    return families


@cache
def family_table() -> Mapping[str, Any]:
    """The rows of catalog/hf_families.toml."""
    return shipped.shipped_table("hf_families.toml")


@dataclass(frozen=True)
class Config:
    """A config.json whose values are checked when they are asked for."""

    data: Mapping[str, Any]
    defaults: Mapping[str, Any]
    where: str
    known: frozenset[str]
    """Keys that the class reads; others are there for no reader."""
    asked: set[str] = field(default_factory=set)
    """Keys that were read so far."""

    def get(self, *keys: str) -> Any:
        """The first of the keys that is there and not null; None if one is there; else the first
        default, or None.
        """
        self.asked.update(keys)
        given = [
            self.data[key]
            for key in keys
            if key in self.data and key in self.known
        ]
        if given:
            return next((value for value in given if value is not None), None)
        return next(
            (
                self.defaults[key]
                for key in keys
                if self.defaults.get(key) is not None
            ),
            None,
        )

    def has(self, key: str) -> bool:
        """The file says something of the key that the class reads."""
        return key in self.known and self.data.get(key) is not None

    def whole(self, *keys: str, default: int | None = None) -> int:
        """A whole number from 0; BadInput if there is none and no default (what null means). A list
        that says the same number of each layer is that number.
        """
        value = self.get(*keys)
        if isinstance(value, list) and {*map(type, value)} == {int}:
            value = value[0] if len({*value}) == 1 else value
        if value is None:
            if default is None:
                raise BadInput(
                    f"{self.where} has no"
                    f" {' or '.join(key for key in keys if key in self.known) or keys[0]}"
                )
            return default
        if (
            isinstance(value, float)
            and value == value
            and abs(value) <= MOST
            and value == int(value)
        ):
            value = int(value)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 0 <= value <= MOST
        ):
            raise BadInput(
                f"{self.where}: {keys[0]} must be a whole number from 0 to {MOST:,}, not"
                f" {brief(value)}"
            )
        return value

    def real(self, *keys: str, most: float, default: float) -> float:
        """A number from 0 to `most`."""
        value = self.get(*keys)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value <= most
        ):
            raise BadInput(
                f"{self.where}: {keys[0]} must be between 0 and {most:g}, not {brief(value)}"
            )
        return float(value)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false; BadInput for anything else."""
        value = self.get(*keys)
        if value is not None and not isinstance(value, bool):
            raise BadInput(
                f"{self.where}: {keys[0]} must be true or false, not {brief(value)}"
            )
        return default if value is None else value

    def listed(self, key: str) -> list[Any] | None:
        """A list, or None if there is none."""
        value: list[Any] | None = self.get(key)
        if value is not None and not isinstance(value, list):
            raise BadInput(
                f"{self.where}: {key} must be a list, not {brief(value)}"
            )
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        """A table, empty if there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise BadInput(
                f"{self.where}: {key} must be a table, not {brief(value)}"
            )
        return value or {}

    def refuse(self, what: str) -> BadInput:
        """The sentence for what a Model has no field for."""
        return BadInput(
            f"{self.where}: {what}, which this description of a model cannot express"
        )

    def unread(self, shape: Mapping[str, Any]) -> Iterator[str]:
        """A note on the keys that no reader asked for; BadInput for one that makes another
        architecture.

        shape: the Model's fields that were read, which another program's name of the same must not
        contradict.
        """
        left = []
        for key, value in self.data.items():
            read = key in self.asked and key in self.known
            if (
                read
                or says_nothing(key, value)
                or same_value(value, self.defaults.get(key, MISSING))
            ):
                continue
            if key in self.defaults and SCALES.fullmatch(key):
                continue
            if means := [
                shape[name] for name in SYNONYMS.get(key, ()) if name in shape
            ]:
                if value not in means:
                    raise BadInput(
                        f"{self.where}: {key} is {brief(value)}, a name that its class does not"
                        f" read: it takes {' or '.join(brief(x) for x in means)} from the keys of"
                        " transformers or their defaults"
                    )
                continue
            if OTHER_ARCHITECTURE.search(key):
                raise self.refuse(f"{brief(key)} is {brief(value)}")
            left.append(
                key if key.isidentifier() and len(key) <= 40 else brief(key)
            )
        if left:
            more = (
                f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
            )
            yield (
                f"{self.where}: not read: {', '.join(left[:SHOWN])}{more}; "
                "if that changes the architecture, these numbers leave it out"
            )


def missing_sizes(c: Config, experts: bool) -> Iterator[str]:
    """A note on sizes that the file leaves to its class: they are another model's, as a rule.

    experts: the model has some.
    """
    sizes = [
        f"{key} ({c.defaults[key]:,})"
        for key in SIZES
        if key in c.asked
        and key not in c.data
        and (experts or key not in OF_EXPERTS)
        and not (key == "head_dim" and "kv_lora_rank" in c.asked)
        and isinstance(c.defaults.get(key), int)
        and c.defaults[key]
    ]
    if sizes:
        them = "the default" if len(sizes) == 1 else "the defaults"
        yield (
            f"{c.where} does not say {', '.join(sizes)}: {them} of its class"
            f" {'is' if len(sizes) == 1 else 'are'} taken"
        )


def says_nothing(key: str, value: object) -> bool:
    """It changes no shape and no product, is empty, says what is so anyway, or switches off a part
    that is not there.
    """
    if value is None or value in ([], {}, "") or HARMLESS.fullmatch(key):
        return True
    if same_value(value, family_table()["usual"].get(key, MISSING)):
        return True
    return (value is False or value == 0) and OTHER_ARCHITECTURE.search(
        key
    ) is not None


def same_value(a: object, b: object) -> bool:
    """Equal, and true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def rename_keys(
    config: Mapping[str, Any], aliases: Mapping[str, str], where: str
) -> dict[str, Any]:
    """The config with every key under the name that its class uses; BadInput if two names of one
    disagree.
    """
    made = dict(config)
    for other, own in aliases.items():
        if other not in made:
            continue
        value = made.pop(other)
        if not same_value(made.setdefault(own, value), value):
            raise BadInput(
                f"{where}: {own} and {other} are one key, but {brief(made[own])} and {brief(value)}"
            )
    return made
