"""What a framework holds, one law switched off in turn: what each is worth on published memory and
on runs that ran out of it.

    python benchmarks/memory.py                 the table of docs/memory.md to stdout
    python benchmarks/memory.py -o docs/memory.md    written between its markers

Nothing is fitted again, and each law has a process of its own (as in `ablation`).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any

from ablation import Law, switched_off, table, written

from meshwright.describe import framework as profiles
from meshwright_studies.validate import Validation, published, validate
from meshwright_studies.validate.rows import Row
from meshwright_studies.validate.stats import quantile

BEGIN = "<!-- made by: python benchmarks/memory.py -->"


@dataclass(frozen=True)
class Held:
    """A law of what is held, switched off."""

    name: str
    holding: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every framework's `[holding]`."""
    framework: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every framework; a run's own setting of that name goes too."""


LAWS = (
    Held("nothing left out"),
    Held("gradients by framework", {"gradient_bytes": {}}),
    Held(
        "bytes of a logit (4 for all)",
        framework={"loss": "compiled", "logits_gathered": False},
    ),
    Held(
        "placeholders of weight gradients", {"dummy_weight_gradients": False}
    ),
    Held("norms of separate kernels", framework={"norm": "fused"}),
    Held("outputs of pipeline stages", {"keeps_pipeline_outputs": False}),
    Held("bucket of gradients", {"bucket_elements": 0.0}),
    Held("temporaries of the backward pass", {"backward_share": 0.0}),
    Held("copies at the step", {"step_bytes": 0.0}),
    Held("gradients that arise late", {"gradients_freed": False}),
    Held(
        "allocator and context",
        {"allocator_share": 0.0, "allocator_need": 0.0},
        {"framework_bytes": 0.0},
    ),
)
EVERY = Held(
    "all of them (what layers save)",
    {name: off for law in LAWS for name, off in law.holding.items()},
    {name: off for law in LAWS for name, off in law.framework.items()},
)
HEADER = (
    "without",
    "median",
    "p90",
    "sources",
    "balanced accuracy",
    "missed",
    "false",
    "Brier",
)


def without(law: Held, rows: Sequence[Row] | None = None) -> Validation:
    """All published runs, or some, without a law: this process's catalogue is changed."""
    how = switched_off(Law(law.name, law.framework))
    every = profiles.frameworks()
    for name, by in list(every.items()):
        held = replace(by.holding, **law.holding)
        every[name] = replace(by, holding=held)
    return validate(published() if rows is None else rows, how)


def line(law: Held) -> tuple[str, ...]:
    """One line of the table."""
    v = without(law)
    errors = dict[str, list[float]]()
    for row in v.having("memory"):
        errors.setdefault(row.source, []).append(abs((row.ratio or 0.0) - 1.0))
    every = sorted(e for of in errors.values() for e in of)
    found = v.overall["out_of_memory"]
    shown = (
        median(every),
        quantile(every, 0.9),
        mean(map(median, errors.values())),
        found["balanced_accuracy"],
    )
    return (
        law.name,
        *(f"{100 * share:.1f} %" for share in shown),
        str(found["false_negatives"]),
        str(found["false_positives"]),
        f"{found['brier']:.3f}",
    )


def lines(laws: Sequence[Held] = (*LAWS, EVERY)) -> Iterator[tuple[str, ...]]:
    """Every law, each in a process of its own."""
    fresh = multiprocessing.get_context("fork")
    for law in laws:
        with fresh.Pool(1) as pool:
            yield pool.apply(line, (law,))


if __name__ == "__main__":
    written(__doc__, BEGIN, lambda: table(HEADER, list(lines())))
