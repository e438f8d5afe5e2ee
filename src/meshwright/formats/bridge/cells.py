"""A cell of the table, read and written: one loop for all fields of all formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ...describe.job import (
    OPTIMIZERS,
    PRECISIONS,
    Job,
)
from ...describe.offload import offload
from ...describe.read import brief
from ...describe.recompute import recompute
from ...errors import BadInput
from ..formulas import FieldNames, calls, filled_in, names_in, worked_out
from .keys import Keys
from .shared import (
    accumulated,
    compiles,
    hub_name,
    inside,
    megatron_settings,
    name_of,
    optimizer_named,
    run_length,
    run_tokens,
    runs_on,
    shards,
    strange,
    value_in_words,
)
from .table import UNSAID, Cell, Format

PLAIN = ""
"""Our value in a row of keys that change nothing of the field."""
SWITCHES = ("software.", "layout.sequence_parallel")
"""Fields that a flag without a value switches on."""


NAMED: Mapping[str, Mapping[str, Any]] = {
    "job.precision": PRECISIONS,
    "job.optimizer": OPTIMIZERS,
}
"""Fields whose values have names."""


def read_cell(path: str, cell: Cell, keys: Keys) -> Any:
    """What a file says of one field; None if nothing.  Raises BadInput for what a row refuses."""
    if cell.when and not worked_out(cell.when, keys):
        return None
    for formula, why in cell.demand:
        if worked_out(formula, keys):
            raise BadInput(filled_in(why, keys))
    value = _value_of_cell(path, cell, keys)
    for formula, key, why in cell.left:
        if worked_out(formula, keys):
            keys.leave(key, filled_in(why, keys))
    for formula, key, why in cell.unread:
        if worked_out(formula, keys):
            keys.leave(key, filled_in(why, keys))
            keys.unread.add(key)
    for formula, framework in cell.runs:
        if worked_out(formula, keys):
            runs_on(keys, framework)
    for formula, note in cell.notes:
        if worked_out(formula, keys):
            keys.notes.append(filled_in(note, keys))
    if path == "job.batch" and {*cell.keys} & keys.unread:
        return None
    if path == "job.batch" and isinstance(value, int):
        return f"{value}seq" if value else None  # a bare number is tokens
    return value


def _value_of_cell(path: str, cell: Cell, keys: Keys) -> Any:
    """The value that the kind of row reads."""
    if cell.reader:
        value = function_named(cell.reader)(keys)
        if value is not None or not cell.says:
            return value
    if cell.product:
        for key in cell.product:
            if keys.product(key) < 0:
                keys.unreadable(
                    key, "takes what the other axes leave: give it"
                )
        return max(keys.product(*cell.product), 1)
    if cell.formula:
        # a key that is judged by its value is said where it has another than the usual
        format = keys.format
        judged = {k for k in cell.keys if k in format.usual or format.why(k)}
        keys.used |= {*cell.keys} & {*keys.said} - judged
        value = worked_out(cell.formula, keys)
        # also keys that did not count here must be readable
        if value is not None:
            for text in with_let(cell.formula, format):
                for call in calls(text, CHECKED):
                    call(keys)
        return value
    if cell.where and keys.degree(cell.where) == 1:
        keys.used |= {*cell.keys} & {*keys.said}
        return None
    if cell.always is not UNSAID:
        return cell.always
    if cell.lengths:
        asked = [run_tokens(keys, *pair) for pair in cell.lengths.items()]
        return next(filter(None, asked), None)
    if cell.says and path == "job.optimizer":
        return optimizer_named(keys, cell.keys[0]) if cell.keys else None
    if cell.says or cell.once:
        return _said(path, cell, keys)
    if cell.kind:
        there = [key for key in cell.keys if key in keys.said]
        given = [getattr(keys, cell.kind)(key) for key in there]
        usual = None if cell.default is UNSAID else cell.default
        return next((v for v in given if v or v is False), usual)
    if not cell.keys:
        return None
    value = keys.get(cell.keys[0])
    # --tensor-model-parallel-size $TP, and no TP
    empty = keys.said.get(cell.keys[0]) == "" or value is True
    if empty and not path.startswith(SWITCHES):
        keys.unreadable(cell.keys[0], "")
        value = None
    if value is None and cell.default is not UNSAID:
        return cell.default
    return value


@cache
def function_named(name: str) -> Callable[..., Any]:
    """The function that a row names by its module, such as megatron:stages."""
    module, _, function = name.partition(":")
    code: Callable[..., Any] = getattr(
        import_module(f"{__package__}.{module}"), function
    )
    return code


def with_let(formula: str, format: Format) -> Iterator[str]:
    """The formula, and those of the format's names that it is made of."""
    yield formula
    for name in names_in(formula) & format.let.keys():
        yield from with_let(format.let[name], format)


CHECKED = ("whole", "number", "switch", "choice")
"""Readers of keys that refuse some values."""


def plan_names(job: Job, format: Format) -> FieldNames:
    """What the names in a writer's formulas stand for: fields of a job by their path, such as
    layout.tp, job.batch or model.moe.experts; own: what its software does by itself, where the plan
    names one (None: nobody knows).
    """
    tables = SimpleNamespace(
        job=job,
        format=format,
        layout=job.layout,
        software=job.software,
        model=job.model,
        own=job.framework,
        away=offload(job.layout.offload),
        recompute=recompute(job.layout.recompute),
        profile=job.profile,
    )
    of_job = (accumulated, compiles, shards, hub_name, inside)
    functions = {
        **{f.__name__: partial(f, job) for f in (*of_job, megatron_settings)},
        **{f.__name__: f for f in (strange, int, len, max, str)},
        "model_name": partial(name_of, job, format.name),
    }
    return FieldNames(tables, functions)


def _said(path: str, cell: Cell, keys: Keys) -> Any:
    """Our value in the first row whose keys are there; the default where none is."""
    keys.used |= {*cell.keys} & {*keys.said}
    rows: list[Sequence[Any]] = [
        row for row in (*cell.once, *cell.says) if row[1]
    ]
    there = [
        row for row in rows if all(_has(keys, k, v) for k, v in row[1].items())
    ]
    telling = [row for row in there if row[0] != PLAIN][:1]
    ours = telling[0][0] if telling else None
    for _, theirs, *reasons in (
        *telling,
        *(r for r in there if r[0] == PLAIN),
    ):
        for reason in reasons:
            keys.leave(next(iter(theirs)), reason)
    agreed = {
        k for value, row, *_ in there if value in (ours, PLAIN) for k in row
    }
    others = {k for _, row, *_ in rows for k in row} - agreed
    strange = [key for key in sorted(others) if keys.has(key)]
    instead = cell.unknown if strange and not telling else UNSAID
    effect = (
        "it may change time or memory"
        if instead is UNSAID
        else f"{value_in_words(path, instead)} is taken"
    )
    for key in strange:
        words = {str(row[key]): 0 for _, row, *_ in rows if key in row}
        known = ", ".join(word for word in words if word not in ("True", "*"))
        among = f" ({known})" * bool(known)
        keys.leave(
            key, f"{brief(keys.get(key))} is not known{among}: {effect}"
        )
    if instead is not UNSAID:
        return instead
    if telling or strange:
        return ours
    return None if cell.default is UNSAID else cell.default


def _has(keys: Keys, key: str, value: Any) -> bool:
    """The key has the value, however it is spelled; true: it is switched on, by no other word.

    A text is a pattern of the words there, each once: "p2p" of "p2p,p2p".
    """
    if key not in keys.said:
        return False
    if isinstance(value, bool):
        return keys.plain(key) and keys.flag(key) is value
    words = dict.fromkeys(re.split(r"[\s,\[\]'\"]+", keys.word(key)))
    return fnmatchcase(" ".join(words).strip(), str(value).lower())


# ---------------------------------------------------------------- writing


def write_cell(
    format: Format,
    path: str,
    cell: Cell,
    value: Any,
    default: Any,
    job: Job,
    out: dict[str, Any],
) -> None:
    """The keys that say a value, added to `out`.  Raises BadInput for one that none says."""
    names = plan_names(job, format)
    for formula, why in cell.refuse:
        if worked_out(formula, names):
            raise BadInput(filled_in(why, names))
    if cell.writer:
        function_named(cell.writer)(job, out)
        return
    if cell.put:
        made = {key: worked_out(f, names) for key, f in cell.put.items()}
        out |= {
            key: [*v] if isinstance(v, tuple) else v
            for key, v in made.items()
            if v is not None
        }
        return
    if cell.beside:
        return
    if not means(cell, job):
        if value != default:
            raise BadInput(
                f"{path} {value_in_words(path, value)} needs {cell.where} > 1"
            )
        return
    if cell.lengths:
        key, unit = next(iter(cell.lengths.items()))
        if length := run_length(job, unit):
            out[key] = length
        return
    for ours, theirs in cell.says:
        if value_of_word(path, ours) == value_of_word(path, value):
            out |= theirs
            return
    theirs = default if cell.default is UNSAID else cell.default
    if (value == theirs and not cell.write) or value is default is None:
        return  # what is not said is the tool's own
    if cell.says:
        said = [ours for ours, _ in cell.says]
        said += [] if theirs is None else [theirs]
        others = dict.fromkeys(value_in_words(path, ours) for ours in said)
        raise value_refusal(format, path, value, others=others, why=cell.why)
    if value is None:
        raise BadInput(
            f"{format.title} cannot leave {path} open: it would mean {theirs}"
        )
    whole = isinstance(value, float) and value == int(value)
    out[cell.keys[0]] = int(value) if whole else value


def said_of(format: Format, path: str, job: Job) -> Mapping[str, Any] | None:
    """The keys by which a file that is only read here says a field of a job; None where no row
    tells them.
    """
    cell = format.cells.get(path)
    table, _, name = path.partition(".")
    if not (cell and name) or cell.script or cell.always is not UNSAID:
        return None
    owner = job if table == "job" else getattr(job, table)
    value = getattr(owner, name)
    # the first row of a value is its usual word, and one that is written comes before
    pairs = [row for row in (*cell.says, *cell.once) if len(row) == 2]
    rows = {str(ours): theirs for ours, theirs in reversed(pairs)}
    rows.pop(PLAIN, None)
    if rows:
        unsaid: Mapping[str, Any] | None = (
            {} if value == cell.default else None
        )
        return rows.get(str(value), unsaid)
    if cell.formula and not cell.put:
        return None
    out: dict[str, Any] = {}
    try:
        write_cell(
            format, path, cell, value=value, default=UNSAID, job=job, out=out
        )
    except BadInput:
        return None
    return out


def value_refusal(
    format: Format, path: str, value: Any, others: Iterable[Any], why: str
) -> BadInput:
    """That a format has other values of a field than this one, why, and where to get one."""
    words = ", ".join(map(str, others))
    reason = f", for {why}" if why else ""
    search = f"; plan --framework {format.frameworks[0]} finds such a layout"
    return BadInput(
        f"{format.title} cannot express {path} = {value_in_words(path, value)}, only"
        f" {words}{reason}" + search * path.startswith("layout.")
    )


def means(cell: Cell, job: Job) -> bool:
    """The field means something: the degree that it is about is more than one."""
    degree = cell.where.partition(".")[2]
    return not degree or int(getattr(job.layout, degree)) > 1


def value_of_word(path: str, value: Any) -> Any:
    """What a word of a table stands for, as a job holds it."""
    if path == "layout.offload":
        return offload(value).text
    named: Mapping[str, Any] = NAMED.get(path, {})
    if isinstance(value, dict):
        rest = {k: v for k, v in value.items() if k != "name"}
        return replace(named[value["name"]], **rest)
    return named.get(value, value) if isinstance(value, str) else value
