"""The width of the risk of running out of memory, by rules that tell it from measured memory, judged
on runs that are known to have run beside those that ran out.

    python benchmarks/memory_risk.py                      the table of docs/memory.md to stdout
    python benchmarks/memory_risk.py -o docs/memory.md    written between its markers
    python benchmarks/memory_risk.py --errors             catalog/memory.toml to stdout

A run is judged with what the memory of other sources was off by: without its own source, or without
all of its family. score: mean of -ln of the probability given to what happened, which is at most
1 - LOST, since as many descriptions of runs are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from math import exp, log
from typing import NamedTuple

from pages import written

from meshwright.describe import memory_error
from meshwright.describe.families import framework_family
from meshwright.describe.memory_error import (
    SourceError,
    family_error,
    logistic_width,
    risk_width,
)
from meshwright_studies.validate import published, validate
from meshwright_studies.validate.markdown import markdown_table
from meshwright_studies.validate.memory_errors import (
    errors_text,
    source_errors,
)

LOST = 1e-3
SWEEP = "aleph-alpha-sweep"
"""The one source that published its failures with its runs."""
HEADER = (
    *("width", "Brier", "score", "sweep: expected of 207"),
    *("others: Brier", "score", "expected of 15"),
)


class Verdict(NamedTuple):
    """A run that ran, or ran out."""

    source: str
    family: str
    excess: float
    """ln(needed / capacity)."""
    ran_out: float


Width = Callable[[Verdict], float]


def one(width: float) -> Width:
    """The same width for all."""
    return lambda run: width


def by_family(errors: Mapping[str, SourceError]) -> Width:
    """The width of a run's family, its own source left out."""
    return lambda run: logistic_width(
        family_error(
            run.family,
            {name: e for name, e in errors.items() if name != run.source},
        )
    )


def without_family(errors: Mapping[str, SourceError]) -> Width:
    """As if nobody had measured the memory of a run's family."""
    return lambda run: logistic_width(
        family_error(
            run.family,
            {
                name: e
                for name, e in errors.items()
                if framework_family(e.framework) != run.family
            },
        )
    )


def line(name: str, width: Width, runs: list[Verdict]) -> tuple[str, ...]:
    """A rule as a line of the table."""
    sweep = [run for run in runs if run.source == SWEEP]
    others = [run for run in runs if run.source != SWEEP]
    return (
        name,
        f"{brier(width, runs):.4f}",
        f"{score(width, runs):.4f}",
        f"{sum(risk(run, width) for run in sweep):.0f}",
        f"{brier(width, others):.4f}",
        f"{score(width, others):.4f}",
        f"{sum(risk(run, width) for run in others):.1f}",
    )


def risk(run: Verdict, width: Width) -> float:
    """Probability that it runs out."""
    return 1.0 / (1.0 + exp(-max(-500.0, min(500.0, run.excess / width(run)))))


def brier(width: Width, runs: list[Verdict]) -> float:
    """Mean of (risk - ran out)^2."""
    return sum((risk(run, width) - run.ran_out) ** 2 for run in runs) / len(
        runs
    )


def score(width: Width, runs: list[Verdict]) -> float:
    """Mean of -ln(probability of what happened)."""
    given = (
        risk(run, width) if run.ran_out else 1.0 - risk(run, width)
        for run in runs
    )
    return -sum(log(max(LOST, min(1.0 - LOST, p))) for p in given) / len(runs)


def lines() -> Iterator[tuple[str, ...]]:
    """The rules."""
    v = validate(published())
    errors = source_errors(v)
    runs = [
        Verdict(
            r.source,
            framework_family(r.framework),
            # a risk is a logistic of the excess: its logit is that over the width
            risk_width(r.framework) * logit(r.predicted),
            r.measured or 0.0,
        )
        for r in v.rows
        if r.quantity == "out_of_memory" and r.predicted is not None
    ]
    for width in (0.03, 0.04, 0.05, 0.06):
        yield line(f"{width} for all", one(width), runs)
    yield line("by family, its source left out", by_family(errors), runs)
    for weight in (0.5, 2.0):
        memory_error.PRIOR = weight
        yield line(
            f"the same, all families as {weight:g} sources",
            by_family(errors),
            runs,
        )
    memory_error.PRIOR = 1.0
    yield line("by other families alone", without_family(errors), runs)


def logit(p: float) -> float:
    """Of a probability, as far as a float tells it."""
    p = max(1e-15, min(1.0 - 1e-15, p))
    return log(p / (1.0 - p))


if __name__ == "__main__":
    if "--errors" in sys.argv:
        print(errors_text(source_errors(validate(published()))), end="")
    else:
        written(__doc__, lambda: markdown_table(HEADER, list(lines())))
