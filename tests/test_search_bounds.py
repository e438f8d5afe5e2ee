"""The cascade against brute force, on more and larger spaces than a plain loop could follow."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from meshwright import (
    Chip,
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    Network,
    plan,
    predict,
)
from meshwright.describe.job import OPTIMIZERS
from meshwright.describe.slices import axes
from meshwright.search import Space, brute, search
from meshwright.step import oom
from spaces import CHIP, FLAT, bare, random_job, with_memory


@pytest.mark.parametrize(("relaxed", "most"), [(False, 0.05), (True, 0.01)])
def test_how_little_of_a_large_space_is_looked_at(
    relaxed: bool, most: float
) -> None:
    found = search(
        Job("llama3-8b", "64xh100-sxm", 64), Space(relaxed=relaxed), 10
    )
    assert found.searched > 400_000
    assert found.evaluated < most * found.searched


NARROW: dict[str, tuple[Any, ...]] = {
    "tp": (1, 2, 3),
    "pp": (1, 2, 3, 6),
    "cp": (1, 2),
    "microbatch": (1, 2, 3, 4, 8),
    "schedule": ("dualpipev", "zbv", "interleaved", "1f1b"),
}
"""One value each, of some fields."""


@pytest.mark.parametrize("relaxed", [False, True])
def test_what_is_said_where_nothing_fits(relaxed: bool) -> None:
    """On chips without room for anything: whether some layout is legal, and the bytes of the
    smallest, are those of brute force on chips with room for all; with room for exactly that one
    it is the answer, with a little less it is what is shown. Some of the smallest need fewer
    replicas than there are chips for; six chips leave a node of four partly used, and strict
    layouts fill all.
    """
    rng, compared, fewer = random.Random(12), 0, 0
    while compared < 12:
        job, space, _ = random_job(rng)
        if job.cluster.chips * job.batch > 100 or axes(job.cluster.network):
            continue
        compared += 1
        job, space = bare(job), replace(space, relaxed=relaxed)
        for name, values in NARROW.items():
            if rng.random() < 0.4:
                space = space.but(**{name: (rng.choice(values),)})
        every = brute(with_memory(job, 1e18), space, 10**6)
        said = plan(with_memory(job, 1.0), space, families=False)
        assert said.best is None
        if not every.rows:
            assert said.closest is None
            continue
        least = min(every.rows, key=lambda row: row.bytes)
        assert said.closest and said.closest.memory_use.total == least.bytes
        for room_for, fits in ((1 + 1e-9, True), (1 - 1e-9, False)):
            tight = oom.with_room_for(job, least.bytes * room_for)
            assert bool(search(tight, space, 1).rows) is fits
            assert bool(plan(tight, space, families=False).best) is fits
        fewer += any(
            more_replicas(job, row.degrees)
            for row in every.rows
            if row.bytes == least.bytes
        )
    assert (fewer > 0) == relaxed


def more_replicas(job: Job, degrees: tuple[float, ...]) -> bool:
    """There are chips and sequences for one more."""
    tp, cp, pp, dp, *_, micro, _, _ = degrees
    chips = tp * cp * pp * (dp + 1) <= job.cluster.chips
    return chips and (dp + 1) * micro <= job.batch


ONE = {
    "microbatch": (1,),
    "tp": (1,),
    "cp": (1,),
    "zero": (1,),
    "recompute": ("full",),
}
"""One way for everything but the schedule."""


@pytest.mark.parametrize(
    ("model", "chips", "batch", "choices", "dp"),
    [
        # 8 replicas have 2 microbatches, dualpipev needs 4
        (
            Model("m", 8, 2048, 16, 8192, 0, 128),
            16,
            16,
            {"schedule": ("dualpipev",), "pp": (2,)},
            4,
        ),
        # 8 have 5, which no groups of one size hold
        (
            Model("m", 8, 2048, 16, 8192, 0, 128),
            16,
            40,
            {"schedule": ("interleaved",), "pp": (2,)},
            4,
        ),
        # 8 have 7, one group that is all in flight; 7 have 8, two groups of 4
        (
            Model("m", 16, 512, 8, 2048, 0, 2048),
            32,
            56,
            {
                "schedule": ("interleaved",),
                "pp": (4,),
                "interleave": (4,),
                "recompute": ("none",),
            },
            7,
        ),
    ],
)
def test_what_fits_only_between_the_fewest_and_the_most_replicas(
    model: Model, chips: int, batch: int, choices: dict[str, Any], dp: int
) -> None:
    """On chips with just the room for it: one replica holds too many states, the most cannot run
    or hold too many microbatches.
    """
    job = Job(model, Cluster(CHIP, FLAT, chips), batch)
    space = Space(**{**ONE, **choices}, relaxed=True)
    own = brute(job, space.but(dp=dp), 9).rows
    job = oom.with_room_for(job, 1.001 * min(row.bytes for row in own))
    every = brute(job, space, 5)
    assert every.rows
    assert 1 < every.rows[0].degree("dp") < chips / choices["pp"][0]
    assert search(job, space, 5).rows == every.rows


def test_a_single_replica_may_need_less_than_two() -> None:
    """It gathers and scatters nothing: of two chips with room for one layer's weights, gradients
    and a small state, but not for half of them beside a whole layer and its gradient, the relaxed
    search uses one."""
    small, two_chips = OPTIMIZERS["adafactor"], Cluster(CHIP, FLAT, 2)
    model = Model("m", 1, 2048, 16, 8192, 0, 128)
    job = Job(model, two_chips, 2, optimizer=small, framework="unknown")
    one, two = (
        predict(job, Layout(dp=dp, zero=3)).memory_use.total for dp in (1, 2)
    )
    assert one < two
    job = oom.with_room_for(job, (one + two) / 2)
    space = Space(
        zero=3,
        microbatch=1,
        recompute="none",
        tp=1,
        cp=1,
        relaxed=True,
    )
    every = brute(job, space, 5)
    assert {row.degree("dp") for row in every.rows} == {1}
    assert search(job, space, 5).rows == every.rows


def test_an_interval_of_replicas_in_a_mesh_is_bounded_by_its_fastest() -> None:
    """4 to 7 replicas make 2 microbatches of 8 sequences; 7 reach twice the links of 4 and
    synchronise faster.
    """
    mesh = Network(
        "mesh", (Dim("near", 7e10, 0.0, 8, kind="mesh"), Dim("far", 1e9, 1e-5))
    )
    chip = Chip("c", {"bf16": 3e15}, 1e14, 8e10, 2e13)
    job = Job(Model("m", 4, 1024, 4, 4096, 0, 128), Cluster(chip, mesh, 8), 8)
    one: dict[str, Any] = {
        "relaxed": True,
        "tp": (1,),
        "cp": (1,),
        "pp": (1,),
        "microbatch": (1,),
        "zero": (0,),
        "schedule": ("1f1b",),
    }
    times = {
        dp: brute(job, Space(**one, dp=dp), 1).rows[0].merit
        for dp in (4, 5, 6, 7)
    }
    assert times[7] < times[4], "a larger group is faster here"
    space = Space(**one)
    pinned = Space(**one, dp=(4, 7))
    assert search(job, pinned, 2).rows == brute(job, pinned, 2).rows
    assert search(job, space, 3).rows == brute(job, space, 3).rows


@pytest.mark.parametrize("name", ["llama3-405b", "gpt3-175b"])
def test_no_part_of_a_space_holds_anything_better(name: str) -> None:
    """Schedules that wait for next to nothing, in a space too large for brute force: whatever degrees
    are pinned, brute force finds nothing faster than the search of the whole.
    """
    job = Job(name, "1024xh100-sxm", 64)
    wide: dict[str, Any] = {
        "schedule": ("1f1b", "zb-h1", "zb-h2", "interleaved"),
        "zero": (0, 1),
        "placements": False,
        "relaxed": True,
    }
    best = search(job, Space(**wide), 1).rows[0]
    for tp, cp, pp in product((2, 4, 8), (1, 8), (8, 16, 32)):
        part = Space(tp=tp, cp=cp, pp=pp, microbatch=1, **wide)
        rows = brute(job, part, 1).rows
        assert not rows or best.merit <= rows[0].merit * (1 + 1e-12)


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_limit_leaves_out_nothing_of_pipelines_of_layers(
    relaxed: bool,
) -> None:
    """Next to nothing but layers, on links that cost next to nothing: bounds are nearly what layouts
    take. With the merit of any row as limit all rows within it are found; some of them interleave
    with as many microbatches as ranks, which they have with fewer replicas than there is room for.
    """
    network = Network(
        "fast", (Dim("near", 1e18, 0.0, 4), Dim("far", 1e18, 0.0))
    )
    chip = Chip("c", {"bf16": 3e14}, 1e13, 8e12, 2e15)
    model = Model("m", 24, 2048, 16, 8192, 256, 4096)
    job = Job(model, Cluster(chip, network, 24), 48)
    space = Space(
        schedule=("1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"),
        tp=1,
        cp=1,
        zero=0,
        recompute="none",
        placements=False,
        relaxed=relaxed,
    )
    rows = brute(job, space, 10**5).rows
    assert len(rows) > 100
    for row in rows[:: max(len(rows) // 12, 1)]:
        found = search(job, space, 10**5, within=row.merit).rows
        fine = [x for x in rows if x.merit <= row.merit * (1 + 1e-12)]
        assert found == fine
