"""Checkpoints: the closed form of the best interval against the exact optimum."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from meshwright import Job, Layout, predict
from meshwright.prediction.failures import (
    Failures,
    goodput,
    has_published_rate,
    interval,
    loss_to_failures,
    of_family,
)


def exact(checkpoint: float, mtbf: float) -> float:
    """The interval tau at which the share of useful time is largest: e^((tau + delta)/M) (1 -
    tau/M) = 1, by bisection.
    """
    low, high = 0.0, mtbf
    for _ in range(200):
        tau = (low + high) / 2
        later = math.exp((tau + checkpoint) / mtbf) * (1 - tau / mtbf) > 1
        low, high = (tau, high) if later else (low, tau)
    return low


@pytest.mark.parametrize("ratio", [1e-4, 0.01, 0.1, 0.5])
def test_dalys_interval_is_the_optimum_within_a_hundredth(
    ratio: float,
) -> None:
    """Daly 2006, equation 37, whose third term counts when a checkpoint takes a good part of the
    time between failures.
    """
    assert interval(ratio * 1e4, 1e4) == pytest.approx(
        exact(ratio * 1e4, 1e4), rel=0.01
    )


@pytest.mark.parametrize("ratio", [2.0, 3.0])
def test_checkpoints_as_long_as_two_failures_apart_are_as_rare_as_failures(
    ratio: float,
) -> None:
    """Daly 2006, equation 37: M where delta is 2 M or more."""
    assert interval(ratio * 1e4, 1e4) == 1e4


def test_the_exact_optimum_is_one() -> None:
    tau = exact(10.0, 1e3)
    best = goodput(1e3, 10.0, tau, 5.0)
    assert best >= max(
        goodput(1e3, 10.0, tau * k, 5.0) for k in (0.5, 0.9, 1.1, 2.0)
    )


def test_what_a_run_loses_adds_up() -> None:
    """Useful work, checkpoints, restarts and work done again are the whole run; by hand from the
    number of interruptions and of checkpoints.
    """
    f = Failures(
        chip_mtbf_s=1e8,
        restart_s=600.0,
        storage_bytes_per_s=1e8,
        state_bytes=14.0,
    )
    lost, whole = loss_to_failures(f, 10_000, 1e12), 1e7
    parts = lost.parts(whole, f.restart_s)
    assert sum(parts.values()) == pytest.approx(whole)
    assert parts["restarts"] == pytest.approx(whole / 1e4 * 600)
    assert lost.checkpoint_s == pytest.approx(1e12 * 14 / (10_000 * 1e8))
    checkpoints = parts["useful"] / lost.interval_s
    assert parts["checkpoints"] == pytest.approx(
        checkpoints * lost.checkpoint_s
    )
    # of the failures each loses about half an interval
    half = whole / 1e4 * (lost.interval_s + lost.checkpoint_s) / 2
    assert parts["again"] == pytest.approx(half, rel=0.15)


def test_rates_of_families_are_those_of_their_sources() -> None:
    """419 interruptions of 16,384 H100 in 54 days; 6.5 failures of 8 A100 in 1,000 days; a family
    of which none is published takes that of Hopper, and says so.
    """
    hopper, ampere = of_family("Hopper"), of_family("Ampere")
    assert hopper.chip_mtbf_s / 16384 == pytest.approx(
        54 * 86400 / 419, rel=1e-3
    )
    assert 8 / ampere.chip_mtbf_s == pytest.approx(
        6.5 / (1000 * 86400), rel=1e-3
    )
    assert of_family("Volta") == of_family("unheard of") == hopper
    assert (
        has_published_rate("Hopper")
        and has_published_rate("Ampere")
        and not has_published_rate("Volta")
    )


def test_days_and_dollars_of_a_run_hold_what_is_lost() -> None:
    """Llama 3 405B: 54 days of 16,384 H100 had at least 90 % of effective training time
    (Grattafiori et al. 2024, section 3.3.4).
    """
    job = Job("llama3-405b", "16384xh100-sxm", 2048, tokens=15e12)
    p = predict(job, Layout(tp=8, cp=2, pp=16, dp=64, zero=1))
    assert 0.9 < p.useful_time_s / p.train_time_s < 0.97
    assert p.train_time_s == pytest.approx(
        p.useful_time_s + sum(p.lost_s.values())
    )
    assert p.cost_usd == pytest.approx(p.chip_hours * 6.88)
    ends = p.within(p.train_time_s)
    assert [x / p.train_time_s for x in ends] == pytest.approx(
        [x / p.step_time_s for x in p.interval_s]
    )
    paper = predict(
        replace(job, assumptions="scaling-book-sum", precision=None), p.layout
    )
    assert paper.lost_s is None and paper.train_time_s == paper.useful_time_s


def test_goodput_by_simulation() -> None:
    """Exponential failures drawn one by one."""
    rng, mtbf, delta, tau, restart = (
        np.random.default_rng(3),
        1000.0,
        20.0,
        180.0,
        60.0,
    )
    clock, done = 0.0, 0
    while done < 20000:
        if (fail := rng.exponential(mtbf)) >= tau + delta:
            # memoryless: each segment may draw anew
            clock, done = clock + tau + delta, done + 1
            continue
        clock += fail
        while (again := rng.exponential(mtbf)) < restart:
            clock += again
        clock += restart
    assert goodput(mtbf, delta, tau, restart) == pytest.approx(
        done * tau / clock, rel=0.02
    )


def test_more_chips_fail_more() -> None:
    shares = [
        loss_to_failures(Failures(), n, 1e12).goodput
        for n in (1e2, 1e3, 1e4, 1e5, 1e6, 1e9)
    ]
    assert all(
        0 <= b < a < 1 for a, b in zip(shares, shares[1:], strict=False)
    )
    assert (
        loss_to_failures(
            replace(Failures(), restart_s=60.0), 1e5, 1e12
        ).goodput
        > loss_to_failures(Failures(), 1e5, 1e12).goodput
    )
    assert loss_to_failures(Failures(), np.array([1e3, 1e5]), 1e12).goodput[
        1
    ] == pytest.approx(loss_to_failures(Failures(), 1e5, 1e12).goodput)
