"""The tables of a validation as Markdown: what stands in docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .result import TIMES, RowComparison, Validation, rows_by_key, verdicts
from .stats import DIFFERENT, confusion, stats

COUNTS = (
    "true_positives",
    "false_negatives",
    "false_positives",
    "true_negatives",
    "unknown",
)
ERRORS = ("median_abs_error", "mean_abs_error", "p90_abs_error")


def markdown(v: Validation) -> str:
    """Tables of errors: overall, by source, by chip; memory, out of memory, ranking; skipped rows
    and their reasons; notes.
    """
    parts = [
        _errors(
            "Overall", "quantity", {q: v.having(q) for q in (*TIMES, "memory")}
        ),
        _errors(
            "Time, by source",
            "source",
            _sorted(v.having(*TIMES), lambda r: r.source),
        ),
        _errors(
            "Time, by class",
            "class",
            _sorted(v.having(*TIMES), lambda r: r.kind),
        ),
        _errors(
            "Time, by chip",
            "chip",
            _sorted(v.having(*TIMES), lambda r: r.chip),
        ),
        _held_out(v),
        _errors(
            "Memory, by source",
            "source",
            _sorted(v.having("memory"), lambda r: r.source),
        ),
        _layouts(v),
        _out_of_memory(v),
        _reliability(v),
        _ranking(v),
        _skipped(v),
        _notes(v),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _sorted(
    rows: Iterable[RowComparison], key: Callable[[RowComparison], str]
) -> dict[str, list[RowComparison]]:
    return dict(sorted(rows_by_key(rows, key).items()))


def _held_out(v: Validation) -> str:
    """Runs that no fit may use, each with the range of what its source leaves open."""
    rows = v.having("step_time", held_out=True)
    lines = [
        (
            r.id,
            _seconds(r.measured),
            _seconds(r.predicted),
            _range(r),
            f"{(r.ratio or 0.0) - 1:+.0%}",
        )
        for r in rows
    ]
    if not lines:
        return ""
    by_source = _sorted(rows, lambda r: r.source)
    header = (
        "run",
        "measured, s",
        "predicted, s",
        "range of what is not stated, s",
        "error",
    )
    return "\n\n".join(
        (
            _errors(
                "Runs that no fit may use, by source",
                "source",
                {**by_source, "all": rows},
            ),
            _table("Runs that no fit may use", header, lines),
        )
    )


def _seconds(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else ""


def _range(row: RowComparison) -> str:
    return " to ".join(_seconds(value) for value in row.range_s or ())


def _errors(
    title: str, name: str, groups: dict[str, list[RowComparison]]
) -> str:
    lines = []
    for group, rows in groups.items():
        if rows:
            s = stats([r.ratio for r in rows if r.ratio is not None])
            shown = [f"{s[e]:.1%}" for e in ERRORS]
            lines.append((group, str(s["rows"]), *shown, f"{s['bias']:+.1%}"))
    header = (name, "rows", "median error", "mean error", "p90 error", "bias")
    return _table(title, header, lines) if lines else ""


def _layouts(v: Validation) -> str:
    """Memory, each layout once: as predicted, and with the three generic constants fitted to the
    other sources.
    """
    layouts = v.overall["memory"]["layouts"]
    groups = {
        **layouts["sources"],
        "all": {
            "once": layouts["once"],
            "left_out": layouts["left_out"],
            "constants": None,
        },
    }
    lines = []
    for source, of in groups.items():
        c = of["constants"]
        told = (
            f"{c['allocator_share']:g}, {c['backward_share']:g}, {c['framework_bytes'] / 1e9:g} GB"
            if c
            else ""
        )
        errors = [
            f"{of[way][e]:.1%}"
            for way in ("once", "left_out")
            for e in ("median_abs_error", "p90_abs_error")
        ]
        lines.append((source, str(of["once"]["rows"]), *errors, told))
    header = (
        "source",
        "layouts",
        "median error",
        "p90 error",
        "median, source left out",
        "p90, source left out",
        "allocator, backward pass, context fitted without it",
    )
    return (
        _table("Memory, each layout once", header, lines)
        if layouts["sources"]
        else ""
    )


def _reliability(v: Validation) -> str:
    """Risk of running out of memory as foreseen, and the share of the runs that did."""
    foreseen = v.overall["out_of_memory"]
    lines = [
        (
            f"{low:.0%} to {high:.0%}",
            str(r["rows"]),
            _share(r["ran_out"], ".1%"),
        )
        for r in foreseen["reliability"]
        for low, high in (r["risk"],)
    ]
    shown = (
        _share(foreseen[name], form)
        for name, form in (("balanced_accuracy", ".1%"), ("brier", ".3f"))
    )
    title = "Risk of running out of memory (balanced accuracy {}, Brier score {})".format(
        *shown
    )
    return (
        _table(title, ("risk", "runs", "ran out"), lines)
        if foreseen["brier"] is not None
        else ""
    )


def _out_of_memory(v: Validation) -> str:
    lines = []
    for source, rows in _sorted(
        (r for r in v.rows if r.quantity == "out_of_memory"),
        lambda r: r.source,
    ).items():
        c = confusion(verdicts(rows))
        lines.append((source, *(str(c[k]) for k in COUNTS)))
    header = (
        "source",
        "ran out, as predicted",
        "ran out, predicted to fit",
        "ran, predicted to run out",
        "ran, as predicted",
        "not known",
    )
    return _table("Out of memory", header, lines) if lines else ""


def _ranking(v: Validation) -> str:
    """By source and overall; regrets are of groups, and of pairs only those count whose measured
    times differ clearly.
    """
    rankings: dict[str, dict[str, Any]] = {
        **dict(sorted(v.ranked.items())),
        "all": v.overall["ranking"],
    }
    header = (
        "source",
        "groups",
        "median Spearman",
        "mean regret",
        "pairs",
        "in the right order",
    )
    lines = [
        (
            source,
            str(r["groups"]),
            _share(r["spearman_median"], ".2f"),
            _share(r["regret_mean"], ".1%"),
            str(r["pairs"]),
            _share(r["pairs_in_order"], ".0%"),
        )
        for source, r in rankings.items()
    ]
    title = (
        f"Ranking of layouts of one workload (pairs: measured times more than {DIFFERENT:.0%}"
        " apart)"
    )
    return (
        _table(title, header, lines) if v.overall["ranking"]["groups"] else ""
    )


def _share(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _skipped(v: Validation) -> str:
    lines = [(why, str(n)) for why, n in v.skipped.items()]
    return (
        _table("Skipped rows", ("reason", "rows"), lines)
        if lines
        else "## Skipped rows\n\nNone."
    )


def _notes(v: Validation) -> str:
    lines = [(note, str(len(ids))) for note, ids in v.notes.items()]
    return (
        _table(
            "What was assumed, or cannot be expressed", ("note", "rows"), lines
        )
        if lines
        else ""
    )


def _table(
    title: str, header: tuple[str, ...], lines: Sequence[tuple[str, ...]]
) -> str:
    rule = (
        "|"
        + "|".join("---" if i == 0 else "---:" for i in range(len(header)))
        + "|"
    )
    rows = [
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |"
        for line in (header, *lines)
    ]
    return "\n".join((f"## {title}", "", rows[0], rule, *rows[1:]))
