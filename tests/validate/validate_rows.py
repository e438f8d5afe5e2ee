"""A well-formed row of published runs, and ways to change it."""

from __future__ import annotations

import copy
from typing import Any

ROW: dict[str, Any] = {
    "id": "r1",
    "source": "s",
    "year": 2024,
    "model": {
        "name": "llama3-8b",
        "arch": "dense",
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn_hidden": 14336,
        "gated": True,
        "vocab": 128256,
        "seq_len": 8192,
    },
    "hardware": {
        "gpu": "H100-80GB-SXM",
        "count": 64,
        "gpus_per_node": 8,
        "intra_node": "NVLink4 900GB/s",
        "inter_node": "8x400Gb NDR InfiniBand per node",
    },
    "software": "Megatron-Bridge",
    "precision": "bf16",
    "parallel": {
        "tp": 4,
        "sp": True,
        "pp": 4,
        "vpp": 2,
        "dp": 4,
        "zero_stage": 1,
    },
    "micro_batch": 1,
    "global_batch": 128,
    "recompute": "none",
    "optimizer_sharding": "distributed optimizer",
    "measured": {"step_time_s": 3.0},
}


def row(**changes: Any) -> dict[str, Any]:
    """ROW with fields replaced; a dict is laid over the dict of that name."""
    new = copy.deepcopy(ROW)
    for name, value in changes.items():
        new[name] = (
            {**new[name], **value} if isinstance(value, dict) else value
        )
    return new
