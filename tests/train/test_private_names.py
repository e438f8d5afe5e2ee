"""Which private names of PyTorch the trainer stands on, so that a new release that moves one of
them fails here, by name, and not in a run.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "meshwright"
ROOMS = ("train", "study", "trace")
TABLE = (ROOT / "docs" / "train.md").read_text("utf-8")


def private_imports() -> set[tuple[str, str]]:
    """(module, name) of all that these rooms import from a private place of torch."""
    names = set()
    for path in sorted(p for r in ROOMS for p in (SOURCE / r).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {(node.module, alias.name) for alias in node.names}
    return {
        (module, name)
        for module, name in names
        if module.split(".")[0] == "torch"
        and re.search(r"\._", f"{module}.{name}")
    }


def test_they_are_where_the_installed_pytorch_has_them() -> None:
    imported = private_imports()
    assert len(imported) > 10
    for module, name in imported:
        assert hasattr(importlib.import_module(module), name), (module, name)


def test_the_docs_list_each_of_them() -> None:
    section = TABLE.split("## Private names of PyTorch")[1].split("\n#")[0]
    listed = set(re.findall(r"`(torch[\w.]*)`", section))
    imported = {f"{module}.{name}" for module, name in private_imports()}
    assert listed == imported
