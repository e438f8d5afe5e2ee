"""Hierarchical collectives and the levels of messages between neighbours."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import assumptions, network
from meshwright.cost import hop, levels
from meshwright.cost.links import Group
from meshwright.cost.network import Fabric
from meshwright.layout.placement import Nearest
from meshwright.num import product

HOW = assumptions("epoch-2024").network
THREE = Fabric.from_network(network("epoch-h100-superpod"), HOW)
FLAT = Fabric.from_network(network("epoch-h100-global-nvlink"), HOW)
GROUP = st.tuples(*[st.sampled_from([1, 2, 4, 8, 64])] * 3)


@given(GROUP, st.floats(1, 1e12))
def test_all_reduce_is_reduce_scatter_and_all_gather(
    group: tuple[int, ...], V: float
) -> None:
    both = THREE.time("reduce_scatter", V, group) + THREE.time(
        "all_gather", V, group
    )
    assert THREE.time("all_reduce", V, group) == pytest.approx(both)
    assert (both == 0) == (product(group) == 1)


@given(GROUP, st.floats(1, 1e12))
def test_levels_that_are_alike_carry_what_one_level_would(
    group: tuple[int, ...], V: float
) -> None:
    """A hierarchy of equal levels splits the traffic (n-1)/n V of one level among them; the busiest
    has at most that."""
    alike = replace(THREE, rates=FLAT.rates * 3, latencies=(0.0,) * 3)
    n = product(group)
    whole = V * (n - 1) / n / FLAT.rates[0]
    assert sum(levels.phase(alike, V, group)) == pytest.approx(
        whole, rel=1e-9, abs=1e-30
    )
    assert levels.slowest(levels.phase(alike, V, group)) <= whole * (1 + 1e-12)


@given(st.sampled_from([2, 8, 64, 512]), st.integers(0, 2), st.floats(1, 1e12))
def test_one_level_in_use_is_a_flat_network(
    n: int, level: int, V: float
) -> None:
    group = tuple(n if i == level else 1 for i in range(3))
    alone = replace(
        FLAT, rates=(THREE.rates[level],), latencies=(THREE.latencies[level],)
    )
    assert THREE.time("all_reduce", V, group) == pytest.approx(
        alone.time("all_reduce", V, (n,))
    )
    assert alone.time("all_reduce", V, (n,)) == pytest.approx(
        2 * (n - 1) / n * V / alone.rates[0] + 2 * alone.latencies[0]
    )


@given(GROUP, GROUP, st.sampled_from([1, 2, 3]))
def test_shares_of_messages_add_up_to_one(
    pp: tuple[int, ...], ep: tuple[int, ...], chunks: int
) -> None:
    layers = product(pp) * chunks + 5
    by_pipeline, by_expert = (
        hop.next_stage(pp, chunks if product(pp) > 1 else 1, layers - 1),
        hop.any_rank(ep),
    )
    for shares in (
        by_pipeline,
        by_expert,
        hop.farthest(ep),
        hop.farther(by_pipeline, by_expert),
    ):
        assert sum(shares) == pytest.approx(1)
        assert all(s >= -1e-12 for s in shares)


def test_shares_by_counting() -> None:
    """16 stages of 2 chunks on nodes of 4 (33 layers: one step in 32 stays on the chip ... counted
    one by one).
    """
    p, v, node = 16, 2, 4
    crossings = [0, 0]
    for stage in range(p * v - 1):
        a, b = stage % p, (stage + 1) % p
        crossings[0 if a // node == b // node else 1] += 1
    layers = 40
    shares = hop.next_stage((node, p // node), v, layers - 1)
    assert [s * (layers - 1) for s in shares] == pytest.approx(
        [layers - 1 - sum(crossings), *crossings]
    )


def test_random_experts_by_counting() -> None:
    group = (4, 2, 8)
    n, counts = product(group), [0, 0, 0, 0]
    # seen from rank 0; the nearest dimension varies fastest
    for other in range(n):
        far = 3 if other >= 8 else 2 if other >= 4 else 1 if other else 0
        counts[far] += 1
    assert hop.any_rank(group) == pytest.approx([c / n for c in counts])
    assert hop.farthest(group) == (0, 0, 0, 1)
    assert hop.farthest((4, 1, 1)) == (0, 1, 0, 0)
    assert hop.farthest((1, 1, 1)) == (1, 0, 0, 0)


@given(GROUP, st.floats(1, 1e12), st.integers(0, 2))
def test_more_bandwidth_or_less_latency_is_never_slower(
    group: tuple[int, ...], V: float, level: int
) -> None:
    rates = tuple(
        r * (2 if i == level else 1) for i, r in enumerate(THREE.rates)
    )
    latencies = tuple(
        t * (0.5 if i == level else 1) for i, t in enumerate(THREE.latencies)
    )
    before = THREE.time("all_reduce", V, group)
    assert replace(THREE, rates=rates).time("all_reduce", V, group) <= before
    assert (
        replace(THREE, latencies=latencies).time("all_reduce", V, group)
        <= before
    )


INSIDE = st.tuples(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 8, 32]),
    st.sampled_from([1, 4, 64]),
)


@given(
    INSIDE,
    INSIDE,
    st.floats(1, 1e12),
    st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
)
def test_a_floor_holds_where_levels_work_side_by_side(
    few: Group, many: Group, V: float, kind: str
) -> None:
    """Two levels of like speed beat the nearest alone: a group that lies as near as can be is no
    floor.
    """
    few, many = sorted((few, many), key=product)
    nearest = Nearest(
        dp=product(few), placement={}, sizes=(8, 32, 1024)
    ).group("dp")
    floor, load = THREE.bound.load(kind, V, nearest), THREE.load(kind, V, many)
    assert (
        floor.seconds <= load.seconds * (1 + 1e-12)
        and floor.latency <= load.latency
    )


def test_the_nearest_group_is_not_the_fastest() -> None:
    """8 ranks in one node of a SuperPOD take 7/8 V at 450 GB/s; two in each of four nodes 1/2 V
    there, 3/8 V at 225.
    """
    near, spread = (
        THREE.load("all_gather", 9e11, group).busy.most
        for group in ((8, 1, 1), (2, 4, 1))
    )
    assert near == pytest.approx(1.75) and spread == pytest.approx(1.5)
    assert THREE.bound.load("all_gather", 9e11, (8, 1, 1)).seconds < spread
