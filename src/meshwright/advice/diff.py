"""A change as a unified diff of the run's own file, as `patch` applies it: the keys that change and
nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..errors import BadInput
from ..formats import bridge, parse_toml, read_text, torchrun
from ..formats.bridge.edit import LARGEST_BASE, NONE, edit_toml
from ..formats.bridge.launch import Place
from ..formats.bridge.tree import flat_keys
from ..formats.flags import is_file
from .changes import Change

NO_NEWLINE = "\\ No newline at end of file"


def diff(path: str, run: Job, change: Change, format: str = "") -> str:
    """The unified diff of a file for a change of its run.  Raises BadInput where the file cannot be
    edited in place.

    format: that of a file of another tool; "": a JOB.toml.
    """
    text = read_text(path, LARGEST_BASE)
    return unified_diff(
        path, text, _edit(path, text, run, change=change, format=format)
    )


def _edit(path: str, text: str, run: Job, change: Change, format: str) -> str:
    """The text of the file with the change in it."""
    job = change.applied_to(run)
    if is_file(path):
        return job_diff(path, text, run, job)
    if format not in bridge.onto.CHANGED or bridge.logged(path):
        raise BadInput(
            f"{path[:80]} is not edited: take the keys as they are listed, or advise on a file of"
            f" {', '.join(bridge.onto.CHANGED)}, or a JOB.toml"
        )
    nodes, ranks = torchrun.nodes(run)
    place = Place(nodes, ranks)
    return bridge.write_onto(job, format, place, path=path, run=run).text


def job_diff(path: str, text: str, run: Job, job: Job) -> str:
    """A JOB.toml with the fields changed in which two jobs differ."""
    tables = parse_toml(text, path)
    changes = {
        key: pair
        for key, pair in fields_apart(tables, run, job).items()
        if pair[0] != pair[1]
    }
    new = {key: pair[1] for key, pair in changes.items()}
    both = {**flat_keys(tables, path), **new}
    keys = {key: value for key, value in both.items() if value != NONE}
    return edit_toml(text, changes, keys, path)


def fields_apart(
    tables: Mapping[str, Any], run: Job, job: Job
) -> dict[str, tuple[Any, Any]]:
    """Field of a JOB.toml -> (what the file says, what it shall say); a degree that follows from
    the others is set only where the file says it.
    """
    apart: dict[str, tuple[Any, Any]] = {}
    layout = tables.get("layout", {})
    for f in fields(Layout):
        new = getattr(job.layout, f.name)
        said = layout.get(f.name, NONE)
        if new == getattr(run.layout, f.name):
            continue
        if f.name in ("dp", "placement") and said == NONE:
            continue
        whole = (
            {a: [*s] for a, s in new.items()} if f.name == "placement" else new
        )
        apart[f"layout.{f.name}"] = (said, whole)
    given = tables.get("software", {})
    for name, new in job.software.given.items():
        if new != getattr(run.software, name):
            apart[f"software.{name}"] = (given.get(name, NONE), new)
    rest = tables.get("job", {})
    if job.batch != run.batch:
        apart["job.batch"] = (rest.get("batch", NONE), f"{job.batch}seq")
    if job.precision != run.precision and not job.software.gradients:
        new = job.precision_name or job.precision.compute
        apart["job.precision"] = (rest.get("precision", NONE), new)
    if job.attention_kernel != run.attention_kernel:
        said = rest.get("attention_kernel", NONE)
        apart["job.attention_kernel"] = (said, job.attention_kernel)
    return apart


def unified_diff(path: str, old: str, new: str) -> str:
    """A unified diff of two texts of one file."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        fromfile=path,
        tofile=path,
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}\n"
        for line in lines
    )
