"""Memory, each layout once, and with its source left out.

Sources repeat a layout for several batches, which flatters; so rows that differ in their batch only
are one, with their median ratio. Three constants are no framework's but of PyTorch and CUDA
themselves: the allocator's share, temporaries of a backward pass, and the context. Each source is
also predicted with those that fit the other sources best.

    error of a source = mean of ln(predicted / measured)^2 over its layouts
    fitted: least mean over the other sources
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from meshwright.prediction.prediction import Prediction
from meshwright.step import StepCosts

from .comparison import BACKWARD, GRID, Constants, CountedFigure, RowComparison
from .stats import grouped, stats


def figure(p: Prediction, kind: str) -> CountedFigure | None:
    """The figure of that kind; None under a set that counts none of what the constants change."""
    how = p.job.how.memory
    if how.resident != "held" or how.holding is None:
        return None
    figures = p.memory_bytes
    allocated = []
    for share in BACKWARD:
        memory = replace(
            p.job.assumptions.memory,
            holding=replace(how.holding, backward_share=share),
        )
        job = replace(
            p.job, assumptions=replace(p.job.assumptions, memory=memory)
        )
        allocated.append(
            float(StepCosts(job, p.layout, p.cost, p.clock).bytes)
        )
    new = figures["reserved"] - figures["allocated"] * (
        1 + how.holding.allocator_share
    )
    states = figures["weights"] + figures["gradients"] + figures["optimizer"]
    return CountedFigure(
        kind,
        tuple(allocated),
        new,
        need=how.holding.allocator_need,
        states=states,
    )


def same_layout(p: Prediction, kind: str) -> tuple[object, ...]:
    """What runs have in common that are one layout."""
    job = p.job
    return (
        job.model,
        job.T,
        job.cluster,
        job.layout,
        job.precision,
        job.framework,
        job.software,
        job.attention_kernel,
        kind,
    )


def once(rows: Iterable[RowComparison]) -> dict[str, Any]:
    """Errors with each layout once; and with the constants fitted to the other sources, which are
    named.
    """
    judged = [r for r in rows if r.measured]
    sources = grouped((r for r in judged if r.figure), lambda r: r.source)
    plain = _ratios(judged, None)
    figures = {
        name: fitted([of for other, of in sources.items() if other != name])
        for name in sources
    }
    chosen = {name: c for name, c in figures.items() if c}
    left_out = {name: _ratios(sources[name], c) for name, c in chosen.items()}
    return {
        "once": stats(plain),
        "left_out": stats([ratio for of in left_out.values() for ratio in of]),
        "sources": {
            name: {
                "once": stats(_ratios(sources[name], None)),
                "left_out": stats(ratios),
                "constants": chosen[name]._asdict(),
            }
            for name, ratios in left_out.items()
        },
    }


def fitted(sources: Sequence[Sequence[RowComparison]]) -> Constants | None:
    """The constants under which these sources, weighted alike, are predicted best; None of none."""
    if not sources:
        return None
    layouts = [_layouts(of) for of in sources]

    def error(c: Constants) -> float:
        return sum(_mean_square(of, c) for of in layouts) / len(layouts)

    return min(GRID, key=error)


def _mean_square(
    layouts: Sequence[Sequence[RowComparison]], c: Constants | None
) -> float:
    return sum(math.log(_ratio(of, c)) ** 2 for of in layouts) / len(layouts)


def mean_square(rows: Iterable[RowComparison]) -> tuple[int, float]:
    """How many layouts rows have, and the error of these as they are predicted."""
    layouts = _layouts(rows)
    return len(layouts), _mean_square(layouts, None)


def _ratios(rows: Iterable[RowComparison], c: Constants | None) -> list[float]:
    """One ratio a layout: as predicted, or under some constants."""
    return [_ratio(of, c) for of in _layouts(rows)]


def _ratio(of: Sequence[RowComparison], c: Constants | None) -> float:
    """The median of the runs of one layout."""
    return median(
        (r.figure.under(c) if c and r.figure else r.predicted or 0.0)
        / (r.measured or 1.0)
        for r in of
    )


def _layouts(rows: Iterable[RowComparison]) -> list[list[RowComparison]]:
    """Runs of one layout together."""
    return [*grouped(rows, lambda r: (r.source, r.same)).values()]
