"""Published numbers beside computed ones: every table and figure of the papers this project rests
on, made again.

    reproduce("lbl")                            against the numbers shipped with the catalogue
    reproduce("lbl", against="optima.json")     against a file or folder of the same format
    reproduce("all", out="results")             and write tables (CSV, Markdown)
                                                and figures (PNG, SVG)

A paper is a module with `run(files) -> Report`; `files`: format -> files found in `against`.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import perf_counter

from meshwright.errors import BadInput, unknown

from .report import (
    SOURCES,
    STATUSES,
    Check,
    PaperFigure,
    PaperTable,
    Report,
    check,
    merge,
)
from .sources import find

PAPERS = {
    "lbl": ("lbl", ("lbl", "nccl")),
    "epoch": ("epoch", ("epoch",)),
    "scaling-book": ("scaling_book", ("scaling-book",)),
    "megatron": ("megatron", ()),
}
"""paper -> (its module, loaded when first asked for; formats of published numbers it can be held
against).
"""

__all__ = [
    "PAPERS",
    "SOURCES",
    "STATUSES",
    "Check",
    "PaperFigure",
    "Report",
    "PaperTable",
    "check",
    "merge",
    "reproduce",
]


def reproduce(
    paper: str = "all",
    against: str | Path | None = None,
    out: str | Path | None = None,
) -> Report:
    """Compute a paper's numbers again and check them against the published ones.

    paper: lbl, epoch, scaling-book, megatron or all;  against: a file or folder of published
    numbers instead of the shipped ones (formats are told by content);  out: a folder for tables and
    figures.  Raises BadInput.
    """
    names = tuple(PAPERS) if paper == "all" else (paper,)
    if paper not in ("all", *PAPERS):
        raise unknown("paper", paper, ["all", *PAPERS])
    files = find(against) if against is not None else {}
    if against is not None:
        formats = [f for n in names for f in PAPERS[n][1]]
        names = tuple(n for n in names if set(PAPERS[n][1]) & files.keys())
        if not names:
            what = (
                f"in the format {' or '.join(formats)}"
                if formats
                else f"that {paper} could be held against"
            )
            raise BadInput(
                f"{str(against)[:200]} holds no published numbers {what}"
            )
    reports = [_run(name, files) for name in names]
    report = reports[0] if len(reports) == 1 else merge("all", reports)
    if out is not None:
        report.write(Path(out))
    return report


def _run(name: str, files: dict[str, tuple[Path, ...]]) -> Report:
    """One paper's report, with the time it took."""
    module, formats = PAPERS[name]
    start = perf_counter()
    paper = import_module(f".{module}", __name__)
    report: Report = getattr(paper, f"{module}_report")(
        {f: files[f] for f in formats if f in files}
    )
    return replace(report, elapsed_s=perf_counter() - start)
