"""Examples of docstrings as code: without a fence Markdown takes >>> for a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring whose examples stand between fences."""
    return EXAMPLE.sub(
        lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
    )


class Examples(Extension):
    """Fences for every docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Of a class, a function, a module or an attribute."""
        if obj.docstring and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
