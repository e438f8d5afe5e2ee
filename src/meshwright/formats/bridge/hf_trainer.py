"""Hugging Face's TrainingArguments and what is built on them: how weights are sharded."""

from __future__ import annotations

from ...describe.read import brief
from . import axolotl
from .keys import Keys
from .shared import SHARDING

WRAPPED = ("auto_wrap", "true", "2")
"""Words of `fsdp` with which each layer is a unit of its own."""

WORDS = (*SHARDING, *WRAPPED, "offload", "false")
"""Of `fsdp` (training_args.py, FSDPOption)."""


def fsdp_zero(k: Keys) -> int:
    """By the words of FSDP or the name of DeepSpeed's file, as axolotl hands them on; without
    `auto_wrap` all weights are one unit (training_args.py, _process_fsdp_args).
    """
    stage = axolotl.zero(k)
    words = [word.lower() for word in k.items("fsdp")]
    if strange := [word for word in words if word not in WORDS]:
        k.unreadable("fsdp", f"{brief(strange[0])}: give --zero")
    elif stage and words and not {*words} & {*WRAPPED}:
        k.leave(
            "fsdp",
            "without auto_wrap all weights are gathered at once: the prediction gathers layer by"
            " layer",
        )
    return stage
