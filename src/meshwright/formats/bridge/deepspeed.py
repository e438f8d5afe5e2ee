"""DeepSpeed's JSON: ZeRO stage, batch and numbers. The rest is the training script's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...describe.job import Job
from ...errors import BadInput
from . import host_memory, launch
from .keys import Keys
from .reading import FileKeys
from .shared import (
    Out,
    accumulated,
    left_of,
    replicas_left,
    runs_on,
)
from .table import get
from .tool import Tool
from .tree import nested

NAME = "deepspeed"
OWN = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.stage",
)
AUTO = "auto"
"""Left to transformers, which fills it in from the script's arguments."""
PROGRAM = "train.py"
CONFIG = "ds_config.json"
PROFILES = {
    0: "megatron-deepspeed",
    1: "megatron-deepspeed",
    2: "fsdp",
    3: "deepspeed-zero3",
}
"""Stage -> the profile of the software; the nearest where DeepSpeed's own is not measured."""


def profile(k: Keys, stage: int) -> None:
    """The framework that stands for this stage."""
    runs_on(k, PROFILES[stage])
    if stage == 2:
        k.notes.append(
            "DeepSpeed's ZeRO-2 has no profile of its own: that of PyTorch's FSDP is taken"
        )


def zero(k: Keys) -> int:
    stage = k.whole("zero_optimization.stage", 0) or 0
    if stage not in PROFILES:
        raise BadInput(
            f"DeepSpeed: zero_optimization.stage must be 0, 1, 2 or 3, not {stage}"
        )
    profile(k, stage)
    return stage


def _copies(k: Keys) -> int | None:
    """Groups that hold copies (MiCS shards over fewer ranks)."""
    shard = k.whole("zero_optimization.mics_shard_size")
    ranks = replicas_left(k)
    return ranks // shard if shard and shard > 0 and ranks else None


def batch_of_factors(k: Keys) -> str | None:
    """train_batch_size, or its three factors."""
    given = k.whole("train_batch_size")
    ranks = left_of(k)
    parts = k.whole("gradient_accumulation_steps", 1) or 1
    each = k.degree("layout.microbatch")
    if not given and ranks:
        given = each * parts * ranks
    elif (
        given
        and ranks
        and "gradient_accumulation_steps" in k.said
        and given != each * parts * ranks
    ):
        product = f"{each} x {parts} x {ranks}"
        k.notes.append(
            f"train_batch_size {given} is not {product}, which DeepSpeed demands"
        )
    return f"{given}seq" if given else None


READ = {
    "layout.dp_replicate": _copies,
    "layout.zero": zero,
    "layout.offload": host_memory.deepspeed,
    "job.batch": batch_of_factors,
}


def write_copies(job: Job, out: Out) -> None:
    """MiCS, which sharded over part of dp, is gone since 0.19.8 (its `DeepSpeedConfig` refuses
    mics_shard_size; issue 8489); files of before are read.
    """
    if job.layout.dp_replicate > 1:
        raise BadInput(
            f"DeepSpeed shards over all of dp (MiCS was removed): dp_replicate"
            f" {int(job.layout.dp_replicate)}, only 1"
        )


def write_batch(job: Job, out: Out) -> None:
    out["gradient_accumulation_steps"] = accumulated(job)
    out["train_batch_size"] = job.batch


WRITE = {
    "layout.dp_replicate": write_copies,
    "layout.offload": host_memory.write_deepspeed,
    "job.batch": write_batch,
}


class DeepSpeed(Tool):
    """DeepSpeed's JSON."""

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """A file with a batch or a stage of DeepSpeed's."""
        return any(key in keys for key in OWN)

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys, but for those that are left to the script."""
        auto = [key for key, value in keys.items() if value == AUTO]
        notes = (
            [f"left to the script (auto): {', '.join(auto)}"] if auto else []
        )
        return FileKeys(
            {k: v for k, v in keys.items() if v != AUTO}, None, tuple(notes)
        )

    def render(self, out: Out, job: Job, at: launch.Place) -> str:
        """The JSON, which has no comments."""
        text = json.dumps(nested(out), indent=2) + "\n"
        lines = [f"--deepspeed {CONFIG}"]
        return launch.configured(
            at, get(NAME), PROGRAM, lines=lines, file=(CONFIG, text)
        )


TOOL = DeepSpeed("deepspeed", READ, WRITE)
