"""How many chips a deadline or a budget asks for, by a plain loop over all numbers of chips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import BadInput, Job, plan
from meshwright.count.model import model_flops
from meshwright.search import Space
from meshwright.sizing import batch_beside, counts, critical_batch, sizing
from meshwright.sweep import vary

JOB = Job("llama3-8b", "64xh100-sxm", 256, tokens=1e12)
SMALL = Space(pp=(1,), cp=(1,), microbatch=(1,), tp=(1, 2), zero=(3,))
"""Quick to search."""
DAY = 86400.0


@pytest.fixture(scope="module")
def runs():
    """chips -> (seconds, dollars) of the whole run."""
    found = {}
    for chips in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256):
        best = plan(
            vary(JOB, "chips", chips), SMALL, top=1, families=False
        ).best
        if best:
            found[chips] = (best.train_time_s, best.cost_usd)
    return found


def test_numbers_of_chips_are_whole_nodes() -> None:
    assert counts(JOB)[:8] == [8, 16, 24, 32, 48, 64, 96, 128]


@pytest.mark.parametrize("days", [80, 25, 10])
def test_a_deadline_takes_the_fewest_chips_that_end_in_time(
    days: float, runs
) -> None:
    found = sizing(JOB, SMALL, deadline_s=days * DAY)
    assert found.chips == min(
        n for n, (seconds, _) in runs.items() if seconds <= days * DAY
    )
    assert f"{found.chips} chips" in found.why and f"{days} days" in found.why
    assert "of the numbers tried the fewest that end in time" in found.why


def test_a_budget_takes_the_most_chips_that_it_pays_for(runs) -> None:
    """As much as 128 chips cost, and a bit."""
    money = runs[128][1] * 1.001
    found = sizing(JOB, SMALL, budget_usd=money)
    more = [n for n in runs if n > found.chips][:1]
    assert found.chips >= 64 and runs[found.chips][1] <= money
    assert all(runs[n][1] > money for n in more)


@pytest.mark.parametrize("start", [8, 64, 256])
def test_a_budget_below_all_costs_names_the_cheapest(start: int, runs) -> None:
    """From whichever number the walk begins: nobody asked for a deadline."""
    least, usd = min((usd, n) for n, (_, usd) in runs.items())[::-1]
    found = sizing(vary(JOB, "chips", start), SMALL, budget_usd=0.9 * usd)
    assert found.chips is None and "in time" not in found.why
    assert f"cheapest are {least} chips" in found.why
    table = {size.chips for size in found.tried}
    assert {least, start} <= table


@pytest.mark.parametrize("start", [16, 24, 64])
def test_one_dear_number_does_not_end_the_walk(start: int, runs) -> None:
    """24 chips share the batch badly and cost more than 16 or 32: whichever is asked for."""
    assert runs[24][1] > 1.2 * max(runs[16][1], runs[32][1])
    money = 1.0001 * runs[32][1]
    assert min(runs[n][1] for n in (48, 64, 96)) > money
    job = vary(JOB, "chips", start)
    assert sizing(job, SMALL, budget_usd=money).chips == 32


def test_what_cannot_be_is_said() -> None:
    none = sizing(replace(JOB, batch=32), SMALL, deadline_s=DAY)
    assert none.chips is None and none.why.startswith(
        "no number of these chips"
    )
    poor = sizing(JOB, SMALL, deadline_s=10 * DAY, budget_usd=1000.0)
    assert poor.chips is None and "cost too much" in poor.why
    with pytest.raises(BadInput, match="--tokens"):
        sizing(replace(JOB, tokens=0.0), deadline_s=DAY)
    with pytest.raises(BadInput, match="has no price"):
        sizing(replace(JOB, cluster="8xmi300x"), budget_usd=1e6)
    with pytest.raises(
        BadInput, match="a deadline must be above 0, not -1 days"
    ):
        sizing(JOB, SMALL, deadline_s=-DAY)
    with pytest.raises(BadInput, match="a budget must be above 0"):
        sizing(JOB, SMALL, budget_usd=0.0)


def test_the_critical_batch_is_that_of_the_laws() -> None:
    """DeepSeek's: 0.2920 C^0.3271 tokens; Epoch's: 4 Mi tokens at 3e23 FLOP, growing as C^(1/6)."""
    flops = model_flops(JOB.model, JOB.T) * 1e12
    found = critical_batch(JOB)
    assert found["deepseek"] == pytest.approx(0.2920 * flops**0.3271)
    assert found["baseline"] == pytest.approx(
        2**22 * (flops / 3e23) ** (1 / 6)
    )
    assert "2.1 M tokens" in batch_beside(
        JOB
    ) and "hardly" not in batch_beside(JOB)
    assert "more tokens for the same loss" in batch_beside(
        replace(JOB, batch=4096)
    )
    assert (
        batch_beside(replace(JOB, tokens=0.0)) == ""
        and critical_batch(replace(JOB, tokens=0.0)) == {}
    )
