"""Checkpoints: the closed form of the best interval against the exact optimum."""

from __future__ import annotations

import math

import pytest

from meshwright.limits.failures import goodput, interval


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
def test_dalys_interval_is_the_optimum_within_a_hundredth(ratio: float) -> None:
    """Daly 2006, equation 37, whose third term counts when a checkpoint takes a good part of the
    time between failures.
    """
    assert interval(ratio * 1e4, 1e4) == pytest.approx(exact(ratio * 1e4, 1e4), rel=0.01)


def test_the_exact_optimum_is_one() -> None:
    tau = exact(10.0, 1e3)
    best = goodput(1e3, 10.0, tau, 5.0)
    assert best >= max(goodput(1e3, 10.0, tau * k, 5.0) for k in (0.5, 0.9, 1.1, 2.0))
