"""Subramanian et al. 2024 (LBL), arXiv 2410.00273, made again.

Without a file: the configurations its authors saved (shipped), three of them operation by
operation, and what the text says about its figures. With files: their configurations, or their
measurements of collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from ... import shipped
from ..report import Check, Report, sourced
from . import (
    conclusions,
    nccl,
    optima,
    plots,
    saved,
    saved_checks,
    spots,
    statements,
)
from .defects import DEFECTS


def lbl_report(files: dict[str, tuple[Path, ...]]) -> Report:
    """files: "lbl" -> saved configurations, "nccl" -> measured collectives; empty: those
    shipped.
    """
    given = tuple(
        row for file in files.get("nccl", ()) for row in nccl.read_nccl(file)
    )
    rows = given or nccl.read_nccl()
    said = (
        ()
        if files
        else (
            *spots.spot_checks(),
            *statements.statement_checks(),
            *conclusions.conclusion_checks(),
        )
    )
    saves = files.get("lbl", ()) if files else (OPTIMA,)
    code = (
        *configurations(chain(*map(saved.read_saved, saves))),
        *nccl.bandwidth_checks(given),
    )
    checks = (*said, *sourced("authors' code", code))
    notes = list(defect_notes(checks))
    if given or not files:
        notes.append(nccl.errors_text(rows))
    return Report(
        "lbl",
        checks,
        figures=plots.figures_in_order(rows),
        notes=tuple(notes),
    )


OPTIMA = shipped.DATA / "published/lbl_optima.json"
"""The configurations that the authors saved."""


def configurations(cases: Iterable[saved.SavedCase]) -> Iterator[Check]:
    """Every published configuration at its own layout, and the search beside each optimum."""
    for case in cases:
        yield from saved_checks.case_checks(case)
        yield optima.optimum_check(case)


def defect_notes(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """The defects of the authors' code that moved a number, and how many each moved."""
    counts = {
        d: sum(c.status == "explained" and d.name in c.note for c in checks)
        for d in DEFECTS
    }
    return tuple(
        f"defect of the authors' code: {d.name} ({n:,} numbers): {d.what}"
        for d, n in counts.items()
        if n
    )
