"""A tool whose files catalog/bridges.toml says alone, but for the few fields that code reads.

The table of such a format (`[formats.NAME]`) says what tells its files from others (`own`), what it
takes for a key that is not there (`defaults`), which keys count its ranks (`ranks`), and, where a
plan can be written in it, which program reads the file (`program`) and what that file needs beside
a plan (`fixed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod
from typing import Any

from ...errors import BadInput
from . import launch, shell
from .reading import FileKeys, decided_elsewhere
from .table import formats, get
from .tool import Tool

SHARDED = ("layout.zero", "job.precision")
"""Fields that accelerate's own settings decide where the program's arguments do not."""
OWN = 2
"""Keys of its own from which on a file is a tool's."""


class TabledTool(Tool):
    """A tool whose files have keys that no other tool has."""

    scripts = True

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """Has the file enough keys that only this tool has?"""
        own = {
            key
            for key in map(spelled, keys)
            for pattern in get(self.name).own
            if fnmatchcase(key, pattern)
        }
        return len(own) >= OWN

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys by one spelling, and the ranks that they start."""
        named: dict[str, Any] = {}
        for key, value in keys.items():
            name = spelled(key)
            if named.setdefault(name, value) != value:
                raise BadInput(
                    f"{where[:80]} says {name} twice, {named[name]!s:.40} and {value!s:.40}"
                )
        given = [named[key] for key in get(self.name).ranks if key in named]
        counts = [n for n in given if isinstance(n, int) and n > 0]
        whole = counts and len(counts) == len(given)
        return FileKeys(named, prod(counts) if whole else None)

    def mine(self, text: str) -> bool:
        """Does a script give a program enough of its flags?"""
        return self._command(shell.read_script(text)) is not None

    def said(self, text: str, where: str) -> FileKeys:
        """The arguments of the command that has them."""
        script = shell.read_script(text)
        words = self._command(script)
        if words is None:
            return super().said(text, where)  # which says so
        for start, why in get(self.name).apart.items():
            if _starts(words, start):
                raise BadInput(f"{get(self.name).title}: {start}: {why}")
        ranks = launch.ranks_started(words, script)
        ranks = ranks or launch.ranks_named(script, get(self.name).environment)
        doubtful = frozenset(script.doubtful)
        over = get(self.name).over
        keys = (
            launch.settings(words, over)
            if over.startswith("--")
            else launch.arguments(words)
        )
        flag = launch.sharded_by(words)
        theirs = decided_elsewhere(
            get(self.name), SHARDED * bool(flag), keys, flag
        )
        return FileKeys(
            keys,
            ranks,
            doubtful=doubtful,
            base=file_under(words, over),
            elsewhere=theirs,
        )

    def _command(self, script: shell.Shell) -> list[str] | None:
        if not get(self.name).scripts:
            return None
        return launch.command_with_most_flags(
            script,
            lambda words: (
                self.mine_tree(dict.fromkeys(_flags(words)))
                if not starter_named(words)
                else starter_named(words) == self.name
                and bool(file_under(words, get(self.name).over))
                is bool(get(self.name).over)
            ),
        )


def file_under(words: Sequence[str], over: str) -> str:
    """The configuration after a program, or after a flag, that other words change, or ""."""
    if not over:
        return ""
    named = (file for word, file in pairwise(words) if word.endswith(over))
    return next(
        (
            file
            for file in named
            if over.startswith("--") or file.endswith((".yaml", ".yml"))
        ),
        "",
    )


def starter_named(words: Sequence[str]) -> str:
    """The format whose program a command starts by its words, or ""."""
    return next(
        (
            name
            for name, format in formats().items()
            if any(_starts(words, s) for s in (*format.starts, *format.apart))
        ),
        "",
    )


def _starts(words: Sequence[str], start: str) -> bool:
    return f" {start} " in f" {' '.join(words)} "


def spelled(key: object) -> str:
    """A key with underscores, however the tool lets one write it."""
    return str(key).replace("-", "_")


def flags_of_script(text: str) -> list[str]:
    """Names of the flags that a script gives to anything."""
    commands = map(launch.command_pieces, shell.read_script(text).commands)
    named = (flag for words in commands for flag in _flags(words))
    return [*dict.fromkeys(named)]


def _flags(words: Sequence[str]) -> Iterator[str]:
    """Names of a command's flags."""
    for word in words:
        if word.startswith("--"):
            yield spelled(word[2:].partition("=")[0])
