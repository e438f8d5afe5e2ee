"""The options of a command line: a flag for each field of cluster, job, software, layout and
training.

Only their names and help: what reads their values (`formats.flags`, with every format of a job)
takes as long to import as all of the help.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..describe.fields import WHOLE, Field, fields_of, meanings
from ..describe.job import TABLES, TRAIN, Job
from ..describe.layout import Layout
from ..describe.software import Software
from ..describe.training import Settings

MODEL = {
    "model_": "Model for a file that names none or another: a catalogue name or a config.json.",
    "vocab_size": "Embedding rows, if the file leaves them to its tokenizer, such as 128256.",
    "arguments": "Arguments of the script, $1 and so on; also after -- at the end.",
    "as_": "The tool of the file, if its keys do not tell: megatron, deepspeed, ...",
}
NUMBERS = tuple(
    name
    for name, field in fields_of(Layout).items()
    if field.kind.type in (Any, int)
)
"""Layout fields that are whole numbers."""
CLUSTER = {
    "on": (
        "Chips: a number of them and a chip or network of the catalogue, such as 1024xh100-sxm or"
        " 512xselene."
    ),
    "network": "A network of the catalogue, instead of the one that the chip is usually sold with.",
}


@dataclass(frozen=True)
class Flag:
    """One field as a flag."""

    name: str
    table: str
    """Its table in the TOML file: model, cluster, job, software, layout or train."""
    help: str
    field: str = ""
    """Its name in the table, where that is another."""
    letter: str = ""
    """Its short form, such as -o."""
    metavar: str = "TEXT"
    """What stands for the value in the help."""

    @property
    def spelled(self) -> str:
        """The flag as the user types it."""
        return "--" + self.name.strip("_").replace("_", "-")


@cache
def flags() -> tuple[Flag, ...]:
    """Flags of a command, in the order of the help."""
    described = (("job", Job), ("software", Software), ("layout", Layout))
    return (
        *(Flag(name, "model", text) for name, text in MODEL.items()),
        *(Flag(name, "cluster", text) for name, text in CLUSTER.items()),
        *(
            Flag(
                name,
                table,
                with_words(meanings(cls).get(name, ""), field),
                metavar="TEXT"
                if table != "layout"
                else "N"
                if name in NUMBERS
                else "WORD",
            )
            for table, cls in described
            for name, field in fields_of(cls).items()
            if name not in (*TABLES, TRAIN)
        ),
        *(of_training(field) for field in fields_of(Settings).values()),
    )


def of_training(field: Field) -> Flag:
    """A field of [train], with its usual value and its bounds."""
    kind, usual = field.kind, field.default
    text = with_words(meanings(Settings).get(field.name, ""), field)
    if usual is not None:
        shown = f"{usual:g}" if kind.type is float else str(usual).lower()
        text += f" Default: {shown}."
    if kind.range and kind.range.most < WHOLE.most:
        text += f" From {kind.range.least:g} to {kind.range.most:g}."
    flag, letter = kind.spelled or (field.name, "")
    return Flag(
        flag,
        TRAIN,
        text,
        field=field.name,
        letter=letter,
        metavar="WORD" if kind.words else METAVARS[kind.type],
    )


METAVARS = {int: "N", float: "NUMBER", str: "TEXT", bool: "true|false"}
"""Kind of a field of [train] -> what stands for its value in the help."""


def with_words(text: str, field: Field) -> str:
    """The meaning of a field, with those of its words that the text does not name."""
    unnamed = [
        word
        for word in field.kind.words
        if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)
    ]
    if not unnamed:
        return text
    begin = "One of" if len(unnamed) == len(field.kind.words) else "Also"
    titles = field.kind.titles
    if titles:
        each = "; ".join(f"{word}: {titles[word]}" for word in unnamed)
        return f"{text} {begin} {each}."
    return f"{text} {begin} {', '.join(unnamed)}."
