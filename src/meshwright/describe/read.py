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
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from ..errors import BadInput, article, unknown
from ..units import MEANT, parse
from .fields import Injected, Unit, With, demand_meaning, left_out
from .frozen import FrozenDict
from .ranges import required
from .values import brief as brief
from .values import choice, flag, real, whole

T = TypeVar("T")
Known = Callable[[type, str], Any]
"""(class, name) -> the instance of that name; BadInput if there is none, None if things of that
class have no names.
"""

ORIGIN = ("source", "date", "note")
"""What may stand beside a number, or beside a whole table, to say where it comes from."""
LONGEST_TEXT = 500
UNIONS = (types.UnionType, typing.Union)
"""Of which only "X | None" occurs."""


@dataclass(frozen=True)
class At:
    """Where the reader is: for error messages, ranges and sources."""

    where: str
    """Path as the user knows it, such as cluster.network.dims[0].bandwidth."""
    field: str = ""
    """Class and field, such as Dim.bandwidth."""
    path: str = ""
    """Path from the dataclass that keeps the sources."""
    sources: dict[str, Any] | None = None
    known: Known | None = None
    bare: bool = True
    """Numbers without a unit are in SI units; False: they are refused where `units.MEANT` has
    several."""

    def into(self, step: str, field: str = "") -> At:
        """One step down: a field, a key or an [index]."""
        dot = "" if step.startswith("[") else "."
        path = self.path + dot + step if self.path else step
        return dataclasses.replace(
            self,
            where=self.where + dot + step,
            path=path,
            field=field or self.field,
        )


def read(
    cls: type[T],
    data: object,
    where: str = "",
    known: Known | None = None,
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
    whole = set(data).issuperset(required(type(instance)) or [""])
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
        and (found := at.known(cls, _text(data, at))) is not None
    ):
        return typing.cast(T, found)
    if not isinstance(data, Mapping):
        raise BadInput(
            f"{at.where} must be a table of fields, not {brief(data)}"
        )
    hints = _hints(typing.cast(Any, cls))
    sources: dict[str, Any] | None = None
    data = _overlaid(cls, dict(data), at)
    if "sources" in hints:
        sources = _origins(data, at)
        at = dataclasses.replace(at, sources=sources, path="")
    for key in data:
        if key not in hints:
            raise unknown(
                f"{at.where}: field",
                key if isinstance(key, str) else brief(key),
                hints,
            )
    if missing := [name for name in required(cls) if name not in data]:
        raise BadInput(f"{at.where} needs {', '.join(missing)}")
    values = {
        k: _value(hints[k], v, at.into(k, f"{cls.__name__}.{k}"))
        for k, v in data.items()
    }
    if sources is not None:
        values["sources"] = FrozenDict(sources)
    for name in left_out(
        cls, values
    ):  # whoever gave it is told by `_demand_meaning`
        del values[name]
    try:
        return cls(**values)
    except BadInput as error:  # of fields that are wrong together
        text, own = str(error), cls.__name__.lower()
        if text.startswith((f"{own}.", f"{own}:")):
            text = at.where + text.removeprefix(own)
        raise BadInput(text) from None


def _overlaid(cls: type, data: dict[str, Any], at: At) -> dict[str, Any]:
    """The data over the named thing it changes, if it does not define a whole one."""
    complete = required(cls) or [f.name for f in dataclasses.fields(cls)]
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
    whole = changed(base, data)
    if "name" not in _hints(cls):
        del whole["name"]  # it said which one, and is none of the fields
    return whole


def changed(base: Any, data: Mapping[str, Any]) -> dict[str, Any]:
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
    return merged(whole, data)


def merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, table by table; { value = ... } is one value."""
    result = dict(base)
    for key, value in over.items():
        both = (
            isinstance(value, Mapping)
            and "value" not in value
            and isinstance(base.get(key), Mapping)
        )
        result[key] = merged(base[key], value) if both else value
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


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """field -> type, in the order of definition."""
    return typing.get_type_hints(cls, include_extras=True)


def _value(kind: Any, value: object, at: At) -> Any:
    """One field of type `kind`."""
    origin = typing.get_origin(kind)
    args = typing.get_args(kind)
    if origin in UNIONS:
        return (
            None
            if value is None or value == "none"
            else _value(args[0], value, at)
        )
    if origin is Annotated and isinstance(args[1], With):
        return _value(args[0], value, at)
    if dataclasses.is_dataclass(kind):
        return _instance(typing.cast(type, kind), value, at)
    if Injected in args:
        raise BadInput(
            f"{at.where} takes an object, which only Python can give"
        )
    if isinstance(kind, type) and issubclass(kind, FrozenDict):
        return _checked(kind, value, at)
    if origin is tuple:
        return _items(args[0], value, at)
    if origin is not None and origin is not Annotated:  # Mapping[str, X]
        return _mapping(args[1], value, at)
    if isinstance(value, Mapping):
        value = _with_origin(value, at)
    if kind is str:
        return choice(_text(value, at), at.field, at.where)
    if kind is bool:
        return _flag(value, at)
    unit = args[1] if args else Unit("")
    if kind is float or args[:1] == (float,):
        return real(_number(value, unit, at), at.field, at.where)
    # int, a length, and Num (a degree)
    return whole(_number(value, unit, at), at.field, at.where, value)


def _items(kind: Any, value: object, at: At) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{at.where} must be a list, not {brief(value)}")
    if len(value) > 1000:
        raise BadInput(
            f"{at.where} must have at most 1000 entries, not {len(value)}"
        )
    if not dataclasses.is_dataclass(kind):
        # measurements, which nobody types
        at = dataclasses.replace(at, bare=True)
    return tuple(
        _value(kind, v, at.into(f"[{i}]")) for i, v in enumerate(value)
    )


def _mapping(kind: Any, value: object, at: At) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{at.where} must be a table, not {brief(value)}")
    keys = [choice(_text(key, at), at.field, at.where) for key in value]
    return FrozenDict(
        {
            k: _value(kind, v, at.into(k))
            for k, v in zip(keys, value.values(), strict=True)
        }
    )


def _checked(
    kind: type[FrozenDict[str, Any]], value: object, at: At
) -> object:
    """A mapping that checks itself."""
    if not isinstance(value, Mapping):
        raise BadInput(f"{at.where} must be a table, not {brief(value)}")
    try:
        return kind({_text(key, at): v for key, v in value.items()})
    except BadInput as error:
        raise BadInput(f"{at.where}: {error}") from None


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


def _flag(value: object, at: At) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return flag(value, at.where)


def _number(value: object, unit: Unit, at: At) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadInput(f"{at.where} must be a number, not {brief(value)}")
    return parse(value if at.bare else str(value), unit.unit, at.where)


def to_dict(
    instance: Any, defaults: bool = False, units: bool = False
) -> dict[str, Any]:
    """The plain data that `read` turns into an equal instance: numbers in SI units, no None.

    defaults: also write fields that have their default value;  units: bandwidths, sizes and times
    as texts with their unit, as a file has them. Raises BadInput for what a file
    cannot hold (arrays).
    """
    fields = dataclasses.fields(instance)
    if any(f.name == "name" for f in fields) and not required(type(instance)):
        defaults = True  # else a table with only a name would mean the thing of that name
    data = {}
    for f in fields:
        value = getattr(instance, f.name)
        default = (
            f.default
            if f.default_factory is dataclasses.MISSING
            else f.default_factory()
        )
        kind = _hints(typing.cast(Any, type(instance)))[f.name]
        if value is not None and Injected in typing.get_args(kind):
            raise BadInput(
                f"{f.name} holds an object, which a file cannot hold: give an assumption set that"
                " has a name"
            )
        plain = None if value is None else _plain(value, f.name, kind, units)
        if plain is not None and (defaults or value != default):
            data[f.name] = plain
    return data


def _plain(value: Any, where: str, kind: Any, units: bool) -> Any:
    if dataclasses.is_dataclass(value):
        # an empty table would not be written
        return to_dict(value, units=units) or to_dict(
            value, defaults=True, units=units
        )
    if isinstance(value, Mapping):
        inner = typing.get_args(kind)[1:] or (Any,)
        return {k: _plain(v, where, inner[0], units) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v, where, Any, units) for v in value]
    if isinstance(value, (str, bool)):
        return value
    # NumPy's too: one row of a table of layouts
    if isinstance(value, (numbers.Integral, float)):
        if units and value and (unit := _unit_of(kind)) in MEANT:
            return f"{float(value)!r} {unit}"
        return float(value) if isinstance(value, float) else int(value)
    raise BadInput(
        f"{where} holds {article(type(value).__name__)}, which cannot be written as one value"
    )


def _unit_of(kind: Any) -> str:
    """The unit that the type of a field says, of "X | None" too; empty if none."""
    marks = typing.get_args(kind)
    if typing.get_origin(kind) in UNIONS:
        return _unit_of(marks[0])
    return next((m.unit for m in marks if isinstance(m, Unit)), "")
