"""The search under the trainer's framework: its memory and its legal layouts, against brute force
and a plain loop.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright import BadInput, Job, Layout, predict
from meshwright.describe.assumptions import SETS
from meshwright.describe.framework import framework
from meshwright.describe.slices import axes
from meshwright.layout.stages import schedule_of
from meshwright.program.least import least_bytes
from meshwright.program.resident import fullest, peaks
from meshwright.search import Space, brute, plan, search
from meshwright.step import model_cost, oom, whole_step
from plain_loop import chance_to_fit, every_layout
from refusals import refusal
from spaces import bare, random_job, same_by_loop, with_memory


def trained_job(
    rng: random.Random, size: tuple[int, int]
) -> tuple[Job, Space, bool]:
    """A random job of the trainer, in a space that has more than it can run, on chips that hold
    some of what it can.

    size: the most chips x sequences of a relaxed space and of a strict one.
    """
    while True:
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > size[not relaxed]:
            continue
        moe = job.model.moe and replace(job.model.moe, shared_ffn=0)
        model = replace(
            job.model,
            vocab=rng.choice([1000, 1024, 6000]),
            mtp_layers=0,
            moe=moe,
            bias=False,
        )
        job = replace(
            job,
            model=model,
            assumptions=SETS["realistic"],
            framework=framework("meshwright"),
        )
        seen = brute(with_memory(job, 1e11), space, 200).rows
        if seen:
            return (
                oom.with_room_for(job, rng.choice(seen)[1] * (1 + 1e-9)),
                space,
                relaxed,
            )


def planned_job(rng: random.Random) -> tuple[Job, Space]:
    """One whose plan looks at every placement, in a space of what the trainer runs alone: a plan
    refuses what is named beyond it.
    """
    own = framework("meshwright").choices[0]
    while True:
        job, space, _ = trained_job(rng, (60, 150))
        part = space.part(
            **{name: own[name] for name in space.choices if name in own}
        )
        if part and not axes(job.cluster.network):
            return bare(job), part


@pytest.mark.parametrize("seed", range(12))
def test_search_equals_brute_force_equals_a_plain_loop(seed: int) -> None:
    """Two random spaces a seed, ties included."""
    rng = random.Random(5000 + seed)
    for _ in range(2):
        job, space, _ = trained_job(rng, (60, 150))
        same_by_loop(job, space, counted=not job.model.moe)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_lose_nothing(seed: int) -> None:
    """Eight random spaces a seed."""
    rng, tight = random.Random(6000 + seed), 0
    for _ in range(8):
        job, space, relaxed = trained_job(rng, (300, 800))
        k = rng.choice([1, 3, 5, 10])
        every, quick = (
            brute(job, space, k),
            search(job, space, k),
        )
        assert quick.rows == every.rows
        tight += every.too_big > 0
    assert tight


def test_a_plan_keeps_to_what_the_trainer_runs() -> None:
    job = Job(
        "llama3-8b",
        "16xh100-sxm",
        64,
        framework="meshwright",
    )
    found = plan(job, Space(pp=(2, 4)))
    assert found.best
    for each in (found.best, *found.alternatives):
        assert framework("meshwright").choices[0].allows(each.layout)
        assert predict(job, each.layout).to_dict() == each.to_dict()
    assert found.best.to_dict()["framework"] == "meshwright"
    with refusal(
        "framework meshwright runs schedule gpipe, 1f1b, .* not zb-h1"
    ):
        plan(job, Space(schedule="zb-h1"))
    with refusal("zero 3 with schedule zbv is not executed correctly"):
        predict(job, Layout(pp=2, dp=8, schedule="zbv", zero=3))


@pytest.mark.parametrize(
    "name",
    [
        "megatron-2021",
        "megatron-deepspeed",
        "deepspeed-zero3",
        "deepspeed",
        "torchtitan",
        "maxtext",
        "unknown",
    ],
)
def test_search_equals_a_plain_loop_under_every_framework(name: str) -> None:
    """Buffers, copies at the step and the larger of head and backward pass, on chips that hold some
    of what it runs.
    """
    rng, by = random.Random(len(name)), framework(name)
    for _ in range(40):
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > (60, 150)[not relaxed]:
            continue
        job = replace(
            job,
            assumptions=SETS["realistic"],
            framework=by,
            precision=rng.choice(["fp16", "bf16", "bf16-pure"]),
        )
        try:
            seen = brute(with_memory(job, 1e12), space, 200).rows
        except BadInput:  # the space names what it cannot run
            continue
        if not seen:
            continue
        job = oom.with_room_for(job, rng.choice(seen)[1] * (1 + 1e-9))
        same_by_loop(job, space)
        return
    pytest.fail("no space that the framework runs")


@pytest.mark.parametrize("seed", range(1, 5))
def test_what_is_shown_is_walked(seed: int) -> None:
    """The best of a space are those of a plain loop that walks every layout, and fit by their
    walks, where some fit by the bound only.
    """
    rng, full, drawn = random.Random(7000 + seed), 0, 0
    while drawn < 3 or not full:
        drawn += 1
        job, space = planned_job(rng)
        walks: list[tuple[float, float]] = []
        for _, layout in every_layout(job, space):
            parts = model_cost(job, layout)
            use = sum(fullest(peaks(job, layout)).values())
            bound = float(least_bytes(job, layout, parts, schedule_of(layout)))
            assert bound <= use * (1 + 1e-9)
            seconds = float(whole_step(job, layout, parts).total)
            if use <= oom.limit(job):
                walks.append((seconds / chance_to_fit(job, use), use))
            else:
                full += bound <= oom.limit(job)
        one = plan(job, space, top=4, families=False)
        shown = [p for p in (one.best, *one.alternatives) if p]
        expected = sorted(walks)[:4]
        assert [p.merit_s for p in shown] == pytest.approx(
            [worth for worth, _ in expected], rel=1e-9
        )
        for p in shown:
            assert p.peaks == peaks(job, p.layout)
            assert oom.fits(job, sum(fullest(p.peaks).values()))


def test_a_search_takes_the_exchange_that_the_program_has() -> None:
    """Transformer Engine has all-to-all alone for learned sinks; with cp 1 nothing is exchanged,
    what somebody names stays, and other programs have the usual one.
    """
    job = Job("gpt-oss-20b", "8xh100-sxm", 64)

    def exchange(job: Job, **fields: object) -> str:
        best = plan(job, families=False, top=1, tp=4, **fields).best
        assert best
        refused = any("Engine refuses" in note for note in best.notes)
        assert refused == (fields.get("cp_exchange") == "gather")
        return best.layout.cp_exchange

    assert exchange(job, cp=2) == "all-to-all"
    assert exchange(job, cp=1) == "gather"
    assert exchange(job, cp=2, cp_exchange="gather") == "gather"
    titan = replace(job, framework=framework("torchtitan"))
    assert exchange(titan, cp=2) == "gather"
    windows = Job("gemma3-4b", "8xh100-sxm", 64)
    best = plan(windows, families=False, top=1, tp=1, cp=2).best
    assert best and best.layout.cp_exchange == "gather"
