"""The first screen of an answer: at most MOST lines that a person of the field would say aloud.

A card is what was asked and a list of rows. Every verb makes one from its result, and all are laid
out here: rows of a label and a sentence, small tables, pictures, commands. Where they take more
lines than a card has, they come in by rank, the lowest first, while there is room; `--why` and
`--all` print what a card leaves out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from .lines import LEAST, wrapped

MOST = 14
"""Lines of a card."""
WIDE = 100
"""Columns of a card on a wide terminal."""
NARROW = 80
"""Columns where there is no terminal."""
LABEL = 8
"""Columns of a label, behind an indent of two."""
FIRST = 38
"""Most columns of the first cell of a table."""
LAST = 20
"""Least columns of the last cell of a table: of what does not fit, columns before it go."""
QUOTED = re.compile(r"'[^']*'")
HARD = "\N{NO-BREAK SPACE}"
"""Stands for a space where no line is broken: inside quotes, and before a dot of a layout."""
CLAUSES = ("; ", ": ", " (", ", ", " · ", " ")
"""Where a sentence may end early, best first."""


class CardRow(NamedTuple):
    """A label and a sentence."""

    label: str
    text: str
    style: str = ""
    rank: int = 0
    """0: always shown; else the higher, the earlier it gives way, of one rank the last."""
    most: int = 2
    """Lines of the sentence; a longer one ends at a clause."""

    def lines(self, width: int) -> list[Text]:
        """Broken between words, under each other."""
        first = max(LABEL, len(self.label) + 1)
        broken = wrapped(
            self.text.replace(" ·", f"{HARD}·"),
            max(width - 2 - first, LEAST - first),
        )
        if len(broken) > self.most:
            broken = shortened(broken, self.most)
        lines = [line.replace(HARD, " ") for line in broken]
        return [
            labelled(self.label if i == 0 else "", line, self.style)
            for i, line in enumerate(lines)
        ]


def answer_row(good: object, text: str, most: int = 2) -> CardRow:
    """The answer to the question: yes or no, and what that rests on."""
    word, style = ("yes", "bold green") if good else ("no", "bold red")
    return CardRow(word, text, style, most=most)


class CardTable(NamedTuple):
    """A small table: the columns that fit, the last one cut at a word."""

    columns: tuple[str, ...]
    """The first and the last hold words, those between numbers; of them the last ones give way."""
    rows: Sequence[tuple[str, ...]]
    most: int = 7
    """Rows; of more the first, the last and some between them."""
    rank: int = 0

    def lines(self, width: int) -> list[Text]:
        """A header and a line a row."""
        every = [
            (clipped(first, FIRST), *rest)
            for first, *rest in (
                self.columns,
                *evenly_picked(self.rows, self.most),
            )
        ]
        widths = [max(map(len, cells)) for cells in zip(*every, strict=True)]
        kept = [*range(len(widths) - 1)]
        last = min(LAST, widths[-1])
        while len(kept) > 1 and (
            2 + sum(widths[i] + 2 for i in kept) + last > width
        ):
            kept.pop()
        room = width - 2 - sum(widths[i] + 2 for i in kept)
        texts = []
        for at, cells in enumerate(every):
            line = [
                f"{cells[i]:<{widths[i]}}" if i == 0
                else f"{cells[i]:>{widths[i]}}"
                for i in kept
            ]  # fmt: skip
            words = "  ".join([*line, clipped(cells[-1], room)])
            texts.append(Text(f"  {words}".rstrip(), "bold" * (at == 0)))
        return texts


class Picture(NamedTuple):
    """Lines that are drawn already."""

    drawn: tuple[Text, ...]
    rank: int = 0

    def lines(self, width: int) -> list[Text]:
        """The picture as it is, cut where the terminal ends."""
        return [line[:width] for line in self.drawn]


class Commands(NamedTuple):
    """Commands to copy; a long one goes on behind a backslash, as a shell reads it."""

    commands: tuple[str, ...]
    label: str = "next"
    rank: int = 0

    def lines(self, width: int) -> list[Text]:
        """One below the other."""
        lines: list[Text] = []
        for command in self.commands:
            whole = QUOTED.sub(lambda m: m[0].replace(" ", HARD), command)
            broken = wrapped(
                whole,
                max(width - 4 - LABEL, LEAST - LABEL),
                subsequent_indent="  ",
            )
            for i, line in enumerate(broken):
                more = " \\" if i + 1 < len(broken) else ""
                words = line.replace(HARD, " ") + more
                label = "" if lines else self.label
                lines.append(labelled(label, words, "cyan"))
        return lines


Item = CardRow | CardTable | Picture | Commands


@dataclass(frozen=True)
class Card:
    """What was asked, and what is to be said of it."""

    question: str
    items: tuple[Item, ...]
    more: str = ""
    """What `--why` and `--all` print."""

    @property
    def with_a_file(self) -> Card:
        """The card beside a file that -o has made: nothing of it offers one."""
        return replace(
            self,
            items=tuple(
                item
                for item in self.items
                if not (
                    isinstance(item, CardRow)
                    and item.text.startswith("add -o")
                )
            ),
        )

    def lines(self, width: int) -> list[Text]:
        """The card in at most MOST lines of so many columns."""
        items = [*self.items]
        if self.more:
            items.append(CardRow("more", self.more, "dim", most=1))
        head = [
            Text(line, "bold")
            for line in wrapped(
                self.question,
                max(width, LEAST),
                subsequent_indent="  ",
            )
        ]
        blocks = [item.lines(width) for item in items]
        room = MOST - len(head)
        shown: set[int] = set()
        for i in sorted(range(len(items)), key=lambda i: items[i].rank):
            if not items[i].rank or len(blocks[i]) <= room:
                shown.add(i)
                room -= len(blocks[i])
        return [*head, *(line for i in sorted(shown) for line in blocks[i])]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        width = min(options.max_width, WIDE) if console.is_terminal else NARROW
        for line in self.lines(width):
            if options.ascii_only:
                line = Text(line.plain.replace(" ·", ","))
            line.no_wrap = True
            line.overflow = "ignore"
            yield line

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(LEAST, WIDE)


def labelled(label: str, line: str, style: str) -> Text:
    """A line behind its label."""
    return Text.assemble((f"  {label:<{LABEL - 1}} ", "bold"), (line, style))


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """The first of a sentence's lines, ended at the best clause of the last of them."""
    *whole, last = lines[:most]
    for mark in CLAUSES:
        at = last.rfind(mark)
        if at > len(last) // 2 or mark == " ":
            return [*whole, f"{last[: max(at, 0)]} ..."]
    return [*whole, last]


def clipped(words: str, room: int) -> str:
    """The words that fit; dots stand for the others."""
    if len(words) <= room:
        return words
    return textwrap.shorten(words, max(room, 5), placeholder=" ...")


def evenly_picked(
    rows: Sequence[tuple[str, ...]], most: int
) -> Sequence[tuple[str, ...]]:
    """The first, the last, and as many between them, evenly."""
    n = len(rows)
    if n <= most:
        return rows
    return [rows[round(i * (n - 1) / (most - 1))] for i in range(most)]
