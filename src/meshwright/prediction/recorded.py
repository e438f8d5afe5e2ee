"""Numbers that remember how they were computed.

Formulas take them where they take arrays (`num`), and make of them a tree of operations whose
leaves are the numbers that went in, by their names: the explanation of a number is what its own
formula did with its inputs. Conditions are decided by the values, so that the tree holds the
branch that ran.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from ..describe.frozen import FrozenDict, with_values
from ..describe.measured import MeasuredTable
from ..num import Same

Traced: TypeAlias = Any
"""A float, or one that is recorded: what formulas make, which are typed for floats and arrays."""
FUNCTIONS: dict[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "max": max,
    "min": min,
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "sqrt": math.sqrt,
    "log2": math.log2,
}
"""What an expression may do."""
UFUNCS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "power": "**",
    "maximum": "max",
    "minimum": "min",
    "ceil": "ceil",
    "floor": "floor",
    "sqrt": "sqrt",
    "log2": "log2",
}
"""NumPy's name -> that of an expression: `num` asks NumPy about whatever is no plain number."""
ORDERS = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
NOTHING = (0.0, math.inf)
"""As a factor or a divisor; no cost is endless."""
NOTHING_ADDED = {"+": 0.0, "-": 0.0, "*": 1.0, "/": 1.0}
"""The second number with which an operation leaves the first as it is."""


NUMBER = count(1)
"""Of what is made."""
ROUNDING = 1e-12
"""Shares of a sum below this are rounding."""
KIND = re.compile("^layers of .*?(feed-forward|experts) ")
"""Of an item's name, what is too long for an expression."""


@cache
def _spelled(item: str) -> str:
    """The name of an item in an expression."""
    return re.sub(r"\W+", "_", KIND.sub("layers ", item)).strip("_")


def _computed(does: str) -> tuple[Any, Any]:
    """An operator with a recorded number on its left, and on its right.

    Most stand beside another recorded number or a float, which takes no detour over `done`.
    """
    compute = FUNCTIONS[does]
    none = NOTHING_ADDED.get(does)
    zeros = NOTHING if does in "*/" else ()

    def left(self: Recorded, other: Any) -> Any:
        if other.__class__ is Recorded:
            return Recorded(
                compute(self.value, other.value), does, (self, other)
            )
        if other.__class__ is not float:
            return done(does, self, other)
        if other == none:
            return self
        value = compute(self.value, other)
        return (
            value if other in zeros else Recorded(value, does, (self, other))
        )

    return left, lambda self, other: done(does, other, self)


def _compared(order: Callable[[float, float], bool]) -> Any:
    """A comparison of the values."""
    return lambda self, other: bool(order(self.value, _plain(other)))


class Recorded:
    """A number with its operation and what that was done to; an input has a name instead."""

    __slots__ = ("value", "does", "to", "name", "item", "holds")
    item: str
    """What a term calls it, where it is one of those that a tree is made of."""
    holds: int
    """Its number in the order of making, of items and what is made of them; 0 of all others."""
    ndim = 0
    shape = ()

    def __init__(
        self,
        value: float,
        does: str = "",
        to: tuple[Traced, ...] = (),
        name: str = "",
    ) -> None:
        self.value, self.does, self.to, self.name = value, does, to, name
        self.item = ""
        self.holds = 0
        for x in to:
            if x.__class__ is Recorded and x.holds:
                self.holds = next(NUMBER)
                break

    @classmethod
    def called(cls, item: str, x: Traced) -> Any:
        """A number that a term is made of (`num.naming`)."""
        copy = (
            cls(x.value, x.does, x.to, x.name)
            if isinstance(x, Recorded)
            else cls(float(x), name=_spelled(item))
        )
        copy.item, copy.holds = item, next(NUMBER)
        return copy

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return self.value != 0.0

    def __hash__(self) -> int:
        return hash(self.value)

    any = __bool__

    def tobytes(self) -> Same:
        """What caches of arrays know it by: nothing but itself."""
        return Same(self)

    __eq__ = _compared(operator.eq)
    __lt__ = _compared(operator.lt)
    __le__ = _compared(operator.le)
    __gt__ = _compared(operator.gt)
    __ge__ = _compared(operator.ge)
    __add__, __radd__ = _computed("+")
    __sub__, __rsub__ = _computed("-")
    __mul__, __rmul__ = _computed("*")
    __truediv__, __rtruediv__ = _computed("/")
    __pow__, __rpow__ = _computed("**")

    def __neg__(self) -> Any:
        return done("*", -1.0, self)

    def __ceil__(self) -> Any:
        return done("ceil", self)

    def __array_ufunc__(
        self, function: Any, method: str, *to: Any, **_: Any
    ) -> Any:
        if function.__name__ in ORDERS:
            return ORDERS[function.__name__](*map(_plain, to))
        return done(UFUNCS[function.__name__], *to)


ALONE = frozenset((Recorded, float, int))
"""Numbers that are no arrays."""


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Recorded) else x


def done(does: str, *to: Any) -> Any:
    """A number that an operation makes; of arrays (kernels to choose from) one for each element.

    What changes nothing is left out, and so often nothing is a plain zero.
    """
    for i, x in enumerate(to):
        if x.__class__ not in ALONE and getattr(x, "ndim", False):
            import numpy as np

            each = [done(does, *to[:i], one, *to[i + 1 :]) for one in x]
            return np.array(each, dtype=object)
    if len(to) == 2 and (same := _unchanged(does, *to)) is not None:
        return same
    value = FUNCTIONS[does](*(float(x) for x in to))
    plain = [float(x) for x in to if not isinstance(x, Recorded)]
    if len(plain) == len(to) or (
        does in ("*", "/") and any(x in NOTHING for x in plain)
    ):
        return value
    return Recorded(value, does, tuple(map(_number, to)))


def _unchanged(does: str, first: Any, second: Any) -> Any:
    """The number that an operation with a plain one leaves as it is; None: there is none."""
    none = NOTHING_ADDED.get(does)
    if not isinstance(second, Recorded):
        if second == none or (does == "max" and second == 0.0 < first):
            return first
    elif not isinstance(first, Recorded) and (
        (first == none and does in ("+", "*"))
        or (does == "max" and first == 0.0 < second)
    ):
        return second
    return None


def _number(x: Any) -> Traced:
    return x if isinstance(x, Recorded) else float(x)


def record(x: Any, name: str, called: Mapping[str, str] = FrozenDict()) -> Any:
    """A number as an input of that name; of tuples and descriptions every number, by its field.

    called: field -> name, where they differ, and of whole numbers that are no counter of the code.
    Texts, zeros and measured tables stay what they are.
    """
    if isinstance(x, float) or (type(x) is int and name in called):
        named = called.get(name, name)
        return Recorded(float(x), name=named) if x and math.isfinite(x) else x
    if isinstance(x, MeasuredTable):
        return x
    if isinstance(x, tuple):
        names = getattr(x, "_fields", None) or [name] * len(x)
        each = [record(v, n, called) for v, n in zip(x, names, strict=True)]
        return type(x)(*each) if hasattr(x, "_fields") else tuple(each)
    if isinstance(x, Mapping):
        return FrozenDict({k: record(v, k, called) for k, v in x.items()})
    if is_dataclass(x):
        mine = {f: getattr(x, f) for f in x.__dataclass_fields__}
        return with_values(
            x, **{f: record(v, f, called) for f, v in mine.items()}
        )
    return x


def contributions(
    x: Traced,
) -> tuple[dict[str, tuple[Traced, Traced]], Traced | None]:
    """(item -> (how often a number holds it, the item); what is left over, None but for rounding).

    By the operations that made it, from the number down to its items: a sum hands its own weight
    on to both addends, a product that times the other factor, a maximum all of it to what it
    picked. An operation that is none of these holds no items.
    """
    items: dict[str, tuple[Traced, Traced]] = {}
    left: Traced = 0.0 if _holds(x) else x
    # the last that was made comes first: whatever a number went into was made after it
    made = [(-x.holds, x)] if _holds(x) else []
    weights: dict[int, Traced] = {-number: 1.0 for number, _ in made}
    while made:
        _, y = heappop(made)
        weight = weights[y.holds]
        if y.item:
            known, _ = items.get(y.item, (0.0, y))
            items[y.item] = known + weight, y
            continue
        for z, share in _shares(y, weight):
            if not _holds(z):
                left = left + share * z
            elif z.holds in weights:
                weights[z.holds] = weights[z.holds] + share
            else:
                weights[z.holds] = share
                heappush(made, (-z.holds, z))
    sizes = {k: abs(float(n) * float(z)) for k, (n, z) in items.items()}
    least = ROUNDING * (abs(float(x)) + sum(sizes.values()))
    # in the order in which they were named
    some = {k: items[k] for k in reversed(items) if sizes[k] > least}
    return some, left if abs(float(left)) > least else None


def _holds(x: Traced) -> bool:
    return x.__class__ is Recorded and bool(x.holds)


def _shares(y: Recorded, weight: Traced) -> Sequence[tuple[Traced, Traced]]:
    """What an operation was done to, each with the weight that it gets."""
    if y.does in ("max", "min"):
        return ((next(z for z in y.to if z == y), weight),)
    first, second = y.to if len(y.to) == 2 else (y.value, 1.0)
    if y.does in ("+", "-"):
        other = weight if y.does == "+" else weight * -1.0
        return (first, weight), (second, other)
    if y.does == "*":
        if _holds(second):
            first, second = second, first
        return ((first, weight * second),)
    if y.does == "/" and _holds(first):
        return ((first, weight / second),)
    return ((y.value, weight),)


def taken(x: Traced) -> Traced:
    """What was taken away from a number, or from the numbers that it is a sum of."""
    if not isinstance(x, Recorded) or x.does not in ("-", "+"):
        return 0.0
    left, right = x.to
    return taken(left) + (right if x.does == "-" else taken(right))
