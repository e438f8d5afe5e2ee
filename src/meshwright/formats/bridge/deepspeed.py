"""DeepSpeed's JSON: ZeRO stage, batch and numbers. The rest is the training script's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .reading import FileKeys
from .tool import Tool

NAME = "deepspeed"
OWN = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.stage",
)
AUTO = "auto"
"""Left to transformers, which fills it in from the script's arguments."""


class DeepSpeed(Tool):
    """DeepSpeed's JSON."""

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys, but for those that are left to the script."""
        auto = [key for key, value in keys.items() if value == AUTO]
        notes = (
            [f"left to the script (auto): {', '.join(auto)}"] if auto else []
        )
        return FileKeys(
            {k: v for k, v in keys.items() if v != AUTO}, None, tuple(notes)
        )
