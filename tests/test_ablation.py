"""The ablation: every law that it names does something, and every fitted number is listed."""

from __future__ import annotations

import multiprocessing
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import ablation

from meshwright.describe import fitted
from meshwright_studies.validate import published, validate
from meshwright_studies.validate.rows import Row

SAMPLE = 29
"""Every so many rows: all sources, precisions and kinds of layout are among them."""


def rows() -> list[Row]:
    """One row of each kind that a law is about, and a sample."""
    every = [row for row in published() if not row["measured"].get("oom")]
    wanted = (
        "cp",
        "nvfp4",
        "zero-bubble-013",  # many microbatches, of which a step in a run has one bubble
        "rowwise",
        "zero-3",
        "hybridep",
        "overlap=true",
        "kernel=torch",
        'head_dim": 150',
    )
    return (
        every[::SAMPLE]
        + [
            next(row for row in every if word in str(row).lower())
            for word in wanted[:8]
        ]
        + unaligned(every)
    )


def unaligned(every: list[Row]) -> list[Row]:
    """A run of unfused attention whose heads 8 does not divide, one with context parallelism, and
    one under a lower power limit.
    """
    return [
        next(
            r
            for r in every
            if r["source"] == "bigscience-tr11"
            and (r["model"]["hidden"] // r["model"]["heads"]) % 8
        ),
        next(r for r in every if (r["parallel"].get("cp") or 1) > 1),
        next(r for r in every if "500W" in r["hardware"]["gpu"]),
    ]


def seconds(place: int) -> dict[str, float]:
    """Predicted step times without one law."""
    found = validate(rows(), ablation.switched_off(ablation.LAWS[place]))
    return {r.id: r.predicted or 0.0 for r in found.having("step_time")}


@cache
def without(place: int) -> dict[str, float]:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(seconds, (place,))


@pytest.mark.parametrize(
    "place",
    range(1, len(ablation.LAWS)),
    ids=lambda place: ablation.LAWS[place].name,
)
def test_switching_a_law_off_changes_a_prediction(place: int) -> None:
    assert without(place) != without(0)
    assert without(place).keys() == without(0).keys()


def test_the_first_line_has_all_laws() -> None:
    assert without(0) == {
        r.id: r.predicted for r in validate(rows()).having("step_time")
    }


def test_every_number_fitted_to_runs_is_listed() -> None:
    assert [name for name, *_ in ablation.marked()] == [
        of.name for of in fitted.fitted_parameters()
    ]
