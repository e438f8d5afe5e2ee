"""What a row says of its software: which framework it is, and the settings of the run.

The words are a table, data/runs/words.toml, read from the top: the first entry that speaks of a
field decides it. A row that names a field with a value that the table does not know gets a note,
and so does a program that it does not know; what a row does not speak of is the framework's own.
Names and values are of `describe.software`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.describe.software import Software

from .rows import Row, positive_number
from .words import Words, first_value, speaks_of, texts_of_row, word_table

MODULES = r"\baa-scaling|aleph[ -]alpha"
"""Programs whose pipelines are cut by modules, of which the embedding, the last norm and the head
are each one (`jobs.module_stages`)."""
NEUTRAL = r"""
    \b(?:megatron(?:-?lm)?|deepspeed|pytorch|torch|nvidia|nemo|container|bigscience|kernels?|based
    |zero[- ]bubble|zero-?[123]|ms-swift|tune|loss|paper|before|interleaving|scatter|gather|dev|main
    |nightly|release|rc\d*|and|with|the|in|on|of
    |jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)\b|\w*\d[\w.]*"""
"""Words beside a program's name that change nothing here; versions and years among them."""


@dataclass(frozen=True)
class RowSoftware:
    """What a row says of its software."""

    framework: str
    settings: Software
    attention: str
    """The attention kernel that it names; "" if none."""
    notes: tuple[str, ...] = ()


def software_of(row: Row) -> RowSoftware:
    """The framework of a row and its settings, with a note on each word that is not understood."""
    words, text = word_table(), texts_of_row(row)
    year = positive_number(row, "year")
    profile = next(
        (rule.name for rule in words.frameworks if rule.holds(text, year)),
        "unknown",
    )
    spoken = [setting_in_words(setting, text) for setting in words.settings]
    habits = [rule for rule in words.habits if rule.holds(text, year, profile)]
    gradients = first_value(
        words.gradients.values, text["precision"], speaks_of
    )
    settings: dict[str, Any] = {}
    for values in (
        *(values for values, _ in spoken),
        {"gradients": gradients} if gradients else {},
        *(rule.sets for rule in habits),
    ):
        settings = {**values, **settings}
    notes = (
        named_framework(profile, text["software"]),
        *(note for _, note in spoken),
        *(rule.note for rule in habits),
    )
    return RowSoftware(
        profile,
        Software(**settings),
        attention_word(text),
        tuple(note for note in notes if note),
    )


def named_framework(name: str, program: str) -> str:
    """A note on a program that nothing here knows, and on words beside its name that nothing
    reads.
    """
    if name == "unknown":
        return (
            f"software {program[:60]!r} is not known"
            if program
            else "its software is not named"
        )
    left = program
    for pattern in word_table().read:
        left = re.sub(pattern, " ", left)
    strange = re.findall(
        r"[a-z][a-z-]{2,}", re.sub(NEUTRAL, " ", left, flags=re.VERBOSE)
    )
    return (
        f"of its software {strange[0][:40]!r} is not understood"
        if strange
        else ""
    )


def setting_in_words(
    of: Words, text: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """The value that the texts give a setting, and a note if they name it with none that is
    known.
    """
    words = " ; ".join(text[name] for name in of.within if text[name])
    topic = re.search(of.topic, words)
    if not topic:
        return {}, ""
    value = first_value(of.values, words)
    if value is not None:
        return {of.field: value}, ""
    words = words[topic.start() : topic.start() + 40]
    return {}, (
        f"{words!r} is not understood: {of.field} is the framework's own"
    )


def deals_modules(program: str) -> bool:
    """Its pipeline is cut by modules."""
    return re.search(MODULES, program) is not None


def attention_word(text: Mapping[str, str]) -> str:
    """The attention kernel that a row names; "" if none: the framework's own."""
    kernels = word_table().kernels
    names = (
        first_value(kernels.values, text[name]) for name in kernels.within
    )
    return next((name for name in names if name is not None), "")
