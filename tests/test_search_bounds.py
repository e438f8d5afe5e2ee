"""The cascade against brute force, on more and larger spaces than a plain loop could follow."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright import predict
from meshwright.search import brute, search
from meshwright.search.space import Space
from meshwright.spec.chip import Chip
from meshwright.spec.cluster import Cluster
from meshwright.spec.job import OPTIMIZERS, Job
from meshwright.spec.layout import Layout
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


def test_a_single_replica_may_need_less_than_two() -> None:
    """It gathers and scatters nothing: of two chips with room for one layer's weights, gradients and a small state, but not for half
    of them beside a whole layer and its gradient, the relaxed search uses one."""
    network, small = Network("one level", (Dim("near", 9e11, 1e-6),)), OPTIMIZERS["adafactor"]
    model = Model("m", 1, 2048, 16, 8192, 0, 128)
    chip = Chip("c", {"bf16": 3e14}, 1e13, 8e10, 2e12)
    job = Job(model, Cluster(chip, network, 2), 2, optimizer=small)
    one, two = (predict(job, Layout(dp=dp, zero=3)).memory_use.total for dp in (1, 2))
    assert one < two
    tight = replace(chip, hbm_bytes=(one + two) / 2 / job.assumptions.memory.capacity_share)
    job = replace(job, cluster=replace(job.cluster, chip=tight))
    space = Space(zero=(3,), microbatch=(1,), recompute=("none",), tp=(1,), cp=(1,))
    every = brute(job, space, 5, True)
    assert {row[5] for row in every.rows} == {1}
    assert search(job, space, 5, True).rows == every.rows
