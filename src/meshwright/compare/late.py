"""Who holds up a step: ranks whose passes take longer than those of the others, and groups of
ranks whose messages do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ..formats.records import RankRecord
from .numbers import RunNumbers
from .terms import busy_seconds

SLOW = 1.3
"""Times the median of the others from which a rank or a link is slow."""
WAITED = 2.0
"""The same of all that a group waits for in a step: one number for each rank, not one a message."""
NOTABLE = 0.05
"""Share of the measured step from which a difference is explained."""
SPANS = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("dp",),
    "copies": ("copies",),
    "replicas": ("dp", "cp"),
}
"""Axis of a profile's waits -> places in which the ranks of a group differ. Groups of experts are
not told apart.
"""


def stragglers(c: RunNumbers) -> dict[int, float]:
    """Ranks whose passes took longer than predicted by more than those of the others did: rank ->
    how many times as long as their median.
    """
    planned = c.replayed.timeline.busy_s
    least = NOTABLE * (c.step.measured_s if c.step else 0.0)
    ratios, expected = dict[int, float](), dict[int, float]()
    for rank in c.run.ranks:
        seconds = planned[rank.place.get("pp", 0)]
        if rank.steps and seconds:
            ratios[rank.rank] = seconds_on_rank(rank, c.free) / seconds
            expected[rank.rank] = seconds
    late = {}
    for number, ratio in ratios.items():
        others = [other for key, other in ratios.items() if key != number]
        usual = median(others) if others else 0.0
        more = (ratio - usual) * expected[number]
        if usual and ratio > SLOW * usual and more > least:
            late[number] = ratio / usual
    return late


def seconds_on_rank(rank: RankRecord, free: bool) -> float:
    """Seconds that the passes of a step hold a rank: those it is busy, or, if its passes wait for
    nobody (`free`), the quickest of each on the clock, where that is longer: a rank may be late
    without computing.
    """
    spent = median(busy_seconds(s.actions) for s in rank.steps)
    if not free or rank.device != "cpu":
        return spent
    quickest = defaultdict[tuple[str, int], list[float]](list)
    for step in rank.steps:
        for part in step.actions:
            quickest[part.kind, part.stage].append(part.end_s - part.start_s)
    each = len(rank.steps)
    on_clock = sum(min(of) * len(of) / each for of in quickest.values())
    return max(spent, on_clock)


class WaitingGroup(NamedTuple):
    """Ranks that wait for each other's messages on an axis."""

    axis: str
    ranks: tuple[int, ...]
    wait_s: float
    """Of the rank that waits least in a step: the last to come waits for the message alone."""
    usual_s: float
    """The median of that over the other groups at the same place of the pipeline."""


def slow_groups(c: RunNumbers) -> list[WaitingGroup]:
    """Groups of ranks whose messages take longer than those of the other groups of their axis."""
    least = NOTABLE * (c.step.measured_s if c.step else 0.0)
    groups = []
    for axis, differ in SPANS.items():
        waits = group_waits(c.run.ranks, c.run.profiles, axis, differ)
        for place, (ranks, wait) in waits.items():
            others = [
                seconds
                for other, (_, seconds) in waits.items()
                if other != place and dict(other)["pp"] == dict(place)["pp"]
            ]
            usual = median(others) if others else wait
            if wait > WAITED * usual and wait - usual > least:
                groups.append(WaitingGroup(axis, ranks, wait, usual))
    return groups


Place = tuple[tuple[str, int], ...]


def group_waits(
    every: Sequence[RankRecord],
    profiles: Mapping[int, object],
    axis: str,
    differ: Sequence[str],
) -> dict[Place, tuple[tuple[int, ...], float]]:
    """Where the ranks of a group stand alike -> (the ranks, seconds that all of them wait)."""
    waits_of = defaultdict[Place, dict[int, float]](dict)
    for rank in every:
        waits: Mapping[str, float] = getattr(
            profiles.get(rank.rank), "wait_s", {}
        )
        if axis in waits:
            place = {"pp": 0, **rank.place}
            alike = sorted(k for k in place.items() if k[0] not in differ)
            waits_of[tuple(alike)][rank.rank] = waits[axis]
    return {
        place: (tuple(of), min(of.values()))
        for place, of in waits_of.items()
        if len(of) > 1
    }
