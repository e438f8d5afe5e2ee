"""Hooks of MkDocs: pages made from the program, the order of all pages, and files that pages point
to.

Nothing of this is committed: the command's reference comes from its argument parser, the interface
of Python from docstrings, sets, frameworks and schedules from the objects that compute.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rooms
import sets
from mkdocs.structure.files import File, Files
from snippets import carried_out

import meshwright
from meshwright.cli.command import app
from meshwright.cli.main import main as main  # it registers the verbs
from meshwright.describe.assumptions import SETS
from meshwright.describe.framework import frameworks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STYLE = "site.css"
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)[^)]*\)")
"""A link from a page to a file of the repository that is no page."""
STARTED = re.compile(r"^(meshwright \S+) -m \S+", re.M)
"""How the builder itself was started, which the parser takes for part of the command."""
GUIDES = {
    "Start": ("index.md", "tutorial.md", "how-to.md", "glossary.md"),
    "For": (
        "researcher.md",
        "engineer.md",
        "architect.md",
        "student.md",
        "hyperscaler.md",
    ),
    "Use": (
        "plan.md",
        "advise.md",
        "sweep.md",
        "page.md",
        "train.md",
        "study.md",
        "compare.md",
        "calibrate.md",
        "bridges.md",
        "limits.md",
        "roofline.md",
        "scaling-book.md",
        "traced.md",
        "reproduce.md",
        "extend.md",
    ),
    "Accuracy and papers": ("accuracy.md", "findings.md", "papers.md"),
    "How it works": (
        "architecture.md",
        "assumptions.md",
        "physics.md",
        "kernels.md",
        "collectives.md",
        "memory.md",
        "schedules.md",
    ),
}


CALLED = (
    "Job",
    "predict",
    "plan",
    "advise",
    "sweep",
    "table",
    "timeline",
    "limits",
    "roofline",
    "compare",
    "export",
    "Layout",
)
"""Public names that the reference of Python begins with."""


def command() -> str:
    """Every verb with its options, from the parser itself."""
    text = app.generate_docs(output_format="markdown")
    text = STARTED.sub(r"\1", text)
    return text.replace("# meshwright\n", "# The command\n", 1)


def interface() -> str:
    """The public names of the package: functions, their results, and what describes a job."""
    public = [n for n in meshwright.__all__ if not n.startswith("_")]
    first = [n for n in CALLED if n in public]
    rest = [n for n in public if n not in first]
    called = [n for n in rest if n[0].islower()]
    lines = ["# Python", "", "Import each from `meshwright`.", ""]
    for title, names in (
        ("Functions and layouts", (*first, *called)),
        ("Results and descriptions", [n for n in rest if n not in called]),
    ):
        lines += [f"# {title}", ""]
        for name in names:
            home = f"meshwright.{meshwright._WHERE[name]}.{name}"
            lines += [f"::: {home}", ""]
    return "\n".join(lines)


def made() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of every page that the program makes."""
    yield "reference/command.md", command()
    yield "reference/python.md", interface()
    yield "reference/rooms.md", rooms.pages()
    yield from sets.pages()


def on_config(config: Any) -> Any:
    """The order of the pages."""
    nav: list[Any] = [{title: list(pages)} for title, pages in GUIDES.items()]
    reference = [
        {"The command": "reference/command.md"},
        {"Python": "reference/python.md"},
        {"Assumption sets": [{n: f"sets/{n}.md"} for n in SETS]},
        {"Rooms and files": "reference/rooms.md"},
        {"Frameworks": [{n: f"frameworks/{n}.md"} for n in frameworks()]},
    ]
    nav.append({"Reference": reference})
    config.nav = nav
    config.extra_css = [STYLE]
    return config


def on_files(files: Files, config: Any) -> Files:
    """All pages, the style, and each file that a page points to."""
    for path, text in made():
        files.append(File.generated(config, path, content=text))
    files.append(
        File.generated(
            config, STYLE, content=(HERE / STYLE).read_text("utf-8")
        )
    )
    named: set[str] = set()
    for page in (ROOT / "docs").glob("*.md"):
        named.update(OUTSIDE.findall(page.read_text("utf-8")))
    for name in sorted(named):
        if (ROOT / name).is_file():
            where = str(ROOT / name)
            files.append(
                File.generated(config, copied(name), abs_src_path=where)
            )
    return files


def copied(name: str) -> str:
    """Where a file of the repository lies in the site: as text, so that a browser shows it."""
    return f"files/{name}" if name.endswith(".ipynb") else f"files/{name}.txt"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What a page runs is run; links out of docs/ lead to the copies."""

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return (
            f"]({copied(name)})" if (ROOT / name).is_file() else "](index.md)"
        )

    with tempfile.TemporaryDirectory() as folder:
        return carried_out(OUTSIDE.sub(link, markdown), Path(folder))
