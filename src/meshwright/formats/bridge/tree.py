"""YAML, TOML and JSON as one flat table of dotted keys, with bounds on size, depth and number.

YAML is read by PyYAML's safe loader, which makes plain data and nothing else; the package is
optional and only loaded here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from ...errors import BadInput

LARGEST_YAML = 2**19
"""Bytes: MaxText's file of all defaults has 75 kB, and PyYAML reads about as much in a second."""
MOST_KEYS = 20_000
"""Keys of a file, an alias counted each time it is used."""
DEEPEST = 32
FROM_ENVIRONMENT = re.compile(
    r"\$\{[A-Z][A-Z0-9_]*(?::-?(?P<default>[^${}]*))?\}"
)


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping in a YAML text; BadInput for everything else."""
    if len(text) > LARGEST_YAML:
        raise BadInput(
            f"{where} is larger than {LARGEST_YAML // 2**10} KiB: not a configuration"
        )
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise BadInput(
            f"{where} is YAML, which PyYAML reads: pip install 'meshwright[yaml]'"
        ) from None
    if _depth(text) > DEEPEST:  # PyYAML takes the square of it
        raise BadInput(f"{where} is nested too deeply")
    try:
        data = yaml.load(text, _loader(yaml))
    except RecursionError:
        raise BadInput(f"{where} is nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"{where} is not valid YAML: {said}") from None
    if not isinstance(data, dict):
        raise BadInput(
            f"{where} must hold keys and values, not {type(data).__name__}"
        )
    return data


def _loader(yaml: Any) -> Any:
    """PyYAML's safe loader, for which a tool's own tag (`!include FILE`) is the plain text, list or
    mapping behind it; tags of Python's objects stay refused.
    """

    class Plain(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def plain(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value
        deep = {"deep": True}
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, **deep)
        return loader.construct_mapping(node, **deep)

    Plain.add_multi_constructor("!", plain)
    return Plain


def _depth(text: str) -> int:
    """Brackets that are open at once, at most."""
    depth = deepest = 0
    for c in text:
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    return deepest


def flat_keys(data: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """key.key -> value, in the order of the file; lists are values."""
    leaves: dict[str, Any] = {}
    _flatten(data, "", leaves, where=where, depth=DEEPEST)
    return leaves


def _flatten(
    data: Any, path: str, leaves: dict[str, Any], where: str, depth: int
) -> None:
    if not depth or len(leaves) > MOST_KEYS:
        raise BadInput(
            f"{where} is nested too deeply, or has more than {MOST_KEYS:,} keys"
        )
    for key, value in data.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            _flatten(value, name, leaves, where=where, depth=depth - 1)
        else:
            leaves[name] = default_of(value)


def default_of(value: object) -> object:
    """What the environment may set (`${TP:1}`) as it stands without, "" where it must set it
    (`${TP}`); other values as they are.
    """
    if not isinstance(value, str):
        return value
    match = FROM_ENVIRONMENT.fullmatch(value)
    if match is None:
        return value
    default = match["default"] or ""
    try:
        return json.loads(default)
    except ValueError:
        return default


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of dotted keys, in their order."""
    data: dict[str, Any] = {}
    for path, value in keys.items():
        *steps, last = path.split(".")
        table = data
        for step in steps:
            table = table.setdefault(step, {})
        table[last] = value
    return data


def yaml_text(data: Mapping[str, Any], indent: int = 0) -> str:
    """Plain data as YAML text (strings as JSON writes them, which YAML reads)."""
    lines = []
    for key, value in data.items():
        pad = " " * indent
        if isinstance(value, Mapping):
            lines += [
                f"{pad}{key}:",
                yaml_text(value, indent + 2).rstrip("\n"),
            ]
        else:
            lines.append(f"{pad}{key}: {scalar_text(value)}")
    return "\n".join(lines) + "\n"


def scalar_text(value: Any) -> str:
    """A value that is no table, as YAML writes it in one line.  To YAML 1.1, which PyYAML reads, a
    number with an exponent has a point: 1e-05 is a text, which GPT-NeoX and nanotron refuse.
    """
    if isinstance(value, float) and value.is_integer():
        return f"{value:.1f}"
    if isinstance(value, float) and isfinite(value):
        return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))
    plain = (
        isinstance(value, str)
        and value.replace("_", "").replace("-", "").isalnum()
    )
    if plain and value.lower() not in YAML_WORDS and value[0].isalpha():
        return str(value)
    return json.dumps(value, ensure_ascii=False)


YAML_WORDS = (
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "null",
    "none",
    "y",
    "n",
)
"""Texts that YAML takes for something else."""
