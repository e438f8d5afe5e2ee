"""Changes in the words of the run's framework: its flags or keys, before and after.

A change that the framework's format cannot say, or that its words do not tell from the run, is none
that a user could make there: nothing only renames a flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..describe.job import Job
from ..errors import BadInput
from ..formats.bridge import table
from ..formats.bridge.cells import said_of
from ..formats.bridge.edit import NONE
from ..formats.bridge.writing import keys_of
from .changes import Change, value_in_effect

Words = Mapping[str, tuple[Any, Any]]
"""Flag or key -> (what it is, what it shall be); NONE: not there."""
NEEDED = {("layout.recompute", "selective"): "recompute_granularity"}
"""Value of a field -> the argument without which a version does not have it."""
IMPLIED = ("layout.schedule",)
"""Fields that follow from others in a file."""
FLAGS = ("megatron", "torchtitan")
"""Formats whose keys are the flags of a command."""


@dataclass(frozen=True)
class Tongue:
    """The words of one format for a run."""

    run: Job
    format: str
    """Name of the format; "": fields of a job."""
    names: frozenset[str] = frozenset()
    """Keys that the version of the tool has; empty: all of the format."""
    dialect: str = ""
    """A format that is only read, whose keys are those of `format` by other names."""

    @cached_property
    def base(self) -> dict[str, Any] | None:
        """The run's own keys; None where the format cannot say the run."""
        try:
            return self.keys(self.run) if self.format else None
        except BadInput:
            return None

    def keys(self, job: Job) -> dict[str, Any]:
        """All keys of a job, with what its training script says.  Raises BadInput."""
        if not self.written:
            format = table.get(self.format)
            said = (said_of(format, path, job) for path in format.cells)
            return {k: v for keys in said if keys for k, v in keys.items()}
        out, script = keys_of(table.get(self.format), job.filled)
        pairs = (line.partition(" = ")[::2] for line in script)
        return {**out, **dict(pairs)}

    def words(self, change: Change) -> Words | None:
        """What a change sets; None where the format cannot say it, or not apart from the run. Where
        no format is known, what software the framework has is not known either.
        """
        fields = {
            path: (value_in_effect(self.run, path), value)
            for path, value in change.fields.items()
        }
        if not self.format or self.base is None:
            known = self.older(change) if self.names else True
            return (
                fields
                if known and not change.table_values("software")
                else None
            )
        try:
            new = self.keys(change.applied_to(self.run))
        except BadInput:
            return None
        apart = [
            key
            for key in (*self.base, *(k for k in new if k not in self.base))
            if self.base.get(key, NONE) != new.get(key, NONE)
        ]
        if not self.written and self.unclear(change):
            return None if change.table_values("software") else fields
        if not self.written and not self.tells(change):
            return None
        if not all(map(self.has, apart)):
            return fields if self.older(change) else None
        return {
            self.flag(key): (self.base.get(key, NONE), new.get(key, NONE))
            for key in apart
        } or None

    @property
    def written(self) -> bool:
        """Plans are written in the format; of others the rows that are read tell the words."""
        return self.format in table.written()

    def unclear(self, change: Change) -> bool:
        """A field is worked out of keys, and no key out of it, in a format that is only read."""
        cells = table.get(self.format).cells
        return any(
            cells[path].formula and not cells[path].put
            for path in change.fields
            if path in cells and path not in IMPLIED
        )

    def tells(self, change: Change) -> bool:
        """Each field of the change has keys of its own in a format that is only read."""
        format, job = table.get(self.format), change.applied_to(self.run)
        return all(
            said_of(format, path, job) is not None
            for path in change.fields
            if path not in IMPLIED
        )

    def has(self, key: str) -> bool:
        """The tool's version has the key, or what it switches off."""
        plain = key.removeprefix("no_")
        added = f"add_{key.removeprefix('disable_')}"
        return not self.names or not self.names.isdisjoint((key, plain, added))

    def older(self, change: Change) -> bool:
        """A version of the tool that calls a choice otherwise has it."""
        cells = table.get(self.format or FLAGS[0]).cells
        return all(
            NEEDED.get((path, value), "") in ("", *self.names)
            and not self.names.isdisjoint(
                cells[path].keys if path in cells else ()
            )
            for path, value in change.fields.items()
            if path not in IMPLIED
        )

    def flag(self, key: str) -> str:
        """A key as the user types it."""
        if self.dialect:
            other = table.get(self.dialect)
            names = {new: old for old, new in other.older.items()}
            return other.prefix + names.get(key, key)
        if self.format not in FLAGS or key.startswith("-"):
            return key
        return "--" + key.replace(
            "_", "-" if self.format == "megatron" else "_"
        )


def tongue(
    run: Job, format: str, names: frozenset[str] = frozenset()
) -> Tongue:
    """The words of the run's file, else of the first format of its framework that can say it.

    format: a tool that no format here is of leaves fields of a job.
    """
    if format not in ("", *table.written()):
        if format not in table.formats():
            return Tongue(run, "", names)
        base = table.get(format).like
        if base in table.written():
            return Tongue(run, base, names, dialect=format)
    if format:
        return Tongue(run, format, names)
    name = run.framework.name if run.framework else run.usual_framework
    for each in table.written_for(name):
        spoken = Tongue(run, each.name)
        if spoken.base is not None:
            return spoken
    return Tongue(run, "")
