"""The book's printed numbers beside ours: reading files of worked numbers, and judging each one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from meshwright.describe.fields import (
    Amount,
    Checked,
    OneOf,
    Prose,
    Range,
)

from ... import shipped as data
from ..report import Check, near_published
from ..sources import known, read_json
from . import questions

TIGHT = 0.01
"""Most by which we may differ from an independent calculation of a question, even where its
tolerance is wider.
"""
KINDS = ("ok", "loose", "erratum", "derived")


MOST = 1e30
Number = Annotated[float, Range(-MOST, MOST)]


@dataclass(frozen=True)
class Case(Checked):
    """One worked number of the book."""

    id: Prose
    kind: Annotated[str, OneOf(*KINDS)] = "ok"
    printed: Number | None = None
    """As the book prints it."""
    computed: Number | None = None
    """What follows from the question's inputs, by an independent calculation."""
    tol: Amount = 0.01
    """How far rounding may carry, relative."""
    note: Prose = ""
    question: Prose = ""
    inputs: Prose = ""
    formula: Prose = ""
    ask: tuple[Any, ...] = ()
    """Function and arguments that answer it."""

    def answer(self) -> float | None:
        """Ours; None: at no batch."""
        value = solve(self.ask)
        return None if value is None else float(value)


def solve(ask: Any) -> Any:
    """What a question's function makes of what it is given, of which lists are questions too."""
    if not isinstance(ask, (tuple, list)):
        return ask
    name, *given = ask
    return vars(questions)[name](*map(solve, given))


def read_published(file: Path) -> list[Case]:
    """The cases of a file; BadInput names the first one that is malformed."""
    return parse_cases(read_json(file), file.name[:80])


@cache
def shipped() -> list[Case]:
    """The cases that come with the catalogue; of these alone we know what to ask."""
    root = data.shipped_table("published/scaling_book.json")
    cases = parse_cases(root, "scaling_book.json")
    return [
        replace(case, ask=tuple(row["ask"]))
        for case, row in zip(cases, root["cases"], strict=True)
    ]


def parse_cases(data: dict[str, Any], where: str) -> list[Case]:
    """Cases from plain data; what else a row holds is passed over, its `ask` too."""
    return [
        known(Case, row, f"{where}: case {i}", leave="ask")
        for i, row in enumerate(data["cases"], 1)
    ]


def worked_checks(cases: Iterable[Case]) -> list[Check]:
    """Every case computed and judged."""
    known = {c.id: c for c in shipped()}
    return [judge(case, known.get(case.id)) for case in cases]


def judge(case: Case, known: Case | None) -> Check:
    """One case: match within its rounding; loose where the book rounds further than that; open
    where it prints no number; erratum where the printed number does not follow but ours does; or
    mismatch.

    known: the shipped case of that id; a question with other inputs is computed like it, and the
    note says so.
    """
    ours = known.answer() if known else None
    if ours is None:
        note = (
            "our answer: at no batch"
            if known
            else "no computation for this id"
        )
        return Check(
            case.id, case.printed, computed=None, status="mismatch", note=note
        )
    notes = [case.note] if case.note else []
    if known and (case.inputs, case.formula) != (
        known.inputs,
        known.formula,
    ):
        notes.append("its inputs differ from the ones this computation knows")
    follows = _agrees(case.computed, ours, min(case.tol, TIGHT))
    rounding = case.kind != "ok" or _agrees(case.printed, ours, case.tol)
    if not follows or not rounding:
        status = "mismatch"
    elif case.kind == "erratum":
        status = "erratum"
    elif case.printed is None:
        status = "open"
        notes.append("the book leaves it open")
    elif _agrees(case.printed, ours, TIGHT) or (
        case.kind != "loose" and _near(case.printed, ours)
    ):
        status = "match"
    else:
        status = "loose"
        notes.append("printed loosely: ours is what its inputs give")
    source = (
        "formula"
        if case.printed is None and status != "erratum"
        else "printed"
    )
    return Check(
        case.id,
        case.printed,
        computed=ours,
        status=status,
        note="; ".join(notes),
        source=source,
    )


def _near(printed: float, ours: float) -> bool:
    """Within half a unit of the last digit that is printed (zeros at the end are none)."""
    digits, power = f"{printed:.15e}".split("e")
    unit = 10.0 ** (int(power) - len(digits.rstrip("0").partition(".")[2]))
    return abs(ours - printed) <= 0.5000001 * unit


def _agrees(reference: float | None, ours: float, tol: float) -> bool:
    """Within a relative tolerance, or nothing to agree with."""
    return reference is None or near_published(reference, ours, tol + 1e-12)
