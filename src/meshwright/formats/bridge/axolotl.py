"""axolotl's YAML: model, lengths, batch, FSDP or DeepSpeed by the name of its file."""

from __future__ import annotations

import re

from ...describe.read import brief
from .keys import NO, YES, Keys
from .shared import (
    COPIES,
    SHARDING,
    runs_on,
)

NAME = "axolotl"
F = "fsdp_config."
STRATEGIES = tuple(
    F + name
    for name in (
        *("fsdp_sharding_strategy", "sharding_strategy"),
        *("reshard_after_forward", "fsdp_reshard_after_forward"),
    )
)
"""Keys of FSDP 1, which come before those of FSDP 2."""
STAGE = re.compile(r"(?:zero|z|stage)[-_]?([0-3])(?!\d)")
"""In the name of a file of DeepSpeed's: zero3_bf16.json, ds_z2_config.json, stage3.json."""


ZERO3 = 3
SHARDED = (2, ZERO3)
"""Stages that shard gradients, as FSDP does."""
AS_FSDP = "DeepSpeed's ZeRO-3 of today has no profile: that of PyTorch's FSDP is taken"
"""Its profile is that of DeepSpeed 0.4 (2021) with Megatron's kernels, which waits for all gathers.
Since then ZeRO-3 overlaps by default (DeepSpeed@1b88ac36, runtime/zero/config.py,
overlap_comm_valid), and under Accelerate the two were measured alike: Granite 7B on four A100, bf16
with fp32 masters, 3,158.7 tokens/s a GPU (FSDP, full shard) and 3,094.5 (DeepSpeed ZeRO-3), 2 %
less; "ballpark" in its authors' words (table 3 of a draft of "A Hugging Face Accelerate Story of
Multiple Backends: FSDP and DeepSpeed", huggingface/blog@09e9aa2d, deepspeed-to-fsdp-and-back.md,
2024-06). One model on one node: for other sizes it is an assumption. Bytes of a parameter are the
same: 16 over all ranks.
"""


def deepspeed_stage(k: Keys, key: str) -> int:
    """ZeRO stage in the name of DeepSpeed's file; 0, and asked for, where it has none."""
    file = k.get(key)
    named = STAGE.search(str(file).lower().rpartition("/")[2])
    if named is None:
        k.unreadable(key, f"{brief(file)}: give --zero, or read that file")
        return 0
    stage = int(named[1])
    runs_on(k, "fsdp" if stage in SHARDED else "deepspeed")
    if stage == ZERO3:
        k.notes.append(AS_FSDP)
    return stage


def zero(k: Keys) -> int:
    """Of FSDP's configuration, or of the name of DeepSpeed's file."""
    words = [k.word(key) for key in STRATEGIES]
    listed = [w.lower() for w in k.items("fsdp") if w.lower() in SHARDING]
    word = next(filter(None, (*words[:2], *listed, *words[2:])), "")
    version = k.get("fsdp_version") or k.get(F + "fsdp_version")
    for key, value in zip(STRATEGIES, words, strict=True):
        if value not in ("", *SHARDING, *YES, *NO):
            k.leave(
                key,
                f"{brief(value)} is unknown: it may change time or memory",
            )
    if k.get("deepspeed") is not None:
        return deepspeed_stage(k, "deepspeed")
    fsdp = (
        k.get("fsdp")
        or version
        or word
        or any(key.startswith(F) for key in k.said)
    )
    k.get(F + "fsdp_version")
    if not fsdp:
        k.alone = True
        return 0
    runs_on(k, "fsdp2")
    stage, copies = SHARDING.get(word, (2 if word in NO else 3, False))
    if copies:
        k.leave("fsdp", COPIES)
    return stage
