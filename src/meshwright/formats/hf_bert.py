"""BERT and its relatives, as the language models that transformers makes of them: norms after each
half of a block, and a head that transforms before it scores.

Decoders where `is_decoder` says so; else every token sees all, and the products are those of
pre-training with masked tokens. Source: configuration and modeling files of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable

from ..describe.read import brief
from .hf_family import HfFamily
from .hf_keys import Config, Fields
from .hf_layers import layer_count, windows
from .hf_parts import biases, decoder


def _bert(c: Config) -> Fields:
    """The head has a bias of its own beside that of its matrix: one with it where they are tied."""
    if not c.flag("tie_word_embeddings"):
        raise c.refuse(
            "tie_word_embeddings is false: its class then trains two biases of the vocabulary"
        )
    return _alike(c)


def _alike(c: Config) -> Fields:
    """What all have: rows for kinds of tokens, causal or not, a transformed head as wide as the
    model.
    """
    kinds = c.get("position_embedding_type")
    if kinds not in (None, "absolute"):
        raise c.refuse(f"position_embedding_type is {brief(kinds)}")
    decoder(c)
    c.asked.update(("attention_probs_dropout_prob", "embedding_size"))
    causal = c.flag("is_decoder")
    note = f"{c.where}: is_decoder is not set: every token sees all others"
    return {
        "attention": "causal" if causal else "full",
        "told": () if causal else (note,),
        "token_types": c.whole("type_vocab_size", default=0),
        "head_width": c.whole("hidden_size"),
    }


def _roberta(c: Config) -> Fields:
    """Positions are counted from 2: the table has two rows more than a sequence has tokens."""
    rows = c.whole("max_position_embeddings")
    return {
        **_bert(c),
        "position_rows": rows,
        "longest": max(rows - PADDING, 1),
    }


PADDING = 2
"""Rows of positions that no token has."""


def _ernie(c: Config) -> Fields:
    tasks = c.whole("task_type_vocab_size") if c.flag("use_task_id") else 0
    c.asked.add("task_type_vocab_size")
    base = _bert(c)
    return {**base, "token_types": base["token_types"] + tasks}


def _narrow(c: Config, inner: int, outer: int) -> Fields:
    """Rows of the embedding and of the output matrix have widths of their own."""
    wide = c.whole("hidden_size")
    return {
        **_alike(c),
        "embedding_width": inner if inner != wide else None,
        "head_width": outer,
    }


def _electra(c: Config) -> Fields:
    width = c.whole("embedding_size")
    return _narrow(c, width, width)


def _rembert(c: Config) -> Fields:
    """The matrix in front of the layers is there even where it is square."""
    inner = c.whole("input_embedding_size")
    outer = c.whole("output_embedding_size")
    if c.flag("tie_word_embeddings"):
        raise c.refuse("tie_word_embeddings is true: its class ties nothing")
    return {**_narrow(c, inner, outer), "embedding_width": inner}


def _generation(c: Config) -> Fields:
    return {**_bert(c), "head_width": None}


def _modern(c: Config) -> Fields:
    """A gate, rotary positions, windows in two layers of three. The first layer has no norm before
    its attention, but the embedding has one: it is counted there.
    """
    mlp = c.flag("mlp_bias")
    biased = c.flag("attention_bias")
    if c.flag("classifier_bias") != mlp:
        raise c.refuse("classifier_bias is not as mlp_bias")
    period = c.whole("global_attn_every_n_layers", default=3) or 1
    usual = [
        "sliding" if i % period else "full" for i in range(layer_count(c))
    ]
    window = c.whole("local_attention", default=0) // 2
    return {
        **biases(biased, biased, mlp),
        **windows(c, usual, "local_attention"),
        "window": window or None,
        "norm": "layernorm" if c.flag("norm_bias") else "layernorm-scale",
        "head_width": c.whole("hidden_size"),
        "head_bias": c.flag("decoder_bias"),
    }


AFTER: Fields = {
    "norm": "layernorm",
    "gated": False,
    "qkv_bias": True,
    "bias": True,
    "head_bias": True,
    "positions": "learned",
    "embedding_norm": True,
    "final_norm": False,
}
BEFORE: Fields = {**AFTER, "embedding_norm": False, "final_norm": True}
"""Norms before each half and at the end, as in Megatron-LM's BERT."""
ALSO = ("position_embedding_type",)


def _family(
    name: str, extra: Callable[[Config], Fields], fixed: Fields = AFTER
) -> HfFamily:
    """Its class as a language model, and the one for masked tokens, which is made of the same."""
    own = {"BertLMHeadModel": "Bert", "BertGenerationDecoder": ""}
    stem = own.get(name, name.removesuffix("ForCausalLM"))
    masked = (f"{stem}ForMaskedLM",) if stem else ()
    return HfFamily(fixed, extra, also=ALSO, classes=(name, *masked))


BERT: dict[str, HfFamily] = {
    "bert": _family("BertLMHeadModel", _bert),
    "bert-generation": _family("BertGenerationDecoder", _generation),
    "camembert": _family("CamembertForCausalLM", _roberta),
    "data2vec-text": _family("Data2VecTextForCausalLM", _roberta),
    "electra": _family("ElectraForCausalLM", _electra),
    "ernie": _family("ErnieForCausalLM", _ernie),
    "megatron-bert": _family("MegatronBertForCausalLM", _bert, BEFORE),
    "modernbert-decoder": HfFamily(
        {},
        _modern,
        also=("global_attn_every_n_layers",),
    ),
    "rembert": _family("RemBertForCausalLM", _rembert),
    "roberta": _family("RobertaForCausalLM", _roberta),
    "roberta-prelayernorm": _family(
        "RobertaPreLayerNormForCausalLM",
        _roberta,
        {**AFTER, "final_norm": True},
    ),
    "xlm-roberta": _family("XLMRobertaForCausalLM", _roberta),
    "xlm-roberta-xl": _family("XLMRobertaXLForCausalLM", _roberta, BEFORE),
}
