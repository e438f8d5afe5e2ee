"""A named number that is the sum of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ..describe.frozen import short_repr
from .expression import lazy_expression, times
from .recorded import Traced, contributions

Told: TypeAlias = "str | tuple[Any, ...]"
"""A text, or the function that writes it and the numbers to put in."""


class Written:
    """What is written when it is first read: a tree has hundreds of texts, of which few are."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __set_name__(self, _: type[Term], name: str) -> None:
        self.name = name

    def __get__(self, term: Term | None, _: type[Term]) -> Any:
        if term is None:
            return self.default  # of the field
        mine = term.__dict__
        write, *numbers = mine[UNWRITTEN + self.name]
        mine[self.name] = write(*numbers)  # from now on found before this
        return mine[self.name]


UNWRITTEN = "_"
"""Before the name of a field: the function that writes it, and what from."""


@dataclass(frozen=True, init=False)
class Term:
    """A named number that is the sum of its parts (if it has any).

    >>> from meshwright import Job, Term, predict
    >>> term = predict(Job("llama3-8b", "64xh100-sxm", batch=512), zero=3).term
    >>> isinstance(term, Term), term.parts[0].name
    (True, 'compute')
    """

    name: str
    value: float
    unit: str
    formula: Written = Written("")
    """How it was computed, with the numbers put in."""
    source: Written = Written("")
    parts: tuple[Term, ...] = ()
    expression: Written = Written(None)
    """Of a term without parts, what evaluates to its value (`Expression`)."""

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        formula: Told = "",
        source: Told = "",
        parts: tuple[Term, ...] = (),
        expression: tuple[Any, ...] | None = None,
    ) -> None:
        """expression: the function that records its value, and what of."""
        # not field by field as if it were not frozen: a tree has hundreds
        mine = self.__dict__
        mine["name"] = name
        mine["value"] = value
        mine["unit"] = unit
        mine["formula" if isinstance(formula, str) else "_formula"] = formula
        mine["source" if isinstance(source, str) else "_source"] = source
        mine["parts"] = parts
        if expression:
            mine["_expression"] = lazy_expression, *expression
        else:
            mine["expression"] = None

    __repr__ = short_repr

    def __getstate__(self) -> dict[str, Any]:
        """With the text of the formula, not what writes it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def find(self, path: str) -> Term | None:
        """The term at a path such as "compute/ffn/up", below this one."""
        for part in self.parts:
            if path == part.name:
                return part
            if path.startswith(part.name + "/") and (
                match := part.find(path[len(part.name) + 1 :])
            ):
                return match
        return None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Term]]:
        """This term and all below it, with their depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


TIMES = "{:.6g} x {:.6g}".format


def parts_of(
    value: float, x: Traced, unit: str, rest: str, source: str = ""
) -> tuple[Term, ...]:
    """The items of a recorded number as terms that add up to `value`, which it is but for rounding;
    rest: the name of what is left over.
    """
    shares, left = contributions(x)
    parts = [
        Term(
            name,
            float(n) * float(each),
            unit,
            formula=(TIMES, float(n), float(each)),
            source=source,
            expression=(times, n, each),
        )
        for name, (n, each) in shares.items()
    ]
    if left is not None or (value and not parts):
        over = value - sum(part.value for part in parts)
        left = x if left is None else left
        parts.append(
            Term(
                rest,
                over,
                unit,
                formula="",
                source=source,
                expression=(lambda: left,),
            )
        )
    return tuple(parts)
