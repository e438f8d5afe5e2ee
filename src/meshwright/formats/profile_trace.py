"""The Chrome trace of a rank's profiled steps (read only): waits for messages by axis, and memory.

Ranges (ph X) named by `train.profile`: "step 7" around a step, "pipeline" and "settle" around its
microbatches and what follows them, "wait tp" around a wait. Only waits within those two count: that
for the norm, of all ranks together, is of no axis. Instants named "[memory]", written by PyTorch's
profiler, carry "Total Allocated": bytes allocated since the profile began and not freed yet.

Source: "Trace Event Format" (Google, 2016); the memory instants as in PyTorch 2.13's libkineto
output.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadInput
from . import read_text
from .records import Profile

LARGEST_TRACE = 256 * 2**20
"""Bytes of one trace."""
WITHIN = ("pipeline", "settle")
Range = tuple[float, float]
"""Begin and end in microseconds."""


def read_profile(path: Path) -> Profile:
    """The profile in a trace. BadInput if it is none of ours."""
    try:
        data = json.loads(read_text(path, LARGEST_TRACE))
        events = [
            event
            for event in data["traceEvents"]
            if isinstance(event, Mapping)
        ]
        steps = {
            int(event["name"][5:]): range_ends(event)
            for event in ranges_named(events, "step ")
        }
        within = sorted(
            range_ends(event)
            for event in ranges_named(events, "")
            if event["name"] in WITHIN
        )
        waits = [
            (event["name"][5:25], range_ends(event))
            for event in ranges_named(events, "wait ")
        ]
        memory = [
            (trace_number(e["ts"]), trace_number(e["args"]["Total Allocated"]))
            for e in events
            if e.get("name") == "[memory]"
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise BadInput(
            f"{path} is not a trace of meshwright train: it must hold traceEvents of profiled steps"
        ) from None
    if not steps:
        raise BadInput(f"{path} holds no profiled step")
    return Profile(
        tuple(sorted(steps)),
        {
            axis: s / len(steps)
            for axis, s in wait_seconds(waits, within).items()
        },
        peak_bytes(memory, steps[min(steps)]),
    )


def ranges_named(
    events: Sequence[Mapping[str, Any]], prefix: str
) -> list[Mapping[str, Any]]:
    """The ranges whose name begins so, on the CPU."""
    return [
        e
        for e in events
        if e.get("ph") == "X"
        and e.get("cat") == "user_annotation"
        and str(e.get("name")).startswith(prefix)
    ]


def range_ends(event: Mapping[str, Any]) -> Range:
    """Begin and end of a range."""
    begin = trace_number(event["ts"])
    return begin, begin + trace_number(event["dur"])


def trace_number(value: Any) -> float:
    """A number of a trace; ValueError or OverflowError if it is none that can be added up."""
    if not math.isfinite(number := float(value)):
        raise ValueError(value)
    return number


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
