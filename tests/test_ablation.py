"""What laws of time and of memory are worth: each that the ablations name does something, every
fitted number is listed, and the page of memory says what is computed.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import ablation
import memory
from pages import each_alone

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


Without = dict[tuple[str, str], float]
LAWS = {"time": ablation.LAWS, "memory": memory.LAWS}
"""The first of each are all of them."""


def of_memory() -> list[Row]:
    """Runs whose memory is known, and some that ran out of it."""
    every = published()
    known = [r for r in every if r["measured"].get("memory_kind")]
    out = [r for r in every if r["measured"].get("oom")]
    return known[::3] + out[::8]


@cache
def without(of: str, place: int) -> Without:
    """What is predicted without one law."""
    wanted, some = {
        "time": (("step_time",), rows),
        "memory": (("memory", "out_of_memory"), of_memory),
    }[of]

    def predicted(law: ablation.Law) -> Without:
        found = ablation.without(law, some())
        return {
            (r.id, r.quantity): r.predicted or 0.0
            for r in found.rows
            if r.quantity in wanted and not r.held_out
        }

    (found,) = each_alone(predicted, LAWS[of][place : place + 1])
    return found


@pytest.mark.parametrize(
    ("of", "place"),
    [
        (of, place)
        for of, laws in LAWS.items()
        for place in range(1, len(laws))
    ],
    ids=[f"{of} {law.name}" for of, laws in LAWS.items() for law in laws[1:]],
)
def test_switching_a_law_off_changes_a_prediction(of: str, place: int) -> None:
    assert without(of, place) != without(of, 0)
    assert without(of, place).keys() == without(of, 0).keys()


def test_the_first_line_has_all_laws() -> None:
    found = validate(rows()).having("step_time")
    assert without("time", 0) == {
        (r.id, r.quantity): r.predicted for r in found
    }


def test_the_page_of_memory_says_what_is_computed() -> None:
    (computed,) = each_alone(memory.line, memory.LAWS[:1])
    page = Path(__file__).parents[1] / "docs" / "memory.md"
    assert " | ".join(computed) in page.read_text("utf-8")


def test_every_number_fitted_to_runs_is_listed() -> None:
    assert [name for name, *_ in ablation.marked()] == [
        of.name for of in fitted.fitted_parameters()
    ]


MAKERS = re.compile(r"made by: python benchmarks/(\w+)\.py")


def test_what_makes_the_docs_can_be_run() -> None:
    """A name that moved would show only when tables are made the next time."""
    pages = (Path(__file__).parents[1] / "docs").glob("*.md")
    makers = {
        name
        for page in pages
        for name in MAKERS.findall(page.read_text("utf-8"))
    }
    assert len(makers) >= 6
    assert all(import_module(name).__doc__ for name in makers)
