"""The search against a plain loop over layouts, one at a time: same best layouts, same numbers,
same order of ties.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright import (
    Chip,
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    MoE,
    Network,
    catalog,
)
from meshwright.describe.assumptions import SETS
from meshwright.search import Space, brute, search
from meshwright.step import model_cost, whole_step
from plain_loop import seconds_of
from refusals import refusal
from spaces import hybrid, random_job, same_by_loop

Change = Callable[[random.Random, Job, Space], tuple[Job, Space]]
"""Of a job and a space that were drawn."""


def nothing(rng: random.Random, job: Job, space: Space) -> tuple[Job, Space]:
    """As they were drawn."""
    return job, space


def unlike_layers(
    rng: random.Random, job: Job, space: Space
) -> tuple[Job, Space]:
    """Models whose layers differ."""
    return replace(job, model=hybrid(rng, job.model)), space


def named_widths(
    rng: random.Random, job: Job, space: Space
) -> tuple[Job, Space]:
    """Experts cut otherwise than tp, and sequences that cp does not divide."""
    moe = MoE(4, 2, job.model.hidden // 2)
    model = replace(job.model, moe=moe, mtp_layers=0)
    seq = rng.choice([500, 514, 768])
    how = SETS["realistic"]
    return replace(job, model=model, seq=seq, assumptions=how), space.but(
        etp=rng.choice([(2,), (1, 2), (2, 4)]),
        cp=rng.choice([(1, 2), (2, 3), (1, 4)]),
    )


def stages_that_lie_twice(
    rng: random.Random, job: Job, space: Space
) -> tuple[Job, Space]:
    """DualPipe: two ranks hold each stage, so weights are sharded over twice as many, and half of
    the microbatches go each way."""
    return replace(job, batch=rng.choice([16, 24])), space.but(
        schedule="dualpipe", sequence_parallel=None
    )


def hidden_cut_over_tp(
    rng: random.Random, job: Job, space: Space
) -> tuple[Job, Space]:
    """Scheme gspmd, sometimes with tokens that tp cannot cut."""
    seq = rng.choice([126, job.model.seq])
    model = replace(job.model, moe=None, mtp_layers=0, seq=seq)
    return replace(job, model=model, batch=12), space.but(scheme="gspmd")


def nodes_in_part(
    rng: random.Random, job: Job, space: Space
) -> tuple[Job, Space]:
    """Fast chips that share slow adapters and do not fill their nodes, or need not; some adapters
    are said to serve more chips than a node has.
    """
    dims = (
        Dim("near", 3e11, 1e-6, rng.choice([4, 8])),
        Dim("far", rng.choice([5e8, 5e9]), 5e-6, shared_by=rng.choice([2, 8])),
    )
    on = job.cluster
    cluster = replace(
        on,
        chip=replace(on.chip, matrix_flops={"bf16": 3e14}, hbm_bytes=1e11),
        network=Network("shared", dims),
        chips=rng.choice([6, 9, 10, 12, 14, 20]),
    )
    batch, how = rng.choice([5, 6, 7, 10]), SETS["realistic"]
    return replace(job, cluster=cluster, batch=batch, assumptions=how), space


@pytest.mark.parametrize(
    ("change", "seed", "spaces"),
    [
        *((nothing, seed, 5) for seed in range(40)),
        *((unlike_layers, 1000 + seed, 2) for seed in range(6)),
        *((named_widths, 4000 + seed, 2) for seed in range(8)),
        *((stages_that_lie_twice, 2000 + seed, 2) for seed in range(2)),
        *((hidden_cut_over_tp, 3000 + seed, 2) for seed in range(2)),
        *((nodes_in_part, 5000 + seed, 1) for seed in (2, 6, 203, 298)),
    ],
)
def test_search_equals_brute_force_equals_a_plain_loop(
    change: Change, seed: int, spaces: int
) -> None:
    """Random spaces that are small enough for a loop, ties included; of those that were changed as
    many that have such layouts.
    """
    rng, compared = random.Random(seed), 0
    while compared < spaces:
        job, space, relaxed = random_job(rng)
        job, space = change(rng, job, space)
        if job.cluster.chips * job.batch > (100 if relaxed else 250):
            continue
        same_by_loop(job, space)
        compared += change is nothing or bool(search(job, space, 1).rows)


def test_what_lies_twice_is_searched_by_itself() -> None:
    job, space, _ = random_job(random.Random(1))
    with refusal("alone, not with 1f1b"):
        search(job, space.but(schedule=("1f1b", "dualpipe")))


@pytest.mark.parametrize("how", ["epoch-2024", "realistic"])
def test_search_equals_brute_force_of_feed_forwards_on_a_plane(
    how: str,
) -> None:
    """Scheme mlp2d, whose cp cuts the hidden size and whose tp the feed-forward."""
    model = Model("mlp", 4, 12, 1, 24, 0, 64, pattern=("none",), gated=False)
    dims = Dim("near", 4.5e11, 1e-6, 4), Dim("far", 5e10, 5e-6)
    cluster = Cluster(catalog.chip("h100-sxm"), Network("two", dims), 12)
    job = Job(model, cluster, 6, assumptions=how)
    space = Space(
        scheme="mlp2d",
        zero=(0, 1),
        schedule=("1f1b", "zb-h2"),
        recompute="none",
    )
    same_by_loop(job, space)
    assert search(job, space, 1).searched > 100


def test_no_layout_of_a_scheme_that_does_not_count_the_model() -> None:
    """Neither by tables nor by the loop: gspmd and summa have no mixture of experts."""
    job, space, _ = random_job(random.Random(3))
    model = replace(job.model, moe=MoE(4, 1, 64), mtp_layers=0)
    job = replace(job, model=model, batch=8)
    for scheme in ("gspmd", "summa"):
        same_by_loop(job, space.but(scheme=scheme))
        assert search(job, space.but(scheme=scheme), 1).searched == 0


def test_any_number_of_chips() -> None:
    """98,304 and 100,000 chips have a plan; the relaxed space may leave some idle."""
    network = Network(
        "two levels", (Dim("near", 4.5e11, 2.5e-6, 8), Dim("far", 5e10, 5e-6))
    )
    chip = Chip("c", {"bf16": 1e15}, 1e14, 8e10, 3e12)
    model = Model("m", 48, 8192, 64, 28672, 128256, 4096, kv_heads=8)
    for chips in (98304, 100000, 99991):
        job = Job(
            model,
            Cluster(chip, network, chips),
            4096,
            precision="bf16",
        )
        best = search(job, Space(relaxed=True), 1)
        layout = best.layouts[0]
        assert layout.chips <= chips
        one = whole_step(job, layout, model_cost(job, layout))
        assert seconds_of(job, best.rows[0]) == pytest.approx(
            float(one.total), rel=1e-12
        )


@pytest.mark.parametrize(("pp", "covered"), [(1, 6), (2, 4), (3, 2), (6, 1)])
def test_a_relaxed_space_may_leave_chips_idle(pp: int, covered: int) -> None:
    """Replicas of one sequence of six, on as many of eight chips as there are whole ones."""
    model = Model("m", 6, 96, 6, 192, 0, 128, gated=False)
    near = Network("flat", (Dim("near", 9e11, 1e-6),))
    job = Job(model, Cluster(catalog.chip("h100-sxm"), near, 8), 6)
    one = {"tp": 1, "cp": 1, "microbatch": 1, "sequence_parallel": True}
    space = Space(
        **one, pp=pp, zero=0, recompute="none", schedule="1f1b",
        stages="even", relaxed=True,
    )  # fmt: skip
    assert search(job, space, 9).searched == covered
    same_by_loop(job, space)


def test_an_exchange_that_nobody_named_is_the_usual_where_cp_is_one() -> None:
    """With learned sinks Transformer Engine exchanges keys in one way."""
    job = Job("gpt-oss-20b", "16xh100-sxm", 16)
    space = Space(cp=(1, 2), zero=1, schedule="1f1b", ep=8)
    found = {
        layout.cp: layout.cp_exchange
        for layout in search(job, space, 50).layouts
    }
    assert found == {1: Layout().cp_exchange, 2: "all-to-all"}


def test_breaking_a_bound_is_noticed() -> None:
    """A network whose far dimension is faster is not searched by bounds that assume the
    opposite.
    """
    job, space, _ = random_job(random.Random(3))
    odd = Network("odd", (Dim("near", 1e9, 1e-4, 4), Dim("far", 1e11, 1e-6)))
    job = replace(job, cluster=Cluster(job.cluster.chip, odd, 8), batch=8)
    assert search(job, space, 3).rows == brute(job, space, 3).rows
