"""A file of another tool as it was read: the job, what is missing, what is not in it, what next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..count.model import parameters
from ..describe.job import Job
from ..describe.read import to_dict as plain
from ..errors import command
from ..formats.bridge import Found
from ..layout.stages import microbatches
from ..units import show
from .lines import Line, taken_first
from .text import layout_words


def report(
    found: Found,
    file: str,
    job: Job | None,
    needs: list[str],
    given: Mapping[str, str],
    output: str | None = None,
) -> RenderableType:
    """Everything `read` prints."""
    return Group(*_lines(found, file, job, needs, given, output))


def _lines(
    found: Found,
    file: str,
    job: Job | None,
    needs: list[str],
    given: Mapping[str, str],
    output: str | None,
) -> Iterator[RenderableType]:
    started = f", {found.chips:,} ranks" if found.chips else ""
    yield Text(f"{file}: {found.format.title}{started}", "bold")
    first, rest = taken_first(found.notes)
    for note in first:
        yield Text(f"  {note}", "yellow")
    if job:
        yield Text(
            f"  model    {job.model.name}, {show(parameters(job.model), '')} parameters"
        )
        yield Text(f"  cluster  {job.cluster.name or job.cluster.chips}")
        yield Text(
            f"  layout   {layout_words(job.layout, int(microbatches(job, job.layout)))}"
        )
        numbers = job.precision.name or job.precision.compute
        yield Text(
            f"  job      {job.batch:,} sequences of {job.T:,} tokens, {numbers}"
        )
    else:
        yield from _parts(found)
    for need in needs:
        yield Text(f"  missing: the file {need}", "yellow")
    used = len(found.used)
    idle = len(found.harmless)
    yield Text(
        f"  {used} keys are in the job; {idle} change neither time nor memory",
        "dim",
    )
    for note in rest:
        yield Text(f"  note: {note}", "yellow")
    if found.left:
        yield Text(f"  not in the job ({len(found.left)}):", "yellow")
        yield from _left(found.left)
    yield from _next(file, job, needs, given, output)


def _parts(found: Found) -> Iterator[Text]:
    """What a file says that is no whole job."""
    for name, table in found.tables.items():
        if isinstance(table, Mapping):
            words = ", ".join(
                f"{key} {_plain(value)}"
                for key, value in table.items()
                if key != "framework"
            )
        else:
            words = str(table)
        if words:
            yield Text(f"  {name:8} {words}")


def _plain(value: object) -> str:
    """A number without its exponent and its point."""
    whole = isinstance(value, float) and value.is_integer()
    return f"{value:,.0f}" if whole else str(value)


def _left(left: Mapping[str, str]) -> Iterator[Line]:
    """Key and sentence; sentences stand below each other."""
    widest = min(max(map(len, left)), USUAL)
    for key, why in left.items():
        yield Line(f"{key:{widest}}  {why}", indent=4, hang=widest + 2)


USUAL = 34
"""Characters of most keys; a longer one pushes its sentence on."""


def _next(
    file: str,
    job: Job | None,
    needs: list[str],
    given: Mapping[str, str],
    output: str | None,
) -> Iterator[Text]:
    """What to do with it; the flags of a sentence on what is missing stand at its end."""
    if output:
        yield from _told(
            f"predict {shlex.quote(output)}",
            f"plan {shlex.quote(output)} -o plan.toml",
        )
        return
    flags = [
        w
        for name, text in given.items()
        for w in ("--" + name.strip("_").replace("_", "-"), text)
    ]
    words = shlex.join([file, *flags])
    missing = [m[0] for n in needs if (m := FLAGS_AT_END.search(n))]
    if len(missing) < len(needs) or any(" --model " in n for n in needs):
        return  # the sentences say what to do
    kept = f"read {words}{''.join(dict.fromkeys(missing))} -o job.toml"
    if job is None:
        yield from _told(kept)
        return
    yield from _told(f"predict {words}", f"plan {words} -o plan.toml", kept)


FLAGS_AT_END = re.compile(r"(?: --\S+ [^\s-]\S*)+$")


def _told(*commands: str) -> Iterator[Text]:
    """Lines that begin with "next:"."""
    for i, words in enumerate(commands):
        lead = " " * 8 if i else "  next: "
        yield Text(lead + command(words), "dim")


def to_dict(found: Found, job: Job | None, needs: list[str]) -> dict[str, Any]:
    """The fields of `read --json`."""
    return {
        "format": found.format.name,
        "title": found.format.title,
        "chips": found.chips,
        "on": found.on,
        "tables": found.tables,
        "job": plain(job) if job else None,
        "missing": needs,
        "used": list(found.used),
        "left": dict(found.left),
        "harmless": list(found.harmless),
        "notes": list(found.notes),
    }
