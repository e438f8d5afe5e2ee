"""Bounds leave out what cannot win, and nothing else: the search finds what brute force finds, and
looks at no more of a space than when its bounds were last made tighter.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from meshwright.describe.job import Job
from meshwright.search import brute, cascade, relaxed, search
from meshwright.search.space import Space, length
from test_search import random_job

STAGES = (
    (cascade, "lower"),
    (relaxed, "by_law"),
    (relaxed, "pipelined"),
    (relaxed, "_halve"),
    (relaxed, "lower"),
    (cascade, "evaluate"),
)
"""Of a search, each given rows as its fourth argument."""
SLACK = 1.05
"""Rounding may bring a row of a tie more."""
SMALL = {False: 2000, True: 500}
"""Chips times sequences of strict and relaxed spaces that brute force walks in a tenth of a second.
"""


def drawn(seed: int) -> tuple[Job, Space, bool]:
    """Strict and relaxed spaces in turn, with more than a handful of layouts."""
    rng = random.Random(3000 + seed)
    while True:
        job, space, idle = random_job(rng)
        size = min(job.cluster.chips / 16, job.batch / 12)
        if idle == bool(seed % 2) and size >= 1:
            return job, space, idle


def looked_at(
    job: Job, space: Space, idle: bool, patch: pytest.MonkeyPatch
) -> tuple[list[Any], tuple[int, ...], int]:
    """The five best; how many rows came to each stage, last the points that were evaluated; and how
    many layouts there are.
    """
    rows = Counter[Any]()

    def counted(stage: Any) -> Any:
        plain = getattr(*stage)

        def count(*args: Any, **rest: Any) -> Any:
            rows[stage] += length(getattr(args[3], "table", args[3]))
            return plain(*args, **rest)

        return count

    with patch.context() as inside:
        for stage in STAGES:
            inside.setattr(*stage, counted(stage))
        found = search(job, space, 5, idle)
    each = (*(rows[stage] for stage in STAGES), found.evaluated)
    return found.rows, each, found.searched


MOST = {  # strict, then relaxed
    0: (168, 0, 0, 0, 0, 79, 1176),
    10: (85, 0, 0, 0, 0, 42, 984),
    16: (239, 0, 0, 0, 0, 142, 432),
    46: (276, 0, 0, 0, 0, 42, 444),
    72: (294, 0, 0, 0, 0, 134, 1044),
    98: (179, 0, 0, 0, 0, 157, 1424),
    110: (228, 0, 0, 0, 0, 217, 4398),
    114: (618, 0, 0, 0, 0, 34, 3648),
    128: (351, 0, 0, 0, 0, 38, 1863),
    132: (132, 0, 0, 0, 0, 66, 5760),
    5: (0, 825, 65, 51, 75, 40, 408),
    7: (0, 135, 275, 96, 120, 55, 360),
    11: (0, 512, 648, 1060, 1150, 526, 520),
    15: (0, 257, 649, 939, 956, 267, 2520),
    19: (0, 240, 1232, 1855, 1878, 319, 2256),
    21: (0, 48, 612, 957, 996, 59, 2436),
    27: (0, 328, 837, 278, 363, 133, 8496),
    33: (0, 192, 112, 70, 111, 37, 334),
    35: (0, 312, 1589, 2408, 2443, 452, 2268),
    55: (0, 280, 240, 346, 370, 522, 108),
    57: (0, 800, 2998, 4226, 4448, 304, 7232),
    63: (0, 440, 1200, 1642, 1704, 209, 6246),
    73: (0, 180, 63, 113, 122, 21, 351),
    75: (0, 4617, 2480, 1957, 2035, 227, 2308),
    81: (0, 480, 642, 995, 1019, 850, 744),
    87: (0, 4464, 163, 39, 131, 88, 1212),
    93: (0, 117, 268, 355, 363, 263, 12168),
    95: (0, 1168, 1202, 1710, 1782, 179, 379),
    111: (0, 154, 442, 605, 648, 409, 960),
    113: (0, 192, 48, 48, 287, 149, 1268),
    125: (0, 336, 138, 226, 246, 53, 328),
    133: (0, 252, 95, 64, 73, 73, 165),
}  # fmt: skip
"""Space -> the most rows of each stage, and points. A search that needs fewer lowers them; one that
needs more has a looser bound, or another way to go."""


@pytest.mark.parametrize("seed", MOST)
def test_how_little_of_a_space_is_looked_at(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, space, idle = drawn(seed)
    best, rows, searched = looked_at(job, space, idle, monkeypatch)
    if job.cluster.chips * job.batch <= SMALL[idle]:
        every = brute(job, space, 5, idle)
        assert best == every.rows
        # relaxed, those that no schedule runs are among them
        assert searched >= every.searched and (
            idle or searched == every.searched
        )
    for found, most in zip(rows, MOST[seed], strict=True):
        assert found <= SLACK * most, (rows, MOST[seed])
