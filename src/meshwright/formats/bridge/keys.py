"""What a foreign file says, and which of it was understood; what the names in the formulas of its
format's rows stand for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from ...describe.read import brief
from ...errors import BadInput
from ..formulas import worked_out
from .table import Format

OFF = (None, False, "", "none", "None", "null")
"""Values of a key that switch something off."""
YES = ("true", "yes", "on", "1")
REFERENCE = re.compile(r"cfg(\.\w+)+|\$\{[\w.]+\}")
"""A value that is that of another key."""
MOST = 1e18
"""No number of a configuration is as large."""
NO = ("false", "no", "off", "0")
READERS = (
    *("whole", "number", "word", "flag", "switch", "choice", "get", "items"),
    *("degree", "so_far", "product", "chips", "title"),
)
"""What of `Keys` a formula may name."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Name in a formula -> function of the keys, and of what stands in its brackets (`shared`)."""
PLAIN: Mapping[str, Any] = {
    f.__name__: f for f in (max, min, int, str, round, len)
}
"""Functions of Python that every formula may name."""


@dataclass
class Keys:
    """The keys of a file with their values; remembers which were asked for. Formulas find in it
    what their names stand for, each worked out anew: `let` of the format, `FUNCTIONS`, `READERS`.
    """

    said: Mapping[str, Any]
    format: Format
    used: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    """Key -> why it is not in the job, one sentence."""
    unread: set[str] = field(default_factory=set)
    """Keys with a value that cannot be read."""
    notes: list[str] = field(default_factory=list)
    """What was assumed."""
    chips: int | None = None
    """How many the file, or its launcher, starts ranks on."""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What has been read so far: table -> field -> value."""
    alone: bool = False
    """Neither FSDP nor DeepSpeed holds the weights: each rank has all, as they were loaded."""

    def __getitem__(self, name: str) -> Any:
        if name in self.format.let:
            return worked_out(self.format.let[name], self)
        if name in FUNCTIONS:
            return partial(FUNCTIONS[name], self)
        return getattr(self, name) if name in READERS else PLAIN[name]

    @property
    def title(self) -> str:
        """Of the format, for errors."""
        return self.format.title

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is understood; the default where it is off or missing."""
        if key not in self.said:
            return default
        self.used.add(key)
        value = self.said[key]
        if isinstance(value, str) and REFERENCE.fullmatch(value):
            return default  # another key of the same configuration: what is there already
        return (
            default
            if value is None or value in ("none", "None", "null", "")
            else value
        )

    def has(self, key: str) -> bool:
        """The key is there and switched on."""
        return self.get(key, False) not in OFF and self.flag(key)

    def flag(self, key: str, default: bool = False) -> bool:
        """The value of a key that is true or false."""
        value = self.get(key, default)
        if isinstance(value, str):
            if value.lower() in (*YES, *NO):
                return value.lower() in YES
            return True
        return bool(value)

    def switch(self, key: str, default: bool = False) -> bool:
        """The value of a key that is true or false, and no other word."""
        value = self.get(key, default)
        if not self.plain(key):
            self.unreadable(key, f"must be true or false, not {brief(value)}")
            return default
        return self.flag(key, default)

    def plain(self, key: str) -> bool:
        """The value of a key is true, false, nothing, or auto, which is on where it can be."""
        return str(self.get(key, False)).lower() in (*YES, *NO, "auto")

    def choice(self, key: str, words: Collection[str], default: str) -> str:
        """The value of a key that is one of some words; another is left out, and said so."""
        word = self.word(key, default)
        if word in words:
            return word
        known = ", ".join(words)
        self.leave(
            key, f"{brief(word)} is not known ({known}): {default} is taken"
        )
        return default

    def whole(self, key: str, default: int | None = None) -> int | None:
        """The value of a key that is a whole number; what is none is left out, and said so."""
        value = self.number(key, default)
        if value is not None and value != int(value):
            self.leave(key, f"must be a whole number, not {value:g}")
            return default
        return None if value is None else int(value)

    def number(self, key: str, default: float | None = None) -> float | None:
        """The value of a key that is a number; what is none is left out, and said so."""
        value = self.get(key, default)
        if self.said.get(key) == "":  # "$TP" of a name that is set elsewhere
            self.unreadable(key, "")
            return default
        if value is None:
            return None
        try:
            number = float(str(value).replace("_", ""))
        except ValueError:
            number = float("nan")
        if value is True or not abs(number) < MOST:
            self.unreadable(key, f"must be a number, not {brief(value)}")
            return default
        return number

    def product(self, *keys: str) -> int:
        """The product of keys that are whole numbers, each 1 where it is missing; -1: one of them
        takes what others leave.
        """
        parts = [self.whole(key, 1) or 1 for key in keys]
        return -1 if min(parts) < 0 else prod(parts)

    def word(self, key: str, default: str = "") -> str:
        """The value of a key that is a word, in lower case; none is a word too."""
        value = self.get(key, default)
        given = self.said.get(key)
        return (
            str(given if isinstance(given, str) and given else value)
            .strip()
            .lower()
        )

    def items(self, key: str) -> list[str]:
        """The words of a key that holds several."""
        value = self.get(key, [])
        if isinstance(value, str):
            value = (
                value.strip("[]")
                .replace(",", " ")
                .replace('"', " ")
                .replace("'", " ")
                .split()
            )
        return (
            [str(v) for v in value]
            if isinstance(value, (list, tuple))
            else [str(value)]
        )

    def leave(self, key: str, why: str) -> None:
        """Say that a key is not in the job, and why."""
        self.used.add(key)
        self.left[key] = why

    def unreadable(self, key: str, why: str) -> None:
        """Say that the value of a key cannot be read: nothing is taken in its place."""
        no_value = "has no value: a name of the script is set elsewhere"
        given = self.said.get(key)
        self.leave(key, no_value if given is True or given == "" else why)
        self.unread.add(key)

    def so_far(self, path: str, default: Any = None) -> Any:
        """A field that was read before, such as layout.tp."""
        name, _, field = path.partition(".")
        table: Any = self.tables.get(name)
        if not field:
            return default if table is None else table
        return (
            table.get(field, default) if isinstance(table, dict) else default
        )

    def degree(self, path: str) -> int:
        """A degree or size that was read before, 1 if it was not said.  Raises BadInput."""
        value = self.so_far(path, 1) or 1
        try:
            if float(value) == int(value):
                return int(value)
        except (TypeError, ValueError, OverflowError):
            pass
        raise BadInput(f"{path} must be a whole number, not {brief(value)}")
