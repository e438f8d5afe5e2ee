"""A row beside its prediction, and what a memory figure of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from meshwright.describe.job import Job

ALLOCATOR = (0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
BACKWARD = (0.0, 0.3, 0.6, 0.9, 1.2)
CONTEXT = (1.0e9, 1.9e9, 3.0e9)
"""Values of the three constants that are tried."""


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


@dataclass(frozen=True)
class RowComparison:
    """One quantity of one row beside its prediction; or why there is none."""

    id: str
    source: str
    quantity: str | None
    predicted: float | None = None
    measured: float | None = None
    interval: tuple[float, float] | None = None
    skipped: str | None = None
    chip: str = ""
    kind: str = ""
    """The class of the run (`prediction.classes`)."""
    job: Job | None = None
    """As it was predicted, but for the assumption set."""
    workload: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()
    """What had to be assumed of the row, or is not in its job."""
    held_out: bool = False
    """Judged by itself; no fit may use it."""
    figure: CountedFigure | None = None
    """Of memory: what its figure counts."""
    same: tuple[object, ...] = ()
    """Of memory: what rows of one layout have in common."""
    framework: str = ""
    """The profile that predicted it; "" under a set that asks none."""
    range_s: tuple[float, float] | None = None
    """Step times of all choices that its source leaves open, fastest and slowest."""

    @property
    def ratio(self) -> float | None:
        """predicted / measured; None for what is a yes or a no."""
        if (
            self.predicted is None
            or not self.measured
            or self.quantity == "out_of_memory"
        ):
            return None
        return self.predicted / self.measured

    def to_dict(self) -> dict[str, Any]:
        names = (
            "id",
            "source",
            "quantity",
            "predicted",
            "measured",
            "ratio",
            "interval",
            "skipped",
        )
        return {name: getattr(self, name) for name in names}
