"""From a foreign file to the tables of a job, with what was understood and what was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from ...describe.layout import Layout
from ...describe.read import brief
from ...errors import BadInput
from .keys import Keys
from .table import UNSAID, Cell, Format

SWITCHES = ("software.", "layout.sequence_parallel")
"""Fields that a flag without a value switches on."""
Reader = Callable[[Keys], Any]
STRANGE = "not known: it may change time or memory"
FIELDS = {f.name for f in fields(Layout)}
OFF: tuple[Any, ...] = (
    None,
    False,
    "",
    "none",
    "None",
    "null",
    "false",
    "False",
    [],
    {},
    (),
)
"""Values of keys that are not known, but switch nothing on."""


@dataclass(frozen=True)
class Said:
    """What the syntax of a file holds."""

    keys: dict[str, Any]
    chips: int | None = None
    """Ranks that its launcher starts."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A foreign file, read."""

    format: Format
    tables: dict[str, Any]
    """As in a JOB.toml: model, layout, software, job; what the file does not say is missing."""
    chips: int | None
    on: str | None
    """A chip, where the file names one."""
    used: tuple[str, ...]
    """Keys that the job holds."""
    left: dict[str, str] = field(default_factory=dict)
    """Key -> why it is not in the job: what could change time or memory."""
    harmless: tuple[str, ...] = ()
    """Keys that change neither."""
    notes: tuple[str, ...] = ()
    """What was assumed."""
    missing: tuple[str, ...] = ()
    """What the model needs and the file leaves to something else, a predicate each."""


def understood(
    format: Format, said: Said, readers: Mapping[str, Reader]
) -> Found:
    """Every field of the table, read from the keys of a file."""
    keys = Keys(said.keys, format.title, chips=said.chips, notes=[*said.notes])
    for path, cell in format.cells.items():
        if path.startswith("model.") and isinstance(
            keys.tables.get("model"), str
        ):
            continue
        value = _field(path, cell, keys, readers)
        table, _, name = path.partition(".")
        if value is None:
            continue
        if table == "layout" and name not in FIELDS:
            keys.leave(cell.keys[0], f"a layout cannot say {name} = {value}")
        elif name:
            keys.tables.setdefault(table, {})[name] = value
        else:
            keys.tables[table] = value
    left, harmless = _sorted(format, keys)
    needs = keys.tables.pop("", {}).get("missing", ())
    if not described(keys):
        keys.tables.pop("model", None)
    on = keys.tables.pop("on", None)
    tables: dict[str, Any] = {name: t for name, t in keys.tables.items() if t}
    tables.setdefault("job", {}).setdefault("framework", format.frameworks[0])
    return Found(
        format=format,
        tables=tables,
        chips=keys.chips,
        on=str(on) if on else None,
        used=tuple(sorted(keys.used - set(left))),
        left=left,
        harmless=tuple(sorted(harmless)),
        notes=tuple(keys.notes),
        missing=tuple(needs),
    )


def described(keys: Keys) -> bool:
    """The file says which model it trains, by name or by its layers."""
    model = keys.tables.get("model")
    if isinstance(model, str) or not model:
        return bool(model)
    return "config" in model or ("layers" in model and "hidden" in model)


def _field(
    path: str, cell: Cell, keys: Keys, readers: Mapping[str, Reader]
) -> Any:
    """What a file says of one field; None if nothing."""
    if cell.by:
        return readers[path](keys)
    if cell.always is not UNSAID:
        return cell.always
    if not cell.keys:
        return None
    value = keys.get(cell.keys[0])
    # --tensor-model-parallel-size $TP, and no TP
    if value is True and cell.words is None and not path.startswith(SWITCHES):
        keys.leave(
            cell.keys[0], "has no value: a name of the script is set elsewhere"
        )
        value = None
    if value is None:
        return None if cell.default is UNSAID else cell.default
    return value if cell.words is None else _ours(value, cell, keys)


def _ours(value: Any, cell: Cell, keys: Keys) -> Any:
    """Our word for theirs."""
    for mine, theirs in (cell.words or {}).items():
        if str(theirs).lower() == str(value).strip().lower():
            return mine
    keys.leave(
        cell.keys[0],
        f"{brief(value)} is not known: {', '.join(map(str, (cell.words or {}).values()))}",
    )
    return None


def _sorted(format: Format, keys: Keys) -> tuple[dict[str, str], list[str]]:
    """(key -> why it is not in the job, keys that change nothing)."""
    left = dict(keys.left)
    harmless = []
    for key, value in keys.said.items():
        if key in keys.used:
            continue
        short = key.rpartition(".")[2]
        if (
            any(fnmatchcase(short, pattern) for pattern in format.refuses)
            and value not in OFF
        ):
            reason = next(
                t for p, t in format.refuses.items() if fnmatchcase(short, p)
            )
            raise BadInput(f"{format.title}: {key}: {reason}")
        reason = format.why(key) or format.why(short)
        off = value in OFF if not isinstance(value, Mapping) else not value
        if off or (
            not reason
            and (format.is_harmless(key) or format.is_harmless(short))
        ):
            harmless.append(key)
        else:
            left[key] = reason or STRANGE
    return left, harmless
