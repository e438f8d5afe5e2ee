"""axolotl's YAML: model, lengths, batch, FSDP or DeepSpeed by the name of its file."""

from __future__ import annotations

import re

from ...describe.job import Job
from ...describe.read import brief
from ...errors import BadInput
from .deepspeed import PROFILES
from .keys import NO, YES, Keys
from .shared import (
    COPIES,
    SHARDING,
    Out,
    runs_fsdp2,
    runs_on,
    write_shards,
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
FLASH = "flash_attention_2"
EP = "expert_parallel_size"
EP_PLUGIN = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
"""Its mesh is ep x dp_shard x cp, experts farthest; weights of experts are sharded over dp_shard,
the others over all (monkeypatch/accelerate/parallelism_config.py, 0.19.0)."""
EXCHANGED = {"gather": "varlen_llama3", "ring": "batch_ring"}
"""`Layout.cp_exchange` -> ring_attn_func (monkeypatch/ring_attn/patch.py)."""
NO_MASTERS = (
    "weights are loaded in the numbers of the run: without FSDP and DeepSpeed there are no fp32"
    " masters, and memory is less than predicted"
)
"""torch_dtype of utils/config/__init__.py, normalize_config."""


def zero(k: Keys) -> int:
    """Of FSDP's configuration, or of the name of DeepSpeed's file."""
    deepspeed = k.get("deepspeed")
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
    if deepspeed is not None:
        named = STAGE.search(str(deepspeed).lower().rpartition("/")[2])
        if named is None:
            k.unreadable(
                "deepspeed",
                f"{brief(deepspeed)}: give --zero, or read that file",
            )
            return 0
        stage = int(named[1])
        runs_on(k, PROFILES[stage])
        return stage
    fsdp = (
        k.get("fsdp")
        or version
        or word
        or any(key.startswith(F) for key in k.said)
    )
    k.get(F + "fsdp_version")
    if not fsdp:
        k.notes.append(NO_MASTERS)
        return 0
    runs_fsdp2(k)
    stage, copies = SHARDING.get(word, (2 if word in NO else 3, False))
    if copies:
        k.leave("fsdp", COPIES)
    return stage


def write_replicas(job: Job, out: Out) -> None:
    """Its shards are those of an expert, where experts are shared out."""
    write_shards(job, out, NAME)
    if job.layout.ep > 1:
        demand_experts(job)
        out["dp_shard_size"] = int(job.layout.dp // job.layout.ep)
        out[EP] = int(job.layout.ep)
        out["plugins"] = [EP_PLUGIN]


def demand_experts(job: Job) -> None:
    """BadInput where its mesh would lay or shard experts otherwise than the plan."""
    l = job.layout
    if (
        not l.zero
        or l.tp * l.cp * l.dp_replicate > 1
        or l.dp % l.ep
        or l.dp == l.ep
    ):
        raise BadInput(
            "axolotl combines ep only with sharding: zero 2 or 3, tp, cp and"
            f" dp_replicate 1, and ep less than dp {int(l.dp)}, not ep {int(l.ep)}"
        )
    if l.dp > (job.cluster.sizes[0] or l.dp):
        raise BadInput(
            f"axolotl places experts across nodes where others stay inside one: ep {int(l.ep)} on"
            " one node only"
        )


def write_cp(job: Job, out: Out) -> None:
    """ring_flash_attn runs FlashAttention-2 alone, and gathers keys of packed sequences alone, one
    at a time (utils/schemas/validation.py, check_context_parallel_size).
    """
    l = job.layout
    if l.cp == 1:
        return
    if job.attention_kernel not in ("framework", "fa2"):
        raise BadInput(
            f"axolotl runs cp only with the kernel fa2, not {job.attention_kernel}"
        )
    out["context_parallel_size"] = int(l.cp)
    out["attn_implementation"] = FLASH
    if l.cp_exchange == "gather":
        if l.microbatch > 1:
            raise BadInput(
                f"axolotl gathers keys of one sequence at a time: microbatch {l.microbatch}"
            )
        out["sample_packing"] = True
    out["ring_attn_func"] = EXCHANGED.get(l.cp_exchange, l.cp_exchange)
