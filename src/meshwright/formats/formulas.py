"""Formulas in texts: numbers, names, comparisons and calls of functions that stand among the names.

    worked_out("4 * hidden if wide else 0", {"hidden": 8, "wide": True}) -> 32

Python works them out, but only what is made of `PARTS`: there are no attributes, no indices, no
powers and no loops, and dots are part of a name (`layout.tp`), so that a formula ends, and reaches
nothing but its names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import CodeType
from typing import Any, Protocol


class NamedValues(Protocol):
    """What the names in a formula stand for; KeyError for one that is none."""

    def __getitem__(self, name: str, /) -> Any: ...


Formula = Callable[[NamedValues], Any]
PARTS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Tuple),
    *(ast.UnaryOp, ast.Not, ast.USub, ast.BoolOp, ast.boolop, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Compare, ast.cmpop, ast.Call, ast.keyword),
)
"""What a formula may be made of."""
BRACES = re.compile(r"\{([^{}]+)\}")


class FieldNames(dict[str, Any]):
    """Names beside those of fields: a dotted name that is none of them is a path from a thing, None
    behind a field that is None.
    """

    def __init__(self, thing: Any, names: Mapping[str, Any]) -> None:
        super().__init__(names)
        self.thing = thing

    def __missing__(self, path: str) -> Any:
        value = self.thing
        for field in path.split("."):
            value = None if value is None else getattr(value, field)
        return value


class Paths(ast.NodeTransformer):
    """Makes one name of a name with dots."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        """a.b as a name.  Raises ValueError behind anything but a name."""
        path = ast.unparse(node)
        if not all(part.isidentifier() for part in path.split(".")):
            raise ValueError(f"no name of a formula: {path[:80]}")
        return ast.copy_location(ast.Name(path, ast.Load()), node)


def worked_out(text: str, names: NamedValues) -> Any:
    """The value of a formula.  Raises ValueError for a text that is none or that has other names,
    and what its functions and operators raise.
    """
    return value_of(formula(text), names)


def value_of(code: CodeType, names: Any) -> Any:
    """The value of a formula that is compiled."""
    try:
        return eval(code, {"__builtins__": {}}, names)
    except NameError as error:
        raise ValueError(f"no name of a formula: {error.name}") from None


@cache
def formula(text: str) -> CodeType:
    """A text compiled once, since one is asked for each layer of a model."""
    try:
        tree = Paths().visit(ast.parse(text.strip(), mode="eval"))
        for part in ast.walk(tree):
            called = getattr(part, "func", None)
            named = called is None or isinstance(called, ast.Name)
            if not (named and isinstance(part, PARTS)):
                raise ValueError(f"no part of a formula: {text[:80]}")
        return compile(tree, "<formula>", "eval")
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"no formula: {text[:80]}") from None


@cache
def names_in(text: str) -> frozenset[str]:
    """The names in a formula, without dotted ones."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name))


@cache
def calls(text: str, among: tuple[str, ...]) -> tuple[Formula, ...]:
    """The calls of these functions in a formula, also those that its conditions may pass over."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    return tuple(
        partial(value_of, formula(ast.unparse(node)))
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in among
    )


def filled_in(text: str, names: NamedValues) -> str:
    """A sentence with the values of the formulas that stand in its braces."""
    return BRACES.sub(lambda m: str(worked_out(m[1], names)), text)
