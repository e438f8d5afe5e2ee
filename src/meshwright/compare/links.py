"""How long messages between stages take on the clock, link by link.

A pass can begin when its rank has done the one before, and when what it needs has come: the end of
the neighbouring stage's pass. What lies between the later of the two and its begin is the message.
Clocks of two hosts may differ; there and back together that cancels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

from ..formats.records import RankRecord, RecordedRun, StepPart

Link = tuple[int, int]
"""Two ranks, the lower first."""
Passes = Mapping[tuple[bool, int, int], tuple[int, float, float]]
"""(whether forward, stage, microbatch) -> (rank, begin, end) in Unix seconds."""


def links(run: RecordedRun) -> dict[Link, float]:
    """Seconds of a message between the stages of two ranks: the median of each direction, and of
    both the mean.
    """
    by_way: dict[Link, dict[bool, list[float]]] = defaultdict(
        lambda: {True: [], False: []}
    )
    for ranks in pipeline_ranks(run.ranks):
        for k in range(min(len(rank.steps) for rank in ranks)):
            for a, b, seconds in _messages(ranks, k):
                by_way[min(a, b), max(a, b)][a < b].append(seconds)
    return {
        link: fmean(median(of) for of in ways.values() if of)
        for link, ways in by_way.items()
    }


def pipeline_ranks(every: Sequence[RankRecord]) -> list[list[RankRecord]]:
    """The ranks that hand each other microbatches: those that differ in pp alone."""
    pipelines: dict[tuple[int, ...], list[RankRecord]] = defaultdict(list)
    for rank in every:
        place = sorted(rank.place.items())
        pipelines[tuple(n for axis, n in place if axis != "pp")].append(rank)
    return [ranks for ranks in pipelines.values() if len(ranks) > 1]


def _messages(
    ranks: Sequence[RankRecord], k: int
) -> Iterator[tuple[int, int, float]]:
    """(sender, receiver, seconds) of the messages of a step that their receivers waited for."""
    passes: dict[tuple[bool, int, int], tuple[int, float, float]] = {}
    free: dict[tuple[bool, int, int], float] = {}
    for rank in ranks:
        step = rank.steps[k]
        before = float("-inf")
        for part in sorted(step.actions, key=lambda part: part.start_s):
            begin, end = (
                step.began_unix_s + at for at in (part.start_s, part.end_s)
            )
            if (key := key_of(part)) is not None:
                passes[key], free[key] = (rank.rank, begin, end), before
            before = end
    for key, (receiver, begin, _) in passes.items():
        forward, stage, microbatch = key
        source = forward, stage - 1 if forward else stage + 1, microbatch
        if source in passes and passes[source][0] != receiver:
            sender, _, end = passes[source]
            if end > free[key]:  # else it may have come long before
                yield sender, receiver, max(begin - end, 0.0)


def key_of(part: StepPart) -> tuple[bool, int, int] | None:
    """Which pass of a microbatch hands something on; second halves (W) hand on nothing."""
    if part.kind == "W":
        return None
    return part.kind == "F", part.stage, part.microbatch
