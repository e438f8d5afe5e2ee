"""What the descriptions share: the marker that says in which unit a field is kept, and the check of
their texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
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
    """

    def __init__(self, option: str, *values: object) -> None:
        self.option, self.values = option, values


Object = Annotated[Any, Injected]
Length = Annotated[int, Unit(LENGTH)]
"""Whole tokens of a sequence: "8k" are 8,192."""


class Checked:
    """A description that cannot be made with a text that `ranges.CHOICES` does not list, wherever
    it comes from.
    """

    def __post_init__(self) -> None:
        from .ranges import demand_choices  # it knows the descriptions

        demand_choices(self)
        cls: Any = type(self)
        for name, default, only in belonging(cls):
            if getattr(self, only.option) not in (*only.values, ASK):
                object.__setattr__(self, name, default)


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
        (f.name, f.default, mark)
        for f, mark in marks
        if isinstance(mark, With)
    )


def demand_meaning(instance: Any, given: Iterable[str], where: str) -> None:
    """Raise BadInput if one of the fields that were given is none of the options' that were
    chosen.
    """
    cls: Any = type(instance)
    for name, _, only in belonging(cls):
        option = getattr(instance, only.option)
        if name in given and option not in (*only.values, ASK):
            have = ", ".join(str(value) for value in only.values)
            raise BadInput(
                f"{where}.{name} means nothing where {only.option} is {option}: leave it out, or"
                f" take {only.option} {have}"
            )
