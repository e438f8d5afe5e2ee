"""The Chrome trace of a rank's profiled steps (read only): waits for messages by axis, and memory.

Ranges (ph X) named by `train.profile`: "step 7" around a step, "pipeline" and "settle" around its
microbatches and what follows them, "wait tp" around a wait. Only waits within those two count: that
for the norm, of all ranks together, is of no axis. Instants named "[memory]", written by PyTorch's
profiler, carry "Total Allocated": bytes allocated since the profile began and not freed yet.

Source: "Trace Event Format" (Google, 2016); the memory instants as in PyTorch 2.13's libkineto
output.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput
from .kineto import arguments, category, has_duration, is_number, rows
from .records import Profile

WITHIN = ("pipeline", "settle")
ALLOCATED = "Total Allocated"
Range = tuple[float, float]
"""Begin and end in microseconds."""


def read_profile(path: Path) -> Profile:
    """The profile in a trace. BadInput if it is none of ours."""
    events = rows(path)
    ranges = [
        (event["name"], (event["ts"], event["ts"] + event["dur"]))
        for event in events
        if event.get("ph") == "X"
        and category(event) == "user_annotation"
        and has_duration(event)
    ]
    steps = {
        int(name[5:]): at
        for name, at in ranges
        if name.startswith("step ") and name[5:].isdecimal()
    }
    if not steps:
        raise BadInput(f"{path} holds no profiled step of meshwright train")
    within = sorted(at for name, at in ranges if name in WITHIN)
    waits = [
        (name[5:25], at) for name, at in ranges if name.startswith("wait ")
    ]
    memory = [
        (event["ts"], arguments(event)[ALLOCATED])
        for event in events
        if event.get("name") == "[memory]"
        and is_number(event.get("ts"))
        and is_number(arguments(event).get(ALLOCATED))
    ]
    return Profile(
        tuple(sorted(steps)),
        {
            axis: s / len(steps)
            for axis, s in wait_seconds(waits, within).items()
        },
        peak_bytes(memory, steps[min(steps)]),
    )


def wait_seconds(
    waits: Sequence[tuple[str, Range]], within: Sequence[Range]
) -> dict[str, float]:
    """axis -> seconds of the waits that begin inside one of the ranges."""
    by_axis: dict[str, float] = defaultdict(float)
    starts = [begin for begin, _ in within]
    for axis, (begin, end) in waits:
        at = bisect_right(starts, begin) - 1
        if at >= 0 and begin < within[at][1]:
            by_axis[axis] += (end - begin) / 1e6
    return dict(by_axis)


def peak_bytes(
    memory: Sequence[tuple[float, float]], step: Range
) -> float | None:
    """The most bytes within a step, above those allocated when it began."""
    before = [(at, size) for at, size in memory if at < step[0]]
    inside = [size for at, size in memory if step[0] <= at <= step[1]]
    return (
        max(inside) - (max(before)[1] if before else 0.0) if inside else None
    )
