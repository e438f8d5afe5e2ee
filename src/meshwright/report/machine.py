"""A calibrated machine as tables: what was measured, over which range, how well it fits."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table as Grid

from ..spec.cluster import Cluster
from ..spec.measured import Table
from ..units import show


def report(machine: Cluster, path: str) -> list[RenderableType]:
    """Kernels, collectives, engine."""
    rates = ", ".join(f"{name} {show(rate, 'FLOP/s')}" for name, rate in machine.chip.matrix_flops.items())
    kernels = Grid("kernel", "measured over", "smallest", "largest", "error between points", title="Kernels")
    for name, table in machine.chip.kernels.items():
        kernels.add_row(
            name, ranges(table), show(min(table.seconds), "s"), show(max(table.seconds), "s"), percent(table.residual)
        )
    sends = Grid("collective", "measured over", "fit", title="Collectives (cpu: CPU seconds of a rank)")
    for dim in machine.network.dims:
        for name, table in dim.collectives.items():
            sends.add_row(name, ranges(table), table.fit)
    costs = Grid(
        "feature",
        "ranks",
        "step",
        "microbatch",
        "layer",
        "layer and microbatch",
        "misses",
        title="Engine: CPU time of a rank",
    )
    for name, of in machine.engine.items():
        for i, n in enumerate(of.ranks):
            four = (of.step[i], of.microbatch[i], of.layer[i], of.layer_microbatch[i])
            costs.add_row(name, f"{n:g}", *(show(x, "s") for x in four), percent(of.residual))
    return [
        f"{machine.chip.name}: {rates}; memory {show(machine.chip.hbm_bandwidth, 'B/s')}",
        kernels,
        sends,
        costs,
        f"wrote {path}",
    ]


def ranges(table: Table) -> str:
    """tokens 16-1024, inner 32-2048."""
    return ", ".join(f"{axis} {p[0]:g}-{p[-1]:g}" for axis, p in zip(table.axes, table.points, strict=True))


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def to_dict(machine: Cluster, path: str) -> dict[str, Any]:
    """The fields of `calibrate --json`."""
    from ..spec.read import to_dict as plain

    return {"output": path, **plain(machine)}
