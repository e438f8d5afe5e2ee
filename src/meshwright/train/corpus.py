"""A small real text that is on every machine: the documentation strings of the running Python's
standard library, about 1 MB of English.

They are read by parsing the sources (nothing is imported or run), in the order of their names, so
one Python version always gives one text.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import data
from .tokenizer import encoder


def documents() -> Iterator[str]:
    """The docstrings of each single-file module of the standard library, one text a module."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            # of the compiler, about the sources
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
        paragraphs = [
            ast.get_docstring(node)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        ]
        if text := "\n\n".join(filter(None, paragraphs)):
            yield f"{path.stem}\n\n{text}\n\n"


def make(path: Path) -> dict[str, Any]:
    """Write the corpus as a token file of bytes, unless it is there already; its header."""
    if data.sibling(path, ".json").exists():
        return data.read_header(path)
    version = f"docstrings of the standard library of Python {sys.version.split()[0]}"
    encode = encoder("bytes")
    return data.write(
        path,
        chunks=encode.stream(documents()),
        vocab=encode.vocab,
        tokenizer="bytes",
        source=version,
    )
