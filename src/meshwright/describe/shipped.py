"""Data that comes with the package, in its catalogue."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def text(path: str) -> str:
    """A file of the catalogue, such as runs/seen.csv."""
    folder = resources.files("meshwright") / "catalog"
    return folder.joinpath(path).read_text("utf-8")


def shipped_table(path: str) -> dict[str, Any]:
    """A TOML file of the catalogue."""
    return tomllib.loads(text(path))


def tables(folder: str) -> dict[str, dict[str, Any]]:
    """File -> table, for the TOML files in a folder of the catalogue, by name."""
    files = resources.files("meshwright") / "catalog" / folder
    names = sorted(f.name for f in files.iterdir())
    return {
        name.removesuffix(".toml"): shipped_table(f"{folder}/{name}")
        for name in names
        if name.endswith(".toml")
    }
