"""Mutants of a source text: one operator, number, comparison or minimum changed (operators and
parser of cosmic-ray).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import cosmic_ray.plugins
import parso
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Operator

ARITHMETIC = (
    ("Add", "Sub"),
    ("Sub", "Add"),
    ("Mul", "Div"),
    ("Div", "Mul"),
    ("FloorDiv", "Mul"),
    ("Mod", "Mul"),
    ("Pow", "Mul"),
    ("BitAnd", "BitOr"),
    ("BitOr", "BitAnd"),
)
COMPARISON = (
    ("Lt", "LtE"),
    ("LtE", "Lt"),
    ("Gt", "GtE"),
    ("GtE", "Gt"),
    ("Eq", "NotEq"),
    ("NotEq", "Eq"),
)
PLAIN = (
    "NumberReplacer",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
)
NAMES = (
    *(f"ReplaceBinaryOperator_{a}_{b}" for a, b in ARITHMETIC),
    *(f"ReplaceComparisonOperator_{a}_{b}" for a, b in COMPARISON),
    *PLAIN,
)
SWAPS = {
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
    "min": "max",
    "max": "min",
}
OPERATIONS = {"*": "term", "**": "power"}
"""Stars that compute, by what they stand in; elsewhere they unpack or mark parameters."""
LARGEST = 1000.0
"""Numbers beyond this are not changed by 1: nothing would notice, and nothing should."""


class Swap(Operator):  # type: ignore[misc]
    """A call of minimum becomes one of maximum, floor of ceil, and the other way round."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "name" and node.value in SWAPS and _called(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        other = SWAPS[node.value]
        # the other function need not be imported in the file
        text = (
            other
            if node.value in ("min", "max")
            or node.get_previous_leaf().value == "."
            else f"__import__('meshwright.num', fromlist=['num']).{other}"
        )
        return parso.python.tree.Name(text, node.start_pos, prefix=node.prefix)

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class Mutant(NamedTuple):
    """One change: an occurrence of an operator."""

    operator: str
    occurrence: int
    line: int


OPERATORS = {
    name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in NAMES
} | {"Swap": Swap()}


def every(source: str) -> list[Mutant]:
    """All places of a source text that Python looks at, with each change of them; in the order of
    cosmic-ray.
    """
    seen, found = Counter[str](), []

    def walk(node: Any) -> None:
        for name, operator in OPERATORS.items():
            for _ in operator.mutation_positions(node):
                if not _in_annotation(node) and _worth_it(node):
                    found.append(Mutant(name, seen[name], node.start_pos[0]))
                seen[name] += 1
        for child in getattr(node, "children", ()):
            walk(child)

    walk(parso.parse(source))
    return found


def mutated(source: str, mutant: Mutant) -> str:
    """The text with that change."""
    return str(
        MutationVisitor.mutate_code(
            source, OPERATORS[mutant.operator], mutant.occurrence
        )
    )


def difference(source: str, code: str, around: int = 30) -> tuple[str, str]:
    """What differs between two texts, with a little of its line around it: (before, after)."""
    pairs = zip(source.splitlines(), code.splitlines(), strict=False)
    old, new = next(
        ((a.strip(), b.strip()) for a, b in pairs if a != b), ("", "")
    )
    first = len(os.path.commonprefix([old, new]))
    last = len(os.path.commonprefix([old[:first:-1], new[:first:-1]]))
    start = max(first - around, 0)
    return old[start : max(len(old) - last, first) + around], new[
        start : max(len(new) - last, first) + around
    ]


def _called(node: Any) -> bool:
    """The name is that of a function which is called."""
    after = node.get_next_leaf()
    return (
        after is not None
        and after.value == "("
        and node.get_previous_leaf().value != "def"
    )


def _worth_it(node: Any) -> bool:
    """Neither a star that unpacks nor a number so large that 1 more is nothing."""
    star = OPERATIONS.get(getattr(node, "value", ""))
    if star:
        return bool(node.parent.type == star)
    return node.type != "number" or abs(complex(eval(node.value))) <= LARGEST


def _in_annotation(node: Any) -> bool:
    """Annotations are never looked at when the code runs."""
    while node is not None:
        parent = node.parent
        if (
            parent is not None
            and parent.type in ("annassign", "tfpdef")
            and parent.children.index(node)
            == (1 if parent.type == "annassign" else 2)
        ):
            return True
        if (
            parent is not None
            and parent.type == "funcdef"
            and node is parent.annotation
        ):
            return True
        node = parent
    return False
