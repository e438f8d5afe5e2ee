"""A calibrated machine as tables: what was measured, over which range, how well it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType

from ..cost.fit import LatencyAndRate
from ..describe.cluster import Cluster
from ..describe.measured import MeasuredTable
from ..errors import command
from ..formats.kineto import Classes
from ..formats.nccl_tests import Group as Ranks
from ..units import show
from .card import Card, CardRow, Commands
from .tables import text_table


def machine_card(machine: Cluster, path: str) -> Card:
    """Rates, how many tables were measured, and what to do with the file."""
    chip = machine.chip
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
            CardRow("rates", _rates(machine)),
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


def machine_report(machine: Cluster) -> list[RenderableType]:
    """Kernels, collectives, engine."""
    kernels = text_table(
        "kernel | measured over | smallest | largest | error between points",
        [
            (
                name,
                ranges(table),
                show(min(table.seconds), "s"),
                show(max(table.seconds), "s"),
                percent(table.residual),
            )
            for name, table in machine.chip.kernels.items()
        ],
        left=(1,),
    )
    sends = text_table(
        "collective (cpu: CPU seconds of a rank) | measured over | fit",
        [
            (name, ranges(table), table.fit)
            for dim in machine.network.dims
            for name, table in dim.collectives.items()
        ],
        left=(1, 2),
    )
    costs = text_table(
        "CPU time of a rank, by feature | ranks | step | microbatch | layer"
        " | layer and microbatch | misses",
        [
            (
                name,
                f"{n:g}",
                *(show(x, "s") for x in each),
                percent(of.residual),
            )
            for name, of in machine.engine.items()
            for n, *each in zip(
                of.ranks,
                of.step,
                of.microbatch,
                of.layer,
                of.layer_microbatch,
                strict=True,
            )
        ],
    )
    return [kernels, "", sends, "", costs]


def _rates(machine: Cluster) -> str:
    """FLOP/s by precision, and bytes of memory a second."""
    chip = machine.chip
    rates = [
        f"{name} {show(rate, 'FLOP/s')}"
        for name, rate in chip.matrix_flops.items()
    ]
    memory = show(chip.hbm_bandwidth, "B/s")
    return f"{', '.join(rates)}; memory {memory}"


def ranges(table: MeasuredTable) -> str:
    """tokens 16-1024, inner 32-2048."""
    return ", ".join(
        f"{axis} {p[0]:g}-{p[-1]:g}"
        for axis, p in zip(table.axes, table.points, strict=True)
    )


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def machine_to_dict(machine: Cluster, path: str) -> dict[str, Any]:
    """The fields of `calibrate --json`."""
    from ..describe.read import to_dict as plain

    return {"output": path, **plain(machine)}


def collectives(fits: Mapping[Ranks, LatencyAndRate]) -> RenderableType:
    """The line through each collective of each group."""
    return text_table(
        "collective: latency + bytes / rate | nodes | ranks a node | latency | rate"
        " | median error",
        [
            (
                kind,
                str(nodes),
                str(ranks),
                show(line.latency, "s"),
                show(line.rate, "B/s"),
                percent(line.error),
            )
            for (kind, nodes, ranks), line in fits.items()
        ],
    )


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
    rows = [
        (
            kind,
            show(c.seconds, "s"),
            percent(c.seconds / total),
            f"{c.calls:,}",
        )
        for kind, c in of.items()
    ]
    table = text_table((f"kernels of {name}", "time", "share", "calls"), rows)
    return Group(table, *(f"note: {note}" for note in of.notes))


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
