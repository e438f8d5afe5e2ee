"""The decoder families of transformers: what of a config.json makes which field of a Model.

A family is a row of catalog/hf_families.toml, whose head says what a row may hold; what no row says
(layers described by letters, tables in tables) is a function of `hf_structures`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

from ..describe.fields import fields_of
from ..describe.model import Model
from ..describe.read import brief
from ..errors import BadInput
from .formulas import worked_out
from .hf_common import activation_named
from .hf_keys import Config, Fields, family_table
from .hf_layers import (
    ATTENTION,
    layer_count,
    rotary_layers,
    sliding,
    vocabulary,
    windows,
    words_of_list,
)
from .hf_structures import STRUCTURES

FORMULA = "="
"""A text that begins so is worked out of the keys of a file."""
LISTS = ("also", "unused", "refuse", "demand", "notes")
"""Lists of a row that go on behind those of the rows under it; all else takes their place."""
TABLES = ("each", "let", "only", "defaults", "aliases")
WORDS = ("is", "code", "like", "classes")
"""Words of a row that are no field of a model, beside `LISTS`."""
RESERVED = frozenset((*LISTS, *TABLES, *WORDS))
KEY = re.compile(r"\w+")


@dataclass(frozen=True)
class HfFamily:
    """How one `model_type` is read."""

    row: Mapping[str, Any]

    @property
    def like(self) -> str:
        """The class whose keys it has, if transformers has none of its name; then nothing may be
        left out but `defaults`.
        """
        return str(self.row.get("like", ""))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of its language model's class, where they are not that of transformers."""
        return tuple(self.row.get("classes", ()))

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of its row, empty if there is none."""
        rows: Mapping[str, Any] = self.row.get(name, {})
        return rows

    def fields(self, c: Config) -> Fields:
        """The fields of a model, layers as words in `mixers` and `ffns`.  Raises BadInput."""
        row, names = self.row, Names(c, self.table("let"))
        c.asked.update(row.get("unused", ()))
        for text in sentences(row.get("refuse", ()), names):
            raise c.refuse(text)
        for text in sentences(row.get("demand", ()), names):
            raise BadInput(f"{c.where}: {text}")
        if "layers" in row:  # the others are worked out of as many
            names["layers"] = names.value(row["layers"])
        made = layers_in_words(self.table("each"), names)
        only = self.table("only")
        for name, what in row.items():
            if name not in RESERVED and (
                name not in only or names.value(only[name], always=True)
            ):
                made[name] = names.field(Model, name, what)
        if "code" in row:
            made |= STRUCTURES[row["code"]](c, made)
        notes = sentences(row.get("notes", ()), names)
        return made | {"notes": tuple(f"{c.where}: {text}" for text in notes)}


class Names(dict[str, Any]):
    """What the names in formulas of a row stand for in one file: `let` of the row, else a key."""

    def __init__(self, c: Config, let: Mapping[str, Any]) -> None:
        super().__init__(
            {
                "whole": c.whole,
                "flag": c.flag,
                "real": c.real,
                "given": c.get,
                "has": c.has,
                "knows": lambda *keys: bool(c.known & {*keys}),
                "activation": lambda *keys: activation_named(c, keys),
                "bool": bool,
                "is_whole": lambda value: type(value) is int,
                "int": int,
                "ceil": ceil,
                "max": max,
                "layers": layer_count(c),
            }
        )
        own = (self.last, self.named, self.at, self.rotary, self.if_wide)
        self.update({f.__name__: f for f in (*own, self.inside, self.alike)})
        self.c, self.let = c, let
        self.lists: dict[object, Any] = {}
        """What functions of layer i asked for before."""

    def __missing__(self, name: str) -> Any:
        self[name] = (
            self.value(self.let[name])
            if name in self.let
            else self.c.whole(name)
        )
        return self[name]

    def value(self, what: Any, always: bool = False) -> Any:
        """A value of a row; always: it is a formula without its sign."""
        if not always and not is_formula(what):
            return what
        try:
            return worked_out(what.strip("= "), self)
        except (TypeError, ZeroDivisionError, OverflowError):
            raise BadInput(
                f"{self.c.where}: its sizes do not fit together ({what.strip('= ')})"
            ) from None

    def field(self, cls: type, name: str, what: Any) -> Any:
        """A field of a description, or a table of them, whose formulas may name those above."""
        fields = fields_of(cls)
        kind: type = fields[name].kind.type if name in fields else object
        if isinstance(what, Mapping):
            inner = Names(self.c, {**self.let})
            made = {}
            for key, value in what.items():
                made[key] = inner[key] = inner.field(kind, key, value)
            return {k: v for k, v in made.items() if v is not None}
        key = what.strip("= ") if is_formula(what) else ""
        if kind is bool and KEY.fullmatch(key):
            return self.c.flag(key)
        return self.value(what)

    # ------------------------------------------------ functions of formulas

    def last(
        self,
        n: int,
        last: str = "full",
        others: str = "sliding",
        layer: int | None = None,
    ) -> str:
        """The word of layer i where the last of each n layers is another; 0: none is."""
        i = self["i"] if layer is None else layer
        return last if n and (i + 1) % n == 0 else others

    def named(self, key: str, otherwise: bool = False, first: int = 0) -> bool:
        """Layer i is in the list of a key; otherwise: where there is no list; first: the number of
        the first layer there.
        """
        given = self.inside(*key.split(".")) if "." in key else self.c.get(key)
        if given is None:
            return otherwise
        numbers = given
        if isinstance(given, str):  # 3,4,5
            words = [word.strip() for word in given.split(",")]
            fine = all(word.isdecimal() and word.isascii() for word in words)
            numbers = [int(word) for word in words] if fine else None
        if not isinstance(numbers, list):
            raise BadInput(
                f"{self.c.where}: {key} must be a list of layers, not {brief(given)}"
            )
        if key not in self.lists:  # a set: files may list 100,000 layers
            self.lists[key] = {n for n in numbers if isinstance(n, int)}
        return self["i"] + first in self.lists[key]

    def at(self, key: str) -> Any:
        """What the list of a key says of layer i; None where there is no list."""
        given = self.c.listed(key)
        if given is None:
            return None
        if len(given) != self["layers"]:
            raise BadInput(
                f"{self.c.where}: {key} lists {len(given)} layers, not {self['layers']}"
            )
        return given[self["i"]]

    def rotary(self, period: int) -> bool:
        """Layer i has rotary positions."""
        key = ("rotary", period)
        if key not in self.lists:
            self.lists[key] = rotary_layers(self.c, period)
        return bool(self.lists[key][self["i"]])

    def if_wide(self, word: str) -> str:
        """The word, where the file says how wide a window is; else no layer has one."""
        return word if self.c.whole("sliding_window", default=0) else "full"

    def inside(self, table: str, key: str, *others: str) -> Any:
        """The value of a key of a table in the file, else of keys beside the table."""
        usual = self.c.whole(*others) if others else None
        return self.c.table(table).get(key, usual)

    def alike(self, key: str, number: int) -> bool:
        """All entries of a list are the number, or there is no list."""
        return {*map(str, self.c.listed(key) or ())} <= {str(number)}


def is_formula(what: object) -> bool:
    """A text that is worked out of keys."""
    return isinstance(what, str) and what.startswith(FORMULA)


def sentences(rows: Any, names: Names) -> Iterator[str]:
    """The sentences of rows (formula, sentence) whose formula is true."""
    for formula, text in rows:
        if names.value(formula, always=True):
            yield re.sub(
                r"\{(\w+)\}", lambda m: brief(names.c.get(m[1])), text
            )


def layers_in_words(each: Mapping[str, Any], names: Names) -> Fields:
    """A word for each layer: what its attention is, and its feed-forward, as the file lists them
    or the class has them.
    """
    c = names.c

    def usual(what: object) -> list[str]:
        words = []
        for i in range(names["layers"]) if is_formula(what) else ():
            names["i"] = i
            words.append(names.value(what))
        return words or [str(what)] * names["layers"]

    made: Fields = {}
    mixers = usual(each["mixer"]) if "mixer" in each else []
    by, width = each.get("by", "layer_types"), each.get("window", WINDOW)
    words = vocabulary(each.get("words", ATTENTION))
    if each.get("switched"):
        made = sliding(c, mixers)
    elif mixers and by and width:
        made = windows(c, mixers, width, words)
    elif mixers:
        listed = words_of_list(c, by, words) if by else None
        made = {"mixers": listed or mixers}
    if "ffn" in each:
        ffns, by = usual(each["ffn"]), each.get("ffn_by", "")
        words = vocabulary("feed_forward")
        made["ffns"] = (words_of_list(c, by, words) if by else None) or ffns
    return made


WINDOW = "sliding_window"
"""The key of a window's width in most files."""


@cache
def families() -> Mapping[str, HfFamily]:
    """model_type -> its family."""
    rows = family_table()["family"]
    return {name: HfFamily(whole_row(row)) for name, row in rows.items()}


@cache
def common() -> HfFamily:
    """What all families have in common, as a row under each of them."""
    return HfFamily(family_table()["part"]["common"])


def whole_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row laid over those that it is."""
    made: dict[str, Any] = {}
    for name in row.get("is", ()):
        kind, _, rest = name.rpartition(".")
        made = laid_over(made, whole_row(family_table()[kind or "part"][rest]))
    return laid_over(made, row)


def laid_over(
    under: Mapping[str, Any], row: Mapping[str, Any]
) -> dict[str, Any]:
    """A row with all that it does not say of another."""
    made = dict(under)
    for name, value in row.items():
        if name in LISTS and name in made:
            made[name] = [*made[name], *value]
        elif isinstance(value, Mapping):
            made[name] = laid_over(made.get(name, {}), value)
        else:
            made[name] = value
    return made


__all__ = ["HfFamily", "common", "families"]
