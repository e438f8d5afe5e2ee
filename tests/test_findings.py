"""docs/findings.md says what its commands print."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright import Job, Layout
from meshwright.describe.assumptions import LBL
from meshwright.describe.job import PRECISIONS
from meshwright.formats.scenario import load_scenario
from meshwright.limits.answer import limits
from meshwright.prediction.failures import Failures
from meshwright.prediction.prediction import predict

PAGE = (Path(__file__).parents[1] / "docs" / "findings.md").read_text("utf-8")


def row(title: str, start: str) -> list[str]:
    """Cells of the row that starts so, in the table under a title."""
    (table,) = (x for x in PAGE.split("\n### ") if x.startswith(f"{title}\n"))
    (line,) = re.findall(rf"^\| {re.escape(start)} \|(.*)\|$", table, re.M)
    return [cell.strip() for cell in line.split("|")]


def test_experts_help_a_v100_too() -> None:
    """Without grids; by the paper's rule of grids they would not, which is no answer."""
    dense, sparse = limits(["v100", "v100/sparse"]).lines
    assert dense.smooth_crossing and sparse.smooth_crossing
    ends = dense.smooth_crossing.last_flops, sparse.smooth_crossing.last_flops
    assert ends[0] and ends[1] and ends[1] > 3 * ends[0]
    cells = row("A mixture of experts", "v100")
    assert cells[:2] == [f"{end:.1e}" for end in ends if end]
    assert dense.crossing.first_flops and sparse.crossing.first_flops
    assert sparse.crossing.first_flops < dense.crossing.first_flops
    assert float(cells[5].removesuffix("x")) < 1
    assert "Withdrawn" in PAGE and "and not on V100" not in PAGE


@pytest.mark.parametrize(("seconds", "column"), [(None, 3), (600.0, 0)])
def test_a_larger_domain_is_worth_nothing_to_chips_that_fail(
    seconds: float | None, column: int
) -> None:
    """The two numbers of the page: eight chips, and 64 of the network of GB200 NVL72."""
    failures = Failures(restart_s=seconds) if seconds else None
    ends = []
    for name in ("h100", "h100@gb200-nvl72"):
        (line,) = limits(replace(load_scenario(name), failures=failures)).lines
        assert line.smooth_crossing and line.smooth_crossing.last_flops
        ends.append(line.smooth_crossing.last_flops)
    gain = ends[1] / ends[0]
    assert gain == pytest.approx(1.0, abs=0.02) if seconds else gain > 4
    title = "The NVLink domain when chips fail"
    few, many = (float(row(title, n)[column]) for n in ("8", "64"))
    assert many / few == pytest.approx(gain, rel=0.2)


def test_the_table_of_one_job_is_what_its_command_prints() -> None:
    job = Job("gpt3-175b", "1024xa100-80", 1536, precision=PRECISIONS["fp16"])
    layout = Layout(
        tp=8, pp=8, dp=16, recompute="full", sequence_parallel=False
    )
    seconds = predict(replace(job, assumptions=LBL), layout).step_time_s
    lines = re.findall(r"^\| lbl-2024 \| ([\d.]+) s \|", PAGE, re.M)
    assert lines == [f"{seconds:.1f}"] * 2
