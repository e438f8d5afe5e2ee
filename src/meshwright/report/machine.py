"""A calibrated machine as tables: what was measured, over which range, how well it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid

from ..cost.fit import LatencyAndRate
from ..describe.cluster import Cluster
from ..describe.measured import MeasuredTable
from ..errors import command
from ..formats.kineto import Classes
from ..formats.nccl_tests import Group as Ranks
from ..units import show
from .card import Card, CardRow, Commands


def machine_card(machine: Cluster, path: str) -> Card:
    """Rates, how many tables were measured, and what to do with the file."""
    chip = machine.chip
    rates = ", ".join(
        f"{name} {show(rate, 'FLOP/s')}"
        for name, rate in chip.matrix_flops.items()
    )
    sends = [name for dim in machine.network.dims for name in dim.collectives]
    errors = [
        t.residual for t in chip.kernels.values() if t.residual is not None
    ]
    worst = (
        f", at most {percent(max(errors))} off between points"
        if errors
        else ""
    )
    return Card(
        f"Calibrate this machine: {chip.name}",
        (
            CardRow(
                "rates", f"{rates}; memory {show(chip.hbm_bandwidth, 'B/s')}"
            ),
            CardRow("kernels", f"{len(chip.kernels)} measured{worst}"),
            CardRow(
                "messages", f"{len(sends)} tables of collectives measured"
            ),
            CardRow(
                "engine",
                f"{len(machine.engine)} features of the trainer measured",
            ),
            CardRow("wrote", path),
            Commands(
                (
                    command(
                        f"predict llama3-8b --on 4x./{path} --batch 8seq --assumptions pytorch"
                    ),
                )
            ),
        ),
        "--all: every table, its range and its error",
    )


def scale_card(
    ratios: Sequence[float], scale: float, steps: int, path: str, later: str
) -> Card:
    """One scale of an installation, written to a path; later: the command to go on with."""
    return Card(
        f"How far is this installation from the prediction? {steps} steps",
        (
            CardRow(
                "scale",
                f"{scale:.3f}, from steps of {min(ratios):.3f} to {max(ratios):.3f} times the"
                " prediction; few steps count less, so it stays nearer to 1",
                "bold",
            ),
            CardRow("wrote", path),
            Commands((command(later),)),
        ),
    )


def machine_report(machine: Cluster, path: str) -> list[RenderableType]:
    """Kernels, collectives, engine."""
    rates = ", ".join(
        f"{name} {show(rate, 'FLOP/s')}"
        for name, rate in machine.chip.matrix_flops.items()
    )
    kernels = Grid(
        "kernel",
        "measured over",
        "smallest",
        "largest",
        "error between points",
        title="Kernels",
    )
    for name, table in machine.chip.kernels.items():
        kernels.add_row(
            name,
            ranges(table),
            show(min(table.seconds), "s"),
            show(max(table.seconds), "s"),
            percent(table.residual),
        )
    sends = Grid(
        "collective",
        "measured over",
        "fit",
        title="Collectives (cpu: CPU seconds of a rank)",
    )
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
            four = (
                of.step[i],
                of.microbatch[i],
                of.layer[i],
                of.layer_microbatch[i],
            )
            costs.add_row(
                name,
                f"{n:g}",
                *(show(x, "s") for x in four),
                percent(of.residual),
            )
    return [
        f"{machine.chip.name}: {rates}; memory {show(machine.chip.hbm_bandwidth, 'B/s')}",
        kernels,
        sends,
        costs,
        f"wrote {path}",
    ]


def ranges(table: MeasuredTable) -> str:
    """tokens 16-1024, inner 32-2048."""
    return ", ".join(
        f"{axis} {p[0]:g}-{p[-1]:g}"
        for axis, p in zip(table.axes, table.points, strict=True)
    )


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def machine_to_dict(machine: Cluster, path: str) -> dict[str, Any]:
    """The fields of `calibrate --json`."""
    from ..describe.read import to_dict as plain

    return {"output": path, **plain(machine)}


def collectives(fits: Mapping[Ranks, LatencyAndRate]) -> RenderableType:
    """The line through each collective of each group."""
    grid = Grid(
        "collective",
        "nodes",
        "ranks a node",
        "latency",
        "rate",
        "median error",
        title="Collectives: latency + bytes / rate",
    )
    for (kind, nodes, ranks), line in fits.items():
        grid.add_row(
            kind,
            str(nodes),
            str(ranks),
            show(line.latency, "s"),
            show(line.rate, "B/s"),
            percent(line.error),
        )
    return grid


def collectives_to_dict(
    fits: Mapping[Ranks, LatencyAndRate],
) -> list[dict[str, Any]]:
    """The table as plain data; a rate that no size shows (infinite) is null."""
    return [
        {
            "collective": kind,
            "nodes": nodes,
            "ranks_per_node": ranks,
            "latency_s": x.latency,
            "rate_bytes_per_s": x.rate if isfinite(x.rate) else None,
            "median_error": x.error,
        }
        for (kind, nodes, ranks), x in fits.items()
    ]


def kernels_table(name: str, of: Classes) -> RenderableType:
    """Seconds of each class of kernels of a trace; what their sum is not."""
    total = sum(c.seconds for c in of.values()) or 1.0
    grid = Grid("kernels", "time", "share", "calls", title=name)
    for kind, c in of.items():
        grid.add_row(
            kind,
            show(c.seconds, "s"),
            percent(c.seconds / total),
            f"{c.calls:,}",
        )
    return Group(grid, *(f"note: {note}" for note in of.notes))


def kernels_to_dict(traces: Mapping[str, Classes]) -> list[dict[str, Any]]:
    """The table as plain data."""
    return [
        {
            "trace": name,
            "time_s": {kind: c.seconds for kind, c in of.items()},
            "calls": {kind: c.calls for kind, c in of.items()},
            "notes": list(of.notes),
        }
        for name, of in traces.items()
    ]
