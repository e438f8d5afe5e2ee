"""The description of a job as a TOML file.

[model]    name = "llama3-70b" or config = "config.json", with or without changed fields;
           or all fields of a new one
[cluster]  on = "1024xh100-sxm", or chips, chip and network, each by name or as a table
[layout]   tp = 8 ...
[train]    how `meshwright train` runs the job (describe/training): carried along
[software] cuda_graphs = "full" ...: what is said of the framework beside its name
[job]      batch = "4M" (tokens) or "512seq", seq, precision, optimizer, tokens, attention_kernel,
           assumptions
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .. import catalog
from ..describe.assumptions import sole_changes
from ..describe.batch import parse_batch
from ..describe.chip import Chip
from ..describe.choices import FIELDS, Choices, first_few
from ..describe.cluster import Cluster
from ..describe.fields import BY_NAME, fields_of
from ..describe.job import TABLES, TRAIN, Job
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.network import Network
from ..describe.read import brief, laid_over, read, to_dict
from ..describe.software import Software
from ..describe.training import stated_values
from ..errors import BadInput, unknown
from ..layout import rules
from . import hf, parse_toml, read_text, resolve
from .toml_writer import dumps_toml

NAMED = tuple(
    name
    for name, field in fields_of(Job).items()
    if field.kind.type in BY_NAME and name not in TABLES
)
"""Choices of a job that have names: written even where they are the default, which may change."""
JOB = tuple(f.name for f in fields(Job) if f.name not in (*TABLES, TRAIN))
"""Fields of the table [job]."""
PREFIXED = re.compile(r"[kKM](?!i)")
"""A decimal prefix, which means its binary neighbour in a length of sequences."""


def load_job(
    source: str | Path | Mapping[str, Any],
    *,
    files: bool = True,
    notes: list[str] | None = None,
    bare: bool = True,
) -> Job:
    """The job in a TOML file, or in a dict of the same tables. What a table [layout] leaves open
    has the one value that the set of assumptions allows, if it allows one, else that of `Layout`.

    files: whether the description may name other files (False for untrusted input);  notes:
    receives a sentence on what was rounded;  bare: a dict comes from Python, whose numbers are in
    SI units (False if a person wrote them: then they need units). Raises BadInput for every
    mistake, with the path of the field.

    >>> from meshwright import load_job
    >>> on = {"on": "64xh100-sxm"}
    >>> load_job({"model": "llama3-8b", "cluster": on, "job": {"batch": "4Mi"}}).batch
    512
    """
    folder = Path()
    if not isinstance(source, Mapping):
        folder = Path(source).parent
        source = parse_toml(read_text(source), str(source))
        bare = False
    for key in source:
        if key not in (*TABLES, TRAIN):
            raise unknown(
                "table",
                brief(key) if not isinstance(key, str) else key,
                TABLES,
            )
    for key in ("model", "cluster", "job"):
        if key not in source:
            raise BadInput(f"the description needs a table [{key}]")
    rest = _table(source["job"], "job")
    for key in rest:
        if key not in JOB:
            raise unknown("job: field", brief(key).strip("'"), JOB)
    if "batch" not in rest:
        raise BadInput("job needs batch, such as '4M' tokens or '512seq'")
    model = read(
        Model,
        _model(source["model"], folder, files),
        "model",
        known=thing_named,
        bare=bare,
    )
    parts = {
        "model": hf.at_length(model) if "seq" in rest else model,
        "cluster": read(
            Cluster,
            _cluster(source["cluster"], files),
            "cluster",
            known=thing_named,
            bare=bare,
        ),
        "layout": read(
            Layout, source.get("layout", {}), "layout", thing_named
        ),
        "software": read(
            Software, source.get("software", {}), "software", thing_named
        ),
    }
    job = read(
        Job, {**rest, **parts, "batch": 1}, "job", known=thing_named, bare=bare
    )
    if isinstance(name := rest.get("precision"), str):
        # what it means takes all of the job
        job = replace(job, precision=job.precision_named(name))
    if "seq" in rest and not job.seq:
        raise BadInput(
            f"job.seq must be at least 1, not 0; left out it is the model's, {model.seq:,}"
        )
    batch, note = parse_batch(rest["batch"], job.T, job.cluster.chips)
    if notes is not None:
        notes += [
            said
            for said in (
                _length(rest, job.seq),
                _length(source["model"], job.model.seq),
                note,
            )
            if said
        ]
    if "layout" in source:
        layout = laid_by_set(job, job.layout, source["layout"], notes)
        job = replace(job, layout=layout)
    return replace(
        job, batch=batch, train=stated_values(source.get(TRAIN, {}))
    )


def laid_by_set(
    job: Job, layout: Layout, said: Collection[str], notes: list[str] | None
) -> Layout:
    """The layout with the one value that the job's set or its framework allows, where nobody said
    another and the job can be laid out so; notes: receives a sentence on which.
    """
    for who, every in _choosers(job):
        values: dict[str, Any] = sole_changes(every, layout, said)
        theirs = replace(layout, **values)
        before, now = (
            rules.broken(job, l.filling(job.cluster.chips))
            for l in (layout, theirs)
        )
        # such as experts under a set whose paper has none: as said, with the note that it is no
        # layout of the set's
        if not values or not {*now} <= {*before}:
            continue
        layout = theirs
        if notes is not None:
            words = ", ".join(
                f"{name} {first_few((value,))}"
                for name, value in values.items()
            )
            notes.append(f"{words}, because {who} allows no other")
    return layout


def _choosers(job: Job) -> Iterator[tuple[str, tuple[Choices, ...]]]:
    """Whose choices bind a layout: (name, choices) of the set, and of the framework."""
    yield job.assumptions.name, job.assumptions.choices
    if job.profile:
        yield job.profile.name, job.profile.choices


def said_fields(
    layout: Layout, job: Job, named: Collection[str] = ()
) -> set[str]:
    """Fields of a layout that a text must give for the layout to be read from it again: those
    named, those that are not as usual, and those of which the job's set or its framework would take
    another value.
    """
    said = {
        f.name
        for f in fields(layout)
        if f.name in named or getattr(layout, f.name) != f.default
    }
    for _, every in _choosers(job):
        while more := sole_changes(every, layout, said):
            said |= {*more}
    return said


def _length(table: object, seq: int) -> str | None:
    """What a prefix in `seq` meant; None if there is none."""
    text = table.get("seq") if isinstance(table, Mapping) else None
    if not isinstance(text, str) or not PREFIXED.search(text):
        return None
    return (
        f"seq: {text.strip()} are {seq:,} tokens (in lengths of sequences k is 1,024, as in 8k and"
        " 128k)"
    )


def thing_named(cls: type, name: str) -> Any:
    """The thing of class `cls` with that name: a `Known` for `describe.read.read`."""
    finders: dict[type, Callable[[str], Any]] = {
        **BY_NAME,
        # of the catalogue alone: a text from a stranger opens no file
        Model: lambda n: catalog.model(n),
        Cluster: lambda n: catalog.cluster(n),
        Chip: catalog.chip,
        Network: catalog.network,
    }
    return finders[cls](name) if cls in finders else None


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} must be a table, not {brief(value)}")
    return dict(value)


def _model(given: object, folder: Path, files: bool) -> object:
    """What `read` needs for the model: a config.json is opened here."""
    if isinstance(given, str):
        return resolve.model(given, files=files)
    table = _table(given, "model")
    if "config" not in table:
        return table
    config = table.pop("config")
    if not files or not isinstance(config, str):
        raise BadInput(
            f"model.config must be the path of a file{'' if files else '; files are not read here'}"
        )
    model = resolve.model(str(folder / config))
    return laid_over(hf.at_length(model) if "seq" in table else model, table)


def _cluster(given: object, files: bool) -> object:
    """What `read` needs for the cluster: `on` and default networks are looked up here."""
    if isinstance(given, str):
        return resolve.cluster(given, files=files)
    table = _table(given, "cluster")
    if "on" in table:
        on = table.pop("on")
        if not isinstance(on, str):
            raise BadInput(
                f"cluster.on must be a text such as '1024xh100-sxm', not {brief(on)}"
            )
        base = resolve.cluster(on, files=files)
        parts = {"chip": base.chip, "network": base.network}
        # a table changes fields of the named chip or network
        for (
            part,
            value,
        ) in parts.items():
            if isinstance(table.get(part), Mapping):
                table[part] = laid_over(value, table[part])
        rest = {
            n: getattr(base, n)
            for n in ("chips", "name", "engine", "installation")
        }
        return {**parts, **rest, **table}
    if isinstance(table.get("chip"), str) and "network" not in table:
        table["network"] = catalog.chip(table["chip"]).network
    return table


def dump_job(job: Job) -> str:
    """The TOML text that `load_job` turns into an equal job; catalogue entries by name, the rest
    with units, no defaults but those that have a name.

    >>> from meshwright import Job, dump_job
    >>> print(dump_job(Job("llama3-8b", "64xh100-sxm", batch=512)).splitlines()[1])
    name = "llama3-8b"
    """
    cluster = to_dict(job.cluster, units=True)
    if job.cluster.name and _is_named(job.cluster):
        cluster = {"on": job.cluster.name}
    else:
        cluster |= {
            "chip": _short(job.cluster.chip),
            "network": _short(job.cluster.network),
        }
    own = {f: getattr(job, f.name) for f in fields(job) if f.name in JOB}
    rest = {
        f.name: value
        for f, value in own.items()
        if value != f.default or (f.name in NAMED and value)
    }
    named = [name for name in NAMED if name in rest]
    rest |= {
        "batch": f"{job.batch}seq",
        **{name: _short(rest[name]) for name in named},
        "precision": _numbers(job),
    }
    model = _short(job.model)
    said = said_fields(job.layout, job)
    layout = {f: getattr(job.layout, f) for f in FIELDS if f in said}
    return dumps_toml(
        {
            "model": {"name": model} if isinstance(model, str) else model,
            "cluster": cluster,
            "layout": {**layout, **to_dict(job.layout)},
            **({"software": job.software.given} if job.software.given else {}),
            "job": rest,
            **({TRAIN: job.train} if job.train else {}),
        }
    )


def _is_named(value: Any) -> bool:
    """Whether its name alone says all of it, to everybody: a user's own machine is written out."""
    parts = (
        value,
        getattr(value, "chip", None),
        getattr(value, "network", None),
    )
    if any(catalog.is_own(part) for part in parts):
        return False
    try:
        return bool(thing_named(type(value), value.name) == value)
    except BadInput:
        return False


def _short(value: Any) -> str | dict[str, Any]:
    """The name of a known thing, else all of it."""
    return str(value.name) if _is_named(value) else to_dict(value, units=True)


def _numbers(job: Job) -> str | dict[str, Any]:
    """The name that means the job's numbers to it; all of them if none does, or if nobody knows the
    framework that a chip of the user's own names.
    """
    try:
        name = job.precision_name
    except BadInput:
        name = ""
    return name or to_dict(job.precision, units=True)
