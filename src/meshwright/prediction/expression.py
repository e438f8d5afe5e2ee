"""A recorded number as an expression that evaluates to it, with the values of its names."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from string import ascii_lowercase
from typing import Any, NamedTuple

from ..describe.frozen import FrozenDict
from .recorded import Recorded, Traced

MOST = 60
"""Operations that are written out: what they are done to beyond them is shown as its number."""
ADDENDS = 8
"""Of a sum that is written out inside another expression."""
WIDE = 60
"""Characters of a part that is written in place; longer ones have a letter of their own."""
BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 3}


class Expression(NamedTuple):
    """Of + - * / ** ( ) and max, min, ceil, floor, sqrt, log2."""

    text: str
    values: Mapping[str, float | str]
    """Each name -> its number, or an expression of names before it."""


def written(x: Traced) -> Expression:
    """The expression of a recorded number; of a plain one itself."""
    return _Writer(x).whole


def times(n: Traced, x: Traced) -> Traced:
    """A number that counts n times a step."""
    often = n if isinstance(n, Recorded) else Recorded(n, name="times")
    return often * x


def lazy_expression(record: Callable[..., Traced], *what: Any) -> Expression:
    """The expression of a number that is recorded when somebody reads it."""
    return written(record(*what))


class _Writer:
    """Names what repeats, and what is long, by letters."""

    def __init__(self, x: Traced) -> None:
        self.values: dict[str, float | str] = {}
        self.known: dict[int, str] = {}
        self.open = _opened(x)
        self.often = Counter(id(part) for part in _uses(x))
        self.twice: dict[float | str, str] = {}
        self.letters = chain(ascii_lowercase, map("x{}".format, count(1)))
        text, _ = self.composed(x) if isinstance(x, Recorded) else self.text(x)
        self.whole = Expression(text, FrozenDict(self.values))

    def named(self, x: Recorded, name: str) -> str:
        """An input by its name, or by that and a number where another value has it."""
        again = name
        k = 1
        while self.values.get(again, x.value) != x.value:
            k += 1
            again = f"{name}_{k}"
        self.values[again] = x.value
        return again

    def lettered(self, value: float | str) -> str:
        """A letter for a value, the same one for equal ones."""
        if value not in self.twice:
            letter = next(c for c in self.letters if c not in self.values)
            self.values[letter] = value
            self.twice[value] = letter
        return self.twice[value]

    def text(self, x: Traced) -> tuple[str, int]:
        """How it is written, and how tightly that binds."""
        if not isinstance(x, Recorded):
            return _digits(x), 4 if x >= 0 else 1
        if id(x) not in self.known and id(x) not in self.open:
            self.known[id(x)] = self.lettered(x.value)
        if id(x) not in self.known:
            words, binds = self.composed(x)
            once = x.name or (self.often[id(x)] == 1 and len(words) <= WIDE)
            if once:
                return words, binds
            self.known[id(x)] = self.lettered(words)
        return self.known[id(x)], 4

    def composed(self, x: Recorded) -> tuple[str, int]:
        if x.name:
            return self.named(x, x.name), 4
        parts = [self.text(each) for each in x.to]
        binds = BINDS.get(x.does)
        if binds is None:
            return f"{x.does}({', '.join(text for text, _ in parts)})", 4
        (left, a), (right, b) = parts
        left = left if a >= binds else f"({left})"
        right = right if b > binds else f"({right})"
        return f"{left} {x.does} {right}", binds


def _uses(x: Traced) -> Iterator[Traced]:
    """Every use of a number in another."""
    seen: set[int] = set()
    open_: list[Traced] = [x]
    while open_:
        one = open_.pop()
        yield one
        if isinstance(one, Recorded) and id(one) not in seen:
            seen.add(id(one))
            open_ += one.to


def _opened(root: Traced) -> set[int]:
    """The numbers that are written by their operations: those nearest to the whole first; long sums
    inside it, and what is left when there are enough, by their values."""
    opened: set[int] = set()
    queue = deque([root])
    while queue and len(opened) < MOST:
        x = queue.popleft()
        if not isinstance(x, Recorded) or id(x) in opened:
            continue
        if x is root or not x.to or addends(x) <= ADDENDS:
            opened.add(id(x))
            queue += x.to
    inputs = (x for x in _uses(root) if isinstance(x, Recorded) and not x.to)
    return opened | {id(x) for x in inputs}


def addends(x: Traced) -> int:
    """Numbers that it is a sum of."""
    if not isinstance(x, Recorded) or x.does != "+":
        return 1
    return sum(map(addends, x.to))


def _digits(x: float) -> str:
    """All of a plain number."""
    whole = x.is_integer() and abs(x) < MOST_WHOLE
    return str(int(x)) if whole else repr(x)


MOST_WHOLE = 1e15
"""Whole numbers below it are written without a point."""
