"""What knows the files of one tool: recognises them, reads their keys, writes a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...describe.frozendict import EMPTY
from ...describe.job import Job
from ...errors import BadInput
from . import launch
from .reading import FileKeys, Reader
from .table import get
from .tree import nested, yaml_text
from .writing import Writer


@dataclass(frozen=True)
class Tool:
    """A format by its name in the table, and what the table does not say of it."""

    name: str
    READ: Mapping[str, Reader] = EMPTY
    """Field -> what reads it where no row of the table can."""
    WRITE: Mapping[str, Writer] = EMPTY
    trees: ClassVar[bool] = True
    """Its files are YAML, TOML or JSON."""
    scripts: ClassVar[bool] = False
    """Its files are scripts that start a program."""
    named: ClassVar[bool] = True
    """Its program, not its launcher, is told the name of the configuration."""
    beside: ClassVar[Mapping[Any, tuple[str, ...]]] = EMPTY
    """(Key, value) -> what it stands beside, one of them."""

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """The keys of a file are the tool's."""
        return False

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys of a file as the tool takes them."""
        return FileKeys(dict(keys))

    def mine(self, text: str) -> bool:
        """A script starts the tool."""
        return False

    def said(self, text: str, where: str) -> FileKeys:
        """What a script gives the tool.  Raises BadInput where it starts none."""
        raise BadInput(
            f"{where[:80]} starts nothing with the arguments of {get(self.name).title}"
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
        return yaml_text(nested(out))

    def render(self, out: dict[str, Any], job: Job, at: launch.Place) -> str:
        """The file with these keys, and what it needs beside a plan."""
        format = get(self.name)
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
