"""What the words of a row mean: precision, sharding, schedule (recomputation: `recompute`; the
framework: `software`).

Defaults, where a row does not say: bf16 (fp16 on chips without it); replicated Adam; 1F1B,
interleaved if there are virtual stages.
"""

from __future__ import annotations

import re
from dataclasses import replace

from meshwright.describe.chip import Chip
from meshwright.describe.holding import Holding
from meshwright.describe.job import (
    OPTIMIZERS,
    PRECISIONS,
    Optimizer,
    Precision,
)

COMPUTE = (
    (r"fp4", "fp4"),
    (r"fp8|float8|e4m3", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half", "fp16"),
    (r"tf32", "tf32"),
    (r"fp32|float32", "fp32"),
)
JAX = re.compile(r"\b(?:maxtext|jax|pax(?:ml)?|levanter|t5x|easylm)\b")
EIGHT_BIT_GATHER = (
    r"\b(?:fp8|float8|mxfp8)[ _-](?:all[ _-]?gather|(?:param\w*|weight)[ _-](?:all[ _-]?)?gather)"
    r"|all[ _-]?gathers?\w* in (?:fp8|float8|8[ -]bit)|fsdp_(?:fp8|float8)_all_gather"
)


def speaks_of(pattern: str, words: str) -> bool:
    """Do the words speak of it, and not of its absence ("no ...", "without ...", "pre-...", "...
    disabled")?
    """
    before = (
        r"(?<!\bno )(?<!\bnot )(?<!\bno-)(?<!\bnon-)(?<!without )(?<!w/o )(?<!\bpre-)(?<!\bpre"
        r" )(?<!before )(?<!before the )"
    )
    after = r"(?!\w*[\s=:(]{0,3}(?:off|false|disabled|none)\b)"
    return re.search(rf"{before}(?:{pattern}){after}", words) is not None


def is_jax(software: str) -> bool:
    """MaxText and other trainers on JAX."""
    return JAX.search(software) is not None


def precision_in_words(
    words: str, software: str, chip: Chip, fsdp: str | None = None
) -> Precision:
    """Which numbers are computed, kept and sent (those of gradients: `software`).

    fsdp: what the row says of FSDP, None if it has none; FSDP gathers weights in 16 bits unless the
    row speaks of an 8-bit all-gather (llm-foundry's "bf16 compute"; an option of torchtitan's).
    """
    compute = next(
        (name for pattern, name in COMPUTE if re.search(pattern, words)),
        "bf16" if "bf16" in chip.matrix_flops else "fp16",
    )
    base = PRECISIONS[compute]
    if (
        fsdp is not None
        and compute in ("fp8", "fp4")
        and not speaks_of(EIGHT_BIT_GATHER, f"{words} {software} {fsdp}")
    ):
        base = replace(base, gather_bytes=PRECISIONS["bf16"].gather_bytes)
    return base


def optimizer(fsdp: bool, software: str, holding: Holding) -> Optimizer:
    """Adam with an fp32 master. FSDP's fp32 shard is the master, 16 bytes a parameter in all: where
    the framework does not say so, 2 are counted as weight. NeMo AutoModel makes a model in 16
    bits, and torch.optim.Adam's moments have the numbers of what they are of (components/models,
    from_config; examples/llm_benchmark).
    """
    if "automodel" in software:
        return replace(OPTIMIZERS["adamw"], state_bytes=4.0, master_bytes=0.0)
    return (
        replace(OPTIMIZERS["adamw"], state_bytes=10.0)
        if fsdp and not holding.shard_is_master
        else OPTIMIZERS["adamw"]
    )


def zero_in_words(stage: int | None, sharding: str, fsdp: str) -> int:
    """ZeRO stage: the number if given, else from the words."""
    if stage in (0, 1, 2, 3):
        return stage
    words = f"{sharding} {fsdp}"
    if number := re.search(r"zero[- ]?([0-3])", words):
        return int(number[1])
    if "grad_op" in words:
        return 2
    return 3 if "fsdp" in words else 1 if "distributed" in words else 0


def is_fsdp(sharding: str, fsdp: str, software: str) -> bool:
    """PyTorch's FSDP or JAX's: the fp32 shard is the master copy (Megatron's and DeepSpeed's keep a
    separate one).
    """
    return (
        "fsdp" in f"{sharding} {fsdp}"
        and "megatron" not in f"{sharding} {fsdp} {software}"
    )


def schedule(words: str, pp: int, interleave: int) -> tuple[str, int]:
    """(schedule, interleave) of a pipeline of pp stages."""
    if pp == 1:
        return "1f1b", 1
    if "dualpipe" in words:
        return "dualpipev", 2
    if re.search(r"zb-?v|v-(half|min)", words):
        return "zbv", 2
    if re.search(r"zb|zero[- ]?bubble", words):
        return (
            ("interleaved-zb", interleave)
            if interleave > 1
            else ("zb-h2", 1)
            if re.search(r"2p|h2", words)
            else ("zb-h1", 1)
        )
    if interleave > 1:
        return "interleaved", interleave
    return ("gpipe", 1) if re.search(r"gpipe|afab", words) else ("1f1b", 1)
