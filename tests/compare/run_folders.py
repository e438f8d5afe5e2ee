"""Invented run folders: records as a rank would write them, with actions of known length on a known
clock.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import host
from meshwright import Job, Layout, Model
from meshwright.formats.toml import dump_job
from meshwright.schedule import get
from meshwright.schedule.timeline import Passes, timeline_of_order

LLAMA = Model("llama", 8, 64, 4, 160, 256, 32, kv_heads=2)
SLOWER = 1.5
"""Seconds on the clock of a CPU second on the invented machine."""
OPTIMIZER_S = 0.25


def job(layout: Layout, batch: int = 8) -> Job:
    """Of the model that these folders are of."""
    return host.job(LLAMA, layout, batch)


def pipeline_run(
    folder: Path,
    layout: Layout,
    passes: list[Passes],
    steps: int = 3,
    batch: int = 8,
    late: dict[tuple[int, int], float] | None = None,
) -> Path:
    """A run of one replica whose actions take exactly the given CPU seconds, and SLOWER times as
    long on the clock.

    late: (lower rank, higher rank) -> seconds of a message between them, either way.
    """
    described = job(layout, batch)
    schedule, p, v = (
        get(layout.schedule),
        int(layout.pp),
        int(layout.interleave),
    )
    order = schedule.order(p, batch // int(layout.microbatch), v)
    ran = timeline_of_order(order, schedule.placement(p, v), passes)
    begins, ends = arrived(order, ran, late or {})
    (folder / "record").mkdir(parents=True)
    (folder / "job.toml").write_text(dump_job(described))
    row = {
        "loss": 1.0,
        "step_time_s": SLOWER * (ran.makespan_s + OPTIMIZER_S),
        "cpu_s": sum(ran.busy_s),
    }
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": k + 1, **row}) + "\n" for k in range(steps)
        )
    )
    for rank, actions in enumerate(order):
        parts: list[Any] = [
            [
                action.kind,
                ran.stages[rank][k],
                action.microbatch,
                begins[rank][k],
                ends[rank][k],
                ran.end_s[rank][k] - ran.start_s[rank][k],
            ]
            for k, action in enumerate(actions)
        ]
        end = max(max(of_rank) for of_rank in ends)
        parts += [
            ["reduce", 0, -1, end, end, 0.0],
            ["pipeline", -1, -1, 0.0, end, ran.busy_s[rank]],
        ]
        parts += [
            ["optimizer", -1, -1, end, end + SLOWER * OPTIMIZER_S, OPTIMIZER_S]
        ]
        lines = [
            {
                "schema": "meshwright-record/1",
                "rank": rank,
                "ranks": p,
                "place": {"pp": rank, "dp": 0, "cp": 0, "tp": 0},
                "host": "here",
                "cores": 2,
                "device": "cpu",
                "threads": 1,
            }
        ]
        lines += [
            {
                "step": k + 1,
                "began_unix_s": 1e9 + 100 * k,
                "wall_s": end + SLOWER * OPTIMIZER_S,
                "thread_cpu_s": ran.busy_s[rank] + OPTIMIZER_S,
                "process_cpu_s": ran.busy_s[rank] + OPTIMIZER_S,
                "bytes": {
                    "weights": 100 + rank,
                    "gradients": 100,
                    "optimizer": 200,
                    "peak": 1e6,
                },
                "parts": parts,
            }
            for k in range(steps)
        ]
        (folder / "record" / f"rank-{rank:04d}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    return folder


def arrived(
    order: Any, ran: Any, late: dict[tuple[int, int], float]
) -> tuple[list[list[float]], list[list[float]]]:
    """Begins and ends on the clock: an action waits for the one before it on its rank, and for the
    message of its neighbour. Repeated until nothing moves.
    """
    begins = [[SLOWER * at for at in of_rank] for of_rank in ran.start_s]
    ends = [[SLOWER * at for at in of_rank] for of_rank in ran.end_s]
    where = {
        (a.kind == "F", ran.stages[r][k], a.microbatch): (r, k)
        for r, actions in enumerate(order)
        for k, a in enumerate(actions)
        if a.kind != "W"
    }
    moved = bool(late)
    while moved:
        moved = False
        for (forward, stage, microbatch), (r, k) in where.items():
            source = forward, stage + (-1 if forward else 1), microbatch
            ready = ends[r][k - 1] if k else 0.0
            if source in where:
                s, j = where[source]
                ready = max(
                    ready, ends[s][j] + late.get((min(r, s), max(r, s)), 0.0)
                )
            if ready > begins[r][k] + 1e-9:
                moved = True
                ends[r][k] += ready - begins[r][k]
                begins[r][k] = ready
    return begins, ends
