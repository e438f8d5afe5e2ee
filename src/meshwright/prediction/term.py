"""A named number that is the sum of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ..describe.frozen import shown
from ..num import Itemised, Num

Told: TypeAlias = "str | tuple[Any, ...]"
"""A text, or the function that writes it and the numbers to put in."""


class Written:
    """A text that is written when it is first read: a tree has a hundred, of which few are."""

    def __get__(self, term: Term | None, _: type[Term]) -> str:
        if term is None:
            return ""  # the default of the field
        mine = term.__dict__
        write, *numbers = mine[TOLD]
        text: str = write(*numbers)
        mine["formula"] = text  # from now on found before this
        return text


TOLD = "_told"


@dataclass(frozen=True, init=False)
class Term:
    """A named number that is the sum of its parts (if it has any)."""

    name: str
    value: float
    unit: str
    formula: Written = Written()
    """How it was computed, with the numbers put in."""
    source: str = ""
    parts: tuple[Term, ...] = ()

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        formula: Told = "",
        source: str = "",
        parts: tuple[Term, ...] = (),
    ) -> None:
        # not field by field as if it were not frozen: a tree has hundreds
        mine = self.__dict__
        mine["name"] = name
        mine["value"] = value
        mine["unit"] = unit
        mine["formula" if isinstance(formula, str) else TOLD] = formula
        mine["source"] = source
        mine["parts"] = parts

    __repr__ = shown

    def __getstate__(self) -> dict[str, Any]:
        """With the text of the formula, not what writes it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def find(self, path: str) -> Term | None:
        """The term at a path such as "compute/ffn/up", below this one."""
        for part in self.parts:
            if path == part.name:
                return part
            if path.startswith(part.name + "/") and (
                found := part.find(path[len(part.name) + 1 :])
            ):
                return found
        return None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Term]]:
        """This term and all below it, with their depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


TIMES = "{:.6g} x {:.6g}".format


def parts_of(
    value: float, x: Num, unit: str, rest: str, source: str = ""
) -> tuple[Term, ...]:
    """The items of x as terms that add up to `value`, which is x but for rounding; rest: the name
    of what is left over.
    """
    found = x.items if isinstance(x, Itemised) else {}
    parts = [
        Term(name, n * each, unit, (TIMES, n, each), source)
        for name, (n, each) in found.items()
        if name
    ]
    if "" in found or (value and not parts):
        parts.append(
            Term(
                rest,
                value - sum(part.value for part in parts),
                unit,
                "",
                source,
            )
        )
    return tuple(parts)
