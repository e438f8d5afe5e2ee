"""Traces of the profiler, read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.formats.profile_trace import read_profile
from refusals import refusal

STEP = '{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "step 3", "ts": 1, "dur": 7}]}'


def part(name: str, begin: float, end: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": begin,
        "dur": end - begin,
    }


def memory(at: float, total: float) -> dict[str, Any]:
    return {
        "ph": "i",
        "name": "[memory]",
        "ts": at,
        "args": {"Total Allocated": total, "Bytes": 1},
    }


def test_waits_within_microbatches_count_and_memory_is_that_of_the_first_step(
    tmp_path: Path,
) -> None:
    events = [
        memory(5, 100),
        part("step 4", 10, 1000),
        part("pipeline", 20, 500),
        part("wait tp", 30, 60),
        part("wait replicas", 400, 450),
        part("norm", 500, 600),
        part("wait world", 510, 590),
        memory(50, 900),
        memory(70, 300),
        part("step 5", 2000, 3000),
        part("pipeline", 2000, 2500),
        part("settle", 2500, 2600),
        part("wait tp", 2510, 2580),
        memory(2100, 5000),
        {"ph": "X", "cat": "cpu_op", "name": "wait tp", "ts": 40, "dur": 1},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    found = read_profile(tmp_path / "t.json")
    assert found.steps == (4, 5)
    assert found.wait_s == {
        "tp": pytest.approx((30 + 70) / 2 * 1e-6),
        "replicas": pytest.approx(25e-6),
    }
    assert found.peak_bytes == 800


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"traceEvents": 3}',
        '{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "step x"}]}',
        '{"traceEvents": []}',
        *(STEP.replace("7", n) for n in ("1" + 400 * "0", "1e999", "NaN")),
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with refusal(r"t.json (is not a trace|holds no profiled step)"):
        read_profile(tmp_path / "t.json")
