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
from collections.abc import Callable, Iterator
from typing import NamedTuple

Text = Callable[[str], str]
"""Name of a module -> its text."""


class Module(NamedTuple):
    """What a module takes, gives and does."""

    imports: list[tuple[str, str]]
    """(names as in the statement, module)."""
    exports: list[str]
    body: str


def module(text: str) -> Module:
    """A module, read line by line.  Raises ValueError."""
    imports, exports, body = [], [], []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("import"):
            imports.append(_imported(_statement(line, lines)))
        elif line.startswith("export"):
            given = line.removeprefix("export ")
            exports.append(_declared(given))
            body.append(given)
        elif line.count("`") % 2:
            raise ValueError(f"a text over several lines: {line}")
        elif (bare := line.strip()) and not bare.startswith("//"):
            body.append(bare)
    return Module(imports, exports, "\n".join(body))


def _statement(line: str, lines: Iterator[str]) -> str:
    while not line.endswith(";"):
        line = f"{line} {next(lines).strip()}"
    return line


def _imported(statement: str) -> tuple[str, str]:
    start, end = "import {", '";'
    names, between, other = statement.partition('} from "./')
    if not (names.startswith(start) and between and other.endswith(end)):
        raise ValueError(f"an import that is not read: {statement}")
    return names.removeprefix(start).strip().rstrip(","), other[: -len(end)]


def _declared(line: str) -> str:
    """The name that a declaration gives."""
    words = line.removeprefix("async ").replace("*", " ").split()
    kind, name = (*words, "", "")[:2]
    if kind not in ("const", "class", "function"):
        raise ValueError(f"an export that is not read: {line}")
    return name.partition("(")[0]


def ordered(first: str, text: Text) -> dict[str, Module]:
    """The modules that one needs, each after those it imports."""
    read: dict[str, Module] = {}
    under_way: set[str] = set()

    def visit(name: str) -> None:
        if name in read or name in under_way:
            return
        under_way.add(name)
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
