"""How measured step times spread around predictions, by class of run: the text of
catalog/evidence.toml.

An interval spans 5 % to 95 % of measured over predicted, every source weighing as much as the next
(its rows share one weight). A class of few sources may be off as a whole, which its own rows do not
show: it takes the wider of its own and the pooled factors. No number of a set is fitted to these
rows, so none of them is a row that the set has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .result import Checked, Validation, grouped
from .stats import quantile

ENDS = (0.05, 0.95)
FEW = 4
"""A class with fewer sources has no factors of its own that can be trusted."""
SOURCE = (
    "5 % and 95 % quantiles of measured over predicted step time, sources weighted alike, published"
    " runs of catalog/runs"
)


def evidence(of: Validation, name: str) -> str:
    """The TOML of an assumption set: all runs pooled, then each class."""
    runs = of.having("step_time")
    pooled = spread(runs)
    parts = [f"[{name}]\n{_written(pooled, runs)}source = {SOURCE!r}\n".replace("'", '"')]
    for kind, rows in sorted(grouped(runs, lambda r: r.kind).items()):
        low, high = spread(rows)
        if _sources(rows) < FEW:
            low, high = min(low, pooled[0]), max(high, pooled[1])
        parts.append(f'[{name}.classes."{kind}"]\n{_written((low, high), rows)}')
    return "\n".join(parts)


def spread(rows: Sequence[Checked]) -> tuple[float, float]:
    """The ends of the interval: measured over predicted; (1, 1) of nothing."""
    of = Counter(r.source for r in rows)
    found = sorted((1 / r.ratio, 1 / of[r.source]) for r in rows if r.ratio)
    values, weights = [v for v, _ in found], [w for _, w in found]
    return (
        (quantile(values, ENDS[0], weights), quantile(values, ENDS[1], weights))
        if values
        else (1.0, 1.0)
    )


def _sources(rows: Sequence[Checked]) -> int:
    return len({r.source for r in rows})


def _written(ends: tuple[float, float], rows: Sequence[Checked]) -> str:
    return (
        f"low = {ends[0]:.3f}\nhigh = {ends[1]:.3f}\nrows = {len(rows)}\nsources ="
        f" {_sources(rows)}\n"
    )
