"""accelerate's YAML: processes, FSDP, the sizes of its mesh. Model and batch are the script's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...describe.job import Job
from ..torchrun import PORT
from . import launch
from .deepspeed import PROFILES
from .keys import Keys
from .reading import FileKeys
from .shared import (
    Out,
    runs_fsdp2,
    runs_on,
    write_shards,
)
from .table import get
from .tool import Tool

NAME = "accelerate"
M = "parallelism_config.parallelism_config_"
F = "fsdp_config.fsdp_"
SHARDING = {
    "1": (3, False),
    "full_shard": (3, False),
    "2": (2, False),
    "shard_grad_op": (2, False),
    "3": (0, False),
    "no_shard": (0, False),
    "4": (3, True),
    "hybrid_shard": (3, True),
    "5": (2, True),
    "hybrid_shard_zero2": (2, True),
}
"""Sharding strategies of FSDP 1 -> (ZeRO stage, copies in each node)."""
COPIES = "copies in each node: give their number, --dp-replicate"
"""What a word of FSDP 1 leaves open."""
LAYERS = "TRANSFORMER_BASED_WRAP"
"""The policy that shards and gathers each layer by itself. Without one the whole model is one unit
(1.15: NO_WRAP, `FullyShardedDataParallelPlugin.auto_wrap_policy`)."""


def _zero(k: Keys) -> int:
    """By FSDP's or DeepSpeed's own word; sharded sizes of the mesh are FSDP 2."""
    kind = k.word("distributed_type", "no")
    stage, hybrid = 0, False
    if kind == "deepspeed":
        stage = k.whole("deepspeed_config.zero_stage", 2) or 0
        runs_on(k, PROFILES.get(stage, PROFILES[0]))
    elif kind == "megatron_lm":
        stage = int(
            k.flag("megatron_lm_config.megatron_lm_use_distributed_optimizer")
        )
        runs_on(k, "megatron-core")
    elif kind == "fsdp":
        stage, hybrid = fsdp(k)
    if hybrid:
        k.leave(F + "sharding_strategy", COPIES)
    if kind == "fsdp":
        runs_fsdp2(k)
    k.get("use_fsdp"), k.get("use_deepspeed"), k.get(F + "version")
    return stage


def fsdp(k: Keys) -> tuple[int, bool]:
    """(ZeRO stage, copies in each node) of version 1 or 2."""
    unwrapped(k, F + "auto_wrap_policy", "no_wrap")
    word = k.word(F + "sharding_strategy") or k.word(
        F + "reshard_after_forward", "true"
    )
    if word in SHARDING:
        return SHARDING[word]
    return (2 if word in ("false", "no") else 3), False


def unwrapped(k: Keys, key: str, default: str) -> None:
    """Says what is gathered at once where it is not a layer, as the prediction has it.

    default: the policy of a file that does not give one.
    """
    policy = k.word(key, default)
    if policy == LAYERS.lower():
        return
    units = {"size_based_wrap": "groups of weights by their size"}
    gathered = units.get(policy, "all weights at once, without overlap")
    k.leave(
        key,
        f"{policy.upper()} gathers {gathered}: the prediction gathers layer by layer ({LAYERS})",
    )


READ = {
    "layout.zero": _zero,
}


def _write_dp(job: Job, out: Out) -> None:
    out["num_processes"] = int(job.layout.chips)
    write_shards(job, out, NAME, M)


WRITE = {"layout.dp": _write_dp}


class Accelerate(Tool):
    """accelerate's YAML."""

    named = False

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """Every file of accelerate's says what kind of distribution it has."""
        return "distributed_type" in keys or "compute_environment" in keys

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys, and the processes that are started."""
        count = str(keys.get("num_processes", ""))
        return FileKeys(
            dict(keys),
            int(count) if count.isdecimal() and int(count) > 0 else None,
        )

    def head(self, at: launch.Place) -> Out:
        """What its launcher is told beside the plan."""
        return {"num_machines": at.nodes}

    def starter(self, at: launch.Place) -> str:
        """The words that start the ranks of a node."""
        words = f"accelerate launch --config_file {get(NAME).config}"
        if at.nodes == 1:
            return words
        # this rendezvous numbers the nodes itself: --machine_rank is demanded, and not read
        meets = f'--main_process_ip "{at.head}" --main_process_port {PORT}'
        return f"{words} --rdzv_backend c10d --machine_rank 0 {meets}"


TOOL = Accelerate("accelerate", READ, WRITE)
