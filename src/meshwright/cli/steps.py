"""What to do after an answer, as commands to copy that do what they say."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ..errors import BadInput, MeshwrightError, command
from ..formats import parse_toml, read_text
from ..formats.bridge import table
from ..formats.flags import STDIN, flags, is_file
from .export import written

OURS = "meshwright"
"""Profile of the trainer of this project."""


def words(
    model: str, given: Mapping[str, str], leave: tuple[str, ...] = ()
) -> str:
    """The model and the flags as the user wrote them, without those of some tables."""
    spelled = {f.name: (f.spelled, f.table) for f in flags()}
    found = [model]
    for name, text in given.items():
        if spelled[name][1] not in leave:
            found += [spelled[name][0], text]
    return shlex.join(found)


def after_predict(
    p: Any, model: str, given: Mapping[str, str], output: str | None
) -> Text:
    """Where a file holds a layout that fits, the files made of it; else the search."""
    kept = holding(model, given, output)
    if kept and p.fits and (more := of_file(p, kept)):
        return told(more)
    other = "best.toml" if model == "plan.toml" else "plan.toml"
    return told([f"plan {words(model, given, ('layout',))} -o {other}"])


def holding(model: str, given: Mapping[str, str], output: str | None) -> str:
    """The file that holds the job with its layout; empty where there is none."""
    if output and output.lower().endswith(".toml"):
        return output
    if given or not is_file(model) or model == STDIN:
        return ""
    try:
        return model if "layout" in parse_toml(read_text(model), model) else ""
    except BadInput:
        return ""


def after_plan(best: Any, output: str | None) -> Text:
    """The file for their framework, and the pipeline in time."""
    if output and output.lower().endswith(".toml"):
        return told(of_file(best, output))
    if to := target(best.job):
        later = command(f"export plan.toml --to {to}")
        return told([], f"add -o plan.toml, then: {later}")
    return told([], "add -o plan.toml to keep the best layout")


def of_file(p: Any, path: str) -> list[str]:
    """What a file with a layout is good for: the file of a framework, the order of a pipeline."""
    name = shlex.quote(path)
    to = target(p.job)
    return [
        *([f"export {name} --to {to}"] if to else []),
        f"timeline {name}",
    ]


def target(job: Any) -> str:
    """The format of the job's framework that can hold it, its own first; empty if none can."""
    framework = job.framework.name if job.framework else job.usual_framework
    if framework == OURS:
        return "sbatch"
    its = [f for f in table.formats().values() if framework in f.frameworks]
    for format in sorted(its, key=lambda f: f.frameworks.index(framework)):
        try:
            written(job, format.name, None, None)
        except MeshwrightError:
            continue
        return format.name
    return ""


def told(commands: list[str], first: str = "") -> Text:
    """Lines that begin with "next:"."""
    lead = "next: "
    lines = [*([first] if first else []), *map(command, commands)]
    return Text(
        "\n".join(
            (lead if i == 0 else " " * len(lead)) + line
            for i, line in enumerate(lines)
        ),
        "dim",
    )
