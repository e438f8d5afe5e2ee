"""What a plan chooses and shows beside it: ties, families, conventions of published runs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from meshwright import Job, plan, predict
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.slices import axes
from meshwright.layout import practice
from meshwright.prediction.certainty import resolution
from meshwright.search import Space, brute, complexity, strategies
from plain_loop import every_layout
from spaces import random_job

JOB = Job("llama3-8b", "16xh100-sxm", 32)
ONE_STAGE = Space(pp=1)
"""Nothing is replayed: closed forms are exact."""


FAMILIES = {
    "pipelines, ZeRO-0 or 1": lambda x: x.pp > 1 and x.zero < 2,
    "pipelines, ZeRO-2 or 3": lambda x: x.pp > 1 and x.zero >= 2,
    "FSDP with tp": lambda x: x.pp == 1 and x.zero >= 2 and x.tp > 1,
    "FSDP only": lambda x: x.pp == 1 and x.zero >= 2 and x.tp == 1,
    "no pipelines, ZeRO-0 or 1": lambda x: x.pp == 1 and x.zero < 2,
}
"""Name -> whether a layout belongs to it."""


@pytest.fixture(scope="module")
def found():
    return plan(JOB, ONE_STAGE, top=12)


def test_of_all_layouts_as_good_as_the_best_the_simplest_is_the_answer(
    found,
) -> None:
    """By brute force: every layout that keeps the conventions, weighed and compared."""
    usual = practice.keeping(JOB, practice.kept_conventions(JOB))
    spaces, _ = strategies(JOB, ONE_STAGE)
    every = [
        (row.merit, best.layout(row))
        for best in (brute(usual, space, 100_000) for space in spaces)
        for row in best.rows
    ]
    least = min(merit for merit, _ in every)
    ties = [
        (complexity(JOB, x), merit)
        for merit, x in every
        if merit <= least * (1 + resolution(JOB))
    ]
    assert len({b for b, _ in ties}) > 2
    mine = (complexity(JOB, found.best.layout), found.best.merit_s)
    simplest, merit = min(ties)
    assert mine[0] == simplest and mine[1] == pytest.approx(merit, rel=1e-12)
    merits = [p.merit_s for p in found.alternatives]
    nearest = sorted(
        merit
        for merit, _ in every
        if merit != pytest.approx(mine[1], rel=1e-12)
    )
    assert merits == pytest.approx(nearest[: len(merits)], rel=1e-12)


def test_what_ranks_is_the_time_over_the_chance_to_fit(found) -> None:
    for p in (found.best, *found.alternatives):
        assert p.merit_s == pytest.approx(p.replayed_s / (1 - p.risk_of_oom))
        assert found.slower(p) == pytest.approx(
            p.merit_s / found.best.merit_s - 1
        )
        shown = found.to_dict()["alternatives"]
    assert [x["tie"] for x in shown] == [
        found.tie(p) for p in found.alternatives
    ]


def test_no_two_ties_are_told_apart(found) -> None:
    """Within the resolution of the best of all, and only there."""
    least = min(p.merit_s for p in (found.best, *found.alternatives))
    for p in (found.best, *found.alternatives):
        assert found.tie(p) == (p.merit_s <= least * (1 + resolution(JOB)))


@pytest.mark.parametrize("seed", range(4))
def test_each_family_shows_the_best_of_its_layouts(seed: int) -> None:
    """By a plain loop over the layouts that keep the conventions, each predicted and told apart by
    what a family is: every family that has one which fits is shown, by the best of them, or by the
    answer where that is its own.
    """
    rng, compared, shown = random.Random(7000 + seed), 0, Counter[str]()
    while compared < 3:
        job, space, relaxed = random_job(rng)
        job = replace(job, assumptions=REALISTIC)
        size = job.cluster.chips * job.batch
        if not 8 <= size <= (40 if relaxed else 90) or axes(
            job.cluster.network
        ):
            continue
        usual = practice.keeping(
            job, practice.kept_conventions(job, space.choices)
        )
        # what has one replica is the same under every stage, and each half counts it once
        halves = [
            each.part(
                zero=[z for z in each.values("zero") if (z >= 2) is sharded]
            )
            for each in strategies(job, space)[0]
            for sharded in (False, True)
        ]
        every = [
            predict(job, layout)
            for half in filter(None, halves)
            for _, layout in every_layout(usual, half)
        ]
        fine = [p for p in every if p.fits]
        found = plan(job, space)
        if not fine or not found.families:
            continue
        compared += 1
        rows = {family.name: family.prediction for family in found.families}
        for name, belongs in FAMILIES.items():
            mine = [p.merit_s for p in fine if belongs(p.layout)]
            assert (name in rows) == bool(mine), name
            if mine:
                p = rows[name]
                assert belongs(p.layout)
                own = p.layout == found.best.layout
                assert p.merit_s == pytest.approx(
                    found.best.merit_s if own else min(mine)
                )
                shown[name] += 1
    assert len(shown) > 1, "several families"


def test_a_paper_ranks_by_its_own_seconds_and_has_no_families() -> None:
    paper = Job("llama3-8b", "16xh100-sxm", 32, assumptions="lbl-2024")
    found = plan(paper)
    times = [p.step_time_s for p in (found.best, *found.alternatives)]
    assert times == sorted(times) and not found.families and not found.kept
    assert found.outside == () and found.software == ()


BREAK = {
    "tp 16 leaves the nvlink domain": {"tp": (16,)},
    "20 chunks a device": {
        "schedule": ("interleaved",),
        "interleave": (20,),
        "pp": (4,),
    },
    "cp 8 leaves 1,024 tokens": {"cp": (8,)},
}


@pytest.mark.parametrize("sentence", BREAK)
def test_what_the_user_names_comes_before_a_convention(sentence: str) -> None:
    """A value that is asked for is searched; left open, none is found that breaks a convention."""
    job = Job("llama3-70b", "64xh100-sxm", 64)
    asked = plan(
        job, Space(**BREAK[sentence], microbatch=1), top=3, families=False
    )
    assert any(
        s.startswith(sentence)
        for s in practice.broken_conventions(job, asked.best.layout)
    )
    free = plan(job, Space(microbatch=1), top=10)
    for p in (free.best, *free.alternatives):
        assert not practice.broken_conventions(
            job, p.layout
        ) and not practice.not_proposed(job.profile, p.layout)
    assert all(
        f.note and free.slower(f.prediction) < -resolution(job)
        for f in free.outside
    )
