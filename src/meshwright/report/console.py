"""Where output goes: tables and JSON to stdout, progress to stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table

SCHEMA = "meshwright/4"
"""Version of everything written as JSON."""
WIDE = 240
"""Columns of a table that is not printed on a terminal."""
FOLDED = 20
"""Least width of a column of text that may take several lines."""
GAP = 2
"""Spaces between columns."""
Progress = Callable[[str, float], None]


class Printer(Console):
    """Goes on when whoever reads has seen enough (`| head`): files are written after texts."""

    def on_broken_pipe(self) -> None:
        """No more is printed."""
        self.quiet = True
        to_nobody()


def plain(kind: type[Console], **how: Any) -> Console:
    """A console that prints texts as they stand, whatever brackets and colons they hold: some are
    names of a user's, or what a model wrote.
    """
    return kind(highlight=False, markup=False, emoji=False, **how)


def to_nobody() -> None:
    """What is printed from now on goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(*parts: RenderableType) -> None:
    """Print tables. None is ever cut: in a pipe, and where a terminal is too narrow, lines are as
    long as they must be.
    """
    terminal = sys.stdout.isatty()
    width = None if terminal else WIDE
    console = plain(Printer, soft_wrap=not terminal, width=width)
    for part in _single(parts):
        if isinstance(part, Table) and (need := needed(part)) > console.width:
            plain(Printer, soft_wrap=True, width=need).print(part)
        else:
            console.print(part)


def _single(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The parts of groups, one by one."""
    for part in parts:
        yield from (
            _single(part.renderables) if isinstance(part, Group) else [part]
        )


def needed(table: Table) -> int:
    """Characters below which a table would lose some; columns that may fold take FOLDED."""
    width = 0
    for column in table.columns:
        widest = max(
            cell_len(str(text)) for text in (column.header, *column.cells)
        )
        width += GAP + (widest if column.no_wrap else min(widest, FOLDED))
    return width


def envelope(verb: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data under the version of the schema."""
    return {
        "schema": SCHEMA,
        "verb": verb,
        **{k: v for k, v in data.items() if k != "schema"},
    }


def show_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    text = json.dumps(data, indent=2, allow_nan=False)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        to_nobody()


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on stderr that is told (what is done, share); where stderr is no terminal, a line of
    what is done after every EVERY_S seconds.
    """
    if not sys.stderr.isatty():
        yield now_and_then()
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(
        *columns, console=Console(file=sys.stderr), transient=True
    ) as display:
        task = display.add_task("", total=1.0)
        yield lambda what, share: display.update(
            task, description=what, completed=share
        )


EVERY_S = 15.0
"""Seconds between two lines about work under way."""


def now_and_then() -> Progress:
    """Prints at most a line every EVERY_S seconds."""
    last = time.monotonic()

    def print_line(what: str, share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            done = f" ({100 * share:.0f} %)" if share else ""
            print(f"meshwright: {what}{done}", file=sys.stderr, flush=True)

    return print_line
