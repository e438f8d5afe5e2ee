"""A named number that is the sum of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..describe.frozen import shown
from ..num import Itemised, Num


@dataclass(frozen=True, init=False)
class Term:
    """A named number that is the sum of its parts (if it has any)."""

    name: str
    value: float
    unit: str
    formula: str = ""
    """How it was computed, with the numbers put in."""
    source: str = ""
    parts: tuple[Term, ...] = ()

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        formula: str = "",
        source: str = "",
        parts: tuple[Term, ...] = (),
    ) -> None:
        # not field by field as if it were not frozen: a tree has hundreds
        mine = self.__dict__
        mine["name"] = name
        mine["value"] = value
        mine["unit"] = unit
        mine["formula"] = formula
        mine["source"] = source
        mine["parts"] = parts

    __repr__ = shown

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


def parts_of(
    value: float, x: Num, unit: str, rest: str, source: str = ""
) -> tuple[Term, ...]:
    """The items of x as terms that add up to `value`, which is x but for rounding; rest: the name
    of what is left over.
    """
    found = x.items if isinstance(x, Itemised) else {}
    parts = [
        Term(name, n * each, unit, f"{n:.6g} x {each:.6g}", source)
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
