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
from meshwright.search.best import NEARLY, ROUNDING, reach
from meshwright.search.families import split_of
from meshwright.search.merit import burden
from meshwright.search.several import joined, several
from meshwright.search.split import NONE
from meshwright.search.strategies import strategies
from test_search import random_job

JOB = Job("llama3-8b", "16xh100-sxm", 32)
ONE_STAGE = Space(pp=(1,))
"""Nothing is replayed: closed forms are exact."""


FAMILIES = {
    "pipelines, ZeRO-0 or 1": {"pp": True, "zero": (0, 1)},
    "pipelines, ZeRO-2 or 3": {"pp": True, "zero": (2, 3)},
    "FSDP with tp": {"pp": False, "tp": True, "zero": (2, 3)},
    "FSDP only": {"pp": False, "tp": False, "zero": (2, 3)},
    "no pipelines, ZeRO-0 or 1": {"pp": False, "zero": (0, 1)},
}
"""Name -> whether degrees are above 1, and ZeRO stages."""


def part(space: Space, job: Job, name: str) -> Space | None:
    """The part of a space that a family is, as a space of its own; None: it has none."""
    fields: dict[str, tuple[int, ...]] = {}
    for axis, asked in FAMILIES[name].items():
        every = space.values(axis) or range(1, 1 + max(job.model.layers, 8))
        fields[axis] = tuple(
            n
            for n in every
            if (n in asked if axis == "zero" else (n > 1) == asked)
        )
    return space.but(**fields) if all(fields.values()) else None


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
        (burden(x, JOB.model), merit)
        for merit, x in every
        if merit <= least * (1 + resolution(JOB))
    ]
    assert len({b for b, _ in ties}) > 2
    mine = (burden(found.best.layout, JOB.model), found.best.merit_s)
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
    for name in {*shown} & {*FAMILIES}:
        exact = replace(JOB, assumptions=replace(REALISTIC, name="exact"))
        alone, mine = plan(exact, part(every, JOB, name)).best, shown[name]
        if mine.prediction.layout != whole.best.layout:
            assert mine.prediction.merit_s == pytest.approx(alone.merit_s)
        assert mine.slower == pytest.approx(whole.slower(mine.prediction))


@pytest.mark.parametrize("seed", [1, 2])
def test_one_search_finds_the_best_of_every_family(seed: int) -> None:
    """By brute force, family by family: what all of them together leave within reach, and of each
    in any case the first and what is nearly as good."""
    rng, compared, slower = random.Random(7000 + seed), 0, 0
    while compared < 5:
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > (120 if relaxed else 500):
            continue
        compared += 1
        k, slack = rng.choice([1, 1, 3]), rng.choice([0.02, 0.2])
        cut = {name: part(space, job, name) for name in FAMILIES}
        every = {
            name: brute(job, one, 10**5, relaxed)
            for name, one in cut.items()
            if one
        }
        merits = sorted(
            row.merit for best in every.values() for row in best.rows
        )
        common = (
            reach(merits[k - 1], merits[0], slack)
            if len(merits) >= k
            else float("inf")
        )
        found = several(job, [space], k, relaxed, slack=slack, by_family=True)
        ((_, mine),) = found
        for number, name in enumerate(mine.split.names):
            rows = every[name].rows if name in every else []
            first = rows[0].merit if rows else 0.0
            limit = max(common, first * NEARLY) * ROUNDING
            assert [
                (row.merit, mine.layout(row))
                for row in mine.rows
                if mine.part(row) == number
            ] == [
                (row.merit, every[name].layout(row))
                for row in rows
                if row.merit <= limit
            ]
            assert mine.known(number) >= limit / ROUNDING
            slower += bool(rows) and first > common
        searched = sum(best.searched for best in every.values())
        assert relaxed or mine.searched == searched
    assert slower, "some family is beyond what the others leave"


def test_spaces_that_differ_in_pipelines_and_zero_are_one_search() -> None:
    """ZeRO 0 and 1 with pipelines and without, 2 and 3 without: three of the four; no two of one
    kind, nor of other values of what they share."""
    plain, sharded = Space(zero=(0, 1)), Space(zero=(2, 3), pp=(1,))
    ((whole, each),) = joined([plain, sharded])
    assert each == [plain, sharded]
    assert whole == Space(zero=(0, 1, 2, 3))
    split = split_of(each, False)
    assert [split.part(1, pp, zero) for pp in (1, 2) for zero in (1, 3)] == [
        0, 1, 0, NONE,
    ]  # fmt: skip
    for other in (
        Space(zero=(1, 2), pp=(1,)),
        Space(zero=(2, 3), pp=(1,), cp=(1,)),
        Space(zero=(2, 3), pp=(2,)),
    ):
        assert len(joined([plain, other])) == 2, other
    ((_, both),) = several(JOB, [plain, sharded], 5, False, slack=0.05)
    alone = [several(JOB, [s], 5, False, slack=0.05)[0][1] for s in each]
    for number, one in enumerate(alone):
        mine = [row.merit for row in both.rows if both.part(row) == number]
        assert mine == [row.merit for row in one.rows[: len(mine)]]
        assert mine[0] == brute(JOB, each[number], 1).rows[0].merit
    assert both.searched == sum(best.searched for best in alone)


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
        s.startswith(sentence) for s in practice.broken(job, asked.best.layout)
    )
    free = plan(job, Space(microbatch=(1,)), top=10)
    for p in (free.best, *free.alternatives):
        assert not practice.broken(
            job, p.layout
        ) and not practice.not_proposed(job, p.layout)
    assert all(f.note and f.slower < -resolution(job) for f in free.outside)
