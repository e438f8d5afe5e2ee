"""What a user names is searched: another value named beside it makes no plan slower, and fields may
come in any order.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import accumulate, pairwise, permutations, product
from typing import Any

import pytest

from meshwright import BadInput, Cluster, Job, Model, MoE, plan, predict
from meshwright.describe.framework import framework
from meshwright.describe.mixers import StateSpace
from meshwright.prediction.certainty import resolution
from meshwright.schedule import SCHEDULES
from meshwright.search import Plan, Space, strategies
from refusals import refusal

VALUES: dict[str, list[Any]] = {
    "tp": [1, 2, 4, 8],
    "cp": [1, 2],
    "pp": [1, 2, 4, 8],
    "dp": [1, 2, 4, 8, 16],
    "ep": [1, 2, 4],
    "etp": [1, 2, 4],
    "microbatch": [1, 2, 4],
    "interleave": [1, 2, 3],
    "zero": [0, 1, 2, 3],
    "schedule": ["1f1b", "interleaved", "gpipe", "zb-h1", "zbv", "dualpipe"],
    "recompute": ["none", "selective", "full"],
    "sequence_parallel": [True, False],
    "scheme": ["megatron", "context", "summa"],
    "stages": ["even", "slots", "rest"],
}
"""Values that may be named."""
SETS = ["realistic"] * 4 + ["lbl-2024", "epoch-2024", "megatron-2021"]
FRAMEWORKS = ["megatron-core", "megatron-core", "torchtitan", "maxtext"]
CHIPS = ["h100-sxm", "a100-80"]


def drawn(
    seed: int,
) -> tuple[Job, dict[str, Any], dict[str, Any], bool | None]:
    """A small job, values named of some fields, some of these, and whether spaces are relaxed."""
    rng = random.Random(seed)
    kind = rng.choice(["dense", "experts", "hybrid"])
    model = Model(
        kind,
        layers=rng.choice([4, 8, 12]),
        hidden=1024,
        heads=8,
        ffn=4096,
        vocab=rng.choice([0, 8000]),
        seq=rng.choice([512, 2048]),
        moe=MoE(4, 2, 2048) if kind == "experts" else None,
        pattern=("ssm", "full") if kind == "hybrid" else (),
        ssm=StateSpace(2048, 64, heads=16, groups=8)
        if kind == "hybrid"
        else None,
    )
    how = rng.choice(SETS)
    job = Job(
        model,
        f"{rng.choice([1, 2, 3, 4, 6, 8, 16, 24, 32])}x{rng.choice(CHIPS)}",
        rng.choice([4, 6, 16, 32]),
        assumptions=how,
        framework=framework(rng.choice(FRAMEWORKS))
        if how == "realistic"
        else None,
    )
    job = replace(job, cluster=small_memory(job.cluster, rng))
    more = {
        name: rng.sample(VALUES[name], rng.randint(1, len(VALUES[name])))
        for name in rng.sample([*VALUES], rng.randint(1, 4))
    }
    some = {
        name: [v for v in values if rng.random() < 0.6] or values[:1]
        for name, values in more.items()
    }
    return job, more, some, rng.choice([None, False, True])


def small_memory(cluster: Cluster, rng: random.Random) -> Cluster:
    """Chips whose memory rules out some layouts."""
    size = rng.choice([6e9, 10e9, 40e9])
    return replace(cluster, chip=replace(cluster.chip, hbm_bytes=size))


def combinations(named: dict[str, Any]) -> set[frozenset[tuple[str, Any]]]:
    each = ([(name, v) for v in values] for name, values in named.items())
    return {frozenset(one) for one in product(*each)}


def members(
    job: Job, named: dict[str, Any]
) -> dict[frozenset[tuple[str, Any]], set[Any]]:
    """Of each combination of named values what goes with it of the other fields."""
    spaces, _ = strategies(job, Space(**named))
    found: dict[frozenset[tuple[str, Any]], set[Any]] = {}
    for space in spaces:
        rest = space.choices.but(**dict.fromkeys(named))
        mine = {name: space.values(name) for name in named}
        for one in combinations(mine):
            found.setdefault(one, set()).add((rest, space.relaxed))
    return found


def refused(job: Job, named: dict[str, Any]) -> str:
    """Why the job's framework does not run some value; "": it does."""
    try:
        strategies(job, Space(**named))
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", range(5))
def test_what_belongs_does_not_depend_on_what_else_is_named(part: int) -> None:
    """Of 300 random spaces every combination of the values named is searched, and each with the
    same rest of a layout as where fewer values are named; in every order of the fields.
    """
    seen = 0
    for seed in range(60 * part, 60 * part + 60):
        job, more, some, _ = drawn(seed)
        if refused(job, more):
            continue
        whole, part_of = members(job, more), members(job, some)
        assert {*whole} == combinations(more), seed
        for one, rests in part_of.items():
            assert whole[one] == rests, (seed, one)
        first = strategies(job, Space(**more))
        for order in permutations(more):
            again = strategies(
                job, Space(**{name: more[name] for name in order})
            )
            assert again == first, (seed, order)
        seen += 1
    assert seen > 30


@pytest.mark.parametrize("name", [*VALUES, "dp_replicate"])
def test_a_space_is_the_same_in_any_order_of_its_values(name: str) -> None:
    """So is the plan of it: ties are broken in the order of the space."""
    values = VALUES.get(name, [1, 2, 4])[-4:]
    for order in permutations(values):
        assert Space(**{name: order}) == Space(**{name: values})


def rank(job: Job, found: Plan) -> tuple[bool, float]:
    """What ranks a plan: one that keeps what published runs keep comes first."""
    p = found.fastest
    if p is None:
        return True, float("inf")
    said = "no layout like those of published runs fits"
    return any(said in note for note in found.notes), p.merit_s


def check_plans(seed: int) -> bool:
    """The plan of more values is at least as good, in any order of the fields."""
    job, more, some, relaxed = drawn(seed)
    if refused(job, more):
        return False
    whole = plan(job, Space(**more, relaxed=relaxed), families=False)
    less = plan(job, Space(**some, relaxed=relaxed), families=False)
    if less.best is None:
        return False
    ties = 1 + (resolution(job) if relaxed is None else 1e-9)
    mine, other = rank(job, whole), rank(job, less)
    assert (mine[0], mine[1]) <= (other[0], other[1] * ties), (
        seed,
        mine,
        other,
    )
    names = [*more]
    random.Random(seed).shuffle(names)
    again = plan(
        job,
        Space(**{name: more[name] for name in names}, relaxed=relaxed),
        families=False,
    )
    assert again.best == whole.best
    assert again.alternatives == whole.alternatives
    assert (again.searched, again.notes) == (whole.searched, whole.notes)
    return True


def test_a_plan_of_more_values_is_no_slower() -> None:
    assert sum(map(check_plans, range(12))) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_300_plans_of_more_values_are_no_slower(part: int) -> None:
    """30 plans of each part; where fewer values leave nothing that fits there is nothing to
    compare.
    """
    first = 12 + 1000 * part
    assert 30 in accumulate(map(check_plans, range(first, first + 100)))


def test_experts_cut_as_asked() -> None:
    """etp is 1 or tp unless it is named; then it is what is named."""
    job = Job("mixtral-8x7b", "64xh100-sxm", 64)
    usual, two, both = (
        plan(job, Space(tp=4, **asked), families=False)
        for asked in ({}, {"etp": (2,)}, {"etp": (1, 2)})
    )
    assert two.best and both.best and usual.best
    assert two.best.layout.etp == 2 and two.best.layout.tp == 4
    for p in (two.best, *two.alternatives):
        assert p.layout.etp == 2
        assert p.step_time_s == predict(job, p.layout).step_time_s
    assert both.searched > two.searched
    assert both.fastest and two.fastest
    assert both.fastest.merit_s <= two.fastest.merit_s
    assert "etp other than 1 and tp" in usual.untried
    assert "etp other" not in two.untried


def test_any_schedule_may_stand_beside_any_other() -> None:
    """Those that hold stages twice, too: the plan of all is the best of the two searches."""
    job = Job("llama3-8b", "16xh100-sxm", 64)
    twice = {name for name, s in SCHEDULES.items() if s.copies > 1}
    once = {*SCHEDULES} - twice
    rest = {"tp": (1,), "pp": (2, 4), "zero": (1,), "recompute": ("none",)}
    plans = [
        plan(job, Space(schedule=sorted(names), **rest), families=False)
        for names in (SCHEDULES, once, twice)
    ]
    merits = [found.fastest.merit_s for found in plans if found.fastest]
    assert len(merits) == 3 and merits[0] == min(merits[1:])
    assert plans[0].searched == plans[1].searched + plans[2].searched
    assert not any(name in plans[0].untried for name in SCHEDULES)


@pytest.mark.parametrize(("chips", "sequences"), [(96, 256), (24, 48)])
def test_no_point_of_a_front_is_beaten_in_time_and_memory(
    chips: int, sequences: int
) -> None:
    """As they are shown: of 96 A100 and Mixtral the seventh took longer than the eighth, which
    needs less.
    """
    job = Job("mixtral-8x7b", f"{chips}xa100-80", sequences, seq=4096)
    front = plan(job, pareto=True, families=False).pareto
    assert front and len(front) > 1
    for one, leaner in pairwise(front):
        assert one.step_time_s < leaner.step_time_s
        assert one.memory_bytes["needed"] > leaner.memory_bytes["needed"]


def test_a_field_is_named_with_a_value() -> None:
    with refusal("space.pp must have at least one value"):
        plan(Job("llama3-8b", "8xh100-sxm", 64), Space(pp=()))


def test_nothing_legal_is_said_as_soon_with_a_million_sequences() -> None:
    """Whether layouts are legal is asked of rules: nothing grows with the number of microbatches.
    What an order holds was counted for each of a million before.
    """
    maxtext = framework("maxtext")
    for sequences in (3, 1000003):
        job = Job("llama3-8b", "6xb200", sequences, framework=maxtext)
        start = time.process_time()
        found = plan(job, Space(tp=4, pp=2))
        assert found.best is None and not found.searched
        assert time.process_time() - start < 10


def test_what_no_proposal_of_the_framework_holds_is_said() -> None:
    """Three sequences on 48 chips leave ZeRO-2 no layout without a pipeline, which is all that
    Megatron Core proposes with it: the answer, which is faster than what it proposes with ZeRO-1
    beside, says so.
    """
    experts = Model(
        "experts",
        12,
        512,
        8,
        4096,
        32000,
        512,
        moe=MoE(experts=4, top_k=2, expert_ffn=1024),
    )
    job = Job(experts, "48xb200", 3)
    less = plan(job, Space(zero=2, microbatch=3), families=False)
    more = plan(job, Space(zero=(1, 2), microbatch=3), families=False)
    assert less.fastest and more.fastest
    assert less.fastest.merit_s < more.fastest.merit_s
    assert less.notes[0].startswith(
        "no layout like those of published runs fits: a plan for megatron-core"
        " keeps to"
    )
    assert not more.notes
