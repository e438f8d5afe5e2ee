"""Figures that makers of models published, none of which any number was fitted to, beside what is
predicted for them.

    python benchmarks/figures.py -o docs/plan.md

Rows: tests/published/figures.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pages import written

from meshwright.report.text import short_words

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import test_public_figures  # noqa: E402

UNITS = {
    "mfu": (1e-2, "% MFU"),
    "tokens": (1, "tokens/s/GPU"),
    "hours": (1, "k h"),
}
"""Measure -> its unit in the table, and that unit's words."""


def lines() -> Iterator[str]:
    """The table: a line a layout."""
    yield "| run | source | published | predicted, nine of ten between | risk |"
    yield "|---|---|--:|--:|--:|"
    for run in test_public_figures.RUNS:
        one = test_public_figures.figure(run)
        unit, words = UNITS[run["measure"]]
        published, expected, low, high = (f"{v / unit:,.0f}" for v in one[:4])
        yield (
            f"| {run['name']}, {run['cluster']}, {short_words(one.prediction.layout)} |"
            f" {run['source']} | {published} {words} | {expected}, {low} to {high} |"
            f" {one.prediction.risk_of_oom:.2f} |"
        )


if __name__ == "__main__":
    written(__doc__, lambda: "\n".join(lines()))
