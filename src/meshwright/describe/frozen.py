"""What all descriptions and results share: mappings that never change, and a few lines to print.

So they hash, compare, pickle, copy and go through `dataclasses.asdict` as numbers do.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, TypeVar

from .fields import fields_of, left_out
from .frozendict import FrozenDict as FrozenDict

T = TypeVar("T")
COLUMNS = 100
LINES = 5
"""Of a printed description."""
ENTRIES = 8
"""Of a list or table in it."""


def hashed_once(cls: type[T]) -> type[T]:
    """A frozen dataclass whose instances compute their hash once. It is not pickled: the hashes of
    texts are others in another process.
    """
    every: Callable[[T], int] = cls.__hash__

    def __hash__(self: T) -> int:
        mine = self.__dict__
        if HASH not in mine:
            mine[HASH] = every(self)
        known: int = mine[HASH]
        return known

    def __getstate__(self: T) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != HASH}

    cached: Any = cls
    cached.__hash__ = __hash__
    cached.__getstate__ = __getstate__
    return cls


HASH = "_hash"


def with_values(instance: T, **fields: Any) -> T:
    """A copy of a frozen dataclass with other values, which need no check: they are made of others
    that had one. Nothing that was computed from its fields goes along.
    """
    cls: Any = type(instance)
    other: T = object.__new__(cls)
    mine = instance.__dict__
    other.__dict__.update(
        {name: mine[name] for name in cls.__dataclass_fields__} | fields
    )
    return other


def what_if(thing: T, **fields: Any) -> T:
    """A copy with other values, which are not checked: a what-if may leave the range of a
    description (endless memory). What options lose by them is as usual."""
    cls: Any = type(thing)
    lost = left_out(cls, {**vars(thing), **fields})
    plain = {
        name: fields_of(cls)[name].default
        for name in lost
        if name not in fields
    }
    return with_values(thing, **plain, **fields)


def with_path(thing: T, path: str, change: Callable[[Any], Any]) -> T:
    """A copy with the field at a dotted path changed: of a tuple on the way in all its members;
    what is not there (None) stays away (`what_if`).
    """
    name, _, rest = path.partition(".")
    old: Any = getattr(thing, name)

    def inside(member: Any) -> Any:
        return member and with_path(member, rest, change)

    if not rest:
        new = change(old)
    elif isinstance(old, tuple):
        new = tuple(map(inside, old))
    else:
        new = inside(old)
    if type(new) is dict:
        new = FrozenDict(new)
    return what_if(thing, **{name: new})


def put(path: str, value: Any) -> Callable[[T], T]:
    """What gives a thing another value at a dotted path (`with_path`)."""
    return lambda thing: with_path(thing, path, lambda _: value)


def scaling(path: str, factor: float) -> Callable[[T], T]:
    """What multiplies the number at a path, or all numbers of a table there."""

    def times(known: Any) -> Any:
        if isinstance(known, Mapping):
            return {name: times(each) for name, each in known.items()}
        return known * factor

    return lambda thing: with_path(thing, path, times)


def short_repr(instance: Any) -> str:
    """A dataclass in at most five lines: the fields that differ from their defaults, things that
    have a name by it.
    """
    words = ", ".join(
        f"{name}={_brief(value)}" for name, value in _changed(instance)
    )
    lines = textwrap.wrap(
        f"{type(instance).__name__}({words})",
        COLUMNS,
        subsequent_indent="    ",
        max_lines=LINES,
        placeholder=" ...)",
        break_long_words=True,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def one_line(instance: Any) -> str:
    """An instance in one line."""
    return textwrap.shorten(repr(instance), COLUMNS, placeholder=" ...)")


def _changed(instance: Any) -> list[tuple[str, Any]]:
    """(field, value) of those that say something."""
    return [
        (f.name, value)
        for f in dataclasses.fields(instance)
        for value in [getattr(instance, f.name)]
        if f.repr and (_is_array(value) or value != _default(f))
    ]


def _default(f: dataclasses.Field[Any]) -> Any:
    made = f.default_factory
    return f.default if made is dataclasses.MISSING else made()


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "shape", ()))


def _brief(value: Any) -> str:
    """One value."""
    if _is_array(value):
        return f"<{value.size} values>"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "name", "")
        return repr(name) if name else " ".join(short_repr(value).split())
    if isinstance(value, Mapping):
        return (
            "{"
            + _entries(
                value.items(), lambda item: f"{item[0]}: {_brief(item[1])}"
            )
            + "}"
        )
    if isinstance(value, (tuple, list)):
        return "(" + _entries(value, _brief) + ")"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _entries(values: Collection[Any], write: Callable[[Any], str]) -> str:
    """The first few, and how many there are."""
    words = [write(value) for value in islice(values, ENTRIES)]
    return ", ".join(
        [
            *words,
            *([f"... {len(values)} in all"] if len(values) > ENTRIES else []),
        ]
    )
