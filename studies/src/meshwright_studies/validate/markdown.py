"""The tables of a validation as Markdown: what stands in docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    times, memory = v.having(*TIMES), v.having("memory")
    overall = {q: v.having(q) for q in (*TIMES, "memory")}
    parts = (
        _errors("Overall", "quantity", overall),
        _errors("Time, by source", "source", by_source(times)),
        _errors("Time, by class", "class", _sorted(times, lambda r: r.kind)),
        _errors("Time, by chip", "chip", _sorted(times, lambda r: r.chip)),
        *_held_out(v),
        _errors("Memory, by source", "source", by_source(memory)),
        _layouts(v),
        _out_of_memory(v),
        _reliability(v),
        _ranking(v),
        _table(
            "Skipped rows",
            "reason | rows",
            [(why, str(n)) for why, n in v.skipped.items()],
        )
        or "## Skipped rows\n\nNone.",
        _table(
            "What was assumed, or cannot be expressed",
            "note | rows",
            [(note, str(len(ids))) for note, ids in v.notes.items()],
        ),
    )
    return "\n\n".join(p for p in parts if p) + "\n"


def _sorted(
    rows: Iterable[RowComparison], key: Callable[[RowComparison], str]
) -> dict[str, list[RowComparison]]:
    return dict(sorted(rows_by_key(rows, key).items()))


def by_source(
    rows: Iterable[RowComparison],
) -> dict[str, list[RowComparison]]:
    """The rows of each source, by its name."""
    return _sorted(rows, lambda r: r.source)


def _held_out(v: Validation) -> Iterator[str]:
    """Runs that no fit may use, each with the range of what its source leaves open."""
    rows = v.having("step_time", held_out=True)
    title = "Runs that no fit may use"
    groups = {**by_source(rows), "all": rows}
    yield _errors(f"{title}, by source", "source", groups)
    yield _table(
        title,
        "run | measured, s | predicted, s | range of what is not stated, s | error",
        [
            (
                r.id,
                _shown(r.measured, ".3g"),
                _shown(r.predicted, ".3g"),
                " to ".join(_shown(s, ".3g") for s in r.range_s or ()),
                f"{(r.ratio or 0.0) - 1:+.0%}",
            )
            for r in rows
        ],
    )


def _errors(
    title: str, name: str, groups: Mapping[str, list[RowComparison]]
) -> str:
    lines = []
    for group, rows in groups.items():
        if rows:
            s = stats([r.ratio for r in rows if r.ratio is not None])
            shown = [f"{s[e]:.1%}" for e in ERRORS]
            lines.append((group, str(s["rows"]), *shown, f"{s['bias']:+.1%}"))
    header = f"{name} | rows | median error | mean error | p90 error | bias"
    return _table(title, header, lines)


def _layouts(v: Validation) -> str:
    """Memory, each layout once: as predicted, and with the three generic constants fitted to the
    other sources.
    """
    layouts = v.overall["memory"]["layouts"]
    if not layouts["sources"]:
        return ""
    lines = []
    for source, of in {**layouts["sources"], "all": layouts}.items():
        c = of.get("constants")
        constants = (
            f"{c['allocator_share']:g}, {c['backward_share']:g}, {c['framework_bytes'] / 1e9:g} GB"
            if c
            else ""
        )
        errors = [
            f"{of[way][e]:.1%}"
            for way in ("once", "left_out")
            for e in ("median_abs_error", "p90_abs_error")
        ]
        lines.append((source, str(of["once"]["rows"]), *errors, constants))
    return _table(
        "Memory, each layout once",
        "source | layouts | median error | p90 error | median, source left out"
        " | p90, source left out | allocator, backward pass, context fitted without it",
        lines,
    )


def _reliability(v: Validation) -> str:
    """Risk of running out of memory as foreseen, and the share of the runs that did."""
    foreseen = v.overall["out_of_memory"]
    if foreseen["brier"] is None:
        return ""
    balanced = _shown(foreseen["balanced_accuracy"], ".1%")
    return _table(
        f"Risk of running out of memory (balanced accuracy {balanced},"
        f" Brier score {foreseen['brier']:.3f})",
        "risk | runs | ran out",
        [
            (
                " to ".join(f"{edge:.0%}" for edge in r["risk"]),
                str(r["rows"]),
                _shown(r["ran_out"], ".1%"),
            )
            for r in foreseen["reliability"]
        ],
    )


def _out_of_memory(v: Validation) -> str:
    judged = (r for r in v.rows if r.quantity == "out_of_memory")
    counts = {
        source: confusion(verdicts(rows))
        for source, rows in by_source(judged).items()
    }
    return _table(
        "Out of memory",
        "source | ran out, as predicted | ran out, predicted to fit"
        " | ran, predicted to run out | ran, as predicted | not known",
        [
            (source, *(str(c[name]) for name in COUNTS))
            for source, c in counts.items()
        ],
    )


def _ranking(v: Validation) -> str:
    """By source and overall; regrets are of groups, and of pairs only those count whose measured
    times differ clearly.
    """
    overall = v.overall["ranking"]
    if not overall["groups"]:
        return ""
    return _table(
        f"Ranking of layouts of one workload (pairs: measured times more than {DIFFERENT:.0%}"
        " apart)",
        "source | groups | median Spearman | mean regret | pairs | in the right order",
        [
            (
                source,
                str(r["groups"]),
                _shown(r["spearman_median"], ".2f"),
                _shown(r["regret_mean"], ".1%"),
                str(r["pairs"]),
                _shown(r["pairs_in_order"], ".0%"),
            )
            for source, r in {
                **dict(sorted(v.ranked.items())),
                "all": overall,
            }.items()
        ],
    )


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _table(title: str, header: str, lines: Sequence[tuple[str, ...]]) -> str:
    """A table under a title; "" if it has no lines."""
    if not lines:
        return ""
    names = header.split(" | ")
    rows = [
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |"
        for line in (names, *lines)
    ]
    rule = "|".join(("", "---", *("---:" for _ in names[1:]), ""))
    return "\n".join((f"## {title}", "", rows[0], rule, *rows[1:]))
