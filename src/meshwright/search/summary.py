"""What was searched and what was left out, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..describe.choices import first_few
from ..describe.job import Job
from ..describe.recompute import RECOMPUTE
from ..schedule import SCHEDULES
from .options import Options, space_options
from .space import DEGREES, USUAL, Space


def describe_search(job: Job, spaces: Sequence[Space]) -> tuple[str, str]:
    """(the fastest of what, what is in none of the spaces): for every face that shows the
    answer.
    """
    options = [space_options(job, space) for space in spaces]
    left = {
        "schedules": _without(
            SCHEDULES,
            {option.schedule for one in options for option in one.schedules},
        ),
        "ZeRO": _without(
            USUAL["zero"],
            {sharding.zero for one in options for sharding in one.zero},
        ),
        "recomputation": _without(
            RECOMPUTE,
            {r for space in spaces for r in space.values("recompute")},
        ),
    }
    missing = [
        f"{what} {', '.join(values)}"
        for what, values in left.items()
        if values
    ]
    if job.model.moe and any(space.values("etp") is None for space in spaces):
        missing.append("etp other than 1 and tp")
    if not any(space.relaxed for space in spaces):
        missing.append("uneven batches (--relaxed)")
    if not any(space.placements for space in spaces):
        missing.append("other placements")
    each = (
        _space_words(one, space)
        for one, space in zip(options, spaces, strict=True)
    )
    return "; or ".join(dict.fromkeys(each)), "; ".join(missing)


def _without(every: Iterable[Any], tried: set[Any]) -> list[str]:
    return [str(value) for value in every if value not in tried]


def _space_words(options: Options, space: Space) -> str:
    """What one space holds."""
    schedules = [option for option in options.schedules if option.chunked]
    chunks = sorted({v for option in schedules for v in option.chunks})
    names = tuple(
        dict.fromkeys(option.schedule for option in options.schedules)
    )
    dealt = tuple(dict.fromkeys(option.stages for option in options.schedules))
    tried = (
        [f"tp scheme {space.scheme}"] if space.choices.get("scheme") else []
    )
    tried += [
        f"schedules {', '.join(names) or 'none'}"
        + (f" (interleave {ranges(chunks)})" if chunks else ""),
        *(
            [f"stages {' or '.join(dealt)}"]
            if dealt not in ((), ("even",))
            else []
        ),
        f"ZeRO {', '.join(map(str, options.zero))}",
        f"recomputation {', '.join(options.recompute)}",
    ]
    tried += [
        f"{axis} {first_few(values)}"
        for axis in DEGREES
        if (values := space.values(axis)) is not None
    ]
    return "; ".join(tried)


def ranges(values: Sequence[int]) -> str:
    """2, 4 to 8, 10: neighbours as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = (
        [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
        for run in runs
    )
    return ", ".join(text for each in texts for text in each)
