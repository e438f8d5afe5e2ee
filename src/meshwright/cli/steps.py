"""What to do after an answer, as commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ..formats.bridge import table
from ..formats.flags import flags


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


def after_predict(model: str, given: Mapping[str, str]) -> Text:
    """The search of the same job."""
    return told(
        [f"meshwright plan {words(model, given, ('layout',))} -o plan.toml"]
    )


def after_plan(best: Any, output: str | None) -> Text:
    """The file for their framework, and the pipeline in time."""
    framework = (
        best.job.framework.name
        if best.job.framework
        else best.job.usual_framework
    )
    to = next(
        (n for n, f in table.formats().items() if framework in f.frameworks),
        "sbatch",
    )
    if output and output.lower().endswith(".toml"):
        name = shlex.quote(output)
        return told(
            [
                f"meshwright export {name} --to {to}",
                f"meshwright timeline {name}",
            ]
        )
    return told(
        [f"add -o plan.toml, then: meshwright export plan.toml --to {to}"]
    )


def told(commands: list[str]) -> Text:
    """Lines that begin with "next:"."""
    lead = "next: "
    lines = [
        (lead if i == 0 else " " * len(lead)) + c
        for i, c in enumerate(commands)
    ]
    return Text("\n".join(lines), "dim")
