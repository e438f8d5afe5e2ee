"""The table of families: each formula is one, and names what its class has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from meshwright.describe.fields import fields_of
from meshwright.describe.model import Model
from meshwright.formats.formulas import names_in, worked_out
from meshwright.formats.hf_families import (
    RESERVED,
    Names,
    common,
    families,
    is_formula,
)
from meshwright.formats.hf_keys import (
    EVERYWHERE,
    Config,
    classes,
    family_table,
)
from meshwright.formats.hf_structures import STRUCTURES

NUMBERS = {
    "hidden": 8,
    "wide": True,
    "none": None,
    "last": lambda n, word="x": word * n,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4 * hidden if wide else 0", 32),
        ("hidden // 3 - -1 + hidden % 3", 5),
        ("none or hidden / 2", 4.0),
        ("wide and none is None and not 0", True),
        ("hidden in (4, 8) and hidden not in (1,)", True),
        ("1 < hidden and hidden <= 8 and hidden != 9", True),
        ("last(2) == 'xx'", True),
        ("last(hidden // 4, word='ab')", "abab"),
    ],
)
def test_a_formula_is_worked_out(text: str, value: object) -> None:
    assert worked_out(text, NUMBERS) == value


@pytest.mark.parametrize(
    "text",
    [
        "hidden.real",
        "().__class__",
        "last.__self__",
        "hidden ** hidden",
        "[hidden]",
        "lambda: 1",
        "[x for x in (1,)]",
        "hidden[0]",
        "(last)(1)(2)",
        "1 < hidden < 3",
        "hidden :=",
        "(" * 5000,
        "hidden << 9",
        "f'{hidden}'",
    ],
)
def test_what_reaches_further_is_no_formula(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        worked_out(text, NUMBERS)


def formulas(row: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """(formula, fields of the table that it stands in) of a row."""
    for name, what in row.items():
        if name in ("refuse", "demand", "notes"):
            yield from ((text, set()) for text, _ in what)
        elif name == "only":
            yield from ((text, set()) for text in what.values())
        elif isinstance(what, Mapping):
            for key, value in what.items():
                if is_formula(value):
                    yield value.strip("= "), {*what} - {key}
        elif is_formula(what):
            yield what.strip("= "), set()


@pytest.mark.parametrize("kind", sorted(families()))
def test_a_row_names_fields_and_keys_that_there_are(kind: str) -> None:
    family = families()[kind]
    fields = {*fields_of(Model), "longest"}
    assert {*family.row} - RESERVED <= fields
    assert {*family.table("only")} <= {*family.row}
    assert family.row.get("code", "dbrx") in STRUCTURES
    each = {"mixer", "words", "by", "window", "switched", "ffn", "ffn_by"}
    assert {*family.table("each")} <= each
    words = family.table("each").get("words", "attention")
    assert words in family_table()["words"]
    of = classes()[family.like or kind]
    known = {*of["defaults"], *of["aliases"], *of["aliases"].values()}
    known |= {*family.table("defaults"), *family.row.get("also", ())}
    known |= {*EVERYWHERE, "i", "layers", "vocab_size", *common().table("let")}
    c = Config({"num_hidden_layers": 1}, {}, kind, frozenset(known))
    words = {*Names(c, {}), *family.table("let")}
    for text, own in formulas(family.row):
        names = names_in(text)
        # a flag that a shared row asks for and the class does not have is off
        switch = text in ("mlp_bias", "attention_bias", "use_qk_norm")
        assert switch or names <= known | words | own, (text, names - known)
