"""A plan that uses fewer chips than there are, or names another batch, against plans of each number
of them alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf, isclose

import pytest

from meshwright import Job, Plan, Space, plan
from meshwright.layout.clean import (
    batches,
    dp_is_bound,
    fewer_chips,
    is_starved,
    powers_of_two,
)
from meshwright.prediction.certainty import resolution

SPACE = Space(recompute=("none", "full"), zero=(1, 3), cp=1, schedule="1f1b")
CASES = [
    ("gpt2", "36xh100-sxm", 24),
    ("gpt2-xl", "100xh100-sxm", 62),
    ("gpt2-xl", "96xh100-sxm", 64),
    ("gpt2-xl", "72xgb200", 64),
    ("gpt2", "128xh100-sxm", 102),
    ("gpt2-xl", "100xh100-sxm", 384),
    ("gpt2-xl", "40xh100-sxm", 36),
    ("gpt2-xl", "48xh100-sxm", 25),
    ("gpt2-xl", "64xh100-sxm", 64),
    ("llama-30b", "24xh100-sxm", 16),
    ("gpt2-xl", "12xh100-sxm", 12),
    ("llama3-8b", "13xh100-sxm", 12),
    ("llama3-8b", "20xh100-sxm", 20),
    ("gpt2-xl", "16xh100-sxm", 17),
]


@cache
def on_all(job: Job) -> Plan:
    """The plan that uses all chips."""
    return plan(job, replace(SPACE, relaxed=False), families=False)


def merit(job: Job) -> float:
    """Seconds over the chance to fit of the best that uses all chips."""
    best = on_all(job).fastest
    return best.merit_s if best else inf


def tried(job: Job) -> list[Job]:
    """The job, on fewer chips where its numbers bind dp, and on powers of two that are faster where
    pipelines starve.
    """
    best = on_all(job).fastest
    bound = dp_is_bound(job, best.layout.dp if best else None)
    every = [job, *(fewer_chips(job) if bound else [])]
    if best := on_all(min(every, key=merit)).fastest:
        l = best.layout
        if is_starved(job, dp=l.dp, pp=l.pp, microbatch=l.microbatch):
            for each in powers_of_two(job):
                every += [each] * (merit(each) <= min(map(merit, every)))
    return every


@pytest.mark.parametrize(("name", "on", "batch"), CASES)
def test_the_fewest_chips_that_are_as_fast_are_used(
    name: str, on: str, batch: int
) -> None:
    """As far as the model can tell; and why is said: nothing that fits uses all of them evenly, or
    the best that does takes so many times as long.
    """
    job = Job(name, on, batch)
    found = plan(job, SPACE)
    times = {each.cluster.chips: merit(each) for each in tried(job)}
    least = min(times.values())
    near = least * (1 + resolution(job))
    used = min(n for n, t in times.items() if t <= near)
    assert found.best and found.best.layout.chips == used
    assert found.fastest.merit_s == pytest.approx(times[used], rel=1e-9)
    chips = job.cluster.chips
    assert bool(found.idle) == (used < chips)
    if not found.idle:
        return
    verb = "is" if chips - used == 1 else "are"
    assert found.idle.startswith(
        f"{chips - used} of {chips} chips {verb} idle: "
    )
    slower = times[chips] / times[used]
    if slower == inf or not on_all(job).kept:
        said = f"no usual layout that fits uses all {chips} and divides a batch of {batch} sequences"
    elif slower <= 1 + resolution(job):
        said = "is no faster, as far as the model can tell"
    else:
        said = f"uses all {chips} evenly takes {slower:.3g} times as long"
    assert said in found.idle


@pytest.mark.parametrize(("name", "on", "batch"), CASES)
def test_the_batch_near_by_that_trains_the_most_tokens_is_named(
    name: str, on: str, batch: int
) -> None:
    """Of the first four near numbers, on the chips that are used and on all: where it trains at least a twentieth more tokens a second."""
    job = Job(name, on, batch)
    found = plan(job, SPACE)
    assert found.best and found.fastest
    used = next(
        each
        for each in tried(job)
        if each.cluster.chips == found.best.layout.chips
    )
    mine = merit(used)
    places = (
        [used] if dp_is_bound(used, on_all(used).fastest.layout.dp) else []
    )
    places += [job] if used is not job else []
    gains = {
        (place.cluster.chips, near): mine
        / merit(replace(place, batch=near))
        * near
        / batch
        for place in places
        for near in [*batches(place)][:4]
    }
    notes = [note for note in found.notes if "times as many tokens" in note]
    if max(gains.values(), default=0.0) < 1.05:
        assert not notes
        return
    (chips, near), gain = max(gains.items(), key=lambda each: each[1])
    (said,) = notes
    assert (
        f"a batch of {near} sequences ({100 * (near / batch - 1):+.1f} %)"
        in said
    )
    assert f"would train {gain:.3g} times as many tokens a second" in said
    assert (f" on {chips} chips would" in said) == (
        chips != used.cluster.chips
    )
    seconds = on_all(
        replace(
            next(p for p in places if p.cluster.chips == chips), batch=near
        )
    )
    told = float(said.split("(")[-1].split(" s a step")[0])
    assert isclose(told, seconds.fastest.step_time_s, rel_tol=5e-3)


def starved(chips: int) -> Plan:
    """Of 2,048 sequences, which fill 32,768 chips."""
    job = Job("llama3-405b", f"{chips}xh100-sxm", 2048)
    return plan(job, families=False)


@pytest.mark.parametrize("chips", [49152, 65536, 98304, 100000, 131072])
def test_more_chips_make_no_plan_slower(chips: int) -> None:
    """Also where they would only lengthen the bubble."""
    fewer, more = starved(32768), starved(chips)
    assert fewer.fastest and more.fastest
    assert more.fastest.merit_s <= fewer.fastest.merit_s * (1 + 1e-9)


def test_the_cases_have_every_answer() -> None:
    """All chips and fewer; with a better batch on these, on others, and none."""
    plans = [plan(Job(m, on, b), SPACE) for m, on, b in CASES]
    notes = [
        " ".join(n for n in p.notes if "times as many" in n) for p in plans
    ]
    assert {bool(p.idle) for p in plans} == {True, False}
    assert {("" if not n else " chips would" in n) for n in notes} == {
        "",
        True,
        False,
    }
