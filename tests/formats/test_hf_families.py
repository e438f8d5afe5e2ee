"""Every family of config.json against transformers: parameters, and FLOPs of matrix products.

`hf_families.json`: of each family a small configuration, the parameters that transformers 5.23.0
builds from it on the meta device (tied matrices once), and the FLOPs that PyTorch's counter finds in
a forward pass of 256 tokens there (eager attention: the whole square; convolutions left out; null:
no forward pass on the meta device).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import operations, parameters
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.job import Job
from meshwright.describe.layers import kinds
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.errors import BadInput
from meshwright.formats.hf import at_length, families, read_hf
from meshwright.formats.hf_keys import family_table
from meshwright.layout.placement import placed
from meshwright.num import ceil_div
from refusals import refusal

TOKENS = 256
TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "hf_families.json").read_text()
)
ROWS = pytest.mark.parametrize(
    ("kind", "config", "weights", "flops"),
    TABLE["rows"],
    ids=[row[0] for row in TABLE["rows"]],
)


@ROWS
def test_parameters_are_those_of_transformers(
    kind: str, config: dict[str, Any], weights: int, flops: int | None
) -> None:
    assert parameters(read_hf({"model_type": kind, **config})) == weights


@ROWS
def test_no_key_of_a_published_file_is_reported_as_unread(
    kind: str, config: dict[str, Any], weights: int, flops: int | None
) -> None:
    """Whole files hold keys of their authors, of quantisation and of older classes, which change no
    count; a key that nobody knows is said.
    """
    file = {"model_type": kind, **config}
    assert not any("not read" in note for note in read_hf(file).notes)
    assert any(
        "not read: qq" in note for note in read_hf(file | {"qq": 3}).notes
    )


@ROWS
def test_products_are_those_that_pytorch_counts(
    kind: str, config: dict[str, Any], weights: int, flops: int | None
) -> None:
    """Next-token blocks are left out: transformers does not build them."""
    model = replace(read_hf({"model_type": kind, **config}), mtp_layers=0)
    ours = sum(op.forward.matrix * n for op, n in operations(model, TOKENS))
    if flops is not None:
        assert ours + of_plain_versions(kind, model) == flops


def of_plain_versions(kind: str, model: Model) -> float:
    """FLOPs that transformers' plain PyTorch version does and kernels do not, by hand.

    Mamba-2: the scores C B^T of each head for those of each group, 2 Q N T (H - G), and every chunk's
    state from the states of all chunks before it, 2 (n + 1)^2 H P N; Mamba: reading the state as a
    product, 2 I N T; Llama 4: all experts on all tokens, 6 D F T (E - k).
    """
    T, of, found = TOKENS, model.ssm, 0.0
    for layer in kinds(model):
        if "ssm" in layer.mixers and of and of.kind == "mamba2":
            chunks = ceil_div(T, of.chunk)
            scores = (
                2
                * of.chunk
                * of.state
                * chunks
                * of.chunk
                * (of.heads - of.groups)
            )
            found += scores + 2 * (chunks + 1) ** 2 * of.inner * of.state
        elif "ssm" in layer.mixers and of:
            found += 2 * of.inner * of.state * T
        if kind == "llama4_text" and layer.moe and model.moe:
            idle = model.moe.experts - model.moe.top_k
            found += 6 * model.hidden * model.moe.expert_ffn * T * idle
    return found


def test_every_family_is_in_the_table() -> None:
    """But for names that older files have for one of them, and those of towers' language models,
    whose classes do not stand alone.
    """
    others = {"kimi_k2", "RefinedWeb", "RefinedWebModel"}
    others |= {"qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
    others |= {
        name
        for name, family in families().items()
        if family.like and name.endswith("_text")
    }
    assert {row[0] for row in TABLE["rows"]} == set(families()) - others


@pytest.mark.parametrize(
    ("outer", "inner", "like"),
    [
        ("qwen3_vl", "qwen3_vl_text", "qwen3"),
        ("qwen2_5_vl", "qwen2_5_vl_text", "qwen2"),
        ("emu3", "emu3_text_model", "llama"),
        ("got_ocr2", "qwen2", "qwen2"),
    ],
)
def test_language_models_of_multimodal_files(
    outer: str, inner: str, like: str
) -> None:
    """They are as the family they are made of, and the note names what is left out."""
    text = {
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1000,
        "head_dim": 64,
    }
    config = {
        "model_type": outer,
        "text_config": {**text, "model_type": inner},
        "vision_config": {"depth": 2},
        "tie_word_embeddings": False,
    }
    model = read_hf(config)
    alone = read_hf({**text, "model_type": like, "tie_word_embeddings": False})
    assert parameters(model) == parameters(alone)
    assert at_length(model).notes == (
        f"only the language model of {outer} is counted: vision_config and their tokens are left out",
    )


@pytest.mark.parametrize("kind", sorted(families()))
def test_a_key_of_another_architecture_is_never_passed_over(kind: str) -> None:
    """Added to any family's file it is refused, unless the family has it."""
    rows = {row[0]: row[1] for row in TABLE["rows"]}
    if kind not in rows:
        return
    plain = parameters(read_hf({"model_type": kind, **rows[kind]}))
    for key, value in (
        ("num_local_experts", 12),
        ("mamba_n_heads", 3),
        ("linear_num_value_heads", 5),
        ("index_topk", 77),
        ("block_configs", [{"ffn": 1}]),
    ):
        try:
            model = read_hf({"model_type": kind, **rows[kind], key: value})
        except BadInput:
            continue
        known = parameters(model) != plain or any(
            key in note for note in model.notes
        )
        assert known or key == "index_topk", key


def test_a_family_that_is_not_read_says_what_its_layers_have() -> None:
    for kind, reason in family_table()["undescribed"].items():
        assert kind not in families()
        with refusal(
            f"{kind}.*a layer has {re.escape(reason)}.*meshwright\\[hf"
        ):
            read_hf({"model_type": kind, "hidden_size": 64})


PARTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "hunyuan_v1_moe",
        {"moe_topk": [8] * 31 + [4]},
        "moe_topk must be a whole",
    ),
    ("hunyuan_v1_moe", {"use_cla": True}, "use_cla"),
    ("hunyuan_v1_moe", {"num_shared_expert": [2] * 32}, "num_shared_expert"),
    (
        "hunyuan_v1_moe",
        {"moe_intermediate_size": 1024},
        "moe_intermediate_size",
    ),
    ("kimi_linear", {"moe_layer_freq": 2}, "moe_layer_freq"),
    ("ernie4_5_moe", {"use_bias": True}, "use_bias"),
    ("lfm2", {"conv_dim": 1024}, "conv_dim"),
    ("minimax_m2", {"attn_type_list": [1] * 61 + [0]}, "attn_type_list"),
    ("minimax_text_01", {"attn_type_list": None}, "no attn_type_list"),
    ("minimax_text_01", {"attn_type_list": [0, 1]}, "lists 2 layers, not 80"),
    ("exaone4", {"layer_types": None}, "sliding_window_pattern"),
    ("arctic", {"moe_layer_frequency": 2}, "moe_layer_frequency"),
    ("bailing_moe", {"use_bias": True}, "use_bias"),
    ("chatglm", {"rmsnorm": False}, "rmsnorm"),
    ("step3p5", {"sink": True}, "sink"),
    ("step3p5", {"moe_layers_enum": 3}, "moe_layers_enum must be a list"),
    (
        "step3p5",
        {"moe_layers_enum": "3-44"},
        "must be a list of layers, not '3-44'",
    ),
    ("qwen3_5_moe_text", {"attn_output_gate": False}, "always has the gate"),
    ("cohere2", {"use_qk_norm": True}, "has no such norms"),
    ("afmoe", {"num_expert_groups": 3}, "n_group and num_expert_groups"),
    ("gla", {"num_kv_heads": 2}, "num_kv_heads"),
    ("kda", {"attnres_block_size": 2}, "attnres_block_size"),
    ("transformer", {"num_heads": None}, "num_heads"),
]


@pytest.mark.parametrize(("kind", "more", "says"), PARTS)
def test_a_published_file_with_another_part_is_refused(
    kind: str, more: dict[str, Any], says: str
) -> None:
    config = [row[1] for row in TABLE["rows"] if row[0] == kind][-1]
    read_hf({"model_type": kind, **config})
    with refusal(says):
        read_hf({"model_type": kind, **config, **more})


def test_positions_of_granite_4_are_those_of_its_file() -> None:
    """GraniteMoeHybridModel has a rotary embedding only where position_embedding_type is rope; the
    hybrids of Granite 4.0 say nope, and null is the class's default.
    """
    small = {"model_type": "granitemoehybrid", "num_hidden_layers": 4}
    found = {
        word: read_hf({**small, "position_embedding_type": word}).positions
        for word in ("rope", "nope", None)
    }
    assert found == {"rope": "rope", "nope": "none", None: "none"}
    assert read_hf(small).positions == "none"


def test_sizes_of_experts_are_said_only_of_a_model_that_has_some() -> None:
    """Nemotron-H's class has defaults for experts, and a file without any layer E leaves them."""

    def said(pattern: str) -> bool:
        file = {"model_type": "nemotron_h", "hybrid_override_pattern": pattern}
        return any("n_routed_experts" in note for note in read_hf(file).notes)

    assert said("M-ME*-") and not said("M-M-*-")


def test_a_next_token_block_is_counted_where_it_is_like_the_last_layer() -> (
    None
):
    """DeepSeek-V3.2 and MiMo say one; ERNIE's has a dense feed-forward, and is said."""
    published = {row[0]: row[1] for row in TABLE["rows"]}

    def blocks(kind: str) -> tuple[int, bool]:
        model = read_hf({"model_type": kind, **published[kind]})
        said = any("next-token block" in note for note in model.notes)
        return model.mtp_layers, said

    assert blocks("deepseek_v32") == blocks("mimo") == (1, True)
    assert blocks("ernie4_5_moe") == (0, True)
    assert blocks("kimi_linear") == (0, False)


def test_several_language_models_are_refused_and_one_of_them_is_read() -> None:
    text = {**TABLE["rows"][0][1], "model_type": "qwen3_omni_moe_text"}
    whole = {"thinker_config": {"text_config": text}}
    with refusal(
        "thinker_config as a file of its own.*qwen3_omni_moe_thinker"
    ):
        read_hf({"model_type": "qwen3_omni_moe", **whole})


BERT_BASE = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "position_embedding_type": "absolute",
    "num_hidden_layers": 12,
}


def test_a_bert_for_masked_tokens_is_counted_as_pre_training_runs_it() -> None:
    """Devlin et al. 2019 give 110 M parameters with the pooler (768 x 769) that it leaves out; every
    token sees all; the transform in front of the output matrix runs for every token.
    """
    model = read_hf(BERT_BASE)
    assert model.attention == "full" and model.dropout
    assert "is_decoder" in model.notes[0] and len(model.notes) == 2
    names = [op.name for op, _ in operations(model)]
    assert names.index("head/transform") < names.index("head/logits")
    assert parameters(model) + 768 * 769 == pytest.approx(110e6, rel=0.01)


@pytest.mark.parametrize(
    "other",
    [
        {"position_embedding_type": "relative_key"},
        {"add_cross_attention": True},
        {"architectures": ["BertForPreTraining"]},
    ],
)
def test_a_bert_that_is_another_model_is_refused(
    other: dict[str, Any],
) -> None:
    with refusal():
        read_hf({**BERT_BASE, **other})


def test_a_rembert_says_that_it_is_tied_and_is_refused() -> None:
    """Its embedding of 256 and its output matrix of 1,664 cannot be one: the class leaves two."""
    config = {"model_type": "rembert", "is_decoder": True}
    assert not read_hf(config).tied_embeddings
    with refusal("tie_word_embeddings.* ties nothing"):
        read_hf({**config, "tie_word_embeddings": True})


def test_the_head_of_a_bert_is_whole_on_every_tensor_parallel_rank() -> None:
    """Megatron-LM's BERT: embedding and output matrix are cut, the transform between is not."""
    m = read_hf(BERT_BASE)
    job = Job(m, NOWHERE, 1)

    def held(tp: int) -> dict[str, float]:
        layout = placed(Layout(tp=tp, dp=1), (tp,))
        return {
            op.name: float(op.weights)
            for op in vocabulary.head(
                DeviceMicrobatch.from_layout(job, layout)
            )
        }

    one, four = held(1), held(4)
    assert one["head/transform"] == four["head/transform"] == 768 * 768
    assert four["head/logits"] == 768 * 60 * 128  # 7,631 rows, padded
    assert one["head/transform norm"] == 2 * 768
