"""What no published run shows: when it is the answer, against plans of ZeRO stages that are named.

Published runs with experts shard the optimizer at most (ZeRO-1), so that plans of ZeRO-0 and 1 are
the best that runs show. A plan that names its stages takes the best of them, whoever ran it.
"""

from __future__ import annotations

import pytest

from meshwright import Job, Plan, Space, plan

NAME = "a sharding without runs"
SAID = "no published run is sharded like this"
QWEN = Job("qwen3-30b-a3b", "16xh100-sxm", "128seq", seq=4096)
MIXTRAL = Job("mixtral-8x7b", "32xh100-sxm", "128seq", seq=4096)


def plans(job: Job, **degrees: tuple[int, ...]) -> list[Plan]:
    """Of what was asked, of all stages by name, and of those that runs show."""
    spaces = (
        Space(**degrees),
        Space(**degrees, zero=(0, 1, 2, 3)),
        Space(**degrees, zero=(0, 1)),
    )
    return [plan(job, space) for space in spaces]


def slow_s(found: Plan) -> float:
    """The slow end of the interval, over the chance to fit."""
    p = found.answer
    assert p.interval_s
    return p.merit_s * p.interval_s[1] / p.step_time_s


def test_it_wins_where_its_slow_end_is_faster() -> None:
    """Whole experts on each rank: without shards of the weights little fits."""
    found, free, shown = plans(QWEN, pp=(1,), ep=(1,))
    assert free.answer.layout.zero > 1
    assert slow_s(free) < shown.answer.merit_s
    assert found.answer.layout == free.answer.layout
    assert found.notes[0].startswith(SAID) and "+" in found.notes[0]
    assert NAME not in {family.name for family in found.families}


def test_it_is_a_row_where_its_slow_end_is_not() -> None:
    found, free, shown = plans(MIXTRAL, tp=(1,), pp=(1,))
    assert free.answer.layout.zero > 1
    assert free.answer.merit_s < shown.answer.merit_s < slow_s(free)
    assert found.answer.layout == shown.answer.layout
    (row,) = (family for family in found.families if family.name == NAME)
    assert row.prediction and row.prediction.layout == free.answer.layout
    less = free.answer.merit_s / shown.answer.merit_s - 1
    assert found.slower(row.prediction) == pytest.approx(less)


def test_without_families_it_is_said_beside_the_answer() -> None:
    """What cannot be a row is a note; the answer is that of the plan with families."""
    job, space = MIXTRAL, Space(tp=1, pp=1)
    found = plan(job, space, families=False)
    assert found.answer.layout == plan(job, space).answer.layout
    assert SAID in found.notes[0] and "faster" in found.notes[0]
    assert not found.families
