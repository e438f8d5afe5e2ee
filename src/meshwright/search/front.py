"""The front of time against memory: each point the fastest that needs clearly less memory than the
one before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..describe.job import Job
from ..prediction.prediction import Prediction, predict
from ..step import oom
from .ranked import Ranking
from .space import Space

FRONT_STEP = 0.1
"""Each point of the front needs at least this share less memory than the one before."""
FRONT_POINTS = 8


def front(
    used: Job,
    spaces: Sequence[Space],
    best: Prediction,
) -> tuple[Prediction, ...]:
    """From the answer on, the fastest that needs at least a tenth less memory than the last; none
    that a later one beats in both.

    used: the job on the chips that the layouts use;  the job of `best` may have more.
    """
    job = best.job
    points = [best]
    while len(points) < FRONT_POINTS:
        limit = points[-1].memory_bytes["allocated"] * (1 - FRONT_STEP)
        tight = oom.with_room_for(used, limit)
        fastest = Ranking(tight, spaces, 1, by_time=True).best_layouts(1)
        if not fastest:
            break
        leaner = predict(job, fastest[0].layout)
        # what is shown first may be preferred among ties, and slower than a leaner point
        quicker = (p for p in points if p.step_time_s < leaner.step_time_s)
        points = [*quicker, leaner]
    return tuple(points)
