"""A tool whose files catalog/bridges.toml says, but for what few of them have of their own.

The table of a format (`[formats.NAME]`) says what tells its files from others (`own`, of which a
file has `enough`), which keys count its ranks (`ranks`), which commands start it (`starts`), and,
where a plan can be written in it, which program reads the file (`program`) and what that file needs
beside a plan (`fixed`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

from ...describe.frozendict import EMPTY
from ...describe.job import Job
from ...errors import BadInput
from ..toml_writer import dumps_toml
from . import launch, shell
from .launch import spelled
from .reading import FileKeys, decided_elsewhere
from .table import Format, formats, get
from .tree import nested, yaml_text

SHARDED = ("layout.zero", "job.precision")
"""Fields that accelerate's own settings decide where the program's arguments do not."""


@dataclass(frozen=True)
class Tool:
    """What knows the files of one tool: recognises them, reads their keys, writes a plan."""

    name: str
    trees: ClassVar[bool] = True
    """Its files are YAML, TOML or JSON."""
    named: ClassVar[bool] = True
    """Its program, not its launcher, is told the name of the configuration."""
    beside: ClassVar[Mapping[Any, tuple[str, ...]]] = EMPTY
    """(Key, value) -> what it stands beside, one of them."""

    @property
    def format(self) -> Format:
        """Its table."""
        return get(self.name)

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """Has the file enough keys that only this tool has?"""
        own = {
            key
            for key in map(spelled, keys)
            for pattern in self.format.own
            if fnmatchcase(key, pattern)
        }
        return len(own) >= self.format.enough

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys of a file by one spelling, and the ranks that they start."""
        named: dict[str, Any] = {}
        for key, value in keys.items():
            name = spelled(key)
            if named.setdefault(name, value) != value:
                raise BadInput(
                    f"{where[:80]} says {name} twice, {named[name]!s:.40} and {value!s:.40}"
                )
        given = [named[key] for key in self.format.ranks if key in named]
        counts = [int(n) for n in map(str, given) if n.isdecimal() and int(n)]
        whole = counts and len(counts) == len(given)
        return FileKeys(named, prod(counts) if whole else None)

    def mine(self, text: str) -> bool:
        """Does a script give a program enough of its flags?"""
        return self._command(shell.read_script(text)) is not None

    def said(self, text: str, where: str) -> FileKeys:
        """The arguments of the command that has them.  Raises BadInput where none has."""
        script, format = shell.read_script(text), self.format
        words = self._command(script)
        if words is None:
            raise BadInput(
                f"{where[:80]} starts nothing with the arguments of {format.title}"
            )
        for start, why in format.apart.items():
            if _starts(words, start):
                raise BadInput(f"{format.title}: {start}: {why}")
        demand_training(format, words, where)
        ranks = launch.ranks_started(words, script)
        ranks = ranks or launch.ranks_named(script, format.environment)
        over = format.over
        keys = (
            launch.settings(words, over)
            if over.startswith("--")
            else launch.arguments(words)
        )
        flag = launch.sharded_by(words)
        options = launch.through_accelerate(words, keys)
        keys = {
            k: v for k, v in options.items() if k in format.read_keys
        } | keys
        return FileKeys(
            keys,
            ranks,
            doubtful=frozenset(script.doubtful),
            base=file_under(words, over),
            elsewhere=decided_elsewhere(
                format, SHARDED * bool(flag), keys, flag
            ),
        )

    def _command(self, script: shell.Shell) -> list[str] | None:
        over = bool(self.format.over)
        return launch.command_with_most_flags(
            script,
            lambda words: (
                self.mine_tree(dict.fromkeys(launch.flags_of(words)))
                if not starter_named(words)
                else starter_named(words) == self.name
                and bool(file_under(words, self.format.over)) is over
            ),
        )

    def words(self, out: dict[str, Any]) -> dict[str, Any]:
        """Keys of a plan as a file of the tool says them."""
        return out

    def head(self, at: launch.Place) -> dict[str, Any]:
        """What the tool's launcher is told beside the plan."""
        return {}

    def starter(self, at: launch.Place) -> str:
        """The words that start the ranks of a node."""
        return launch.torchrun(at)

    def text(self, out: dict[str, Any]) -> str:
        """The configuration with these keys."""
        data, config = nested(out), self.format.config
        if config.endswith(".json"):
            return json.dumps(data, indent=2) + "\n"
        return (
            "\n" + dumps_toml(data)
            if config.endswith(".toml")
            else yaml_text(data)
        )

    def render(self, out: dict[str, Any], job: Job, at: launch.Place) -> str:
        """The file with these keys, and what it needs beside a plan."""
        format = self.format
        if at.scripted and format.starts_ranks:
            raise BadInput(
                f"{format.title} starts its ranks itself: --to {self.name}, and then"
                f" {format.starts_ranks}"
            )
        keys = {**format.fixed, **self.head(at), **out, **format.last}
        about = {
            "title": format.title,
            "version": format.version,
            "gpus": at.nodes * at.ranks,
            "chips": job.cluster.chips,
        }
        return launch.configured(
            at,
            format,
            format.program,
            lines=[f"{format.takes} {format.config}".strip()] * self.named,
            file=(format.config, self.text(keys)),
            heading=[line.format(**about) for line in format.heading],
            starter=self.starter,
        )


def demand_training(format: Format, words: Sequence[str], where: str) -> None:
    """BadInput for a program that takes the flags of a format and trains no decoder."""
    if why := no_training(format, words):
        raise BadInput(f"{where[:80]} starts {why}")


def no_training(format: Format, words: Sequence[str]) -> str:
    """The program of a command that trains no decoder, and what it does; "" for training."""
    path = program_path(words)
    program = path.rpartition("/")[2]
    for pattern, why in format.programs.items():
        name = path if "/" in pattern else program
        if fnmatchcase(name.lower(), pattern):
            return f"{program[:60]}, {why}"
    return ""


def program_path(words: Sequence[str]) -> str:
    """Where the Python of a command lies, without its end; "" where it names none."""
    file = next((w for w in words if w.endswith(".py")), "")
    module = next((b for a, b in pairwise(words) if a == "-m"), "")
    return file.removesuffix(".py") or module.replace(".", "/")


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
