"""The answers of a plan against the prediction of every layout of small spaces, one at a time."""

from __future__ import annotations

import random

import pytest

from meshwright import Job, Layout, plan, predict
from meshwright.describe.slices import axes
from meshwright.search import Plan, Space, brute, search
from plain_loop import every_layout, seconds_of
from spaces import bare, random_job

SMALL = {False: 60, True: 20}
"""Chips times sequences of strict and relaxed spaces of a hundred layouts."""
EVERY = 1_000_000
"""More than the layouts of a small space."""


def small(rng: random.Random) -> tuple[Job, Space, bool]:
    """A random job on few chips, where a plan looks at every placement."""
    while True:
        job, space, relaxed = random_job(rng)
        size = job.cluster.chips * job.batch
        if 4 <= size <= SMALL[relaxed] and not axes(job.cluster.network):
            return bare(job), space, relaxed


SEEDS = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_is_the_best_of_a_plain_loop_of_predictions(seed: int) -> None:
    """Five spaces a seed, 60 quick and 200 in all: the merits of the best, in order; what was
    looked at and what fits is counted once; no row of a table takes longer than its prediction.
    """
    rng = random.Random(7000 + seed)
    for _ in range(5):
        job, space, relaxed = small(rng)
        shown = [
            predict(job, layout) for _, layout in every_layout(job, space)
        ]
        every = brute(job, space, EVERY)
        quick = search(job, space, EVERY)
        assert quick.rows == every.rows
        fine = [p for p in shown if p.fits]
        counts = (len(shown), len(fine), len(shown) - len(fine))
        assert counts == (every.searched, every.feasible, every.too_big)
        assert quick.searched >= len(shown) and len(every.rows) == len(fine)
        assert relaxed or quick.searched == len(shown)
        tables = dict(zip(every.layouts, every.rows, strict=True))
        for p in fine:
            row = tables[p.layout]
            assert seconds_of(job, row) <= p.step_time_s * (1 + 1e-12)
            held = p.memory_bytes["allocated"]
            assert row.bytes == pytest.approx(held, rel=1e-12)
        found = plan(job, space, top=3, families=False)
        if job.assumptions.strict and not relaxed:  # its stages are equal
            fine = [p for p in fine if job.model.layers % p.layout.pp == 0]
        best = sorted(p.merit_s for p in fine)[:3]
        assert [p.merit_s for p in answers(found)] == pytest.approx(best, rel=1e-9)  # fmt: skip


def answers(found: Plan) -> list:
    return [p for p in (found.best, *found.alternatives) if p]


def test_a_paper_is_answered_by_its_closed_form() -> None:
    job = Job("gpt3-175b", "64xa100-80", 64, assumptions="lbl-2024")
    assert predict(job, Layout(tp=8, pp=8)).replayed_s is None
