"""The marker that says in which unit a field is kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """`Annotated[float, Unit("B/s")]`: an SI float; text given for it is read by `units.parse`."""

    unit: str
