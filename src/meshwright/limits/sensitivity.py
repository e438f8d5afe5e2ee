"""What the limits depend on: the end of linear scaling when one input at a time is changed.

Source of the list of changes: an independent study of the calculation behind Erdil &
Schneider-Joseph 2024, arXiv 2411.01137.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..describe.assumptions import HidePass
from ..describe.frozen import put, scaling
from .crossing import Crossing
from .curve import curve
from .laws import FITTED_DEPTH, LAWS, SPARSE
from .scenario import MONTH_S, Scenario

Change = Callable[[Scenario], Scenario]
ENDLESS = 1e30
"""Stands for an infinite rate."""


def bandwidth(s: Scenario, factor: float, level: int) -> Scenario:
    """With the bandwidth of one level of the network scaled."""
    dims = list(s.network.dims)
    dims[level] = scaling("bandwidth", factor)(dims[level])
    return put("network.dims", tuple(dims))(s)


def endless_memories(s: Scenario) -> Scenario:
    """Only the arithmetic, its padding and the launches are left."""
    for path in (
        "hierarchy.l2_bandwidth",
        "hierarchy.smem_bytes_per_clock",
        "hbm_bandwidth",
    ):
        s = put(f"chip.{path}", ENDLESS)(s)
    return s


CHANGES: dict[str, Change] = {
    "base": lambda s: s,
    "data-parallel traffic overlapped": put(
        "assumptions.overlap.dp", HidePass("step", links="free")
    ),
    "... on the same links": put("assumptions.overlap.dp", HidePass("step")),
    "bandwidth not halved (all levels x 2)": scaling(
        "network.dims.bandwidth", 2.0
    ),
    "slowest level x 0.5": lambda s: bandwidth(s, 0.5, -1),
    "no zero bubble": put("schedules", ("1f1b",)),
    "no throttling (sustained = boost clock)": put("chip.sustained", 1.0),
    "no memory hierarchy": endless_memories,
    "L2 bandwidth x 0.5": scaling("chip.hierarchy.l2_bandwidth", 0.5),
    "L2 bandwidth x 2": scaling("chip.hierarchy.l2_bandwidth", 2.0),
    "shared-memory bandwidth x 0.5": scaling(
        "chip.hierarchy.smem_bytes_per_clock", 0.5
    ),
    "HBM bandwidth x 0.5": scaling("chip.hbm_bandwidth", 0.5),
    "HBM bandwidth x 2": scaling("chip.hbm_bandwidth", 2.0),
    "no distributed shared memory": put("chip.hierarchy.dsmem", False),
    "usable share of L2 and registers 0.5": put("chip.hierarchy.usable", 0.5),
    "kernel latency 0": put("assumptions.chip.launch_s", 0.0),
    "network latency x 4": scaling("network.dims.latency", 4.0),
    "1 month": put("duration_s", MONTH_S),
    "6 months": put("duration_s", 6 * MONTH_S),
    "half the layers": scaling("law.depth.coefficient", 0.5),
    "layers by the fit of figure 10": put("law.depth", FITTED_DEPTH),
    "200 tokens a parameter": put("law.tokens_per_parameter", 200.0),
    "DeepSeek's law of the batch": put("law.batch", LAWS["deepseek"].batch),
    "4M tokens a batch": put("law.batch", LAWS["fixed"].batch),
    "dense": put("law.experts", None),
    "8 experts, growing": put("law.experts", SPARSE),
}


@dataclass(frozen=True)
class Sensitivity:
    """Ends of linear scaling: one row a change, one column a scenario."""

    scenarios: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Crossing, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenarios": list(self.scenarios),
            "rows": [
                {"change": n, "crossings": [c.to_dict() for c in row]}
                for n, row in self.rows
            ],
        }


def sensitivity(
    scenarios: Sequence[Scenario], changes: dict[str, Change] = CHANGES
) -> Sensitivity:
    """The end of linear scaling of each scenario under each change."""
    rows = [
        (name, tuple(curve(change(s)).crossing for s in scenarios))
        for name, change in changes.items()
    ]
    return Sensitivity(tuple(s.name for s in scenarios), tuple(rows))
