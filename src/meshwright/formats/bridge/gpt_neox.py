"""GPT-NeoX's YAML (ea7aefd): what its table cannot say."""

from __future__ import annotations

from ...describe.job import Job
from ...errors import BadInput
from ...num import ceil_div
from . import deepspeed
from .keys import Keys
from .model_megatron import VOCABULARIES
from .shared import Out, worded

ACTIVATIONS = {
    "gelu": (False, "gelu"),
    "relu": (False, "relu"),
    "silu": (False, "silu"),
    "swish": (False, "silu"),
    "geglu": (True, "gelu"),
    "reglu": (True, "relu"),
    "swiglu": (True, "silu"),
}
"""Theirs -> (there is a gate, ours)."""
OWN_VOCABULARIES = {**VOCABULARIES, "charleveltokenizer": 512}
PILE = ("20b_tokenizer", 50277)
"""The tokenizer of GPT-NeoX-20B, by the name of its file."""
DENSE = ("flash", "global")
"""Kinds of attention that see everything."""


def _activation(k: Keys) -> tuple[bool, str]:
    """(There is a gate, its function).  Raises BadInput for one that is not predicted."""
    word = k.word("activation", "gelu")
    if word not in ACTIVATIONS:
        raise BadInput(
            f"GPT-NeoX: activation {word[:40]} is not predicted: {', '.join(ACTIVATIONS)} are"
        )
    return ACTIVATIONS[word]


def ffn(k: Keys) -> int:
    """Of the width that is said a gate leaves a third, in whole multiples (model/transformer.py,
    ParallelMLP).
    """
    hidden = k.degree("model.hidden")
    growth = k.number("expansion_factor", 4.0) or 4.0
    width = k.whole("intermediate_size") or int(growth * hidden)
    multiple = k.whole("mlp_multiple_of", 1) or 1
    inner = int(width * 2 / 3) // 2 if _activation(k)[0] else width
    return int(ceil_div(inner, multiple)) * multiple


def vocab(k: Keys) -> int | None:
    """Rows of the embedding, by the kind of tokenizer or the name of its file."""
    kind, file = k.word("tokenizer_type"), str(k.get("vocab_file", ""))
    k.get("merge_file")
    name, rows = PILE
    given = rows if name in file.lower() else OWN_VOCABULARIES.get(kind)
    if given:
        k.notes.append(f"vocabulary {given:,}: that of {file or kind}"[:120])
        return given
    k.tables.setdefault("", {})["missing"] = [
        "leaves the vocabulary to its tokenizer: give it, such as --vocab-size 128256, or the"
        " model, such as --model llama3-8b or --model config.json"
    ]
    return None


def _kernel(k: Keys) -> str | None:
    """By the kinds of attention of the layers.  Raises BadInput for any that see a part."""
    kinds = [w for w in k.items("attention_config") if w.strip("[]'\" ")]
    words = {w.strip("[]'\" ") for kind in kinds for w in kind.split(",")}
    named = {
        w.strip("[]'\" ") for w in words if not w.strip("[]'\" ").isdecimal()
    }
    if other := named - {*DENSE, ""}:
        raise BadInput(
            f"GPT-NeoX: attention_config with {', '.join(sorted(other))[:60]} is another model:"
            " give it as config.json"
        )
    return "fa2" if "flash" in named else None


READ = {
    "model.gated": lambda k: _activation(k)[0],
    "model.activation": lambda k: _activation(k)[1],
    "model.ffn": ffn,
    "model.vocab": vocab,
    "layout.zero": deepspeed.zero,
    "job.batch": deepspeed.batch_of_factors,
    "job.attention_kernel": _kernel,
}


def write_ffn(job: Job, out: Out) -> None:
    m = job.model
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    act = "gelu" if m.act == "gelu-tanh" else m.act
    if (m.gated, act) not in names:
        raise BadInput(
            f"GPT-NeoX has no {'gated ' * m.gated}feed-forward with {m.act}"
        )
    out["activation"] = names[m.gated, act]
    out["intermediate_size"] = m.ffn * (3 if m.gated else 1)


def write_vocab(job: Job, out: Out) -> None:
    """The rows are the tokenizer's: its kind where one has as many."""
    named = {v: k for k, v in OWN_VOCABULARIES.items() if v}
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


def write_biases(job: Job, out: Out) -> None:
    m = job.model
    projection = m.bias if m.out_bias is None else m.out_bias
    if projection != m.qkv_bias:
        raise BadInput(
            "GPT-NeoX has biases in all projections of attention or in none: qkv_bias"
            f" {worded(m.qkv_bias)}, not beside out_bias {worded(projection)}"
        )
    if not m.qkv_bias:
        out["use_bias_in_attn_linear"] = False


def write_epsilon(job: Job, out: Out) -> None:
    kind = "rms_norm" if job.model.norm == "rmsnorm" else "layernorm"
    out[f"{kind}_epsilon"] = job.model.norm_epsilon


def write_kernel(job: Job, out: Out) -> None:
    """FlashAttention in all layers, or its own fused softmax."""
    kernel = job.attention_kernel
    if kernel not in ("framework", "fa2", "fused-softmax"):
        raise BadInput(
            f"GPT-NeoX runs the kernels fa2 and fused-softmax, not {kernel}"
        )
    if kernel == "fa2":
        out["attention_config"] = [[["flash"], job.model.layers]]


def write_dropout(job: Job, out: Out) -> None:
    if job.model.dropout:
        out |= {"hidden_dropout": 0.1, "attention_dropout": 0.1}


def nothing(job: Job, out: Out) -> None:
    """Another field of the same keys writes it."""


WRITE = {
    "model.gated": nothing,
    "model.activation": nothing,
    "model.ffn": write_ffn,
    "model.vocab": write_vocab,
    "model.norm_epsilon": write_epsilon,
    "model.qkv_bias": write_biases,
    "model.out_bias": nothing,
    "model.dropout": write_dropout,
    "job.attention_kernel": write_kernel,
    "job.batch": deepspeed.write_batch,
}
