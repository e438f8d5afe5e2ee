"""The tables of a validation as Markdown: what stands in docs/accuracy.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import TIMES, Checked, Validation, verdicts
from .stats import confusion, stats

COUNTS = ("true_positives", "false_negatives", "false_positives", "true_negatives", "unknown")
ERRORS = ("median_abs_error", "mean_abs_error", "p90_abs_error")


def markdown(v: Validation) -> str:
    """Tables of errors: overall, by source, by chip; memory, out of memory, ranking; skipped rows and their reasons; notes."""
    parts = [
        _errors("Overall", "quantity", {q: v.having(q) for q in (*TIMES, "memory")}),
        _errors("Time, by source", "source", _grouped(v.having(*TIMES), lambda r: r.source)),
        _errors("Time, by chip", "chip", _grouped(v.having(*TIMES), lambda r: r.chip)),
        _errors("Memory, by source", "source", _grouped(v.having("memory"), lambda r: r.source)),
        _out_of_memory(v),
        _ranking(v),
        _skipped(v),
        _notes(v),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _grouped(rows: Iterable[Checked], key: Callable[[Checked], str]) -> dict[str, list[Checked]]:
    groups: dict[str, list[Checked]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


def _errors(title: str, name: str, groups: dict[str, list[Checked]]) -> str:
    lines = []
    for group, rows in groups.items():
        if rows:
            s = stats([r.ratio for r in rows if r.ratio is not None])
            shown = [f"{s[e]:.0%}" for e in ERRORS]
            lines.append((group, str(s["rows"]), *shown, f"{s['bias']:+.0%}"))
    header = (name, "rows", "median error", "mean error", "p90 error", "bias")
    return _table(title, header, lines) if lines else ""


def _out_of_memory(v: Validation) -> str:
    lines = []
    for source, rows in _grouped((r for r in v.rows if r.quantity == "out_of_memory"), lambda r: r.source).items():
        c = confusion(verdicts(rows))
        lines.append((source, *(str(c[k]) for k in COUNTS)))
    header = (
        "source",
        "ran out, foreseen",
        "ran out, not foreseen",
        "ran, but foreseen to run out",
        "ran, foreseen",
        "not known",
    )
    return _table("Out of memory", header, lines) if lines else ""


def _ranking(v: Validation) -> str:
    r: dict[str, Any] = v.overall["ranking"]
    if not r["groups"]:
        return ""
    line = (str(r["groups"]), f"{r['spearman_median']:.2f}", f"{r['regret_mean']:.1%}")
    return _table("Ranking of layouts of one workload", ("groups", "median Spearman", "mean regret"), [line])


def _skipped(v: Validation) -> str:
    lines = [(why, str(n)) for why, n in v.skipped.items()]
    return _table("Skipped rows", ("reason", "rows"), lines) if lines else "## Skipped rows\n\nNone."


def _notes(v: Validation) -> str:
    lines = [(note, str(len(ids))) for note, ids in v.notes.items()]
    return _table("What was assumed, or cannot be said", ("note", "rows"), lines) if lines else ""


def _table(title: str, header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    rule = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|"
    rows = ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in (header, *lines)]
    return "\n".join((f"## {title}", "", rows[0], rule, *rows[1:]))
