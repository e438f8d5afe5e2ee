"""What to do after an answer, as commands to copy that do what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import BadInput, MeshwrightError, command
from ..formats import STDIN, parse_toml, read_text

OURS = "meshwright"
"""Profile of the trainer of this project."""


def words_of_command(
    model: str, given: Mapping[str, str], leave: tuple[str, ...] = ()
) -> str:
    """The model and the flags as the user wrote them, without those of some tables."""
    from ..formats.options import flags  # not for the help of all verbs

    spelled = {f.name: (f.spelled, f.table) for f in flags()}
    parts = [model]
    for name, text in given.items():
        if spelled[name][1] not in leave:
            parts += [spelled[name][0], text]
    return shlex.join(parts)


def after_predict(
    p: Any, model: str, given: Mapping[str, str], output: str | None
) -> tuple[str, ...]:
    """Where a file holds a layout that fits, the files made of it; else the search."""
    kept = holding(model, given, output)
    if kept and p.fits and (more := of_file(p, kept)):
        return commands(more)
    other = "best.toml" if model == "plan.toml" else "plan.toml"
    return commands(
        [f"plan {words_of_command(model, given, ('layout',))} -o {other}"]
    )


def holding(model: str, given: Mapping[str, str], output: str | None) -> str:
    """The file that holds the job with its layout; empty where there is none."""
    if output and output.lower().endswith(".toml"):
        return output
    from ..formats.flags import is_file  # not for the help of a verb

    if given or not is_file(model) or model == STDIN:
        return ""
    try:
        return model if "layout" in parse_toml(read_text(model), model) else ""
    except BadInput:
        return ""


def after_plan(best: Any, model: str, output: str | None) -> list[Any]:
    """Rows of a card: the files made of a plan's file; before it is written, how to keep it."""
    from ..report.card import CardRow, Commands

    if output and output.lower().endswith(".toml"):
        return [Commands(commands(of_file(best, output)), rank=1)]
    name = "best.toml" if model == "plan.toml" else "plan.toml"
    to = target(best.job)
    later = f", then: {command(f'export {name} --to {to}')}" if to else ""
    add = "also" if output else "add"
    return [CardRow("next", f"{add} -o {name}{later}", "cyan", rank=1)]


WOULD_FIT = re.compile(r"\((--[a-z-]+ [^)]+)\) would make it fit")
"""The flags of a sentence on what would make a layout fit."""


def after_misfit(
    notes: Iterable[str], model: str, given: Mapping[str, str]
) -> list[Any]:
    """Rows of a card: the search again, with the first change that would make a layout fit."""
    from ..report.card import Commands

    for note in notes:
        if flags := WOULD_FIT.search(note):
            words = words_of_command(model, given)
            return [Commands(commands([f"plan {words} {flags[1]}"]), rank=1)]
    return []


def of_file(p: Any, path: str) -> list[str]:
    """What a file with a layout is good for: the file of a framework, the order of a pipeline."""
    name = shlex.quote(path)
    to = target(p.job)
    return [
        *([f"export {name} --to {to}"] if to else []),
        *([f"timeline {name}"] if p.layout.pp > 1 else []),
    ]


def target(job: Any) -> str:
    """The format of the job's framework that can hold it, its own first; empty if none can."""
    from ..formats.bridge import table  # not for the help of a verb
    from ..formats.export import export

    framework = job.framework.name if job.framework else job.usual_framework
    if framework == OURS:
        return "sbatch"
    for format in table.written_for(framework):
        try:
            export(job, format.name)
        except MeshwrightError:
            continue
        return format.name
    return ""


def commands(words: list[str]) -> tuple[str, ...]:
    """Commands to copy."""
    return tuple(map(command, words))
