"""The cascade against brute force, on more and larger spaces than a plain loop could follow."""

from __future__ import annotations

import random

import pytest

from meshwright.search import brute, search
from meshwright.search.space import Space
from meshwright.spec.chip import Chip
from meshwright.spec.cluster import Cluster
from meshwright.spec.job import Job
from meshwright.spec.model import Model
from meshwright.spec.network import Dim, Network
from test_search import random_job


@pytest.mark.parametrize("seed", range(10))
def test_bounds_lose_nothing(seed: int) -> None:
    """Twelve random spaces a seed."""
    rng, compared = random.Random(1000 + seed), 0
    while compared < 12:
        job, space, relaxed = random_job(rng)
        k = rng.choice([1, 3, 5, 10])
        if job.cluster.chips * job.batch > (300 if relaxed else 800):
            continue
        compared += 1
        every, quick = brute(job, space, k, relaxed), search(job, space, k, relaxed)
        assert quick.rows == every.rows
        assert relaxed or quick.searched == every.searched


def test_a_schedule_that_runs_only_with_fewer_replicas() -> None:
    """dualpipev needs 2 pp microbatches: with a replica for every sequence it cannot run, with fewer it can."""
    network = Network("two levels", (Dim("near", 9e11, 1e-6, 4), Dim("far", 5e10, 5e-6)))
    chip = Chip("c", {"bf16": 3e14}, 1e13, 3e9, 2e12)
    job = Job(Model("m", 2, 256, 4, 1024, 0, 256), Cluster(chip, network, 8), 8)
    space = Space(schedules=("dualpipev",), microbatch=(1,), tp=(1,), cp=(1,), pp=(1,))
    every = brute(job, space, 5, True)
    assert every.rows
    assert all(dp < 8 for _, _, _, _, _, dp, *_ in every.rows)
    assert search(job, space, 5, True).rows == every.rows
