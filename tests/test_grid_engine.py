"""A grid on a cluster: every worker is kept busy, and what fails takes nothing else along. Threads
and an executor that fails stand in for those of Dask and Ray.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import ThreadPoolExecutor as Threads
from pathlib import Path
from typing import Any

import pytest

from meshwright import Job, Layout
from meshwright.grid import EngineFailed, grid

JOB = Job("llama3-8b", "8xh100-sxm", 64, Layout(dp=8, zero=3))
AXES = [
    ("chips", [str(n) for n in range(8, 264, 8)]),
    ("seq", [str(n) for n in range(1024, 1088)]),
]
"""32 x 64 = 2,048 points."""
FEW = [("chips", ["8", "16"]), ("seq", ["1024", "2048", "4096", "8192"])]


def row(
    job: Job, point: Mapping[str, Any], space: object, fixed: bool
) -> dict[str, Any]:
    return {**point, "step_time_s": float(point["seq"]), "note": ""}


def test_every_worker_of_a_cluster_has_a_point() -> None:
    """2,048 points of 20 ms on 32 workers: 1.3 s of work each."""
    lock, running, most = threading.Lock(), 0, 0

    def slow(*args: Any) -> dict[str, Any]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return row(*args)

    with Threads(32) as engine:
        found = grid(JOB, AXES, fixed=True, engine=engine, compute=slow)
    assert len(found.rows) == 2048 and not found.interrupted
    assert most == 32


def test_a_bad_point_is_a_row_with_its_error() -> None:
    def spoilt(job: Job, point: Mapping[str, Any], *rest: Any) -> Any:
        if (point["chips"], point["seq"]) == ("8", "2048"):
            raise ValueError("no such thing")
        return row(job, point, *rest)

    for workers in (1, 3):
        with Threads(workers) as engine:
            found = grid(
                JOB, FEW, fixed=True, engine=engine, compute=spoilt
            ).rows
        assert len(found) == 8
        assert found[1] == {
            "chips": "8",
            "seq": "2048",
            "note": "ValueError: no such thing",
        }
        assert all(r["step_time_s"] for r in found if r is not found[1])


class Killed(Executor):
    """An engine on which a worker ends with each part that holds a certain point, or for good after
    some parts.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last

    def submit(
        self, fn: Callable[..., Any], /, part: Any, **named: Any
    ) -> Future[Any]:
        future: Future[Any] = Future()
        if self.last is not None:
            self.last -= 1
            if self.last < 0:
                future.set_exception(BrokenExecutor("all workers are gone"))
                return future
        if self.last is None and any(p["seq"] == "2048" for _, p in part):
            future.set_exception(RuntimeError("KilledWorker"))
        else:
            future.set_result(fn(part))
        return future


def test_a_point_that_ends_its_worker_takes_no_other_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meshwright.grid.PARTS", 3)
    found = grid(JOB, FEW, fixed=True, engine=Killed(), compute=row).rows
    assert [r["note"] for r in found] == [
        "RuntimeError: KilledWorker" if r["seq"] == "2048" else ""
        for r in found
    ]
    assert len(found) == 8


def test_an_engine_that_ends_leaves_all_that_was_done(tmp_path: Path) -> None:
    """And the same command goes on."""
    file = tmp_path / "points.jsonl"
    with pytest.raises(EngineFailed, match=r"all workers are gone.*continues"):
        grid(JOB, FEW, fixed=True, engine=Killed(3), compute=row, file=file)
    kept = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert len(kept) == 3, "three parts of a point"
    asked = []

    def again(*args: Any) -> dict[str, Any]:
        asked.append(args)
        return row(*args)

    whole = grid(JOB, FEW, fixed=True, compute=again, file=file)
    assert len(whole.rows) == 8 and len(asked) == 5


def test_ctrl_c_keeps_the_points_that_are_done(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"

    def stopped(job: Job, point: Mapping[str, Any], *rest: Any) -> Any:
        if (point["chips"], point["seq"]) == ("8", "8192"):
            raise KeyboardInterrupt
        return row(job, point, *rest)

    found = grid(JOB, FEW, fixed=True, compute=stopped, file=file, workers=1)
    assert found.interrupted and len(found.rows) == 3
    assert len(file.read_text().splitlines()) == 1 + 3
