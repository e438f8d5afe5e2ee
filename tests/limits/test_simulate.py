"""The simulated step: flat and hierarchical networks, bubbles, and what makes a step slower or
faster.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import network
from meshwright.describe.assumptions import HidePass
from meshwright.describe.frozen import put, scaled
from meshwright.limits.laws import LAWS, SPARSE, shape
from meshwright.limits.scenario import preset
from meshwright.limits.sensitivity import bandwidth
from meshwright.limits.simulate import (
    AXES,
    Degrees,
    bytes_needed,
    idle_share,
    simulate,
)
from meshwright.schedule import get

H100 = preset("h100")
SHAPE = shape(replace(LAWS["baseline"], experts=SPARSE), 16384.0)
POWER = st.sampled_from([1, 2, 4, 8])


def spread(d: Degrees, low: tuple[int, ...]) -> dict[str, tuple[float, float]]:
    return {a: (n, getattr(d, a) / n) for a, n in zip(AXES, low, strict=True)}


def step(
    scenario: Any, d: Degrees, low: tuple[int, ...] = (1, 4, 2, 1, 1)
) -> Any:
    return simulate(scenario.machine, SHAPE, d, spread(d, low))


D = Degrees(16, 8, 16, 32, SHAPE.E, 64, 1, 1)


@given(dp=POWER, up=POWER, ff=POWER, pp=POWER)
@settings(max_examples=50)
def test_a_flat_hierarchy_is_a_single_level(
    dp: int, up: int, ff: int, pp: int
) -> None:
    """Two levels with everything in one of them do what one level does."""
    d = Degrees(dp, up, ff, pp, SHAPE.E, 2 * pp, 1, 0)
    one = replace(H100, network=network("epoch-h100-global-nvlink"))
    (flat_dim,) = one.network.dims
    dims = (replace(flat_dim, size=8, name="near"), flat_dim)
    two = replace(H100, network=replace(one.network, dims=dims))
    flat = simulate(one.machine, SHAPE, d, {a: (getattr(d, a),) for a in AXES})
    upper = simulate(
        two.machine, SHAPE, d, {a: (1, getattr(d, a)) for a in AXES}
    )
    lower = simulate(
        two.machine, SHAPE, d, {a: (getattr(d, a), 1) for a in AXES}
    )
    assert upper == pytest.approx(flat) and lower == pytest.approx(flat)


def test_nothing_cut_sends_nothing() -> None:
    dense = shape(LAWS["baseline"], 16384.0)
    alone = simulate(
        H100.machine,
        dense,
        Degrees(1, 1, 1, 1, 1, 1, 1, 0),
        dict.fromkeys(AXES, (1, 1)),
    )
    assert alone.total == alone.matmul > 0
    assert alone[2:] == (0,) * 7


@pytest.mark.parametrize(
    ("p", "m", "v"), [(4, 8, 3), (8, 8, 2), (2, 64, 1), (16, 32, 4)]
)
def test_the_bubble_is_that_of_interleaved_1f1b(
    p: int, m: int, v: int
) -> None:
    idle = idle_share(H100.machine, Degrees(1, 1, 1, p, 1, m, v, 0))
    assert idle == pytest.approx(
        get("interleaved").bubble(p, m, v, 1, 1, 1) / (3 * m)
    )
    assert idle == pytest.approx((p - 1) / (v * m))


def test_zero_bubble_needs_steps_that_overlap() -> None:
    """None in a run without a barrier, as in the paper; with one at the end of a step (p - 1) of
    its three equal passes.
    """
    d = Degrees(1, 1, 1, 8, 1, 16, 1, 1)
    assert idle_share(H100.machine, d) == pytest.approx(0, abs=1e-15)
    barrier = put("assumptions.overlap.step_barrier", "global norm")(H100)
    assert idle_share(barrier.machine, d) == pytest.approx(7 / 3 / 16)


def test_too_few_microbatches_cost_more_in_the_paper() -> None:
    p, m, v = 8, 4, 3
    z = (v - 1) * (p - m)
    assert idle_share(
        H100.machine, Degrees(1, 1, 1, p, 1, m, v, 0)
    ) == pytest.approx((p - 1 + z) / (v * m))


def test_gradients_overlap_or_add_up() -> None:
    apart = step(H100, D)
    free = put("assumptions.overlap.dp", HidePass("step", links="free"))
    beside = step(free(H100), D)
    assert apart.total == pytest.approx(
        max(apart.matmul, apart.tp + apart.p2p) + apart.dp + apart.dp_wait
    )
    assert beside.total == pytest.approx(
        max(apart.matmul, apart.tp + apart.p2p, apart.dp) + apart.dp_wait
    )


@pytest.mark.parametrize("scope", ["step", "pass", "layer", "backward"])
@pytest.mark.parametrize("dp", [512, 4096])
def test_gradients_hide_behind_three_equal_passes(scope: str, dp: int) -> None:
    """Half of the all-reduce spreads them beside the first forward pass, half sums them beside the
    last backward pass, twice as long; but for one block's of each, where a block is the first.
    """
    d, low = Degrees(dp, 2, 4, 2, SHAPE.E, 4, 1, 1), (1, 2, 4, 1, 1)
    apart = step(H100, d, low)
    how = put("assumptions.overlap.dp", HidePass(scope, links="free"))
    beside = step(how(H100), d, low)
    work = max(apart.matmul, apart.tp + apart.p2p)
    rest = 1.0 if scope == "layer" else 1 - d.pp / SHAPE.L
    forward, backward = (share / d.microbatches / 3 * work for share in (1, 2))
    ahead = (
        apart.dp / 2
        if scope == "backward"
        else (1 - rest) * apart.dp / 2
        + rest * max(apart.dp / 2 - forward, 0.0)
    )
    behind = (1 - rest) * apart.dp / 2 + rest * max(
        apart.dp / 2 - backward, 0.0
    )
    shown = max(apart.dp - work, 0.0) if scope == "step" else ahead + behind
    assert shown > 0 or scope == "step"
    assert beside.total == pytest.approx(work + shown + apart.dp_wait)


def test_latency_counts_only_without_zero_bubble() -> None:
    d = D._replace(zero_bubble=0, interleave=2)
    s = step(H100, d)
    idle = s.bubble / (1 - s.bubble)
    assert s.total == pytest.approx(
        max(s.matmul, s.tp + s.p2p) * (1 + idle)
        + s.tp_wait
        + s.p2p_wait
        + s.dp
        + s.dp_wait
    )


@pytest.mark.parametrize("zero_bubble", [0, 1])
def test_faster_parts_are_never_slower(zero_bubble: int) -> None:
    d = D._replace(zero_bubble=zero_bubble)
    base = step(H100, d).total
    for better in (
        scaled("network.dims.bandwidth", 2.0)(H100),
        bandwidth(H100, 2.0, 0),
        bandwidth(H100, 2.0, 1),
        scaled("network.dims.latency", 0.5)(H100),
    ):
        assert step(better, d).total <= base
    assert step(scaled("network.dims.bandwidth", 0.5)(H100), d).total > base


def test_memory_of_the_cluster_is_the_papers() -> None:
    assert bytes_needed(SHAPE, D, H100.precision) * D.chips == pytest.approx(
        SHAPE.parameters * 2 * (16 + 4)
    )
