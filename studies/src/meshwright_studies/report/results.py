"""Published and measured numbers beside ours: what `reproduce` and `validate` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from meshwright.report.card import Card, CardRow, CardTable
from meshwright.report.tables import text_table
from meshwright.report.text import percent

from ..reproduce.report import sides
from ..validate.markdown import sections
from ..validate.result import Validation

STYLES = {
    "match": "green",
    "loose": "green",
    "open": "dim",
    "explained": "cyan",
    "erratum": "yellow",
    "mismatch": "bold red",
}
MOST = 40
"""Checks shown; all are in --json and -o."""
WHENCE = {
    "printed": "printed in the paper",
    "authors' code": "from the authors' code and data",
    "own": "from an independent implementation of ours",
    "formula": "from formulas of the paper",
}
WORST_FIRST = ("mismatch", "erratum", "explained", "loose", "open", "match")


FIRST = {
    "lbl": "lbl-fig-4a",
    "epoch": "epoch-figure-6",
    "scaling-book": "scaling-book-split",
    "megatron": "megatron-fig-10",
}
"""Paper -> its main figure."""


def reproduced_card(
    data: Mapping[str, Any], folder: str | None = None
) -> Card:
    """How many of a paper's numbers are met, and the worst of them.

    folder: where its tables and figures are.
    """
    summary = data["summary"]
    checks = data["checks"]
    wrong = summary["mismatch"]
    counts = ", ".join(
        f"{summary[status]:,} {status}"
        for status in STYLES
        if summary[status] and status != "mismatch"
    )
    word, style = ("no", "bold red") if wrong else ("yes", "bold green")
    met = f"{wrong:,} mismatch" if wrong else "no mismatch"
    ranked = [
        (c["id"], *_sides(c), c["status"]) for c in sorted(checks, key=_worst)
    ][:WORST]
    names = ("worst", "published", "computed", "difference", "status")
    return Card(
        f"Are the numbers of {data.get('paper', 'the paper')} reproduced? {len(checks):,} checks",
        (
            CardRow(word, f"{met}; {counts}", style),
            CardRow("against", _sources(summary), rank=2),
            CardRow(
                "largest",
                f"difference among those that match: {100 * summary['worst_match']:.2g} %, within"
                " the digits that the paper prints",
                rank=3,
            ),
            *(_written(data, folder) if folder else ()),
            *(CardRow("note", note, rank=3) for note in data.get("notes", ())),
            CardTable(names, ranked),
        ),
        "--all: the 40 worst with notes; --json: all"
        + ("" if folder else "; -o FOLDER: figures"),
    )


def _sources(summary: Mapping[str, Any]) -> str:
    """How many checks are against what."""
    return ", ".join(
        f"{n:,} {WHENCE[s]}" for s, n in summary["by_source"].items()
    )


def _written(data: Mapping[str, Any], folder: str) -> Iterator[CardRow]:
    """What is in the folder, and where to begin."""
    first = [f"{v}.png" for v in FIRST.values() if v in data["figures"]]
    yield CardRow(
        "written",
        f"figures: {len(data['figures'])}, tables: {len(data['tables']) + 1}, in {folder};"
        f" begin with {', '.join(first)}",
        rank=1,
    )


WORST = 4
"""Checks on a card."""


def _off(check: Mapping[str, Any]) -> str:
    """The difference of what is computed."""
    off = check["rel_diff"]
    return "" if off is None else f"{100 * off:+.3g} %"


def _sides(check: Mapping[str, Any]) -> tuple[str, str, str]:
    """Published, computed and their difference, which a statement has not."""
    published, computed = sides(check["published"], check["computed"])
    return published, computed, "" if published == "yes" else _off(check)


def _worst(check: Mapping[str, Any]) -> tuple[int, float]:
    """Order of checks: by status, then by difference."""
    status = WORST_FIRST.index(check["status"])
    return status, -abs(check["rel_diff"] or 0.0)


def validated_card(data: Mapping[str, Any]) -> Card:
    """Errors overall, and of the sources where they are largest."""
    named = [*_overall(data)]
    sources = data.get("sources", {}).items()
    if len(sources) > 1:
        named += sorted(sources, key=lambda of: -_error(of[1]))[:WORST]
    if held_out := data.get("held_out"):
        named.append((HELD_OUT, held_out["step_time"]))
    rows = [(*_cells(name, stats), "") for name, stats in named]
    head = ("errors of", "rows", "median", "90 %", "bias", "in interval", "")
    n = sum(data["skipped"].values())
    left = [CardRow("skipped", f"{n:,} rows, with reasons: --all", rank=3)]
    return Card(
        "How far are predictions from measured runs?",
        (
            CardTable(head, rows, most=9),
            *(
                [CardRow("note", FITTED.format(known), "bold", rank=2)]
                if (known := data.get("fitted"))
                else ()
            ),
            *(left if n else []),
        ),
        "--all: every source and class, out of memory, ranking",
    )


def _error(stats: Mapping[str, Any]) -> float:
    """The median error; 0 where there is none."""
    return float(stats.get("median_abs_error") or 0.0)


def _overall(
    data: Mapping[str, Any],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, statistics) of each quantity that has errors."""
    for name, stats in data["overall"].items():
        if isinstance(stats, Mapping) and "median_abs_error" in stats:
            yield name.replace("_", " "), stats


FITTED = (
    "the shared numbers were fitted to {:,} of these step times: a new run is farther off"
    " (docs/accuracy.md: errors with each laboratory left out)"
)
HELD_OUT = "runs that no fit may use"
BRIEF = ("median_abs_error", "p90_abs_error", "bias", "coverage")


def _cells(name: str, stats: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of errors."""
    values = (stats.get(key) for key in BRIEF)
    shown = ("" if v is None else percent(v) for v in values)
    return name, f"{stats['rows']:,}", *shown


def reproduced(data: Mapping[str, Any]) -> RenderableType:
    """The notes of a paper, and its checks, the worst first."""
    ranked = sorted(data["checks"], key=_worst)
    table = text_table(
        "check | published | computed | difference |  | note",
        [
            (
                c["id"],
                *_sides(c),
                Text(c["status"], STYLES[c["status"]]),
                c["note"],
            )
            for c in ranked[:MOST]
        ],
    )
    left = len(ranked[MOST:])
    more = f"and {left:,} more: --json shows all, -o FOLDER writes them"
    return Group(
        *map(Text, data["notes"]),
        Text(),
        table,
        *([Text(more, "dim")] if left else ()),
    )


def validated(v: Validation) -> RenderableType:
    """Every table of errors against measured runs, with what was skipped and what was assumed."""
    parts: list[RenderableType] = []
    for title, columns, lines in sections(v):
        parts += [Text(f"\n{title}", "bold"), text_table(columns, lines)]
    return Group(*parts)
