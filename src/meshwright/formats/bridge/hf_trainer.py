"""Hugging Face's TrainingArguments and what is built on them: how weights are sharded."""

from __future__ import annotations

from ...describe.read import brief
from . import axolotl
from .keys import Keys
from .shared import SHARDING, runs_on

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


def zero_swift(k: Keys) -> int:
    """ms-swift has a configuration of its own for FSDP 2, by that name."""
    if k.word("fsdp") != "fsdp2":
        return fsdp_zero(k)
    runs_on(k, "fsdp2")
    return 3


FSDP2 = ("fsdp2", "fsdpturbo")
"""LLaMA-Factory v1's words for PyTorch's second FSDP (plugins/trainer_plugins/distributed)."""


def zero_v1(k: Keys) -> int:
    """FSDP frees gathered weights, or not; DeepSpeed by the name of its file."""
    name = k.word("dist_config.name", "none")
    if name == "deepspeed":
        return axolotl.deepspeed_stage(k, "dist_config.config_file")
    if name not in (*FSDP2, "none"):
        k.unreadable("dist_config.name", f"{brief(name)}: give --zero")
    if name not in FSDP2:
        return 0
    runs_on(k, "fsdp2")
    return 3 if k.switch("dist_config.reshard_after_forward", True) else 2
