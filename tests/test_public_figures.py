"""Figures that makers of models published, none of which any number was fitted to
(published/figures.toml): inside the interval and foreseen to fit, or what cannot be expressed is named.

docs/plan.md has their table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from meshwright import Job, Layout, Prediction, load_job, predict
from refusals import refusal

RUNS = tomllib.loads(
    (Path(__file__).parent / "published" / "figures.toml").read_text("utf-8")
)["run"]


def tokens(p: Prediction, step_s: float) -> float:
    """Tokens a second and chip, if a step takes so many seconds."""
    return p.tokens_per_s_per_chip * p.step_time_s / step_s


MEASURES: dict[str, Callable[[Prediction, float], float]] = {
    "mfu": lambda p, step_s: p.mfu * p.step_time_s / step_s,
    "tokens": tokens,
    "hours": lambda p, step_s: 1e12 / tokens(p, step_s) / 3.6e6,
}


class Figure(NamedTuple):
    """What was published, and what is predicted in the same unit."""

    published: float
    expected: float
    low: float
    high: float
    prediction: Prediction


def figure(run: dict[str, Any]) -> Figure:
    """Of a row of the file."""
    tables = ("model", "cluster", "job", "layout", "software")
    job = load_job({table: run[table] for table in tables if table in run})
    p = predict(job, job.layout)
    value = MEASURES[run["measure"]]
    assert p.interval_s
    low, high = sorted(value(p, step_s) for step_s in p.interval_s)
    return Figure(run["published"], value(p, p.step_time_s), low, high, p)


@pytest.mark.parametrize("name", {run["name"]: 0 for run in RUNS})
def test_a_published_figure_lies_inside_the_interval_and_its_run_fits(
    name: str,
) -> None:
    """Or is foreseen not to fit where what makes it fit cannot be expressed: when it fits, this is
    said no longer.
    """
    rows = [(run, figure(run)) for run in RUNS if run["name"] == name]
    assert any(one.low <= one.published <= one.high for _, one in rows)
    for run, one in rows:
        assert one.prediction.fits is ("missing" not in run)


@pytest.mark.parametrize(
    ("dp", "cp", "seq", "gib"),
    [(8, 1, 32768, 75.3), (4, 2, 65536, 75.9), (2, 4, 131072, 77.1)],
)
def test_pipelines_of_torchtitan_hold_whole_gradients(
    dp: int, cp: int, seq: int, gib: float
) -> None:
    """Llama 3.1 405B on 512 H100, tp 8 pp 8, FP8, full recomputation, 8 sequences a replica:
    torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 6. Sharded gradients would be a
    third less.
    """
    layout = Layout(tp=8, pp=8, dp=dp, cp=cp, zero=1, recompute="full")
    job = Job(
        "llama3-405b",
        "512xh100-sxm",
        8 * dp,
        seq=seq,
        precision="fp8",
        framework="torchtitan",
    )
    found = predict(job, layout).memory_bytes["reserved"]
    assert found / 2**30 == pytest.approx(gib, rel=0.1)
    for zero in (2, 3):
        with refusal("whole until the last microbatch"):
            predict(job, replace(layout, zero=zero))
