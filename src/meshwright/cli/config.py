"""What a user sets once for all commands: prices of chips, a default framework.

# ~/.config/meshwright/config.toml, or the file that $MESHWRIGHT_CONFIG names
framework = "torchtitan"
[prices]
h100-sxm = 2.5
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadInput, unknown

VARIABLE = "MESHWRIGHT_CONFIG"
KEYS = ("framework", "prices")


def config() -> dict[str, Any]:
    """The tables of the user's file; {} without one."""
    from ..formats import parse_toml, read_text

    named = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = Path(named or Path(home) / "meshwright" / "config.toml")
    if not named and not file.is_file():
        return {}
    tables = parse_toml(read_text(str(file)), str(file))
    for key in tables:
        if key not in KEYS:
            raise unknown(f"{file}: key", key, KEYS)
    return tables


def prices(words: Sequence[str], chip: str = "") -> dict[str, float]:
    """Chip -> USD an hour, of --price h100-sxm=2.5 and of the user's file; a lone number is that
    of `chip`.
    """
    from .. import catalog

    book = config().get("prices", {})
    if not isinstance(book, Mapping):
        raise BadInput("prices of the configuration must be a table")
    pairs = [(name, usd, "prices") for name, usd in book.items()]
    for word in words:
        name, equals, usd = word.rpartition("=")
        pairs.append((name if equals else chip, usd, "--price"))
    return {
        catalog.chip(name).name if catalog.has("chips", name) else _own(name, chip): _usd(usd, said)
        for name, usd, said in pairs
    }  # fmt: skip


def _own(name: str, chip: str) -> str:
    """A chip that only the job has; BadInput for one that nobody knows."""
    from .. import catalog

    if name == chip and chip:
        return name
    raise unknown("chip of --price", name, (*catalog.names("chips"), chip))


def _usd(value: object, said: str) -> float:
    """A price above 0, as a number or a text such as 2.5 or "2.5 USD/h"."""
    from ..units import parse

    usd = parse(value, "USD/h", said)  # type: ignore[arg-type]
    if not 0 < usd < 1e6:
        raise BadInput(f"{said} must be above 0 USD an hour, not {usd:g}")
    return usd


def by_config(given: Mapping[str, str], file: bool) -> dict[str, str]:
    """The flags, with the user's framework where neither they nor a file say one."""
    name = config().get("framework")
    if not name or file or "framework" in given or "assumptions" in given:
        return dict(given)
    return {**given, "framework": str(name)}
