"""Published and measured numbers beside ours: what `reproduce` and `validate` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.report.predict import plain
from meshwright.report.text import percent

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


def reproduced(data: Mapping[str, Any]) -> RenderableType:
    """The checks of a paper: a summary, then what differs most."""
    summary = data["summary"]
    checks = data["checks"]
    head = Text(
        f"{data.get('paper', 'paper')}: {len(checks):,} checks: ", "bold"
    )
    for status in STYLES:
        if summary[status]:
            head.append(f"{summary[status]:,} {status}  ", STYLES[status])
    sources = ", ".join(
        f"{n:,} {WHENCE[s]}" for s, n in summary["by_source"].items()
    )
    parts: list[RenderableType] = [
        head,
        Text(f"  held against: {sources}"),
        Text(
            f"  largest difference among those that match: {summary['worst_match']:.2g}"
            " (what is printed with one digit may differ by much and still round to it)"
        ),
    ]
    parts += [Text(f"  {note}") for note in data.get("notes", ())]
    return Group(*parts, Text(), _checks(checks))


def _checks(checks: list[Mapping[str, Any]]) -> RenderableType:
    """A table of checks, the worst first."""
    table = plain("check", "published", "computed", "difference", "", "note")
    ranked = sorted(
        checks,
        key=lambda c: (
            WORST_FIRST.index(c["status"]),
            -abs(c["rel_diff"] or 0.0),
        ),
    )
    for c in ranked[:MOST]:
        difference = (
            "" if c["rel_diff"] is None else f"{100 * c['rel_diff']:+.3g} %"
        )
        cells = (
            c["id"],
            _number(c["published"]),
            _number(c["computed"]),
            difference,
        )
        table.add_row(
            *cells, Text(c["status"], STYLES[c["status"]]), c["note"]
        )
    more = len(ranked) - MOST
    return (
        Group(
            table,
            Text(
                f"and {more:,} more: --json shows all, -o FOLDER writes them",
                "dim",
            ),
        )
        if more > 0
        else table
    )


def _number(value: Any) -> str:
    return (
        ""
        if value is None
        else f"{value:.6g}"
        if isinstance(value, (int, float))
        else str(value)
    )


def validated(data: Mapping[str, Any]) -> RenderableType:
    """Errors against measured runs: overall, by source, what was skipped, and what was assumed."""
    table = plain(
        "predicted against measured",
        "rows",
        "median error",
        "mean",
        "90th percentile",
        "bias",
        "in the interval",
    )
    overall = data["overall"]
    for name, stats in overall.items():
        if isinstance(stats, Mapping) and "median_abs_error" in stats:
            _stats_row(table, name.replace("_", " "), stats, "bold")
    table.add_section()
    for part in ("sources", "classes"):
        for name, stats in data.get(part, {}).items():
            _stats_row(table, name, stats)
        table.add_section()
    if held_out := data.get("held_out"):
        _stats_row(
            table, "runs that no fit may use", held_out["step_time"], "bold"
        )
        for name, stats in held_out["sources"].items():
            _stats_row(table, name, stats)
    return Group(
        table, Text(), *_fitted(data), *_verdicts(overall), *_skipped(data)
    )


def _fitted(data: Mapping[str, Any]) -> Iterator[Text]:
    """That rows were fitted, and where the errors on unseen ones stand."""
    if known := data.get("fitted"):
        yield Text(
            f"the shared numbers were fitted to {known:,} of these step times: a new run is"
            " farther off (docs/accuracy.md: errors with each laboratory left out)",
            "bold",
        )


def _stats_row(
    table: Table, name: str, stats: Mapping[str, Any], style: str = ""
) -> None:
    keys = (
        "median_abs_error",
        "mean_abs_error",
        "p90_abs_error",
        "bias",
        "coverage",
    )
    cells = [
        "" if (value := stats.get(key)) is None else percent(value)
        for key in keys
    ]
    table.add_row(name, f"{stats['rows']:,}", *cells, style=style)


def _verdicts(overall: Mapping[str, Any]) -> Iterator[Text]:
    """Out-of-memory and ranking, in words."""
    for name in ("out_of_memory", "ranking"):
        if isinstance(found := overall.get(name), Mapping):
            numbers = {
                key: value
                for key, value in found.items()
                if isinstance(value, (int, float))
            }
            words = ", ".join(
                f"{key.replace('_', ' ')} {_number(value)}"
                for key, value in numbers.items()
            )
            yield Text(f"{name.replace('_', ' ')}: {words}")
            if told := [
                row for row in found.get("reliability", ()) if row["rows"]
            ]:
                yield Text(
                    f"of the runs with a risk of {', '.join(map(_reliable, told))}"
                )


def _reliable(row: Mapping[str, Any]) -> str:
    """How many runs of a range of risk ran out of memory."""
    low, high = row["risk"]
    return f"{percent(low)} to {percent(high)}: {percent(row['ran_out'])} of {row['rows']} ran out"


def _skipped(data: Mapping[str, Any]) -> Iterator[Text]:
    for reason, count in data["skipped"].items():
        yield Text(f"skipped {count:,}: {reason}", "dim")
    for note, ids in data.get("notes", {}).items():
        yield Text(f"note on {len(ids):,}: {note}", "dim")
