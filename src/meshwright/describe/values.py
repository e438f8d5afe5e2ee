"""Whether a value may stand in a field: its type, range and choices, in one place for Python and
for files.
"""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from ..errors import BadInput, article, unknown
from .frozen import FrozenDict
from .ranges import CHOICES, RANGES, REAL, WHOLE, check


def demand_values(instance: Any) -> None:
    """Raise BadInput for a field whose value no such field can have; whole numbers become int,
    lists tuples. Columns of a table (arrays) pass, and objects that no file can hold.
    """
    cls: Any = type(instance)
    for name, kind, usual, field, where in _doors(cls):
        value = getattr(instance, name)
        if value is usual:
            continue
        kept = _kept(kind, value, field, where)
        if kind is Any and type(value) is int:
            within(
                value, WHOLE, field, where
            )  # a degree, which may be a fraction
        if kept is not value:
            object.__setattr__(instance, name, kept)
    check(instance, cls.__name__.lower())


@cache
def _doors(cls: Any) -> tuple[tuple[str, Any, Any, str, str], ...]:
    """(name, type, default, class and name, name in sentences) of the fields of a class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for f in dataclasses.fields(cls):
        # ranges and choices are those of the class that has the field, or of one that narrows it
        names = [
            f"{base.__name__}.{f.name}"
            for base in cls.__mro__
            if f.name in getattr(base, "__dataclass_fields__", ())
        ]
        field = next(
            (n for n in names if n in CHOICES or n in RANGES), names[0]
        )
        where = f"{cls.__name__.lower()}.{f.name}"
        found.append((f.name, hints[f.name], f.default, field, where))
    return tuple(found)


def _kept(kind: Any, value: Any, field: str, where: str) -> Any:
    """A value as a field of that type keeps it."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if getattr(value, "shape", ()):
        return value
    if kind is Any:
        return value
    if origin is Annotated:
        return _kept(args[0], value, field, where)
    if origin in (types.UnionType, typing.Union):  # only "X | None" occurs
        return value if value is None else _kept(args[0], value, field, where)
    if kind is str:
        return choice(value, field, where)
    if kind is bool:
        return flag(value, where)
    if kind is int:
        return whole(value, field, where)
    if kind is float:
        return real(value, field, where)
    if origin is tuple:
        return _items(args[0], value, field, where)
    if isinstance(origin or kind, type) and issubclass(
        origin or kind, Mapping
    ):
        return _table(args, value, field, where)
    if isinstance(kind, type) and not isinstance(value, kind):
        raise BadInput(
            f"{where} must be {article(kind.__name__)}, not {brief(value)}"
        )
    return value


def _items(kind: Any, value: Any, field: str, where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{where} must be a list, not {brief(value)}")
    kept = [
        _kept(kind, item, field, f"{where}[{i}]")
        for i, item in enumerate(value)
    ]
    same = all(a is b for a, b in zip(kept, value, strict=True))
    return value if same and isinstance(value, tuple) else tuple(kept)


def _table(args: Any, value: Any, field: str, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} must be a table, not {brief(value)}")
    if not args:  # a mapping that checks itself
        return value
    kept = {
        choice(key, field, where): _kept(
            args[1], item, field, f"{where}.{key}"
        )
        for key, item in value.items()
    }
    same = all(item is value[key] for key, item in kept.items())
    return value if same else FrozenDict(kept)


def choice(value: object, field: str, where: str) -> str:
    """A text, of those that its field lists."""
    known = demand_text(value, where)
    if field in CHOICES and known not in CHOICES[field]:
        raise unknown(where, known, CHOICES[field])
    return known


def demand_text(value: object, where: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise BadInput(f"{where} must be a text, not {brief(value)}")
    return value


def flag(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise BadInput(f"{where} must be true or false, not {brief(value)}")
    return value


def whole(
    value: object, field: str, where: str, written: object = None
) -> int:
    """A whole number in its field's range, as an int; written: as what it stands in a file."""
    number = _number(value, where)
    if number % 1:  # of what is no number or infinite, too
        said = brief(value if written is None else written)
        raise BadInput(f"{where} must be a whole number, not {said}")
    return int(within(number, WHOLE, field, where))


def real(value: object, field: str, where: str) -> float:
    """A number in its field's range, as it is."""
    return within(_number(value, where), REAL, field, where)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise BadInput(f"{where} must be a number, not {brief(value)}")
    if isinstance(value, (int, float)):
        return float(value) if hasattr(value, "dtype") else value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def within(
    number: float, default: tuple[float, float], field: str, where: str
) -> float:
    """A number between the least and the most of its field."""
    least, most = RANGES.get(field, default)
    if least <= number <= most:
        return number
    shown = f"{number:g}" if isinstance(number, float) else brief(number)
    if number < least and default == REAL and least == REAL[0]:
        raise BadInput(f"{where} must be more than 0, not {shown}")
    raise BadInput(
        f"{where} must be between {least:g} and {most:g}, not {shown}"
    )


def brief(value: object) -> str:
    """The value for an error message, never long and never a traceback."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None:
        return "nothing"
    if isinstance(value, int) and not isinstance(value, bool):
        return (
            str(value)
            if abs(value) < 10**40
            else "a number of more than 40 digits"
        )
    if isinstance(value, (bool, float)):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    return (
        "a list"
        if isinstance(value, (list, tuple))
        else article(type(value).__name__)
    )
