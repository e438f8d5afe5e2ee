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
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any, NamedTuple, Protocol

from meshwright.prediction.prediction import Prediction
from meshwright.step import StepCosts

from .stats import grouped, stats

ALLOCATOR = (0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
BACKWARD = (0.0, 0.3, 0.6, 0.9, 1.2)
CONTEXT = (1.0e9, 1.9e9, 3.0e9)
"""Values of the three constants that are tried."""


class JudgedMemory(Protocol):
    """A memory figure beside its prediction."""

    @property
    def source(self) -> str: ...
    @property
    def predicted(self) -> float | None: ...
    @property
    def measured(self) -> float | None: ...
    @property
    def figure(self) -> CountedFigure | None: ...
    @property
    def same(self) -> tuple[object, ...]: ...


class Constants(NamedTuple):
    """What is fitted: shares, and bytes."""

    allocator_share: float
    backward_share: float
    framework_bytes: float


GRID = tuple(
    Constants(*values) for values in product(ALLOCATOR, BACKWARD, CONTEXT)
)


@dataclass(frozen=True)
class CountedFigure:
    """What a figure counts, as far as the constants change it."""

    kind: str
    """allocated, reserved, device, needed or states."""
    allocated: tuple[float, ...]
    """Bytes at each of BACKWARD."""
    new: float
    """Bytes of a block that the allocator takes beside all it holds."""
    need: float
    """Share of the bytes of tensors that a device needs beside them."""
    states: float

    def under(self, c: Constants) -> float:
        """Bytes under other constants."""
        tensors = self.allocated[BACKWARD.index(c.backward_share)]
        figures = {
            "states": self.states,
            "allocated": tensors,
            "reserved": tensors * (1 + c.allocator_share) + self.new,
            "device": tensors * (1 + c.allocator_share)
            + self.new
            + c.framework_bytes,
            "needed": tensors * (1 + self.need) + c.framework_bytes,
        }
        return figures[self.kind]


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


def once(rows: Iterable[JudgedMemory]) -> dict[str, Any]:
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


def fitted(sources: Sequence[Sequence[JudgedMemory]]) -> Constants | None:
    """The constants under which these sources, weighted alike, are predicted best; None of none."""
    if not sources:
        return None
    layouts = [_layouts(of) for of in sources]

    def error(c: Constants) -> float:
        return sum(_mean_square(of, c) for of in layouts) / len(layouts)

    return min(GRID, key=error)


def _mean_square(
    layouts: Sequence[Sequence[JudgedMemory]], c: Constants | None
) -> float:
    return sum(math.log(_ratio(of, c)) ** 2 for of in layouts) / len(layouts)


def mean_square(rows: Iterable[JudgedMemory]) -> tuple[int, float]:
    """How many layouts rows have, and the error of these as they are predicted."""
    layouts = _layouts(rows)
    return len(layouts), _mean_square(layouts, None)


def _ratios(rows: Iterable[JudgedMemory], c: Constants | None) -> list[float]:
    """One ratio a layout: as predicted, or under some constants."""
    return [_ratio(of, c) for of in _layouts(rows)]


def _ratio(of: Sequence[JudgedMemory], c: Constants | None) -> float:
    """The median of the runs of one layout."""
    return median(
        (r.figure.under(c) if c and r.figure else r.predicted or 0.0)
        / (r.measured or 1.0)
        for r in of
    )


def _layouts(rows: Iterable[JudgedMemory]) -> list[list[JudgedMemory]]:
    """Runs of one layout together."""
    return [*grouped(rows, lambda r: (r.source, r.same)).values()]
