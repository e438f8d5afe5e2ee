"""Formulas in texts: numbers, names, comparisons and calls of functions that stand among the names.

    worked_out("4 * hidden if wide else 0", {"hidden": 8, "wide": True}) -> 32

What a text may hold is in `BINARY` and `COMPARED`; there are no powers and no loops, and dots are
part of a name (`layout.tp`), so that a formula ends, and reaches nothing but its names.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Protocol


class NamedValues(Protocol):
    """What the names in a formula stand for; KeyError for one that is none."""

    def __getitem__(self, name: str, /) -> Any: ...


Formula = Callable[[NamedValues], Any]


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


BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
BRACES = re.compile(r"\{([^{}]+)\}")
UNARY: dict[type, Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}


def worked_out(text: str, names: NamedValues) -> Any:
    """The value of a formula.  Raises ValueError for a text that is none, and what its functions
    and operators raise.
    """
    return formula(text)(names)


@cache
def formula(text: str) -> Formula:
    """What works a text out: closures, since one is asked for each layer of a model."""
    try:
        return _part(ast.parse(text, mode="eval").body)
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
        _part(node)
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in among
    )


def filled_in(text: str, names: NamedValues) -> str:
    """A sentence with the values of the formulas that stand in its braces."""
    return BRACES.sub(lambda m: str(worked_out(m[1], names)), text)


def _part(node: ast.expr) -> Formula:
    match node:
        case ast.Constant(value=value):
            return lambda names: value
        case ast.Name(id=name):
            return lambda names: names[name]
        case ast.Attribute():
            path = ast.unparse(node)
            if not all(part.isidentifier() for part in path.split(".")):
                raise ValueError(f"no name of a formula: {path[:80]}")
            return partial(_dotted, path)
        case ast.Tuple(elts=parts):
            inner = [_part(part) for part in parts]
            return lambda names: tuple(part(names) for part in inner)
        case ast.UnaryOp(op=op, operand=one) if type(op) in UNARY:
            unary, operand = UNARY[type(op)], _part(one)
            return lambda names: unary(operand(names))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in BINARY:
            return _pair(BINARY[type(op)], a, b)
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            return _pair(COMPARED[type(op)], a, b)
        case ast.BoolOp(op=op, values=[first, *rest]):
            last = ast.BoolOp(op, rest) if len(rest) > 1 else rest[0]
            left, right = _part(first), _part(last)
            if isinstance(op, ast.And):
                return lambda names: left(names) and right(names)
            return lambda names: left(names) or right(names)
        case ast.IfExp(test=test, body=body, orelse=other):
            when, yes, no = _part(test), _part(body), _part(other)
            return lambda names: yes(names) if when(names) else no(names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            given = [_part(arg) for arg in args]
            named = {str(k.arg): _part(k.value) for k in keywords}
            return lambda names: names[name](
                *(arg(names) for arg in given),
                **{key: value(names) for key, value in named.items()},
            )
    raise ValueError(f"no part of a formula: {ast.unparse(node)[:80]}")


def _dotted(path: str, names: NamedValues) -> Any:
    """The value of a name with dots, which only some mappings have."""
    try:
        return names[path]
    except KeyError:
        raise ValueError(f"no name of a formula: {path[:80]}") from None


def _pair(
    operation: Callable[[Any, Any], Any], a: ast.expr, b: ast.expr
) -> Formula:
    left, right = _part(a), _part(b)
    return lambda names: operation(left(names), right(names))
