"""The answer of a plan by replay against the replay of every layout of small spaces."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from meshwright import plan, predict
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import (
    REALISTIC,
    SETS,
    ChipTime,
    HidePass,
    NetworkTime,
)
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.exact import replayed
from meshwright.prediction.replay import replay
from meshwright.search import Space, brute, search
from meshwright.search.merit import seconds_of
from meshwright.search.ranked import ranked
from meshwright.step import body, room, step
from test_search import random_job

EVERY = 1_000_000
"""More than the layouts of a small space."""


@pytest.mark.parametrize("seed", range(12))
def test_the_first_answers_are_the_best_by_replay(seed: int) -> None:
    """Every layout of the space replayed: the same k best, in the same order."""
    rng, compared = random.Random(7000 + seed), 0
    while compared < 3:
        job, space, relaxed = random_job(rng)
        if (
            job.cluster.chips * job.batch > (60 if relaxed else 200)
            or job.assumptions.name != "realistic"
        ):
            continue
        compared += 1
        k, dims = rng.choice([1, 3, 5]), len(job.cluster.network.dims)
        every = brute(job, space, EVERY, relaxed)
        layouts = every.layouts(space.scheme, dims)
        chances = [
            1 - float(room.risk(job, np.array([row[1]]))[0])
            for row in every.rows
        ]
        times = replayed(job, layouts)
        exact = [
            float(f"{s / chance:.12g}")
            for s, chance in zip(times, chances, strict=True)
        ]
        best = sorted(
            zip(
                exact,
                (row[1:] for row in every.rows),
                range(len(exact)),
                strict=True,
            )
        )[:k]
        found = ranked(job, space, k, relaxed, search(job, space, k, relaxed))
        assert list(found) == [layouts[i] for *_, i in best]


def test_closed_forms_of_a_space_are_never_above_their_replays() -> None:
    """What lets the search stop."""
    rng, compared = random.Random(5), 0
    while compared < 12:
        job, space, relaxed = random_job(rng)
        if (
            relaxed
            or job.cluster.chips * job.batch > 400
            or job.assumptions.name != "realistic"
        ):
            continue
        compared += 1
        every = brute(job, space, 400)
        exact = replayed(
            job, every.layouts(space.scheme, len(job.cluster.network.dims))
        )
        closed = [seconds_of(job, row) for row in every.rows]
        assert all(
            c <= e * (1 + 1e-9) for c, e in zip(closed, exact, strict=True)
        )


def test_both_numbers_are_shown() -> None:
    """A replay by itself, the one in the prediction, and the order of a plan."""
    job = Job(model("llama3-8b"), cluster("64xh100-sxm"), 64)
    found = plan(job, Space(pp=(4, 8), schedule=("interleaved", "zb-h1")))
    answers = (found.best, *found.alternatives)
    merits = [p.replayed_s / (1 - p.risk_of_oom) for p in answers]
    assert merits[1:] == sorted(merits[1:]), (
        "the first is the simplest of ties"
    )
    for p in answers:
        one = replay(p)
        s = step(p.job, p.layout, body(p.job, p.layout))
        in_order = one.exact_s + s.outside + s.update
        # a device that has to wait for its own gradients may be the last one to end, whatever the
        # order
        assert p.replayed_s == pytest.approx(max(in_order, p.step_time_s))
        assert p.to_dict()["replayed_s"] == p.replayed_s
        assert p.step_time_s <= p.replayed_s * (1 + 1e-9)


def test_a_paper_is_answered_by_its_closed_form() -> None:
    job = Job(
        model("gpt3-175b"),
        cluster("64xa100-80"),
        64,
        assumptions=SETS["lbl-2024"],
    )
    assert predict(job, Layout(tp=8, pp=8)).replayed_s is None


def test_sends_and_a_heavy_last_stage_turn_the_order_of_schedules() -> None:
    """Three schedules of 20 layers a stage: interleaving 20 chunks is slower than 10 and than a V,
    by both numbers.

    Sends decide: kernels as quick in a small stage as in a large one, and no gradients that slow
    down what they hide behind.
    """
    layout = Layout(tp=2, cp=2, pp=4, dp=64, zero=2, sequence_parallel=False)
    quiet = replace(REALISTIC.overlap, dp=HidePass("pass"))
    how = replace(
        REALISTIC,
        chip=ChipTime("roofline"),
        network=NetworkTime("best"),
        overlap=quiet,
    )
    job = Job(
        model("llama3-70b"), cluster("1024xh100-sxm"), 512, assumptions=how
    )
    ways = (("interleaved", 20), ("interleaved", 10), ("zbv", 2))
    found = [
        predict(job, replace(layout, schedule=name, interleave=v))
        for name, v in ways
    ]
    closed, exact = (
        [p.step_time_s for p in found],
        [p.replayed_s for p in found],
    )
    assert closed == pytest.approx(exact, rel=0.005)
    assert exact[0] > exact[1] > exact[2]
