"""Foreign formats, one a file, read and/or written; and the two parsers every reader goes through.

Files are bounded in size and parsed by the standard library only; whatever is wrong with one is a
BadInput sentence.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import BadInput

STDIN = "<stdin>"
"""In place of a model: the job is a TOML text on standard input."""
LARGEST = 4 * 2**20
"""Bytes of a description (TOML, config.json). Measurements have their own bounds."""

MOST_DOTS = 1e8
"""Sum over lines of the squared number of dots in a TOML text: tomllib's time for a dotted key
grows so.
"""


def read_text(path: str | Path, largest: int = LARGEST) -> str:
    """The UTF-8 text of a file of at most `largest` bytes."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(largest + 1)
        if len(data) > largest:
            raise BadInput(
                f"{path} is larger than {largest // 2**20} MiB: too large to read"
            )
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a UTF-8 text file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise read_error(path, error) from None


def read_error(path: str | Path, error: Exception) -> BadInput:
    """The sentence for a file that the system does not give."""
    why = getattr(error, "strerror", None) or error
    return BadInput(f"{str(path)[:200]} cannot be read: {why}")


def write_whole(path: Path, text: str) -> None:
    """Put a text in the place of a file; whoever is killed meanwhile leaves the old one, and an
    OSError nothing of the new one.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, "utf-8")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The table in a TOML text; `where` names it in errors."""
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MOST_DOTS:
        raise BadInput(f"{where} is nested too deeply")
    table: dict[str, Any] = _parsed(tomllib.loads, text, where, "TOML")
    return table


JSON = {
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
"""What else a JSON text may hold, as its writer calls it."""


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object in a JSON text; `where` names it in errors."""
    data = _parsed(json.loads, text, where, "JSON")
    if not isinstance(data, dict):
        raise BadInput(
            f"{where} must hold one JSON object, not {JSON.get(type(data), 'a list')}"
        )
    return data


def _parsed(
    parser: Callable[[str], Any], text: str, where: str, format: str
) -> Any:
    if len(text) > LARGEST:
        raise BadInput(
            f"{where} is larger than {LARGEST // 2**20} MiB: not a description"
        )
    try:
        return parser(text)
    except RecursionError:
        raise BadInput(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise BadInput(
            f"{where} is not valid {format}: {str(error)[:200]}"
        ) from None
