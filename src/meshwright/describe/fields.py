"""What the descriptions share: the marker that says in which unit a field is kept, and the check of
their texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, reduce
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from ..errors import BadInput
from ..units import LENGTH

ASK = "framework"
"""In place of a value: a set of assumptions leaves it to the framework (`describe.framework`)."""


@dataclass(frozen=True)
class Unit:
    """`Annotated[float, Unit("B/s")]`: an SI float; text given for it is read by `units.parse`."""

    unit: str


class Injected:
    """Marks a field that takes an object of a room after this one, for what no option says; no file
    can hold it.
    """


class With:
    """`Annotated[float, With("collective", "book")]`: a field that only these options have; beside
    others it is its default.

    `With("scope", but=(ASK,))`: all options but these have it.  An option of another joint has dots
    ("chip.model"), and is looked for in what the description is a part of.
    """

    def __init__(
        self, option: str, *values: object, but: tuple[object, ...] = ()
    ) -> None:
        self.option, self.values, self.but = option, values, but

    def chosen(self, among: Iterable[Any]) -> Any:
        """The option in the first of these descriptions that has it; `MISSING` if none does."""
        first = self.option.partition(".")[0]
        for thing in among:
            if hasattr(thing, first):
                return reduce(getattr, self.option.split("."), thing)
        return MISSING

    def allows(self, option: object) -> bool:
        """The field means something beside this option."""
        return option is MISSING or (
            option not in self.but
            and (not self.values or option in self.values)
        )

    def sentence(self, option: object) -> str:
        """Why the field means nothing beside this option, and what to do."""
        if option == ASK:
            return (
                f"is the framework's to say where {self.option} is left to it: name another"
                f" framework or a setting of [software], or say {self.option} too"
            )
        have = ", ".join(str(value) for value in self.values)
        other = f"{self.option} {have}" if have else f"another {self.option}"
        return f"means nothing where {self.option} is {option}: leave it out, or take {other}"


Object = Annotated[Any, Injected]
Length = Annotated[int, Unit(LENGTH)]
"""Whole tokens of a sequence: "8k" are 8,192."""


class Checked:
    """A description that cannot be made with a value that its fields do not have, wherever it comes
    from (`describe.values`).
    """

    def __post_init__(self) -> None:
        from .values import demand_values  # it knows the descriptions

        demand_values(self)
        cls: Any = type(self)
        for name, default, only in belonging(cls):
            if getattr(self, name) == default:
                continue
            if not only.allows(option := only.chosen([self])):
                where = f"{cls.__name__.lower()}.{name}"
                raise BadInput(f"{where} {only.sentence(option)}")


@cache
def usual(cls: Any) -> dict[str, Any]:
    """field -> its default; `MISSING` of one that must be given."""
    return {
        f.name: f.default
        if f.default_factory is MISSING
        else f.default_factory()
        for f in fields(cls)
    }


@cache
def belonging(cls: Any) -> tuple[tuple[str, Any, With], ...]:
    """(name, default, options that have it) of the fields of a class that not all of its options
    have.
    """
    hints = get_type_hints(cls, include_extras=True)
    every = fields(cls)
    marks = (
        (f, mark)
        for f in every
        for mark in getattr(hints[f.name], "__metadata__", ())
    )
    return tuple(
        (f.name, usual(cls)[f.name], mark)
        for f, mark in marks
        if isinstance(mark, With)
    )


def left_out(cls: Any, values: Mapping[str, Any]) -> list[str]:
    """Fields among these values that the options among them do not have."""
    options = SimpleNamespace(**{**usual(cls), **values})
    return [
        name
        for name, _, only in belonging(cls)
        if name in values and not only.allows(only.chosen([options]))
    ]


def demand_meaning(
    instance: Any, given: Iterable[str], where: str, above: tuple[Any, ...]
) -> None:
    """Raise BadInput if one of the fields that were given is none of the options' that were
    chosen. above: what the instance is a part of, the innermost first.
    """
    cls: Any = type(instance)
    for name, _, only in belonging(cls):
        option = only.chosen((instance, *above))
        if name in given and not only.allows(option):
            raise BadInput(f"{where}.{name} {only.sentence(option)}")
