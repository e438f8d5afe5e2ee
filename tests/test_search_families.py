"""What a plan chooses and shows beside it: ties, families, conventions of published runs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright import Job, plan
from meshwright.describe.assumptions import REALISTIC
from meshwright.layout import practice
from meshwright.prediction.certainty import resolution
from meshwright.search import Space, brute
from meshwright.search.best import REPLAY_MARGIN, reach
from meshwright.search.families import families
from meshwright.search.merit import burden
from meshwright.search.ranked import Ranking
from meshwright.search.strategies import strategies
from test_search import random_job

JOB = Job("llama3-8b", "16xh100-sxm", 32)
ONE_STAGE = Space(pp=(1,))
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
        (burden(JOB, x), merit)
        for merit, x in every
        if merit <= least * (1 + resolution(JOB))
    ]
    assert len({b for b, _ in ties}) > 2
    mine = (burden(JOB, found.best.layout), found.best.merit_s)
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


def test_each_family_shows_the_best_of_its_part_of_the_space() -> None:
    every = Space(
        zero=(0, 1, 3), schedule=("1f1b",), cp=(1,), pp=(1, 2), microbatch=(1,)
    )
    whole = plan(JOB, every)
    shown = {family.name: family for family in whole.families}
    assert {*shown} >= {"FSDP only", "pipelines, ZeRO-0 or 1"}
    exact = replace(JOB, assumptions=replace(REALISTIC, name="exact"))
    for name, space in families(exact, every):
        alone, mine = plan(exact, space).best, shown[name]
        assert FAMILIES[name](alone.layout)
        if mine.prediction.layout != whole.best.layout:
            assert mine.prediction.merit_s == pytest.approx(alone.merit_s)


@pytest.mark.parametrize("seed", [1, 2])
def test_families_hold_a_space_whole_and_each_keeps_its_best(
    seed: int,
) -> None:
    """By brute force over the space, whose layouts are told apart by what a family is: what all of
    them together leave within reach, and of each in any case the first and what is nearly as
    good."""
    rng, compared, slower = random.Random(7000 + seed), 0, 0
    while compared < 5:
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > (120 if relaxed else 500):
            continue
        compared += 1
        k, slack = rng.choice([1, 1, 3]), rng.choice([0.02, 0.2])
        parts = dict(families(job, space))
        every = {name: brute(job, part, 10**5) for name, part in parts.items()}
        each = {
            (best.layout(row), row.merit)
            for name, best in every.items()
            for row in best.rows
            if FAMILIES[name](best.layout(row))
        }
        assert len(each) == sum(len(best.rows) for best in every.values())
        # what has one replica is the same under every stage, and a space counts it once
        whole = brute(job, space, 10**5)
        known = {(whole.layout(row), row.merit) for row in whole.rows}
        assert known <= each
        assert all(layout.replicas == 1 for layout, _ in each - known)
        merits = sorted(merit for _, merit in each)
        common = (
            reach(merits[k - 1], merits[0], slack)
            if len(merits) >= k
            else float("inf")
        )
        ranked = Ranking(
            job, [*parts.values()], k, slack=slack, keep_first=True
        )
        for name, (_, mine) in zip(parts, ranked.searches, strict=True):
            rows = every[name].rows
            first = rows[0].merit if rows else 0.0
            assert mine.limit >= max(common, first * REPLAY_MARGIN)
            assert [(row.merit, mine.layout(row)) for row in mine.rows] == [
                (row.merit, every[name].layout(row))
                for row in rows
                if row.merit <= mine.limit
            ]
            assert mine.complete_to >= mine.limit
            slower += bool(rows) and first > common
            assert relaxed or mine.searched == every[name].searched
    assert slower, "some family is beyond what the others leave"


def test_a_paper_ranks_by_its_own_seconds_and_has_no_families() -> None:
    paper = Job("llama3-8b", "16xh100-sxm", 32, assumptions="lbl-2024")
    found = plan(paper)
    times = [p.step_time_s for p in (found.best, *found.alternatives)]
    assert times == sorted(times) and not found.families and not found.kept


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
        job, Space(**BREAK[sentence], microbatch=(1,)), top=3, families=False
    )
    assert any(
        s.startswith(sentence)
        for s in practice.broken_conventions(job, asked.best.layout)
    )
    free = plan(job, Space(microbatch=(1,)), top=10)
    for p in (free.best, *free.alternatives):
        assert not practice.broken_conventions(
            job, p.layout
        ) and not practice.not_proposed(job, p.layout)
    assert all(
        f.note and free.slower(f.prediction) < -resolution(job)
        for f in free.outside
    )
