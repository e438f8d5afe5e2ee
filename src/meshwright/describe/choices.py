"""Layout field -> the values it may have: of a set of assumptions, a framework, the flags of a
user, the space of a search.

    Choices(schedule=("1f1b",), zero=(0, 1))        a field that is not named may be anything

What a layout may hold is asked of `Layout` itself, so a new field of it is a new field here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ..errors import BadInput, brief, unknown
from ..schedule import get as schedule_named
from .fields import fields_of
from .frozendict import FrozenDict
from .layout import Layout
from .read import read

Value: TypeAlias = int | str | bool
Values: TypeAlias = tuple[Value, ...]

FIELDS = tuple(name for name in fields_of(Layout) if name != "placement")
"""What can be chosen, in the order of `Layout`; a placement follows from the network, and is
searched.
"""
NEAR = 6
"""Values that a sentence names."""


class Choices(FrozenDict[str, Values]):
    """The values each field of a layout may have; compares, hashes, pickles and is written to a
    file as a dict of tuples.

    >>> from meshwright import Choices, Layout
    >>> few = Choices(tp=(4, 8), zero=1)
    >>> few.allows(Layout(tp=8, zero=1)), few.allows(Layout(tp=2, zero=1))
    (True, False)
    """

    def __init__(
        self,
        allowed: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        /,
        **fields: Any,
    ) -> None:
        """None for a field: anything.  BadInput for what no layout can hold, with the nearest
        values.
        """
        known = allowed if isinstance(allowed, Choices) else {}  # read before
        try:
            given = {**dict(allowed), **fields}
        except (TypeError, ValueError):
            raise BadInput(
                f"choices must be a table of fields, not {brief(allowed)}"
            ) from None
        super().__init__(
            {
                name: known[name] if known.get(name) is v else _values(name, v)
                for name, v in given.items()
                if v is not None
            }
        )

    def __repr__(self) -> str:
        return f"Choices({', '.join(f'{name}={_shown(values)}' for name, values in self.items())})"

    def __str__(self) -> str:
        return (
            "; ".join(
                f"{name} {first_few(values)}" for name, values in self.items()
            )
            or "anything"
        )

    def __and__(self, other: Mapping[str, Any]) -> Choices:
        """What both allow, in the order of the first; a field may be left without a value."""
        both = {**self, **Choices(other)}
        return Choices(
            {
                name: _common(self.get(name), values)
                for name, values in both.items()
            }
        )

    def but(self, **fields: Any) -> Choices:
        """These choices with other values for some fields; None: any value."""
        return Choices(self, **fields)

    def allows(self, layout: Layout) -> bool:
        """Whether every field of the layout has one of these values."""
        return all(
            getattr(layout, name) in values for name, values in self.items()
        )

    def refused(self, layout: Layout, who: str) -> tuple[str, ...]:
        """A sentence for each field that has none of these values; who: whose choices they are,
        with a verb.
        """
        outside = (
            (name, getattr(layout, name), values)
            for name, values in self.items()
        )
        return tuple(
            _sentence(name, value, values, who)
            for name, value, values in outside
            if value not in values
        )


def refusal(
    every: Iterable[Choices],
    layout: Layout,
    who: str,
    verb: str = "allows",
) -> tuple[str, ...]:
    """Why none of these choices allows the layout, by the one that nearly does; empty if one does,
    or there are none.  who: whose choices they are; verb: what they do, a habit "keeps to".

    One change that would do, of several: "allows zero 0, 1, not 3, or pp 1, not 2".
    """
    who = f"{who} {verb}"
    reasons = sorted((each.refused(layout, who) for each in every), key=len)
    if not reasons or len(reasons[0]) != 1:
        return reasons[0] if reasons else ()
    (first, *others) = dict.fromkeys(r[0] for r in reasons if len(r) == 1)
    more = [other.removeprefix(f"{who} ") for other in others]
    return (", or ".join([first, *more]),)


def sole_values(
    every: Iterable[Choices], said: Mapping[str, Value]
) -> dict[str, Value]:
    """The value of each field that is not said and may have no other under any of these choices,
    or, where a scheme is said, of those that have it.

    >>> both = Choices(zero=1, cp=1), Choices(zero=1, scheme="summa", cp=(2, 4))
    >>> sole_values(both, {"cp": 4}), sole_values(both, {"zero": 0})
    ({'zero': 1}, {})
    """
    near = every = tuple(every)
    if scheme := said.get("scheme"):
        near = tuple(c for c in every if scheme in c.get("scheme", (scheme,)))
        near = near or every
    fields = [n for n in FIELDS if n not in said and all(n in c for c in near)]
    values = {
        name: {value for each in near for value in each[name]}
        for name in fields
        if near
    }
    return {name: one.pop() for name, one in values.items() if len(one) == 1}


def first_few(values: Iterable[object], most: int = NEAR) -> str:
    """The first few values, for people."""
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    return (
        ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")
        if texts
        else "nothing"
    )


def _sentence(name: str, value: Any, values: Values, who: str) -> str:
    """Why a value is refused, and the nearest of those that are not."""
    near = values
    if not isinstance(value, str) and len(values) > NEAR:
        near = tuple(
            sorted(sorted(values, key=lambda v: abs(int(v) - value))[:NEAR])
        )
    return f"{who} {name} {first_few(near)}, not {first_few((value,))}"


def _values(name: str, given: Any) -> Values:
    """The values of one field, as a layout holds them; numbers, texts and true or false alike are
    read as in a file.
    """
    if name not in FIELDS:
        raise unknown("layout: field", name, FIELDS)
    if isinstance(given, (str, int, float)):  # one value
        return (_value(name, given),)
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise BadInput(
            f"layout.{name} must be a value or a list of values, not {brief(given)}"
        )
    values = tuple(given)
    if len(values) > 2 and all(type(v) is int for v in values):
        # what lies between is no worse
        (
            _value(name, min(values)),
            _value(name, max(values)),
        )
        return tuple(dict.fromkeys(values))
    return tuple(dict.fromkeys(_value(name, v) for v in values))


def _value(name: str, given: Any) -> Value:
    value: Value = getattr(read(Layout, {name: given}, "layout"), name)
    if name == "schedule":
        schedule_named(str(value))
    return value


def _common(mine: Values | None, theirs: Values) -> Values:
    """The values that stand in both."""
    return theirs if mine is None else tuple(v for v in mine if v in {*theirs})


def _shown(values: Values) -> str:
    return (
        repr(values)
        if len(values) <= NEAR
        else f"({', '.join(map(repr, values[:NEAR]))}, ... {len(values)} in all)"
    )
