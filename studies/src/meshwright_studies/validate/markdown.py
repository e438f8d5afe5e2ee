"""The tables of a validation, for the terminal and as Markdown: what stands in docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .comparison import RowComparison
from .result import TIMES, Validation, verdicts
from .stats import DIFFERENT, by, confusion, stats

COUNTS = (
    "true_positives",
    "false_negatives",
    "false_positives",
    "true_negatives",
    "unknown",
)
ERRORS = ("median_abs_error", "mean_abs_error", "p90_abs_error")


class Section(NamedTuple):
    """A table under its title."""

    title: str
    columns: str
    """Their names, with " | " between them."""
    lines: Sequence[tuple[str, ...]]


def markdown(v: Validation) -> str:
    """The tables of a validation as a page."""
    parts = (
        (
            f"## {title}",
            markdown_table(columns.split(" | "), lines) if lines else "None.",
        )
        for title, columns, lines in sections(v)
    )
    return "\n\n".join(text for part in parts for text in part) + "\n"


def markdown_table(
    columns: Sequence[str], lines: Iterable[Sequence[str]]
) -> str:
    """A table in Markdown, numbers to the right of the first column."""
    head, *rows = (
        "| "
        + " | ".join(
            cell.replace("|", "\\|").replace("\n", " ") for cell in cells
        )
        + " |"
        for cells in (columns, *lines)
    )
    rule = "|".join(("", "---", *("---:" for _ in columns[1:]), ""))
    return "\n".join((head, rule, *rows))


def sections(v: Validation) -> Iterator[Section]:
    """Tables of errors: overall, by source, by chip; memory, out of memory, ranking; skipped rows
    and their reasons; notes. Only skipped rows have a table though there are none.
    """
    times, memory = v.having(*TIMES), v.having("memory")
    overall = {q: v.having(q) for q in (*TIMES, "memory")}
    apart = v.having("step_time", held_out=True)
    held_out = "Runs that no fit may use"
    every = (
        _errors("Overall", "quantity", overall),
        _errors("Time, by source", "source", by_source(times)),
        _errors("Time, by class", "class", by(times, lambda r: r.kind)),
        _errors("Time, by chip", "chip", by(times, lambda r: r.chip)),
        _errors(
            f"{held_out}, by source",
            "source",
            {**by_source(apart), "all": apart},
        ),
        _ranges(held_out, apart),
        _errors("Memory, by source", "source", by_source(memory)),
        _layouts(v),
        _out_of_memory(v),
        _reliability(v),
        _ranking(v),
    )
    yield from (section for section in every if section.lines)
    yield Section(
        "Skipped rows",
        "reason | rows",
        [(why, str(n)) for why, n in v.skipped.items()],
    )
    if v.notes:
        yield Section(
            "What was assumed, or cannot be expressed",
            "note | rows",
            [(note, str(len(ids))) for note, ids in v.notes.items()],
        )


def by_source(
    rows: Iterable[RowComparison],
) -> dict[str, list[RowComparison]]:
    """The rows of each source, by its name."""
    return by(rows, lambda r: r.source)


def _ranges(title: str, apart: Sequence[RowComparison]) -> Section:
    """Runs that no fit may use, each with the range of what its source leaves open."""
    return Section(
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
            for r in apart
        ],
    )


def _errors(
    title: str, name: str, groups: Mapping[str, list[RowComparison]]
) -> Section:
    lines = []
    for group, rows in groups.items():
        if rows:
            s = stats([r.ratio for r in rows if r.ratio is not None])
            shown = [f"{s[e]:.1%}" for e in ERRORS]
            lines.append((group, str(s["rows"]), *shown, f"{s['bias']:+.1%}"))
    header = f"{name} | rows | median error | mean error | p90 error | bias"
    return Section(title, header, lines)


def _layouts(v: Validation) -> Section:
    """Memory, each layout once: as predicted, and with the three generic constants fitted to the
    other sources.
    """
    layouts = v.overall["memory"]["layouts"]
    sources = layouts["sources"]
    lines = []
    for source, of in {**sources, "all": layouts}.items() if sources else ():
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
    return Section(
        "Memory, each layout once",
        "source | layouts | median error | p90 error | median, source left out"
        " | p90, source left out | allocator, backward pass, context fitted without it",
        lines,
    )


def _reliability(v: Validation) -> Section:
    """Risk of running out of memory as foreseen, and the share of the runs that did."""
    foreseen = v.overall["out_of_memory"]
    return Section(
        "Risk of running out of memory (balanced accuracy"
        f" {_shown(foreseen['balanced_accuracy'], '.1%')}, Brier score"
        f" {_shown(foreseen['brier'], '.3f')})",
        "risk | runs | ran out",
        [
            (
                " to ".join(f"{edge:.0%}" for edge in r["risk"]),
                str(r["rows"]),
                _shown(r["ran_out"], ".1%"),
            )
            for r in foreseen["reliability"]
            if foreseen["brier"] is not None
        ],
    )


def _out_of_memory(v: Validation) -> Section:
    judged = (r for r in v.rows if r.quantity == "out_of_memory")
    counts = {
        source: confusion(verdicts(rows))
        for source, rows in by_source(judged).items()
    }
    return Section(
        "Out of memory",
        "source | ran out, as predicted | ran out, predicted to fit"
        " | ran, predicted to run out | ran, as predicted | not known",
        [
            (source, *(str(c[name]) for name in COUNTS))
            for source, c in counts.items()
        ],
    )


def _ranking(v: Validation) -> Section:
    """By source and overall; regrets are of groups, and of pairs only those count whose measured
    times differ clearly.
    """
    ranked = dict(sorted(v.ranked.items()))
    if ranked:
        ranked["all"] = v.overall["ranking"]
    return Section(
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
            for source, r in ranked.items()
        ],
    )


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
