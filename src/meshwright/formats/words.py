"""The words of a command line, as a shell has them, in time that grows with its length.

`shlex.split` reads a letter at a time into an attribute, which copies a word as often as it has
letters: 600 kB of one word take three seconds.
"""

from __future__ import annotations

import re

SPACE = re.compile(r"(?:[ \t\r\n]+|#.*)+")
PIECE = re.compile(
    r"""([^ \t\r\n'"\\]+)|'([^']*)'|"((?:[^"\\]+|\\.)*+)"|\\(.)""", re.S
)
"""Plain letters, 'a text', "a text" with escapes, or an escaped letter."""
ESCAPED = re.compile(r'\\(["\\])')
"""What a backslash hides between double quotes; before other letters it is one itself."""


def words(text: str) -> list[str]:
    """Its words without quotes and comments, `#` at the start of a word.  ValueError for a quote
    that is not closed.
    """
    parts: list[str] = []
    at = 0
    while at < len(text):
        if space := SPACE.match(text, at):
            at = space.end()
            continue
        pieces: list[str] = []
        while piece := PIECE.match(text, at):
            plain, single, double, escaped = piece.groups()
            if double is not None:
                double = ESCAPED.sub(r"\1", double)
            pieces.append(plain or single or double or escaped or "")
            at = piece.end()
        if at < len(text) and text[at] not in " \t\r\n":
            raise ValueError("a quote is not closed")
        parts.append("".join(pieces))
    return parts
