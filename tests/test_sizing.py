"""How many chips a deadline or a budget asks for, by a plain loop over all numbers of chips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Space, plan
from meshwright.count.model import model_flops
from meshwright.sizing import batch_beside, chip_counts, critical_batch, sizing
from meshwright.sweep import vary
from refusals import refusal

JOB = Job("llama3-8b", "64xh100-sxm", 256, tokens=1e12)
SMALL = Space(pp=1, cp=1, microbatch=1, tp=(1, 2), zero=3)
"""Quick to search."""
DAY = 86400.0


@pytest.fixture(scope="module")
def runs():
    """chips -> (seconds, dollars) of the whole run, and how far their intervals reach up."""
    found = {}
    for chips in range(8, 264, 8):
        best = plan(
            vary(JOB, "chips", chips), SMALL, top=1, families=False
        ).best
        if best:
            high = best.within(1.0)[1]
            found[chips] = (best.train_time_s, best.cost_usd, high)
    return found


def surely(value: float, high: float) -> float:
    """Nine of ten runs stay below it: 1.2816 standard deviations of 1.6449 up to the end of the
    interval, in logarithms."""
    return value * high ** (1.2816 / 1.6449)


def test_numbers_of_chips_are_whole_nodes() -> None:
    assert chip_counts(JOB)[:8] == [8, 16, 24, 32, 48, 64, 96, 128]


@pytest.mark.parametrize("days", [80, 25, 10])
def test_a_deadline_takes_the_cheapest_run_that_ends_in_time_nine_times_of_ten(
    days: float, runs
) -> None:
    found = sizing(JOB, SMALL, deadline_s=days * DAY)
    least = min(
        usd
        for seconds, usd, high in runs.values()
        if surely(seconds, high) <= days * DAY
    )
    assert runs[found.chips][1] <= 1.01 * least
    seconds, _, high = runs[found.chips]
    assert surely(seconds, high) <= days * DAY
    assert f"{found.chips} chips finish in {days} days with 90 %" in found.why
    assert "cheapest of" in found.why


def test_every_multiple_of_a_node_near_a_deadline_is_tried(runs) -> None:
    """The fewest chips in time lie between two clean numbers, 96 and 128."""
    late, early = (surely(runs[n][0], runs[n][2]) for n in (96, 128))
    found = sizing(JOB, SMALL, deadline_s=(late + early) / 2)
    tried = {size.chips for size in found.tried}
    assert {96, 104, 112, 120, 128} <= tried
    assert runs[found.chips][1] <= runs[128][1]


def test_what_is_sure_is_read_from_the_interval() -> None:
    from meshwright.sizing import Size

    p = plan(JOB, SMALL, top=1, families=False).best
    size = Size(64, p)
    _, high = p.within(p.train_time_s)
    sure = surely(p.train_time_s, high / p.train_time_s)
    assert size.surely(p.train_time_s) == pytest.approx(sure, rel=1e-4)
    assert size.keeps(1.001 * sure, None) and not size.keeps(
        0.999 * sure, None
    )


def test_a_budget_takes_the_fastest_run_that_it_pays_for(runs) -> None:
    """As much as 128 chips cost nine times of ten, and a bit."""
    _, usd, high = runs[128]
    money = surely(usd, high) * 1.001
    found = sizing(JOB, SMALL, budget_usd=money)
    assert found.chips >= 64 and runs[found.chips][0] <= runs[128][0]
    assert surely(runs[found.chips][1], runs[found.chips][2]) <= money


@pytest.mark.parametrize("start", [8, 64, 256])
def test_a_budget_below_all_costs_names_the_cheapest(start: int, runs) -> None:
    """From whichever number the walk begins: nobody asked for a deadline."""
    least = min(usd for _, usd, _ in runs.values())
    found = sizing(vary(JOB, "chips", start), SMALL, budget_usd=0.8 * least)
    assert found.chips is None and "in time" not in found.why
    named = int(
        found.why.partition("the cheapest, ")[2].partition(" chips")[0]
    )
    assert runs[named][1] <= 1.02 * least
    assert start in {size.chips for size in found.tried}


@pytest.mark.parametrize("start", [16, 24, 64])
def test_one_dear_number_does_not_end_the_walk(start: int, runs) -> None:
    """24 chips share the batch badly and cost more than 16 or 32: whichever is asked for."""
    assert runs[24][1] > 1.2 * max(runs[16][1], runs[32][1])
    _, usd, high = runs[32]
    money = 1.0001 * surely(usd, high)
    job = vary(JOB, "chips", start)
    found = sizing(job, SMALL, budget_usd=money).chips
    assert found >= 32 and runs[found][0] <= runs[32][0]


def test_what_cannot_be_is_said() -> None:
    none = sizing(replace(JOB, batch=32), SMALL, deadline_s=DAY)
    assert none.chips is None and none.why.startswith("no size tried")
    poor = sizing(JOB, SMALL, deadline_s=10 * DAY, budget_usd=1000.0)
    assert poor.chips is None and "the cheapest in time, " in poor.why
    with refusal("--tokens"):
        sizing(replace(JOB, tokens=0.0), deadline_s=DAY)
    with refusal("has no public price"):
        sizing(replace(JOB, cluster="8xmi325x"), budget_usd=1e6)
    with refusal("a deadline must be above 0, not -1 days"):
        sizing(JOB, SMALL, deadline_s=-DAY)
    with refusal("a budget must be above 0"):
        sizing(JOB, SMALL, budget_usd=0.0)


def test_the_critical_batch_is_that_of_the_laws() -> None:
    """DeepSeek's: 0.2920 C^0.3271 tokens; Epoch's: 4 Mi tokens at 3e23 FLOP, growing as C^(1/6)."""
    flops = model_flops(JOB.model, JOB.T) * 1e12
    found = critical_batch(JOB)
    assert found["deepseek"] == pytest.approx(0.2920 * flops**0.3271)
    assert found["baseline"] == pytest.approx(
        2**22 * (flops / 3e23) ** (1 / 6)
    )
    few, many = min(found.values()), max(found.values())
    said = {
        where: batch_beside(replace(JOB, batch=int(tokens / JOB.T)))
        for where, tokens in {
            "below": few / 2,
            "between": (few + many) / 2,
            "beyond": many * 2,
        }.items()
    }
    assert "2.1 M tokens is below the critical batch, " in batch_beside(JOB)
    assert "is below the critical batch, " in said["below"]
    for where in ("between", "beyond"):
        assert " is beyond the critical batch, " in said[where]
        assert (", but below " in said[where]) == (where == "between")
        assert "more tokens for the same loss" in said[where]
    assert (
        batch_beside(replace(JOB, tokens=0.0)) == ""
        and critical_batch(replace(JOB, tokens=0.0)) == {}
    )
