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


def deepspeed_stage(k: Keys, key: str) -> int:
    """ZeRO stage in the name of DeepSpeed's file; 0, and asked for, where it has none."""
    file = k.get(key)
    named = STAGE.search(str(file).lower().rpartition("/")[2])
    if named is None:
        k.unreadable(key, f"{brief(file)}: give --zero, or read that file")
        return 0
    runs_on(k, "deepspeed")
    return int(named[1])


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
