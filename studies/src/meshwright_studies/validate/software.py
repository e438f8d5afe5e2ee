"""What a row says of its software: which framework it is, and the settings of the run.

Tables of words, read from the top: the first that speaks of a field decides it. A row that names a
field with a value that no table knows gets a note, and so does a program that none knows; what a
row does not speak of is the framework's own.

Names and values are of `describe.software`. Sources of the words: Megatron Core and Megatron Bridge
(arguments of their configurations), Transformer Engine (recipes of scaling), torchtitan and torchao
(float8 recipes, AsyncTP), Narayanan et al. 2021.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from meshwright.describe.software import Software

from .rows import Row, positive_number, table_of_row, text_of_row
from .words import speaks_of

FRAMEWORKS = (
    (
        "megatron-bridge",
        r"megatron[- ]bridge|\bnemo\b(?! container|[- ]?automodel)",
    ),
    ("megatron-core", r"megatron[- ]core|\bmcore\b"),
    (
        "megatron-deepspeed",
        r"megatron[- ]deepspeed|gpt[- ]neox|\baa-scaling|aleph[ -]alpha",
    ),
    ("torchtitan", r"torchtitan"),
    ("llm-foundry", r"llm[- ]foundry|\bcomposer\b|mosaicml"),
    ("maxtext", r"\b(?:maxtext|jax|pax(?:ml)?|levanter|t5x|easylm)\b|\bxla\b"),
    ("automodel", r"\bautomodel\b"),
    ("fsdp", r"\b(?:fms-)?fsdp2?\b|fully[- ]sharded"),
    ("meshwright", r"meshwright"),
)
"""Framework -> what its programs are called. Megatron-LM itself is of one of two generations
(`generation`). NeMo's performance scripts set what Bridge's recipes set, whose ancestor they are:
16-bit gradients (grad_reduce_in_fp32 = False) and userbuffers.
"""
ENGINE = r"\bte\b|transformer[- ]engine"
ENGINE_SINCE = 2025
"""Year from which Megatron-LM runs on Megatron Core and Transformer Engine unless told otherwise
(core 0.9: legacy models are removed).
"""
ZERO3_UNTIL = 2022
"""The profile deepspeed-zero3 is of 2021; later ones gather ahead of use and over fewer ranks
(ZeRO++).
"""
ASYNC_SINCE = {"megatron-2021": 2022, "megatron-deepspeed": 2023}
"""Year from which the all-reduce of an input's gradient runs beside the weight's by default
(--no-async-tensor-model-parallel-allreduce turns it off): Megatron-LM 3.0; Microsoft's
Megatron-DeepSpeed since it was rebased on it. BigScience's fork is of 2021.
"""


LATER_SINCE = {"megatron-2021": 2023}
LATER = {"weight_gradient": "apart", "send_channels": "several"}
"""What the profile, which is of 2021, does by itself from a year on: the product that makes a
weight's gradient adds it up (Megatron-LM 83b1e42f, 2022-02, for fp32 sums; 07916bf2, 2022-09, for
fp16), and NCCL sends by several channels (2.12, 2022-03).
"""


@dataclass(frozen=True)
class Words:
    """How a row may speak of a setting."""

    field: str
    topic: str
    """What names the setting at all; a row that names it with no value of `values` gets a note."""
    values: tuple[tuple[Any, str], ...]
    """(value, what says so), the first that is found."""


SETTINGS = (
    Words(
        "cuda_graphs",
        r"cuda[ _-]?graphs?",
        (
            (
                "off",
                (
                    r"cuda[ _-]?graph\w*[\s=:]{1,3}(?:none|off|false|disabled)|\bno cuda["
                    r" _-]?graph|without cuda[ _-]?graph"
                ),
            ),
            (
                "full",
                (
                    r"cuda[ _-]?graph\w*[\s=:]{1,3}(?:local )?full|full(?:[ -]iteration)? cuda["
                    r" _-]?graph"
                ),
            ),
            (
                "parts",
                (
                    r"cuda["
                    r" _-]?graph\w*[\s=:]{1,3}(?:transformer_engine|local|attn|mlp|moe)"
                    r"|(?:partial|layer) cuda[ _-]?graph"
                ),
            ),
        ),
    ),
    Words(
        "compiled",
        r"torch\.?compile|\bcompiled?\b",
        (
            (
                False,
                (
                    r"(?:no|without|not)"
                    r" (?:torch\.?)?compiled?\b"
                    r"|torch\.?compile\w*[\s=:]{1,3}(?:off|false|disabled|none)|\beager\b"
                ),
            ),
            (True, r"torch\.?compile|\bcompiled?\b"),
        ),
    ),
    Words(
        "dispatcher",
        r"dispatcher|deep[ _-]?ep\b|hybrid[ _-]?ep\b",
        (
            ("hybridep", r"hybrid[ _-]?ep\b"),
            ("deepep", r"deep[ _-]?ep\b"),
            (
                "alltoall",
                r"dispatcher\w*[\s=:]{1,3}(?:all[ _-]?to[ _-]?all|a2a|none)",
            ),
        ),
    ),
    Words(
        "routing",
        r"(?:fake[ _-])?balanced[ _-]gate|neighbouring experts",
        (
            (
                "neighbours",
                r"fake[ _-]balanced[ _-]gate|neighbouring experts",
            ),
        ),
    ),
    Words(
        "ep_overlap",
        r"a2a_overlap|overlap_moe|(?:a2a|all[ -]to[ -]all|\bep) overlap",
        (
            (
                False,
                (
                    r"(?:a2a_overlap|overlap_moe\w*)[\s=:]{1,3}(?:false|off|none)|no (?:a2a|all["
                    r" -]to[ -]all|ep) overlap"
                ),
            ),
            (
                True,
                r"a2a_overlap|overlap_moe|(?:a2a|all[ -]to[ -]all|\bep) overlap",
            ),
        ),
    ),
    Words(
        "tp_overlap",
        r"async[ _-]?tp|\btp[ _-](?:comm[ _-])?overlap|vanilla tp|\bno tp(?:/\w+)* comm\w*"
        r" overlap|userbuffers?|async tensor",
        (
            (
                "off",
                (
                    r"vanilla tp|\bno tp(?:/\w+)* (?:comm\w* )?overlap|\btp[ _-](?:comm["
                    r" _-])?overlap[\s=:]{1,3}(?:false|off|none)|no async[ _-]?tp"
                ),
            ),
            (
                "all",
                r"async[ _-]?tp|userbuffers?|\btp[ _-](?:comm[ _-])?overlap|async tensor",
            ),
        ),
    ),
    Words(
        "experts_fused",
        r"fused[ _-]grouped[ _-]mlp|op[ _-]fuser",
        (
            (
                True,
                r"(?:fused[ _-]grouped[ _-]mlp|op[ _-]fuser)(?!\w*[\s=:]{1,3}(?:false|off))",
            ),
            (False, r"(?:fused[ _-]grouped[ _-]mlp|op[ _-]fuser)"),
        ),
    ),
    Words(
        "logits_quantised",
        r"fp8_output_proj|fp8 (?:logits|head)",
        (
            (
                True,
                r"fp8_output_proj(?!\w*[\s=:]{1,3}(?:false|off))|fp8 (?:logits|head)",
            ),
            (False, r"fp8_output_proj"),
        ),
    ),
    Words(
        "loss",
        r"\b(?:ce|cross[ _-]entropy(?:_loss)?)[ _-]fusion|cross_entropy_fusion_impl",
        (
            (
                "fused",
                r"cross_entropy_fusion_impl[\s=:]{1,3}native|native (?:ce|cross[ _-]entropy)",
            ),
            (
                "passes",
                r"(?:ce|cross[ _-]entropy(?:_loss)?)[ _-]fusion[\s=:]{1,3}(?:false|off|none)"
                r"|no (?:ce|cross[ _-]entropy)[ _-]fusion",
            ),
            (
                "in place",
                r"\b(?:ce|cross[ _-]entropy(?:_loss)?)[ _-]fusion"
                r"|cross_entropy_fusion_impl[\s=:]{1,3}te\b",
            ),
        ),
    ),
    Words(
        "logits_gathered",
        r"gathered logits|logits (?:are )?gathered",
        ((True, r"gathered logits|logits (?:are )?gathered"),),
    ),
)
FLOAT8 = Words(
    "float8",
    r"fp8|float8|e4m3",
    (
        ("mxfp8", r"mx[ -]?fp8|\bmx\b"),
        ("rowwise", r"row[- ]?wise"),
        (
            "blockwise",
            r"block[- ]?(?:wise|scal\w+)|128 ?x ?128|sub[- ]?channel",
        ),
        ("delayed", r"delayed"),
        (
            "tensorwise",
            r"tensor[- ]?wise|per[- ]tensor|current[- ]scaling|torchao",
        ),
        ("delayed", r"\(te\b|transformer[- ]engine"),
    ),
)
"""Scaling of FP8 numbers, in the words of a precision. Transformer Engine's own is delayed,
torchao's tensor-wise.
"""
GRADIENTS = (
    ("half", r"\bpure\b|\b(?:bf16|fp16|16[ -]bit) grad"),
    (
        "fp32",
        (
            r"(?:fp32|float32)[ -](?:grad|accum|reduc|all)|(?:grad|accum|reduc)\w* (?:in"
            r" )?(?:fp32|float32)"
        ),
    ),
    ("fp32", r"\bbf16[ _-]?optimizer\b"),
)
"""Numbers that gradients are added up in, in the words of a precision. DeepSpeed's BF16Optimizer
accumulates in fp32, its engines before it did not; Composer's PURE keeps gradients in 16 bits."""
KERNELS = (
    ("", r"flash\w* (?:unstated|not stated|unknown)"),
    ("fused-softmax", r"fused[ _-]softmax"),
    ("unfused", r"unfused|no flash"),
    ("fa3", r"flash[ _-]?att(?:ention|n)?[ _-]?v?3|\bfa3\b"),
    (
        "fa2",
        r"flash[ _-]?att(?:ention|n)?[ _-]?v?2|\bfa2\b|flex[ _-]?attention",
    ),
    ("fa1", r"flash[ _-]?att(?:ention|n)?[ _-]?v?1|\bfa1\b"),
    ("cudnn-fp8", r"fp8_dot_product_attention[\s=:]{1,3}true|fp8 attention"),
    ("cudnn", r"\bcudnn\b|fused[ _-]attention"),
    (
        "torch",
        r"kernel[=:] ?torch\b|^torch\b|\b(?:plain|eager|torch) attention",
    ),
    ("flash", r"flash|memory[ -]efficient attention|\bsdpa\b"),
)
"""Attention kernel -> its names; a generation stands before the family, which is the framework's
own kernel. FlexAttention reaches 0.9 of FlashAttention-2 forward and 0.85 backward (Dong et al.
2024, arXiv 2412.05496).
"""
KERNEL_LIST = re.compile(r"kernels?[=:] ?(\w[\w.]*(?: ?\+ ?[\w. ]+)?)")
NORM_KERNEL = r"\b(?:rms|layer|fused)[ _-]?(?:norm)?[ _-]?(?:norm|kernel)"
OWN = (
    (
        r"\baa-scaling|aleph[ -]alpha",
        {
            "logits_gathered": True,
            "tp_overlap": "off",
            "gathered_inputs": "kept",
            "input_gradients": "apart",
            "stage_message": "whole",
        },
    ),
    (r"\bfms-fsdp\b.*compile", {"gradients": "half"}),
    (r"\bfms-fsdp\b", {"gradients": "half", "norm": "torch"}),
)
"""What one program does by itself, of several patterns that fit the first. foundation-model-stack/
fms-fsdp@6c8a9d2 (2024-02): gradients are reduced in 16 bits (policies/mixed_precision.py,
bfSixteen); its models' norms are separate operations in fp32 (fms/modules/layernorm.py) unless they
are compiled. Aleph-Alpha/scaling (github.com, commit 01b9d21): Megatron's
layers, DeepSpeed's ZeRO-1, whose gradients are all-reduced bucket by bucket after the last
microbatch (core/optimizer/allreduce.py); nn/linear/column_parallel_linear.py: all_concat of the
logits, and nn/linear/utils.py: all-reduces of both passes are waited for, and autograd keeps what
was gathered; nn/mlp.py: gate and up are modules of their own, each with the all-reduce of its
input's gradient; nn/parallel_module/communicator.py: stages send whole tensors."""
BLOCKING = re.compile(r"tr11-176b-ml/chronicles-prequel\.md line")
"""Sources whose runs launched kernels one by one: these set CUDA_LAUNCH_BLOCKING=1 because large
models hung without it (bigscience-workshop/bigscience@9e64ede, chronicles-prequel.md, "dealing with
JZ hanging on the large model"; every script beside it). Its section of the best rates is of runs
before that.
"""
LOSS_COMPILED_SINCE = 202504
"""Month from which torchtitan compiles the loss with the model (github.com/pytorch/torchtitan, pull
request 1033).
"""
ENDS_APART_SINCE = 202508
"""Month from which torchtitan's embedding is a unit of its own, and norm and head are one
(github.com/pytorch/torchtitan, pull request 1094, 2025-07-28); before they were the root's.
"""
EARLY_STOP_UNTIL = 202508
"""Month from which torchtitan's recomputation runs to the end of a layer that is not compiled:
early_stop is False since (github.com/pytorch/torchtitan, pull request 1580).
"""
EARLY_STOP_SINCE = 2024
"""Year from which a run has a PyTorch whose recomputation stops early (2.1, October 2023)."""
DATED = re.compile(r"(20[12]\d)-?(0[1-9]|1[0-2])(?!\d)")
READ = (
    *(pattern for _, pattern in FRAMEWORKS),
    *(w.topic for w in SETTINGS),
    *(p for _, p in KERNELS),
    *(p for p, _ in OWN),
    NORM_KERNEL,
    ENGINE,
)
NEUTRAL = r"""
    \b(?:megatron(?:-?lm)?|deepspeed|pytorch|torch|nvidia|nemo|container|bigscience|kernels?|based
    |zero[- ]bubble|zero-?[123]|paper|before|interleaving|scatter|gather|dev|main|nightly|release
    |rc\d*|and|with|the|in|on|of
    |jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)\b|\w*\d[\w.]*"""
"""Words beside a program's name that change nothing here; versions and years among them."""


@dataclass(frozen=True)
class RowSoftware:
    """What a row says of its software."""

    framework: str
    settings: Software
    attention: str
    """The attention kernel that it names; "" if none."""
    notes: tuple[str, ...] = ()


def software_of(row: Row) -> RowSoftware:
    """The framework of a row and its settings, with a note on each word that is not understood."""
    program = text_of_row(row, "software")
    year = positive_number(row, "year")
    words = spoken(row)
    profile = framework(program, sharding(row), year)
    pairs = [setting_in_words(w, words) for w in SETTINGS]
    pairs += [
        float8_scaling(row),
        _gradients(row),
        own(program),
        compiled_on_request(profile, program),
        loss_setting(profile, row),
        ends_setting(profile, row),
        launches(row),
        full_setting(profile, row),
        overlap(profile, row),
        by_year(profile, row),
        norm_kernel(row),
    ]
    settings: dict[str, Any] = {}
    for values, _ in pairs:
        settings = {**values, **settings}
    notes = (named_framework(profile, program), *(note for _, note in pairs))
    return RowSoftware(
        profile,
        Software(**settings),
        attention_word(row),
        tuple(note for note in notes if note),
    )


def spoken(row: Row) -> str:
    """What a row says in words of how it ran."""
    return " ; ".join(
        (
            text_of_row(row, "software"),
            text_of_row(row, "recipe"),
            text_of_row(row, "notes"),
        )
    )


def sharding(row: Row) -> str:
    """What it says of sharding."""
    fsdp = text_of_row(table_of_row(row, "parallel"), "fsdp")
    return f"{text_of_row(row, 'optimizer_sharding')} {fsdp}"


def framework(program: str, sharded: str, year: float | None) -> str:
    """The framework that a program's name says; "unknown" if none."""
    for name, pattern in FRAMEWORKS:
        if re.search(pattern, program):
            return name
    if "megatron" in program:
        recent = year is None or year >= ENGINE_SINCE
        return (
            "megatron-core"
            if recent or re.search(ENGINE, program)
            else "megatron-2021"
        )
    if (
        "deepspeed" in program
        and re.search(r"zero-?3", f"{program} {sharded}")
        and (year or 0) <= ZERO3_UNTIL
    ):
        return "deepspeed-zero3"
    return "fsdp" if "fsdp" in sharded and "torch" in program else "unknown"


def named_framework(name: str, program: str) -> str:
    """A note on a program that nothing here knows, and on words beside its name that nothing
    reads.
    """
    if name == "unknown":
        return (
            f"software {program[:60]!r} is not known"
            if program
            else "its software is not named"
        )
    left = program
    for pattern in READ:
        left = re.sub(pattern, " ", left)
    strange = re.findall(
        r"[a-z][a-z-]{2,}", re.sub(NEUTRAL, " ", left, flags=re.VERBOSE)
    )
    return (
        f"of its software {strange[0][:40]!r} is not understood"
        if strange
        else ""
    )


def setting_in_words(of: Words, words: str) -> tuple[dict[str, Any], str]:
    """The value that the words give a setting, and a note if they name it with none that is
    known.
    """
    if not (topic := re.search(of.topic, words)):
        return {}, ""
    for value, pattern in of.values:
        if re.search(pattern, words):
            return {of.field: value}, ""
    return (
        {},
        (
            f"{words[topic.start() : topic.start() + 40]!r} is not understood: {of.field} is the"
            " framework's own"
        ),
    )


def float8_scaling(row: Row) -> tuple[dict[str, Any], str]:
    """How FP8 numbers are scaled."""
    return setting_in_words(
        FLOAT8, f"{text_of_row(row, 'precision')} {text_of_row(row, 'recipe')}"
    )


def _gradients(row: Row) -> tuple[dict[str, Any], str]:
    """Numbers that gradients are added up in."""
    return (
        next(
            (
                {"gradients": value}
                for value, p in GRADIENTS
                if speaks_of(p, text_of_row(row, "precision"))
            ),
            {},
        ),
        "",
    )


def deals_modules(program: str) -> bool:
    """Its pipeline is cut by modules, of which the embedding, the last norm and the head are each
    one (`jobs.module_stages`)."""
    return bool(re.search(OWN[0][0], program))


def own(program: str) -> tuple[dict[str, Any], str]:
    """What a program does by itself."""
    return next(
        (dict(does) for pattern, does in OWN if re.search(pattern, program)),
        {},
    ), ""


def compiled_on_request(
    profile: str, program: str
) -> tuple[dict[str, Any], str]:
    """torchtitan compiles on request only (compile.enable is false in its configurations)."""
    if profile != "torchtitan" or "compile" in program:
        return {}, ""
    return {
        "compiled": False
    }, "torch.compile is not named: taken as off, as torchtitan has it"


def before(row: Row, month: int) -> bool:
    """Its source has a date, and that is before the month (202504)."""
    dates = [
        int(year + part)
        for year, part in DATED.findall(text_of_row(row, "source_ref"))
    ]
    return bool(dates) and max(dates) < month


def launches(row: Row) -> tuple[dict[str, Any], str]:
    """Whether the host waited for each kernel, where the row's source says so."""
    blocking = BLOCKING.search(text_of_row(row, "source_ref"))
    return ({"launches": "blocking"} if blocking else {}), ""


def ends_setting(profile: str, row: Row) -> tuple[dict[str, Any], str]:
    """torchtitan's ends of a model were the root's once."""
    early = profile == "torchtitan" and before(row, ENDS_APART_SINCE)
    return ({"ends": "root"} if early else {}), ""


def full_setting(profile: str, row: Row) -> tuple[dict[str, Any], str]:
    """PyTorch's recomputation did not stop early before 2.1; torchtitan's does no more; nor does
    the other way, which llm-foundry takes for Transformer Engine's layers (scripts/train/train.py:
    activation_checkpointing_reentrant is set to true).
    """
    if profile == "torchtitan":
        early = before(row, EARLY_STOP_UNTIL)
        return ({"full": "prefix"} if early else {}), ""
    if profile not in ("llm-foundry", "fsdp"):
        return {}, ""
    year = positive_number(row, "year") or math.inf
    engine = re.search(ENGINE, text_of_row(row, "precision"))
    return ({"full": "whole"} if year < EARLY_STOP_SINCE or engine else {}), ""


def loss_setting(profile: str, row: Row) -> tuple[dict[str, Any], str]:
    """torchtitan's loss is torch's where the model is not compiled, or was before the loss was; the
    date is that of its source.
    """
    if profile != "torchtitan":
        return {}, ""
    early = before(row, LOSS_COMPILED_SINCE)
    return (
        {"loss": "eager"}
        if early or "compile" not in text_of_row(row, "software")
        else {}
    ), ""


def overlap(profile: str, row: Row) -> tuple[dict[str, Any], str]:
    """Megatron's asynchronous all-reduce, by the year of the run; Bridge's recipes turn the overlap
    of all passes off in FP4 (scripts/performance/configs: tp_comm_overlap = False with nvfp4).
    """
    year = positive_number(row, "year") or 0.0
    recent = ASYNC_SINCE.get(profile, math.inf)
    behind = year >= recent and "bigscience" not in text_of_row(
        row, "software"
    )
    narrow = profile == "megatron-bridge" and "fp4" in text_of_row(
        row, "precision"
    )
    return ({"tp_overlap": "backward"} if behind or narrow else {}), ""


def by_year(profile: str, row: Row) -> tuple[dict[str, Any], str]:
    """What later releases do otherwise than the profile's, by the year of a run."""
    year = positive_number(row, "year") or 0.0
    return (LATER if year >= LATER_SINCE.get(profile, math.inf) else {}), ""


def norm_kernel(row: Row) -> tuple[dict[str, Any], str]:
    """A row that lists its kernels runs norms in plain torch, unless a kernel for them is among
    these.
    """
    listed = text_of_row(row, "attention_kernel") or "".join(
        KERNEL_LIST.findall(text_of_row(row, "software"))[:1]
    )
    if not listed:
        return {}, ""
    return {"norm": "fused" if re.search(NORM_KERNEL, listed) else "torch"}, ""


def attention_word(row: Row) -> str:
    """The attention kernel that a row names; "" if none: the framework's own."""
    words = (
        text_of_row(row, "attention_kernel"),
        text_of_row(row, "software"),
        text_of_row(table_of_row(row, "model"), "attention"),
        text_of_row(row, "notes"),
    )
    for where in words:
        for name, pattern in KERNELS:
            if re.search(pattern, where):
                return name
    return ""
