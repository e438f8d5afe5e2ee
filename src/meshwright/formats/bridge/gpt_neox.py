"""GPT-NeoX's YAML (ea7aefd): what its table cannot say."""

from __future__ import annotations

import re

from ...describe.job import Job
from ...errors import BadInput
from .keys import Keys
from .model_megatron import VOCABULARIES
from .shared import Out, vocabulary_named

PILE = ("20b_tokenizer", 50277)
"""The tokenizer of GPT-NeoX-20B, by the name of its file."""
OWN_VOCABULARIES = {
    f"*{PILE[0]}*": PILE[1],
    **VOCABULARIES,
    "charleveltokenizer": 512,
}
DENSE = ("flash", "global")
"""Kinds of attention that see everything."""


def vocab(k: Keys) -> int | None:
    """Rows of the embedding, by the kind of tokenizer or the name of its file."""
    kind, file = k.word("tokenizer_type"), str(k.get("vocab_file", ""))
    k.get("merge_file")
    return vocabulary_named(k, OWN_VOCABULARIES, file, kind)


def attention_kernel(k: Keys) -> str | None:
    """By the kinds of attention of the layers.  Raises BadInput for any that see a part."""
    named = {*re.findall(r"[a-z_]+", k.word("attention_config"))}
    if other := named - {*DENSE}:
        raise BadInput(
            f"GPT-NeoX: attention_config with {', '.join(sorted(other))[:60]} is another model:"
            " give it as config.json"
        )
    return "fa2" if "flash" in named else None


def write_vocab(job: Job, out: Out) -> None:
    """The rows are the tokenizer's: its kind where one has as many."""
    named = {v: k for k, v in OWN_VOCABULARIES.items()}
    if job.model.vocab == PILE[1]:
        out |= {
            "tokenizer_type": "HFTokenizer",
            "vocab_file": f"{PILE[0]}.json",
        }
    elif named.get(job.model.vocab) == "gpt2bpetokenizer":
        out["tokenizer_type"] = "GPT2BPETokenizer"
    else:
        out |= {
            "tokenizer_type": "HFTokenizer",
            "vocab_file": "tokenizer.json",
        }
