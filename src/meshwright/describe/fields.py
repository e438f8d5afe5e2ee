"""What a field of a description says of itself, once, in its annotation: its unit, its range, its
choices, the option that owns it. Checks, readers, flags and schemas are loops over `fields_of`.

    bandwidth: Annotated[float, Unit("B/s")]           SI inside; text is read by `units.parse`
    kind: Annotated[str, OneOf("switch", "ring")]      the nearest words are named to who errs
    stages: Annotated[str, Parsed(stages)]             a small language, kept as it is rewritten
    hop: Annotated[str, OneOf("slowest", "mean"), With("collective", but=("free",))]

The text below a field says what it means. What several fields of a description must agree on says
its `conflict`.
"""

from __future__ import annotations

import ast
import inspect
import numbers
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, reduce
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypeVar

from ..errors import BadInput, article, brief, unknown
from ..num import Num
from ..units import LENGTH
from .frozendict import EMPTY, FrozenDict

ASK = "framework"
"""In place of a value: a set of assumptions leaves it to the framework (`describe.framework`)."""
UNIONS = (types.UnionType, typing.Union)
"""Of which only "X | None" occurs."""


class SIUnit(NamedTuple):
    """A number is kept in this SI unit."""

    unit: str


class Range(NamedTuple):
    """The least and the most that a number may be."""

    least: float
    most: float


class OneOf(tuple[str, ...]):
    """The texts that a field, or the keys of its table, may be."""

    titles: Mapping[str, str] = EMPTY
    """What the help says of some of them."""

    def __new__(cls, *words: str) -> OneOf:
        return super().__new__(cls, words)

    @classmethod
    def titled(cls, table: Mapping[str, Any]) -> OneOf:
        """The names of things that have a `title`."""
        words = cls(*table)
        words.titles = {name: thing.title for name, thing in table.items()}
        return words


class AnyText(NamedTuple):
    """A field may hold any text."""

    why: str


class Spelled(NamedTuple):
    """The flag of a field, where another table has its name or a letter is usual, too."""

    flag: str
    letter: str = ""


class Parsed(NamedTuple):
    """A text in a small language: what reads it, raises BadInput, and says how it is kept
    (`.text`).
    """

    reader: Callable[[str], Any]


class Injected:
    """Marks a field that takes an object of a room after this one, for what no option says; no file
    can hold it.
    """


class Answered(NamedTuple):
    """A set of assumptions may leave the field to the framework, which has it under this name; the
    field's own name if empty.
    """

    by: str = ""


class ActsOn(NamedTuple):
    """What the field acts on: where a run has nothing of it, the field changes nothing."""

    what: str


class Searched:
    """A search may choose the field: of these values where nobody limits it, or none named, of all
    that are legal. together: one search takes one value, a plan several searches.
    """

    def __init__(self, *usual: int | str, together: bool = False) -> None:
        self.usual, self.together = usual, together


class With:
    """`Annotated[float, With("collective", "book")]`: a field that only these options have; beside
    others it is its default.

    `With("scope", but=(ASK,))`: all options but these have it.  An option of another joint has dots
    ("chip.model"), and is looked for in what the description is a part of.
    """

    def __init__(
        self, option: str, *values: object, but: tuple[object, ...] = ()
    ) -> None:
        self.option, self.values, self.but = option, values, but

    def chosen(self, among: Iterable[Any]) -> Any:
        """The option in the first of these descriptions that has it; `MISSING` if none does."""
        first = self.option.partition(".")[0]
        for thing in among:
            if hasattr(thing, first):
                return reduce(getattr, self.option.split("."), thing)
        return MISSING

    def allows(self, option: object) -> bool:
        """The field means something beside this option."""
        return option is MISSING or (
            option not in self.but
            and (not self.values or option in self.values)
        )

    def sentence(self, option: object) -> str:
        """Why the field means nothing beside this option, and what to do."""
        if option == ASK:
            return (
                f"is decided by the framework where {self.option} is left to it: name another"
                f" framework or a setting of [software], or set {self.option} too"
            )
        have = ", ".join(str(value) for value in self.values)
        other = f"{self.option} {have}" if have else f"another {self.option}"
        return f"means nothing where {self.option} is {option}: leave it out, or take {other}"


WHOLE = Range(1.0, 1e9)
"""Of a whole number that says no other; so large that no product of a few overflows."""
REAL = Range(1e-30, 1e30)
"""Of a quantity in SI units that says no other."""
FROM_0 = Range(0.0, 1e30)

Degree = Annotated[Num, WHOLE]
"""A whole number; in a table of layouts a column, and a fraction where a roofline asks."""
Count = Annotated[int, Range(0, 1e9)]
"""A whole number that may be 0."""
Length = Annotated[int, SIUnit(LENGTH)]
"""Whole tokens of a sequence: "8k" are 8,192."""
Amount = Annotated[float, FROM_0]
Share = Annotated[float, Range(1e-6, 1.0)]
AnyShare = Annotated[float, Range(0.0, 1.0)]
Risk = Annotated[float, Range(1e-6, 1 - 1e-6)]
Seconds = Annotated[float, SIUnit("s"), FROM_0]
Bytes = Annotated[float, SIUnit("B")]
Bandwidth = Annotated[float, SIUnit("B/s")]
Name = Annotated[str, AnyText("a name its author gives")]
Prose = Annotated[str, AnyText("for people")]
Known = Annotated[
    str, AnyText("a name or words, refused where they are looked up")
]
Path = Annotated[str, AnyText("a path")]
Object = Annotated[Any, Injected()]
Sources = Mapping[Prose, Any]


def origins() -> Any:
    """The default of a field `sources`: field -> where its number comes from (source, date, note),
    "*" for the whole description.
    """
    return field(default=EMPTY, compare=False, repr=False)


BY_NAME: dict[type, Callable[[str], Any]] = {}
"""Description -> what finds the one of a name; those of later rooms are added there."""


def finder(
    what: str,
    things: Mapping[str, Any],
    called: Mapping[str, str] = EMPTY,
) -> Callable[[str], Any]:
    """What finds one of these by name; BadInput names the nearest. called: other names."""

    def find(name: str) -> Any:
        if name not in things:
            raise unknown(what, name, things, called)
        return things[name]

    return find


@dataclass(frozen=True)
class FieldKind:
    """Which values a field, an entry of its list, or a key or value of its table may have."""

    type: Any
    """str, bool, int, float, tuple, Mapping, a description; Any: a `Degree`, or whatever it is."""
    none: bool = False
    """It may be left without a value."""
    unit: str = ""
    range: Range | None = None
    words: tuple[str, ...] = ()
    """The texts it may be, or its keys or entries."""
    titles: Mapping[str, str] = EMPTY
    """`OneOf.titles`."""
    reader: Callable[[str], Any] | None = None
    only: With | None = None
    """The options that have it."""
    answered: str | None = None
    """`Answered.by`; None: the framework has no say."""
    searched: Searched | None = None
    acts_on: str = ""
    """`ActsOn.what`."""
    spelled: Spelled | None = None
    injected: bool = False
    free: bool = False
    parts: tuple[FieldKind, ...] = ()
    """Of a list that of its entries; of a table those of its keys and its values."""

    @classmethod
    def of(cls, hint: Any, *marks: Any) -> FieldKind:
        """The kind that an annotation means."""
        args = typing.get_args(hint)
        if typing.get_origin(hint) is Annotated:
            return cls.of(args[0], *args[1:], *marks)
        if typing.get_origin(hint) in UNIONS:
            return replace(cls.of(args[0], *marks), none=True)
        parts = tuple(cls.of(arg) for arg in args if arg is not ...)
        said = {type(mark): mark for mark in marks}
        by = said.get(Answered)
        words = said.get(OneOf) or (parts[0].words if parts else ())
        reader = said.get(Parsed)
        return cls(
            typing.get_origin(hint) or hint,
            unit=said[SIUnit].unit if SIUnit in said else "",
            range=said.get(Range),
            words=(*words, ASK) if by and words else (*words,),
            titles=getattr(words, "titles", EMPTY),
            reader=reader and reader.reader,
            only=said.get(With),
            answered=by and by.by,
            searched=said.get(Searched),
            acts_on=said[ActsOn].what if ActsOn in said else "",
            spelled=said.get(Spelled),
            injected=Injected in said,
            free=AnyText in said,
            parts=parts,
        )

    @property
    def units(self) -> str:
        """The unit of the field, or of its entries."""
        return self.unit or (self.parts[-1].units if self.parts else "")

    @property
    def limits(self) -> Range:
        """The least and the most of a number."""
        return self.range or (REAL if self.type is float else WHOLE)

    def kept(self, value: Any, where: str) -> Any:
        """A value as a field keeps it: whole numbers as int, lists as tuples, tables frozen.
        Columns of a table (arrays) pass.  Raises BadInput for one that no such field has.
        """
        if getattr(value, "shape", ()) or (value is None and self.none):
            return value
        check = CHECKS.get(self.type)
        if check:
            return check(self, value, where)
        if isinstance(value, self.type):
            return value
        named = BY_NAME.get(self.type)
        if named and isinstance(value, str):
            return named(value)
        if issubclass(self.type, FrozenDict) and isinstance(value, Mapping):
            return self.type(value)
        what = article(self.type.__name__) + " or the name of one" * bool(
            named
        )
        raise BadInput(f"{where} must be {what}, not {brief(value)}")

    def within(self, number: float, where: str) -> float:
        """A number between the least and the most."""
        least, most = self.limits
        if least <= number <= most:
            return number
        shown = f"{number:g}" if isinstance(number, float) else brief(number)
        if number < least == REAL.least:
            raise BadInput(f"{where} must be more than 0, not {shown}")
        if number < least and most >= WHOLE.most:  # which nobody reaches
            raise BadInput(f"{where} must be at least {least:g}, not {shown}")
        raise BadInput(
            f"{where} must be between {least:g} and {most:g}, not {shown}"
        )


def _text(kind: FieldKind, value: Any, where: str) -> str:
    text = demand_text(value, where)
    if kind.words and text not in kind.words:
        raise unknown(where, text, kind.words)
    return str(kind.reader(text).text) if kind.reader else text


def _flag(_: FieldKind, value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{where} must be true or false, not {brief(value)}")
    return value


def _whole(kind: FieldKind, value: Any, where: str) -> int:
    number = _number(value, where, "a whole number")
    if number % 1:  # of what is no number or infinite, too
        raise BadInput(f"{where} must be a whole number, not {brief(value)}")
    return int(kind.within(number, where))


def _real(kind: FieldKind, value: Any, where: str) -> float:
    return kind.within(_number(value, where, "a number"), where)


def _degree(kind: FieldKind, value: Any, where: str) -> Any:
    """Fractions pass, which rooflines need, of any size; `predict` refuses them."""
    if kind.range is None:  # not for this room to judge
        return value
    number = _number(value, where, "a whole number")
    if isinstance(number, int):
        return kind.within(number, where)
    if not number > 0:
        raise BadInput(f"{where} must be at least 1, not {brief(value)}")
    return number if number % 1 else int(number)


def _items(kind: FieldKind, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{where} must be a list, not {brief(value)}")
    (entry, *_) = kind.parts
    kept = tuple(
        entry.kept(item, f"{where}[{i}]") for i, item in enumerate(value)
    )
    same = all(a is b for a, b in zip(kept, value, strict=True))
    return value if same and isinstance(value, tuple) else kept


def _table(kind: FieldKind, value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} must be a table, not {brief(value)}")
    key, entry = kind.parts
    kept = {
        key.kept(k, where): entry.kept(v, f"{where}.{k}")
        for k, v in value.items()
    }
    same = all(v is value[k] for k, v in kept.items())
    return (
        value if same and isinstance(value, FrozenDict) else FrozenDict(kept)
    )


CHECKS: dict[Any, Callable[[FieldKind, Any, str], Any]] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _real,
    Any: _degree,
    tuple: _items,
    Mapping: _table,
}


def _number(value: Any, where: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise BadInput(f"{where} must be {what}, not {brief(value)}")
    if isinstance(value, (int, float)):
        return float(value) if hasattr(value, "dtype") else value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def demand_text(value: object, where: str) -> str:
    """A text; BadInput if it is none."""
    if not isinstance(value, str):
        raise BadInput(f"{where} must be a text, not {brief(value)}")
    return value


@dataclass(frozen=True)
class Field:
    """A field of a description: its name, the values it may have, the usual one."""

    name: str
    kind: FieldKind
    default: Any
    """`MISSING` of one that must be given."""
    where: str
    """Class and field, for sentences."""


class Checked:
    """A description that cannot be made with a value that its fields do not have, wherever it comes
    from.
    """

    def __post_init__(self) -> None:
        mine = self.__dict__
        every = fields_of(type(self))
        for one in every.values():
            value = mine[one.name]
            # defaults are not looked at again: this runs for every step of a search
            if value is one.default:
                continue
            kept = one.kind.kept(value, one.where)
            if kept is not value:
                object.__setattr__(self, one.name, kept)
        for one in owned_fields(type(self)):
            only: Any = one.kind.only
            if mine[one.name] != one.default and not only.allows(
                option := only.chosen([self])
            ):
                raise BadInput(f"{one.where} {only.sentence(option)}")
        if reason := self.conflict():
            raise BadInput(f"{type(self).__name__.lower()}: {reason}")

    def conflict(self) -> str:
        """Why the fields contradict each other; empty if they do not."""
        return ""


T = TypeVar("T")


def once_a_class(of: Callable[[Any], T]) -> Callable[[Any], T]:
    """A function of a class that is computed once."""
    return cache(of)


@once_a_class
def fields_of(cls: Any) -> dict[str, Field]:
    """name -> field of a description, in the order of its definition."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        f.name: Field(
            f.name,
            FieldKind.of(hints[f.name]),
            f.default if f.default_factory is MISSING else f.default_factory(),
            f"{cls.__name__.lower()}.{f.name}",
        )
        for f in fields(cls)
    }


@once_a_class
def meanings(cls: Any) -> dict[str, str]:
    """field -> the text under it in the source of a description (empty without a source file)."""
    try:
        body: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):
        return {}
    docs = {}
    for line, below in pairwise(body.body):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(words))
            ):
                docs[name] = " ".join(words.split())
    return docs


@once_a_class
def required_fields(cls: Any) -> tuple[str, ...]:
    """Fields without a default."""
    return tuple(
        f.name for f in fields_of(cls).values() if f.default is MISSING
    )


@once_a_class
def owned_fields(cls: Any) -> tuple[Field, ...]:
    """The fields that not all of its options have."""
    return tuple(f for f in fields_of(cls).values() if f.kind.only)


def left_out(cls: Any, values: Mapping[str, Any]) -> list[str]:
    """Fields among these values that the options among them do not have."""
    usual = {f.name: f.default for f in fields_of(cls).values()}
    options = SimpleNamespace(**{**usual, **values})
    return [
        f.name
        for f in owned_fields(cls)
        if (only := f.kind.only)
        and f.name in values
        and not only.allows(only.chosen([options]))
    ]


def demand_meaning(
    instance: Any, given: Iterable[str], where: str, above: tuple[Any, ...]
) -> None:
    """Raise BadInput if one of the fields that were given is none of the options' that were
    chosen. above: what the instance is a part of, the innermost first.
    """
    for f in owned_fields(type(instance)):
        only: Any = f.kind.only
        option = only.chosen((instance, *above))
        if f.name in given and not only.allows(option):
            raise BadInput(f"{where}.{f.name} {only.sentence(option)}")
