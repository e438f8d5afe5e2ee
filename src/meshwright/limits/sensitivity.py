"""What the limits depend on: the end of linear scaling when one input at a time is changed.

Source of the list of changes: an independent study of the calculation behind Erdil &
Schneider-Joseph 2024, arXiv 2411.01137.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..describe.assumptions import ChipTime, HidePass, Overlap
from ..describe.chip import Chip, Hierarchy
from .answer import ends
from .crossing import Crossing
from .curve import curve
from .scenario import MONTH_S, Scenario

Change = Callable[[Scenario], Scenario]
ENDLESS = 1e30
"""Stands for an infinite rate."""


def chip(s: Scenario, **fields: Any) -> Scenario:
    """With another chip."""
    changed: Chip = replace(s.chip, **fields)
    return replace(s, chip=changed)


def memories(s: Scenario, **fields: Any) -> Scenario:
    """With other memories on the chip; nothing changes if they are not known."""
    changed: Hierarchy | None = (
        replace(s.chip.hierarchy, **fields) if s.chip.hierarchy else None
    )
    return chip(s, hierarchy=changed)


def scaled(s: Scenario, field: str, factor: float) -> Scenario:
    """With a field of the chip's memories scaled."""
    return (
        memories(s, **{field: factor * getattr(s.chip.hierarchy, field)})
        if s.chip.hierarchy
        else s
    )


def bandwidth(s: Scenario, factor: float, *levels: int) -> Scenario:
    """With the bandwidth of some levels of the network scaled (none named: all)."""
    n = len(s.network.dims)
    chosen = [i % n for i in levels] or range(n)
    dims = tuple(
        replace(d, bandwidth=d.bandwidth * factor) if i in chosen else d
        for i, d in enumerate(s.network.dims)
    )
    return replace(s, network=replace(s.network, dims=dims))


def latency(s: Scenario, factor: float) -> Scenario:
    """With the latency of the whole network scaled."""
    dims = tuple(
        replace(d, latency=d.latency * factor) for d in s.network.dims
    )
    return replace(s, network=replace(s.network, dims=dims))


def how(s: Scenario, **fields: ChipTime | Overlap) -> Scenario:
    """With other assumptions."""
    return replace(s, assumptions=replace(s.assumptions, **fields))  # type: ignore[arg-type]


def gradients(s: Scenario, hide: HidePass) -> Scenario:
    """With gradients behind the step."""
    return how(s, overlap=replace(s.assumptions.overlap, dp=hide))


def endless_memories(s: Scenario) -> Scenario:
    """Only the arithmetic, its padding and the launches are left."""
    return chip(
        memories(s, l2_bandwidth=ENDLESS, smem_bytes_per_clock=ENDLESS),
        hbm_bandwidth=ENDLESS,
    )


CHANGES: dict[str, Change] = {
    "base": lambda s: s,
    "data-parallel traffic overlapped": lambda s: gradients(
        s, HidePass("step", links="free")
    ),
    "... on the same links": lambda s: gradients(s, HidePass("step")),
    "bandwidth not halved (all levels x 2)": lambda s: bandwidth(s, 2.0),
    "slowest level x 0.5": lambda s: bandwidth(s, 0.5, -1),
    "no zero bubble": lambda s: replace(s, schedules=("1f1b",)),
    "no throttling (sustained = boost clock)": lambda s: chip(
        s, sustained=1.0
    ),
    "no memory hierarchy": endless_memories,
    "L2 bandwidth x 0.5": lambda s: scaled(s, "l2_bandwidth", 0.5),
    "L2 bandwidth x 2": lambda s: scaled(s, "l2_bandwidth", 2.0),
    "shared-memory bandwidth x 0.5": lambda s: scaled(
        s, "smem_bytes_per_clock", 0.5
    ),
    "HBM bandwidth x 0.5": lambda s: chip(
        s, hbm_bandwidth=0.5 * s.chip.hbm_bandwidth
    ),
    "HBM bandwidth x 2": lambda s: chip(
        s, hbm_bandwidth=2.0 * s.chip.hbm_bandwidth
    ),
    "no distributed shared memory": lambda s: memories(s, dsmem=False),
    "usable share of L2 and registers 0.5": lambda s: memories(s, usable=0.5),
    "kernel latency 0": lambda s: how(
        s, chip=replace(s.assumptions.chip, launch_s=0.0)
    ),
    "network latency x 4": lambda s: latency(s, 4.0),
    "1 month": lambda s: replace(s, duration_s=MONTH_S),
    "6 months": lambda s: replace(s, duration_s=6 * MONTH_S),
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
        (name, tuple(ends(curve(change(s))) for s in scenarios))
        for name, change in changes.items()
    ]
    return Sensitivity(tuple(s.name for s in scenarios), tuple(rows))
