"""The rooms of the package in the order data walks through them, and the tables that the
documentation makes of their docstrings.

    python docs/site/rooms.py     writes the table of docs/architecture.md anew
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "meshwright"
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = (
    "errors",
    "units",
    "num",
    "parts",
    "schedule",
    "exchange",
    "describe",
    "catalog",
    "layout",
    "count",
    "cost",
    "step",
    "program",
    "prediction",
    "search",
    "limits",
    "roofline",
    "trace",
    "formats",
    "sweep",
    "grid",
    "sizing",
    "compare",
    "advice",
    "report",
    "train",
    "measure",
    "web",
    "cli",
    "study",
)
"""A room imports only rooms before it, without exception."""
TABLE = re.compile(r"\| room \| .*?\n\n", re.DOTALL)


def home(room: str) -> Path:
    """The file whose docstring says what a room is."""
    folder = SOURCE / room
    return folder / "__init__.py" if folder.is_dir() else SOURCE / f"{room}.py"


def summary(file: Path) -> str:
    """The first paragraph of a file's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def table() -> str:
    """The rooms and what they hold, as Markdown."""
    rows = [
        f"| `{room}{'/' * (SOURCE / room).is_dir()}` | {summary(home(room))} |"
        for room in ROOMS
    ]
    return "\n".join(["| room | what it holds |", "|---|---|", *rows]) + "\n\n"


def pages() -> str:
    """Every file of every room with the first sentences of its docstring, as a Markdown page."""
    lines = ["# Rooms and files", ""]
    for room in ROOMS:
        lines += [f"## {room}", "", summary(home(room)), ""]
        if not (SOURCE / room).is_dir():
            continue
        files = [
            file
            for file in sorted((SOURCE / room).rglob("*.py"))
            if file.name != "__init__.py"
        ]
        lines += [
            f"* `{file.relative_to(SOURCE).as_posix()}`: {summary(file)}"
            for file in files
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda _: table(), text, count=1), "utf-8")
