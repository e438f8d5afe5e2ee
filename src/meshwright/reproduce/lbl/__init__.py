"""Subramanian et al. 2024 (LBL), arXiv 2410.00273, made again."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ..report import Check, Report
from . import optima, saved, saved_checks


def run(files: dict[str, tuple[Path, ...]]) -> Report:
    checks: list[Check] = []
    cases = [c for f in files["lbl"] for c in saved.read(f)]
    for case in cases:
        checks += saved_checks.checks(case)
        checks.append(optima.check(case))
    return Report("lbl", tuple(checks))
