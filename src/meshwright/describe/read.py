"""From plain data (a TOML table, a JSON object, the texts of a URL) to the dataclasses of
`describe`, and back.

    read(Chip, {"name": "x", "hbm_bandwidth": "3.35 TB/s", ...}) -> Chip
    to_dict(chip) -> {"name": "x", ...}

A number is bare (in SI units, from Python), a text with a unit, or a table { value, source, date,
note } whose rest goes to the `sources` of the nearest dataclass that has them. Every mistake is one
BadInput sentence that starts with the path of the field.
"""

from __future__ import annotations

import dataclasses
import numbers
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..errors import MOST_NAMED, BadInput, article, unknown
from ..errors import brief as brief
from ..units import MEANT, parse
from .fields import (
    FieldKind,
    demand_meaning,
    fields_of,
    left_out,
    required_fields,
)

T = TypeVar("T")
Finder = Callable[[type, str], Any]
"""(class, name) -> the instance of that name; BadInput if there is none, None if things of that
class have no names.
"""

ORIGIN = ("source", "date", "note")
"""What may stand beside a number, or beside a whole table, to say where it comes from."""
LONGEST_TEXT = 500
LONGEST_LIST = 1000


@dataclass(frozen=True)
class At:
    """Where the reader is: for error messages and sources."""

    where: str
    """Path as the user knows it, such as cluster.network.dims[0].bandwidth."""
    path: str = ""
    """Path from the dataclass that keeps the sources."""
    sources: dict[str, Any] | None = None
    known: Finder | None = None
    bare: bool = True
    """Numbers without a unit are in SI units; False: they are refused where `units.MEANT` has
    several."""

    def into(self, step: str) -> At:
        """One step down: a field, a key or an [index]."""
        dot = "" if step.startswith("[") else "."
        path = self.path + dot + step if self.path else step
        return replace(self, where=self.where + dot + step, path=path)


def read(
    cls: type[T],
    data: object,
    where: str = "",
    known: Finder | None = None,
    bare: bool = True,
) -> T:
    """The dataclass `cls` from a mapping; unknown, missing, malformed or impossible fields raise
    BadInput.

    where: name of the data in error messages;  known: finds things by name, so that a text may
    stand for a table, and a table with a `name` and without all required fields for the thing of
    that name with some fields replaced;  bare: numbers are Python's, in SI units (False for what a
    person wrote: `units.parse` refuses a bandwidth of 400).
    """
    where = where or cls.__name__.lower()
    instance = _instance(cls, data, At(where, known=known, bare=bare))
    demand_meant(instance, data, where)
    return instance


def demand_meant(
    instance: object, data: object, where: str, above: tuple[object, ...] = ()
) -> None:
    """Raise BadInput if the data give a field that the option they choose does not have. above:
    what the instance is a part of, the innermost first.
    """
    if not isinstance(data, Mapping) or not dataclasses.is_dataclass(instance):
        return
    demand_meaning(instance, data, where, above)
    # a set that says all of itself may say what it makes no use of
    whole = set(data).issuperset(required_fields(type(instance)) or [""])
    around = () if whole else (instance, *above)
    for key, value in data.items():
        if isinstance(value, Mapping):
            demand_meant(
                getattr(instance, key, None), value, f"{where}.{key}", around
            )


def _instance(cls: type[T], data: object, at: At) -> T:
    if isinstance(data, cls):
        return data
    if (
        isinstance(data, str)
        and at.known
        and (example := at.known(cls, _text(data, at))) is not None
    ):
        return typing.cast(T, example)
    if not isinstance(data, Mapping):
        raise BadInput(
            f"{at.where} must be a table of fields, not {brief(data)}"
        )
    every = fields_of(cls)
    sources: dict[str, Any] | None = None
    data = _overlaid(cls, dict(data), at)
    if "sources" in every:
        sources = _origins(data, at)
        at = replace(at, sources=sources, path="")
    for key in data:
        if key not in every:
            raise unknown(
                f"{at.where}: field",
                key if isinstance(key, str) else brief(key),
                every,
            )
    if missing := [name for name in required_fields(cls) if name not in data]:
        more = f" and {len(missing) - MOST_NAMED} more"
        names = ", ".join(missing[:MOST_NAMED])
        raise BadInput(
            f"{at.where} needs {names}{more if missing[MOST_NAMED:] else ''}"
        )
    values = {k: _value(every[k].kind, v, at.into(k)) for k, v in data.items()}
    if sources is not None:
        values["sources"] = sources
    for name in left_out(
        cls, values
    ):  # whoever gave it is told by `demand_meaning`
        del values[name]
    try:
        return cls(**values)
    except BadInput as error:  # of its fields, by the name of the class
        text, own = str(error), cls.__name__.lower()
        if text.startswith((f"{own}.", f"{own}:")):
            text = at.where + text.removeprefix(own)
        raise BadInput(text) from None


def _overlaid(cls: type, data: dict[str, Any], at: At) -> dict[str, Any]:
    """The data over the named thing it changes, if it does not define a whole one."""
    complete = required_fields(cls) or fields_of(cls)
    missing = [name for name in complete if name not in data]
    if not (at.known and missing and isinstance(data.get("name"), str)):
        return data
    try:
        base = at.known(cls, _text(data["name"], at.into("name")))
    except BadInput as error:
        raise BadInput(
            f"{at.where}: {error}; to define a new one give {', '.join(missing)} too"
        ) from None
    if base is None:
        return data
    whole = laid_over(base, data)
    if "name" not in fields_of(cls):
        del whole["name"]  # it said which one, and is none of the fields
    return whole


def laid_over(base: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of `base` with those of `data` laid over it; a number that was replaced loses its
    source.
    """
    whole = to_dict(base, defaults=True, units=True)
    if origins := whole.pop("sources", None):
        whole["sources"] = {
            k: v
            for k, v in origins.items()
            if re.split(r"[.\[]", k)[0] not in data
        }
    return tables_merged(whole, data)


def tables_merged(
    base: dict[str, Any], over: Mapping[str, Any]
) -> dict[str, Any]:
    """`over` laid on `base`, table by table; { value = ... } is one value."""
    result = dict(base)
    for key, value in over.items():
        both = (
            isinstance(value, Mapping)
            and "value" not in value
            and isinstance(base.get(key), Mapping)
        )
        result[key] = tables_merged(base[key], value) if both else value
    return result


def _origins(data: dict[str, Any], at: At) -> dict[str, Any]:
    """Takes `sources`, and the source, date and note of the whole table ("*"), out of the data."""
    sources: dict[str, Any] = {}
    given = data.pop("sources", {})
    if not isinstance(given, Mapping):
        raise BadInput(
            f"{at.where}.sources must be a table, not {brief(given)}"
        )
    for key, origin in given.items():
        sources[_text(key, at.into("sources"))] = _origin(
            origin, at.into("sources").into(brief(key))
        )
    if whole := {key: data.pop(key) for key in ORIGIN if key in data}:
        sources["*"] = _origin(whole, at)
    return sources


def _origin(origin: object, at: At) -> dict[str, str]:
    if not isinstance(origin, Mapping) or not set(origin) <= set(ORIGIN):
        raise BadInput(
            f"{at.where} must be a table of {', '.join(ORIGIN)}, not {brief(origin)}"
        )
    return {key: _text(text, at.into(key)) for key, text in origin.items()}


def _value(kind: FieldKind, value: Any, at: At) -> Any:
    """One value as Python would give it, for the description that has it to check."""
    if kind.none and (value is None or value == "none"):
        return None
    if dataclasses.is_dataclass(kind.type):
        return _instance(typing.cast(type, kind.type), value, at)
    if kind.injected:
        raise BadInput(
            f"{at.where} takes an object, which only Python can give"
        )
    if kind.type is tuple:
        return _items(kind.parts[0], value, at)
    if issubclass(kind.type, Mapping) if kind.type is not Any else False:
        return _table(kind, value, at)
    if isinstance(value, Mapping):
        value = _with_origin(value, at)
    if kind.type is str:
        return _text(value, at)
    if kind.type is bool:
        words = {"true": True, "false": False}
        return (
            words.get(value.lower(), value)
            if isinstance(value, str)
            else value
        )
    return _number(kind, value, at)


def _items(kind: FieldKind, value: object, at: At) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{at.where} must be a list, not {brief(value)}")
    if len(value) > LONGEST_LIST:
        raise BadInput(
            f"{at.where} must have at most {LONGEST_LIST} entries, not {len(value)}"
        )
    if not dataclasses.is_dataclass(kind.type):
        # measurements, which nobody types
        at = replace(at, bare=True)
    return tuple(
        _value(kind, v, at.into(f"[{i}]")) for i, v in enumerate(value)
    )


def _table(kind: FieldKind, value: object, at: At) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{at.where} must be a table, not {brief(value)}")
    texts = {_text(key, at): v for key, v in value.items()}
    if kind.parts:
        key, entry = kind.parts
        return {
            key.kept(k, at.where): _value(entry, v, at.into(k))
            for k, v in texts.items()
        }
    try:  # a mapping that checks itself
        made: Mapping[str, Any] = kind.type(texts)
    except BadInput as error:
        raise BadInput(f"{at.where}: {error}") from None
    return made


def _with_origin(value: Mapping[Any, Any], at: At) -> object:
    """The value of { value, source, date, note }; the rest is kept as the source of this field."""
    if "value" not in value:
        raise BadInput(
            f"{at.where} must be one value or a table of value, {', '.join(ORIGIN)}, not"
            f" {brief(value)}"
        )
    rest = {key: v for key, v in value.items() if key != "value"}
    origin = _origin(rest, at)
    if at.sources is not None and origin:
        at.sources[at.path] = origin
    return value["value"]


def _text(value: object, at: At) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{at.where} must be a text, not {brief(value)}")
    if len(value) > LONGEST_TEXT or not value.isprintable():
        raise BadInput(
            f"{at.where} must be one line of at most {LONGEST_TEXT} printable characters"
        )
    return value


def _number(kind: FieldKind, value: object, at: At) -> float:
    what = "a number" if kind.type is float else "a whole number"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadInput(f"{at.where} must be {what}, not {brief(value)}")
    plain = not kind.unit and kind.type is not float
    like = f"'{min(8, kind.limits.most):g}'" if plain else ""
    text = value if at.bare else str(value)
    number = parse(text, kind.unit, at.where, like)
    if number % 1 and kind.type is not float:  # in the words that were given
        raise BadInput(f"{at.where} must be {what}, not {brief(value)}")
    return number if kind.type is float else int(number)


def to_dict(
    instance: Any, defaults: bool = False, units: bool = False
) -> dict[str, Any]:
    """The plain data that `read` turns into an equal instance: numbers in SI units; None is no
    field, or "none" where a field that is not there means another value.

    defaults: also write fields that have their default value;  units: bandwidths, sizes and times
    as texts with their unit, as a file has them. Raises BadInput for what a file
    cannot hold (arrays).
    """
    cls = type(instance)
    if "name" in fields_of(cls) and not required_fields(cls):
        defaults = True  # else a table with only a name would mean the thing of that name
    data = {}
    for name, field in fields_of(cls).items():
        value = getattr(instance, name)
        if value is not None and field.kind.injected:
            raise BadInput(
                f"{name} holds an object, which a file cannot hold: give an assumption set that"
                " has a name"
            )
        if value is None:
            if field.default is not None:
                data[name] = "none"  # what is not there means another value
            continue
        plain = _plain(value, name, field.kind if units else None)
        if defaults or value != field.default:
            data[name] = plain
    return data


def _plain(value: Any, where: str, kind: FieldKind | None) -> Any:
    """A value as a file has it. kind: of the field, where numbers are written with their unit."""
    units = kind is not None
    if dataclasses.is_dataclass(value):
        if written := to_dict(value, units=units):
            return written
        # an empty table would not be written; all of one would say what its option has no use of
        whole = to_dict(value, defaults=True, units=units)
        return dict([*whole.items()][:1])
    entry = kind.parts[-1] if kind and kind.parts else kind
    if isinstance(value, Mapping):
        return {k: _plain(v, where, entry) for k, v in value.items()}
    if isinstance(value, tuple):  # of measurements, without units
        entry = entry and replace(entry, unit="")
        return [_plain(v, where, entry) for v in value]
    if isinstance(value, (str, bool)):
        return value
    # NumPy's too: one row of a table of layouts
    if isinstance(value, (numbers.Integral, float)):
        if kind and value and kind.unit in MEANT:
            return f"{float(value)!r} {kind.unit}"
        return float(value) if isinstance(value, float) else int(value)
    raise BadInput(
        f"{where} holds {article(type(value).__name__)}, which cannot be written as one value"
    )
