"""Sentences on a terminal: broken between words, the lines after the first indented; in a pipe, and
where lines may be as long as they must be, one line each.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

LEAST = 40
"""Columns that a sentence takes on the narrowest terminal."""
wrapped = partial(
    textwrap.wrap, break_long_words=False, break_on_hyphens=False
)
"""The lines of a sentence, broken between words."""


@dataclass(frozen=True)
class IndentedLine:
    """A sentence with its indent, and what more those of its lines have that are not the first."""

    text: str
    style: str = ""
    indent: int = 0
    hang: int = 2

    def __str__(self) -> str:
        return " " * self.indent + self.text

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        if options.no_wrap:
            yield Text(str(self), self.style)
            return
        yield Text(
            "\n".join(
                wrapped(
                    self.text,
                    max(options.max_width, LEAST),
                    initial_indent=" " * self.indent,
                    subsequent_indent=" " * (self.indent + self.hang),
                )
            ),
            self.style,
        )

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(LEAST, max(len(str(self)), LEAST))


def noted(sentences: Iterable[str]) -> Iterator[IndentedLine]:
    """Notes, a line each."""
    return (
        IndentedLine(f"note: {sentence}", "yellow", hang=6)
        for sentence in sentences
    )
