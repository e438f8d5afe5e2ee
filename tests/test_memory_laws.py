"""What laws of memory are worth: the page says what is computed, and every law does something."""

from __future__ import annotations

import multiprocessing
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import memory

from meshwright_studies.validate import published
from meshwright_studies.validate.rows import Row

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"


def rows() -> list[Row]:
    """Runs whose memory is known, and some that ran out of it."""
    every = published()
    known = [r for r in every if r["measured"].get("memory_kind")]
    out = [r for r in every if r["measured"].get("oom")]
    return known[::3] + out[::8]


def held(place: int) -> dict[tuple[str, str], float]:
    """What is predicted of memory, and the chance to run out, without one law."""
    law = (*memory.LAWS, memory.EVERY)[place]
    return {
        (r.id, r.quantity): r.predicted or 0.0
        for r in memory.without(law, rows()).rows
        if r.quantity in ("memory", "out_of_memory")
    }


@cache
def without(place: int) -> dict[tuple[str, str], float]:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(held, (place,))


@pytest.mark.parametrize(
    "place",
    range(1, len(memory.LAWS) + 1),
    ids=lambda place: (*memory.LAWS, memory.EVERY)[place].name,
)
def test_switching_a_law_off_changes_what_is_held(place: int) -> None:
    assert without(place) != without(0)
    assert without(place).keys() == without(0).keys()


def test_the_page_says_what_is_computed() -> None:
    (computed,) = memory.lines(memory.LAWS[:1])
    assert " | ".join(computed) in PAGE.read_text("utf-8")
