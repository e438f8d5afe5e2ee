"""Plain data as TOML text, as `tomllib` reads it back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput, article


def dumps_toml(data: Mapping[str, Any], path: str = "") -> str:
    """TOML text of nested dicts, lists, texts, numbers and flags; tables in lists are written
    inline.
    """
    lines = [
        f"{_key(k)} = {toml_literal(v)}"
        for k, v in data.items()
        if not isinstance(v, Mapping)
    ]
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in data.items():
        if isinstance(value, Mapping):
            name = f"{path}.{_key(key)}" if path else _key(key)
            body = dumps_toml(value, name)
            header = f"[{name}]\n" if not body.lstrip().startswith("[") else ""
            text += ("\n" if text else "") + header + body
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_literal(key)


def toml_literal(value: Any) -> str:
    """One TOML value. JSON's string escapes are TOML's, but for the delete character."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(
                f"{_key(k)} = {toml_literal(v)}" for k, v in value.items()
            )
            + " }"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_literal(v) for v in value) + "]"
    if isinstance(value, float):
        short = f"{value:g}"  # 1e+12, not 1000000000000.0
        return (
            short if "e+" in short and float(short) == value else repr(value)
        )
    if isinstance(value, int):
        return repr(value)
    raise BadInput(
        f"{article(type(value).__name__)} cannot be written as TOML"
    )
