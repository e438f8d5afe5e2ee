"""What the descriptions share: the marker that says in which unit a field is kept, and the check of their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..units import LENGTH

ASK = "framework"
"""In place of a value: a set of assumptions leaves it to the framework (`describe.framework`)."""


@dataclass(frozen=True)
class Unit:
    """`Annotated[float, Unit("B/s")]`: an SI float; text given for it is read by `units.parse`."""

    unit: str


class Injected:
    """Marks a field that takes an object of a room after this one, for what no option says; no file can hold it."""


Object = Annotated[Any, Injected]
Length = Annotated[int, Unit(LENGTH)]
"""Whole tokens of a sequence: "8k" are 8,192."""


class Checked:
    """A description that cannot be made with a text that `ranges.CHOICES` does not list, wherever it comes from."""

    def __post_init__(self) -> None:
        from .ranges import demand_choices  # it knows the descriptions

        demand_choices(self)
