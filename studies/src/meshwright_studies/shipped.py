"""Published numbers that come with the package, in its folder `data`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")


def shipped_text(path: str) -> str:
    """The text of a file, such as runs/published.json."""
    return (DATA / path).read_text("utf-8")


def shipped_table(path: str) -> dict[str, Any]:
    """The table in a file of TOML or JSON."""
    read = tomllib.loads if path.endswith(".toml") else json.loads
    table: dict[str, Any] = read(shipped_text(path))
    return table
