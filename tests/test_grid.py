"""Two fields varied together: resumed after a kill, on processes and engines, always the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from meshwright import Choices, Job, Layout, Space, predict
from meshwright.grid import engine_at, grid
from meshwright.sweep import sweep, vary
from refusals import refusal
from shell import Shell

JOB = Job("llama3-8b", "8xh100-sxm", 64, Layout(dp=8, zero=3))
AXES = [("chips", ["8", "16"]), ("seq", ["2048", "4096", "8192"])]
LARGE = [
    ("chips", [str(n) for n in range(8, 1608, 8)]),
    ("seq", [str(n) for n in range(1024, 1124)]),
]
"""200 x 100 = 20,000 points."""


def cheap(
    job: Job, point: Mapping[str, Any], space: object, fixed: bool
) -> dict[str, Any]:
    """A row that costs nothing: what is tested is the bookkeeping."""
    return {
        **point,
        "step_time_s": 1.0 / (int(point["chips"]) + int(point["seq"])),
        "note": "",
    }


def test_a_point_is_the_prediction_of_its_values() -> None:
    found = grid(JOB, AXES, fixed=True)
    assert len(found.rows) == 6
    for row in found.rows:
        changed = vary(vary(JOB, "chips", row["chips"]), "seq", row["seq"])
        assert row["step_time_s"] == predict(changed).step_time_s
    assert found.table("step_time_s")[1][2] == found.rows[5]["step_time_s"]


def test_a_searched_grid_holds_what_a_sweep_finds() -> None:
    few = Space(Choices(tp=(1, 2), pp=(1,), cp=(1,), microbatch=(1,)))
    found = grid(JOB, [("chips", ["8", "16"]), ("seq", ["4096", "8192"])], few)
    alone = sweep(vary(JOB, "chips", "16"), "seq", ["4096", "8192"], few)
    assert [row["step_time_s"] for row in found.rows[2:]] == [
        p.step_time_s for p in alone.predictions
    ]


def test_processes_and_engines_find_the_same() -> None:
    here = grid(JOB, AXES, fixed=True, workers=1)
    assert grid(JOB, AXES, fixed=True, workers=2) == here
    with ThreadPoolExecutor(3) as engine:
        assert grid(JOB, AXES, fixed=True, engine=engine) == here


@pytest.mark.parametrize("cut", [0, 400_000])
def test_resumed_equals_uninterrupted(tmp_path: Path, cut: int) -> None:
    """20,000 points; the file is cut off anywhere, as a kill leaves it."""
    whole = grid(
        JOB, LARGE, fixed=True, compute=cheap, file=tmp_path / "whole.jsonl"
    )
    assert len(whole.rows) == 20_000 and not whole.interrupted
    part = tmp_path / "part.jsonl"
    part.write_bytes((tmp_path / "whole.jsonl").read_bytes()[: -cut - 1])
    calls = [0]

    def counted(*args: Any) -> dict[str, Any]:
        calls[0] += 1
        return cheap(*args)

    assert (
        grid(JOB, LARGE, fixed=True, compute=counted, file=part, workers=1)
        == whole
    )
    assert 0 < calls[0] < 20_000
    assert sorted(part.read_text().splitlines()) == sorted(
        (tmp_path / "whole.jsonl").read_text().splitlines()
    )


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_grid import JOB, LARGE, cheap
import time
from meshwright.grid import grid
def slow(*args):
    time.sleep(2e-5)
    return cheap(*args)
grid(JOB, LARGE, fixed=True, compute=slow, file=sys.argv[1], workers=1)
"""


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL in the middle, then once more: what was done is done."""
    file = tmp_path / "points.jsonl"
    here = str(Path(__file__).parent)
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file), here], env={**os.environ}
    )
    give_up = time.monotonic() + 60
    while (
        not file.exists() or file.stat().st_size < 200_000
    ) and time.monotonic() < give_up:
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    run.wait()
    lines = len(file.read_text().splitlines())
    assert lines > 100
    again = grid(JOB, LARGE, fixed=True, compute=cheap, file=file)
    assert again == grid(JOB, LARGE, fixed=True, compute=cheap)


def test_a_file_of_another_grid_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    grid(JOB, AXES, fixed=True, compute=cheap, file=file)
    with refusal("another job"):
        grid(JOB, AXES[::-1], fixed=True, compute=cheap, file=file)
    file.write_text("hello\n")
    with refusal("no points"):
        grid(JOB, AXES, fixed=True, compute=cheap, file=file)


def test_what_cannot_be_varied_is_said() -> None:
    with refusal("two fields"):
        grid(JOB, AXES[:1])
    with refusal("not known"):
        grid(JOB, [("chipz", ["8"]), AXES[1]])
    with refusal("at most"):
        grid(JOB, [("batch", range(1, 500)), ("seq", range(1, 500))])
    with refusal("must look like"):
        engine_at("8786")
    note = grid(
        JOB, [("tp", ["3", "1"]), ("seq", ["4096", "8192"])], fixed=True
    ).rows[0]["note"]
    assert "heads" in note


def test_the_command(tmp_path: Path, shell: Shell) -> None:
    one = "sweep llama3-8b --on 8xh100 --batch 64seq --zero 3 --fixed --over chips=8,16"
    two = f"{one} --over seq=4k,8k"
    file = tmp_path / "grid.jsonl"
    told = shell(f"{two} -o {file} --show mfu").out
    assert "by chips (down) and seq (across)" in told and "%" in told
    data = shell.json(f"{two} -o {file}")
    assert len(data["rows"]) == 4 and data["rows"][0]["step_time_s"] > 0
    assert max(len(line) for line in told.splitlines()) <= 80
    shell(f"{two} --show mfuu", ends=2)
    shell(f"{one} --workers 2", ends=2)
