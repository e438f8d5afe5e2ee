"""Snippets of pages: ```sh run is carried out and its output shown, ```json NAME is a file beside
it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from meshwright.cli import main as cli

FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
WIDTH = "100"


class Snippet(NamedTuple):
    """A fenced block: its language, the word after it (a file, or `run`), its text."""

    language: str
    label: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines that call the program."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.startswith("meshwright ")]


def snippets(markdown: str) -> Iterator[Snippet]:
    """Those of a page, in order."""
    for found in FENCE.finditer(markdown):
        yield Snippet(found[1], found[2] or "", found[3])


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """In a folder, for text of a fixed width and without colour."""
    before, kept = Path.cwd(), dict(os.environ)
    os.environ.update(COLUMNS=WIDTH, NO_COLOR="1", TERM="dumb")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)


def words(command: str) -> list[str]:
    """What follows the program's name."""
    return shlex.split(command, comments=True)[1:]


def output(command: str) -> str:
    """What a command prints.  Raises RuntimeError where it fails."""
    said, complained = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        code = cli.run(words(command))
    if code:
        raise RuntimeError(f"{command}: exit {code}: {complained.getvalue()}")
    return said.getvalue()


def carried_out(markdown: str, folder: Path) -> str:
    """A page with the output of what it runs below it, and the names of its files above them."""

    def shown(found: re.Match[str]) -> str:
        one = Snippet(found[1], found[2] or "", found[3])
        if one.label == "run":
            printed = "\n".join(
                text for c in one.commands if (text := output(c).strip("\n"))
            )
            below = f"\n\n```text\n{printed}\n```" if printed else ""
            return f"```{one.language}\n{one.text}```{below}"
        if one.label:
            file = folder / one.label
            file.parent.mkdir(exist_ok=True)
            file.write_text(one.text, "utf-8")
            return f"`{one.label}`:\n\n```{one.language}\n{one.text}```"
        return found[0]

    with within(folder):
        return FENCE.sub(shown, markdown)
