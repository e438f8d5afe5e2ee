"""The simulated step: flat and hierarchical networks, bubbles, and what makes a step slower or
faster.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshwright.describe.assumptions import HidePass
from meshwright.describe.frozen import put
from meshwright.limits.laws import LAWS, SPARSE, shape
from meshwright.limits.scenario import Scenario, preset
from meshwright.limits.simulate import (
    Degrees,
    StepSeconds,
    bytes_needed,
    idle_s,
    simulate,
)

from .brute import two_levels

H100 = preset("h100")
SHAPE = shape(replace(LAWS["baseline"], experts=SPARSE), 16384.0)
D = Degrees(16, 8, 16, 32, SHAPE.E, 64, 1, 1)


def step(
    scenario: Scenario, d: Degrees, low: Sequence[int] = (1, 4, 2, 1, 1)
) -> StepSeconds:
    return simulate(scenario.machine, SHAPE, d, two_levels(d, low))


def idle_share(scenario: Scenario, d: Degrees) -> float:
    """Seconds without work for each second of it."""
    return float(idle_s(scenario.machine, d, 1.0))


@pytest.mark.parametrize(
    ("p", "m", "v"), [(4, 8, 3), (8, 8, 2), (2, 64, 1), (16, 32, 4), (8, 4, 3)]
)
def test_the_bubble_is_that_of_interleaved_1f1b(
    p: int, m: int, v: int
) -> None:
    """With fewer microbatches than stages it costs (v - 1)(p - m) slots more in the paper."""
    idle = idle_share(H100, Degrees(1, 1, 1, p, 1, m, v, 0))
    more = (v - 1) * max(p - m, 0)
    assert idle == pytest.approx((p - 1 + more) / (v * m))


def test_zero_bubble_needs_steps_that_overlap() -> None:
    """None in a run without a barrier, as in the paper; with one at the end of a step (p - 1) of
    its three equal passes.
    """
    d = Degrees(1, 1, 1, 8, 1, 16, 1, 1)
    assert idle_share(H100, d) == pytest.approx(0, abs=1e-15)
    barrier = put("assumptions.overlap.step_barrier", "global norm")(H100)
    assert idle_share(barrier, d) == pytest.approx(7 / 3 / 16)


@pytest.mark.parametrize(
    "scope", ["none", "step", "pass", "layer", "backward"]
)
@pytest.mark.parametrize("dp", [512, 4096])
def test_gradients_hide_behind_three_equal_passes(scope: str, dp: int) -> None:
    """Half of the all-reduce spreads them beside the first forward pass, half sums them beside the
    last backward pass, twice as long; but for one block's of each, where a block is the first.
    """
    d, low = Degrees(dp, 2, 4, 2, SHAPE.E, 4, 1, 1), (1, 2, 4, 1, 1)
    apart = step(H100, d, low)
    how = HidePass(scope, links="free") if scope != "none" else HidePass()
    beside = step(put("assumptions.overlap.dp", how)(H100), d, low)
    work = max(apart.matmul, apart.tp + apart.p2p)
    rest = 1.0 if scope == "layer" else 1 - d.pp / SHAPE.L
    half, microbatch = apart.dp / 2, work / d.microbatches
    ahead, behind = (
        (1 - rest) * half + rest * max(half - share / 3 * microbatch, 0.0)
        for share in (1, 2)
    )
    shown = {
        "none": apart.dp,
        "step": max(apart.dp - work, 0.0),
        "backward": half + behind,
    }.get(scope, ahead + behind)
    assert shown > 0 or scope == "step"
    assert beside.total == pytest.approx(work + shown + apart.dp_wait)


def test_latency_counts_only_without_zero_bubble() -> None:
    for zero_bubble in (0, 1):
        d = D._replace(zero_bubble=zero_bubble, interleave=2 - zero_bubble)
        s = step(H100, d)
        work = max(s.matmul, s.tp + s.p2p) / (1 - s.bubble)
        wait = 0 if zero_bubble else s.tp_wait + s.p2p_wait
        assert s.tp_wait > 0 and s.p2p_wait > 0
        assert s.total == pytest.approx(work + wait + s.dp + s.dp_wait)


def test_memory_of_the_cluster_is_the_papers() -> None:
    """Weights of 2 bytes on each of 16 replicas, gradients and states of 8 bytes once."""
    cluster = bytes_needed(SHAPE, D, H100.precision) * D.chips
    assert cluster == pytest.approx(SHAPE.parameters * 2 * (16 + 4))
