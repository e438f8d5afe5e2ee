"""The page's ES modules as one script, which loads in one request.

Each module keeps a scope of its own, a block that puts what it exports into a table from which the
others take it by name. Only plain statements are read, one at the beginning of a line:

    import { a, b as c } from "./other.js";        on one line or several
    export const | class | function | async function | function* | async function*

Anything else that begins with import or export is a mistake, and is said to be one. Indentation
and lines of comment, a seventh of what is sent, are left out; so no text goes over several lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

Text = Callable[[str], str]
"""Name of a module -> its text."""
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([^"]*)";\n?', re.MULTILINE)
EXPORT = re.compile(
    r"^export ((?:async )?(?:const|class|function\*?) ([\w$]+))", re.MULTILINE
)


class Module(NamedTuple):
    """What a module takes, gives and does."""

    imports: list[tuple[str, str]]
    """(names as in the statement, module)."""
    exports: list[str]
    body: str


def module(text: str) -> Module:
    """A module, in lines without indentation.  Raises ValueError."""
    lines = [
        bare
        for line in EXPORT.sub(r"\1", IMPORT.sub("", text)).splitlines()
        if (bare := line.strip()) and not bare.startswith("//")
    ]
    for line in lines:
        if line.startswith(("import ", "export ")):
            raise ValueError(f"a statement that is not read: {line}")
        if line.count("`") % 2:
            raise ValueError(f"a text over several lines: {line}")
    return Module(
        [
            (" ".join(names.split()).rstrip(","), other)
            for names, other in IMPORT.findall(text)
        ],
        [name for _, name in EXPORT.findall(text)],
        "\n".join(lines),
    )


def ordered(first: str, text: Text) -> dict[str, Module]:
    """The modules that one needs, each after those it imports."""
    read: dict[str, Module] = {}
    written: set[str] = set()

    def visit(name: str) -> None:
        if name in written:
            return
        written.add(name)
        one = module(text(name))
        for _, other in one.imports:
            visit(other)
        read[name] = one

    visit(first)
    return read


def bundled(first: str, text: Text) -> str:
    """The modules as one script."""
    blocks = []
    for name, one in ordered(first, text).items():
        taken = [
            f"const {{ {names.replace(' as ', ': ')} }} = modules[{json.dumps(other)}];"
            for names, other in one.imports
        ]
        given = (
            f"modules[{json.dumps(name)}] = {{ {', '.join(one.exports)} }};"
        )
        blocks.append("\n".join(["{", *taken, one.body, given, "}"]))
    return "\n".join(["const modules = {};", *blocks, ""])
