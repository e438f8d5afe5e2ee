"""A run as its folder describes it: the job, a row a step, and what each rank recorded of a few
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from ..describe.job import Job

ACTIONS = ("F", "B", "I", "W")
"""Kinds of parts that are actions of the pipeline; the words of `schedule.types.Action`."""


class StepPart(NamedTuple):
    """A piece of a step on one rank."""

    kind: str
    """F, B, I, W: an action; else pipeline, reduce, settle, norm, clip, optimizer, data."""
    stage: int
    microbatch: int
    """-1 where a part has none."""
    start_s: float
    end_s: float
    """Since the rank began the step."""
    busy_s: float
    """CPU seconds of the rank's thread, or seconds of the GPU's stream."""


@dataclass(frozen=True)
class StepRecord:
    """One step on one rank."""

    step: int
    began_unix_s: float
    wall_s: float
    thread_cpu_s: float
    """Of the thread that runs the model."""
    process_cpu_s: float
    """Of all threads of the rank, those that carry messages among them."""
    bytes: Mapping[str, float]
    """Kept between steps: weights, gradients, optimizer; and peak, the most ever held by the
    process (CPU) or allocated (GPU).
    """
    parts: tuple[StepPart, ...]

    def of(self, *kinds: str) -> list[StepPart]:
        """The parts of these kinds, in order."""
        return [part for part in self.parts if part.kind in kinds]

    @property
    def actions(self) -> list[StepPart]:
        """The passes of microbatches through stages."""
        return self.of(*ACTIONS)


@dataclass(frozen=True)
class RankRecord:
    """What one rank recorded."""

    rank: int
    ranks: int
    place: Mapping[str, int]
    """axis -> place on it: pp, dp, cp, tp, and copies with hybrid sharding."""
    host: str
    cores: int
    """Of the host, that the rank may run on."""
    device: str
    threads: int
    steps: tuple[StepRecord, ...]

    @property
    def replica(self) -> tuple[int, int]:
        """Which pipeline of the run the rank is part of."""
        return self.place.get("copies", 0), self.place.get("dp", 0)


@dataclass(frozen=True)
class Profile:
    """What the profiled steps of a rank say."""

    steps: tuple[int, ...]
    wait_s: Mapping[str, float]
    """axis -> seconds in which the rank waits for messages on that axis, mean over steps; pp: sends
    and receives between stages.
    """
    peak_bytes: float | None
    """Most bytes allocated at once within the first of these steps, above those held when it began;
    None if not measured.
    """


@dataclass(frozen=True)
class RecordedRun:
    """A folder of `meshwright train`."""

    folder: str
    job: Job
    metrics: tuple[Mapping[str, Any], ...]
    """The rows of metrics.jsonl, a row a step."""
    ranks: tuple[RankRecord, ...]
    """Empty if nothing was recorded."""
    profiles: Mapping[int, Profile]
    """By rank; empty without profiles."""
    attempts: tuple[Mapping[str, Any], ...] = ()
    """What ran, and after which step; empty in folders of older versions."""

    @property
    def timed(self) -> tuple[Mapping[str, Any], ...]:
        """The rows whose seconds are those of this job."""
        return comparable_rows(self.metrics, self.attempts)


JOB = ("model", "cluster", "layout", "job")
"""What of an attempt decides how long a step takes; [train] has no part in it."""


def like_the_newest(
    made: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """The attempts that ran the newest one's job under its layout."""
    return [
        row
        for row in made
        if all(row.get(table) == made[-1].get(table) for table in JOB)
    ]


def comparable_rows(
    rows: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """The rows of `like_the_newest` attempts: their seconds can be laid beside each other, and
    beside one prediction.

    The first step of an attempt, which sets things up, is left out if there are others. made: all
    attempts.
    """
    same = {row["attempt"] for row in like_the_newest(made)}
    attempts = [
        row for row in rows if not made or row.get("attempt") in same
    ] or list(rows)
    later = [
        b
        for a, b in pairwise(attempts)
        if a.get("attempt") == b.get("attempt")
    ]
    kept = later or attempts
    whole = (
        [  # a batch that still grew takes less
            row
            for row in kept
            if row.get("sequences") == kept[-1].get("sequences")
        ]
        if kept
        else []
    )
    return tuple(whole)
