"""User mistakes: one family of exceptions, each a sentence with the field, the reason and the
nearest valid values.

MeshwrightError
├── BadInput        the description is wrong (exit code 2)
└── NoLayout        the description is right, but nothing fits (exit code 1)
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

STARTED = "MESHWRIGHT_COMMAND"
"""Variable in which run.py says how it was started: "python3 run.py"."""


def command(words: str) -> str:
    """A command to copy: its words behind what started this program."""
    return f"{os.environ.get(STARTED) or 'meshwright'} {words}"


class MeshwrightError(Exception):
    """Base of every error a user can cause; its text is one sentence.

    >>> from meshwright import MeshwrightError, chip
    >>> try:
    ...     chip("h1000")
    ... except MeshwrightError as error:
    ...     print(str(error).partition(";")[0])
    chip 'h1000' is not known
    """

    exit_code = 2


class BadInput(MeshwrightError):
    """A field of the description is missing, malformed or contradicts another one.

    >>> from meshwright import BadInput, Layout
    >>> try:
    ...     Layout(zero=4)
    ... except BadInput as error:
    ...     print(error)
    layout.zero must be between 0 and 3, not 4
    """


class NoLayout(MeshwrightError):
    """No layout of the chosen space is legal and fits in memory.

    >>> from meshwright import Job, NoLayout, plan
    >>> try:
    ...     plan(Job("llama3-70b", "8xh100-sxm", batch=64)).answer
    ... except NoLayout:
    ...     print("nothing fits")
    nothing fits
    """

    exit_code = 1


NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def article(word: str) -> str:
    """A word behind "a" or "an"."""
    return f"{'an' if word[:1].lower() in VOWELS else 'a'} {word}"


VOWELS = {*"aeiou"}
ALIKE = 0.51
"""Similarity of names from which one may have been meant: foo is not bloom."""
FEW = 4
"""Names that are all told, also beside one that may have been meant."""
MOST_NAMED = 12


def unknown(
    what: str,
    name: object,
    known: Iterable[str],
    aliases: Mapping[str, str] = NO_ALIASES,
    first: Iterable[str] = (),
) -> BadInput:
    """The sentence for a name that is not among the known ones, with the nearest of them.

    what: the field, as the user knows it;  name: what was given;  known: the valid values;
    aliases: other spellings of them, such as {"h100": "h100-sxm"};  first: what people mostly use,
    named before the others, and beside names that are only spelled alike.
    """
    first = [*first]
    known = [*dict.fromkeys((*first, *sorted({*known})))]
    text = str(name)[:80]
    spelled = {**aliases, **{one: one for one in known}}
    # a name that is the beginning of another means it: h800-pcie is an H800
    begun = [one for one in spelled if len(one) > 2 and _begins(one, text)]
    likely = difflib.get_close_matches(
        text.lower(), spelled, n=9, cutoff=ALIKE
    )
    begun.sort(key=lambda one: abs(len(one) - len(text)))
    close = [*begun, *likely]
    near = [*dict.fromkeys(spelled[one] for one in close)][:3]
    if instead := aliases.get(text.lower().replace("-", "_")):
        near = [instead]
    hints = [f"did you mean {either(near)}?"] if near else []
    if not near or len(known) <= FEW:
        more = ", ..." if len(known) > MOST_NAMED else ""
        hints.append(f"known: {', '.join(known[:MOST_NAMED])}{more}")
    elif first and not {*near} & {*first}:
        hints.append(f"mostly used: {', '.join(first)}")
    return BadInput(f"{what} {text!r} is not known; {' '.join(hints)}")


def either(names: Sequence[str]) -> str:
    """Names to choose from: "h800", "h800 or h200", "h800, h200 or a100-80"."""
    *first, last = names
    return " or ".join(filter(None, (", ".join(first), last)))


def _begins(one: str, other: str) -> bool:
    """Whether one of the two is the beginning of the other, whatever their case."""
    a, b = one.lower(), other.lower()
    return bool(b) and (a.startswith(b) or b.startswith(a))


def brief(value: object) -> str:
    """The value for an error message, never long and never a traceback."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None:
        return "nothing"
    if isinstance(value, int) and not isinstance(value, bool):
        return (
            str(value)
            if abs(value) < 10**40
            else "a number of more than 40 digits"
        )
    if isinstance(value, (bool, float)):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    return (
        "a list"
        if isinstance(value, (list, tuple))
        else article(type(value).__name__)
    )
