"""DeepSpeed's JSON: ZeRO stage, batch and numbers. The rest is the training script's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .reading import FileKeys
from .tool import Tool

AUTO = "auto"
"""Left to transformers, which fills it in from the script's arguments."""


class DeepSpeed(Tool):
    """DeepSpeed's JSON."""

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys, but for those that are left to the script."""
        auto = [key for key, value in keys.items() if value == AUTO]
        note = f"left to the script (auto): {', '.join(auto)}"
        own = {k: v for k, v in keys.items() if v != AUTO}
        return FileKeys(own, notes=(note,) * bool(auto))
