"""A file of another tool as it was read: the job, what is missing, what is not in it, what next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ..count.model import parameters
from ..describe.job import Job
from ..describe.read import to_dict as plain
from ..errors import command
from ..formats.bridge import ForeignFile
from ..formats.flags import adapters_alone
from ..layout.stages import microbatches
from ..units import count
from .card import Card, CardRow, Commands, Item, answer_row
from .lines import IndentedLine, noted
from .run_card import notes as card_notes
from .run_card import preconditions
from .text import layout_words


def reading_card(
    reading: ForeignFile,
    file: str,
    job: Job | None,
    needs: list[str],
    given: Mapping[str, str],
    output: str | None = None,
) -> Card:
    """The job, what is missing, what is not in it, what next."""
    alone = adapters_alone(reading.left)
    rows: list[Item] = [*preconditions("", reading.notes)]
    if alone:
        words = f"only adapters are trained ({alone}), which is not counted"
        rows.insert(0, answer_row(False, words))
    rows += [
        CardRow(LABELS.get(name, name), words, rank=0 if job else 4)
        for name, words in _parts(reading, job)
    ]
    rows += [
        CardRow(
            "missing", f"the file {need}", "bold red", most=_lines_each(needs)
        )
        for need in needs
    ]
    rows.append(CardRow("keys", _keys(reading), rank=1))
    left = [f"{key}: {why}" for key, why in reading.left.items()]
    for i, text in enumerate(left[:UNREAD]):
        rows.append(
            CardRow(
                "not read" if i == 0 else "",
                text=text,
                style="yellow",
                rank=2 + i,
                most=1,
            )
        )
    if (n := len(left) - UNREAD) > 0:
        rows.append(CardRow("", f"{n} more: --all", "dim", rank=2))
    later = (
        [] if alone else _later(file, job, needs, given=given, output=output)
    )
    return Card(
        f"Read {PurePath(file).name}: {_who(reading)}",
        (*rows, *card_notes(reading.notes), Commands(tuple(later), rank=1)),
        "--all: every key that is not in the job, and why",
    )


MISSING = 10
"""Lines of a card for all that a file leaves open."""


def _lines_each(needs: list[str]) -> int:
    """Lines of what is missing, one need like the other."""
    return min(3, max(MISSING // len(needs), 1))


LABELS = {"software": "options"}
"""Table of a job -> its label, where its name is wider than labels are."""
UNREAD = 3
"""Keys of a card that are not in the job."""


def reading_report(
    reading: ForeignFile, job: Job | None
) -> Iterator[RenderableType]:
    """What was read, every note, and what was not read."""
    for name, words in _parts(reading, job):
        yield IndentedLine(f"{name:8} {words}", hang=9)
    yield from noted(reading.notes)
    if reading.left:
        yield Text(f"not in the job ({len(reading.left)}):", "yellow")
        yield from _left(reading.left)


def _who(reading: ForeignFile) -> str:
    """Whose file it is, and how many ranks it starts."""
    started = f", {reading.chips:,} ranks" if reading.chips else ""
    return f"{reading.format.title}{started}"


def _keys(reading: ForeignFile) -> str:
    """How many of its settings are in the job, and how many need not be."""
    return (
        f"{len(reading.used)} settings understood; {len(reading.harmless)} ignored (no effect on"
        " time or memory)"
    )


def _parts(reading: ForeignFile, job: Job | None) -> Iterator[tuple[str, str]]:
    """(name, words) of the parts of a job, or of what a file says that is no whole job."""
    if job:
        numbers = job.precision_words
        size = count(parameters(job.model))
        yield "model", f"{job.model.name}, {size} parameters, {numbers}"
        chips = job.cluster.name or job.cluster.chips
        yield (
            "cluster",
            f"{chips}, {job.batch:,} sequences of {job.T:,} tokens",
        )
        steps = int(microbatches(job, job.layout))
        yield "layout", layout_words(job.layout, steps)
        return
    for name, table in reading.tables.items():
        words = str(table)
        if isinstance(table, Mapping):
            words = ", ".join(
                _plain(key, value)
                for key, value in table.items()
                if key != "framework"
            )
        if words:
            yield name, words


def _plain(key: str, value: object) -> str:
    """A field and its value: yes or no by the name alone, a number without its exponent and its
    point, a table by its name, the rest in brackets.
    """
    key = key.replace("_", " ")
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if isinstance(value, Mapping):
        rest = ", ".join(
            _plain(*each) for each in value.items() if each[0] != "name"
        )
        return (
            f"{key} {value['name']} ({rest})"
            if "name" in value
            else f"{key} ({rest})"
        )
    whole = isinstance(value, float) and value.is_integer()
    return f"{key} {value:,.0f}" if whole else f"{key} {value}"


def _left(left: Mapping[str, str]) -> Iterator[IndentedLine]:
    """Key and sentence; sentences stand below each other."""
    widest = min(max(map(len, left)), USUAL)
    for key, why in left.items():
        yield IndentedLine(f"{key:{widest}}  {why}", indent=2, hang=widest + 2)


USUAL = 34
"""Characters of most keys; a longer one pushes its sentence on."""


def _later(
    file: str,
    job: Job | None,
    needs: list[str],
    given: Mapping[str, str],
    output: str | None,
) -> list[str]:
    """What to do with it; the flags of a sentence on what is missing stand at its end."""
    if output:
        name = shlex.quote(output)
        later = [f"predict {name}", f"plan {name} -o plan.toml"]
        return [*map(command, later)]
    flags = [
        w
        for name, text in given.items()
        for w in ("--" + name.strip("_").replace("_", "-"), text)
    ]
    words = shlex.join([file, *flags])
    missing = [m[0] for n in needs if (m := FLAGS_AT_END.search(n))]
    if len(missing) < len(needs) or any(" --model " in n for n in needs):
        return []  # the sentences say what to do
    kept = f"read {words}{''.join(dict.fromkeys(missing))} -o job.toml"
    if job is None:
        return [command(kept)]
    later = [f"predict {words}", f"plan {words} -o plan.toml", kept]
    return [*map(command, later)]


FLAGS_AT_END = re.compile(r"(?: --\S+ [^\s-]\S*)+$")


def reading_to_dict(
    reading: ForeignFile, job: Job | None, needs: list[str]
) -> dict[str, Any]:
    """The fields of `read --json`."""
    return {
        "format": reading.format.name,
        "title": reading.format.title,
        "chips": reading.chips,
        "on": reading.on,
        "tables": reading.tables,
        "job": plain(job) if job else None,
        "missing": needs,
        "used": list(reading.used),
        "left": dict(reading.left),
        "harmless": list(reading.harmless),
        "notes": list(reading.notes),
    }
