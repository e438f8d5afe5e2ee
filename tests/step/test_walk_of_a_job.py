"""A job on its way from `predict` to its seconds: docs/architecture.md names its stops, and a reader
who follows it has to know few functions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from meshwright import Job, predict

DOCS = Path(__file__).parents[2] / "docs" / "architecture.md"
PACKAGE = "/meshwright/"
FEW = 58
"""Functions that are given the whole job at most, of some 530 that are called."""
STAYS = 31
"""Rooms that the job is given to one after the other, at most: a room counts each time that the
job comes back to it."""
CALLS = 5000
"""Of functions of the package, at most."""
NEAR = 6
"""Frames from `predict` to the first matrix product that is counted, at most."""


def calls(ask: Callable[[], object]) -> list[tuple[str, bool, int]]:
    """(dotted name, whether it is given a job, frames above it) of each call in the package."""
    seen: list[tuple[str, bool, int]] = []
    frames = 0

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal frames
        code = frame.f_code
        if event not in ("call", "return"):
            return
        frames += 1 if event == "call" else -1
        if event == "return" or PACKAGE not in code.co_filename:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = any(isinstance(frame.f_locals.get(x), Job) for x in names)
        module = code.co_filename.rpartition(PACKAGE)[2][: -len(".py")]
        name = f"{module.replace('/', '.')}.{code.co_qualname}"
        seen.append((name, given, frames))

    sys.setprofile(follow)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return seen


def test_a_job_stops_where_the_architecture_says() -> None:
    job = Job("llama3-70b", "1024xh100-sxm", batch="4Mi")

    def ask() -> tuple[bool, float]:
        degrees: dict[str, int] = {"tp": 8, "pp": 4, "interleave": 4}
        p = predict(job, zero=1, **degrees)
        return p.fits, p.step_time_s

    seen = calls(ask)
    order = [name for name, _, _ in seen]
    (section,) = re.findall(
        r"## A job, from `predict`.*?\n## ", DOCS.read_text(), re.S
    )
    stops = re.findall(r"^\| `([\w.]+)` \|", section, re.M)
    assert len(stops) == 15
    assert sorted(stops, key=order.index) == stops
    ways = [name for name, given, _ in seen if given]
    assert len(set(ways)) <= FEW
    rooms = groupby(name.partition(".")[0] for name in ways)
    assert len([room for room, _ in rooms]) <= STAYS
    again = calls(ask)  # descriptions are read and checked once
    assert len(again) <= CALLS
    start = order.index("prediction.prediction.predict")
    product = order.index("count.blocks.matmul")
    assert seen[product][2] - seen[start][2] <= NEAR
