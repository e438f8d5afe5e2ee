"""Hierarchical collectives and the levels of messages between neighbours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import assumptions, network
from meshwright.cost import hop
from meshwright.cost.network import Fabric
from meshwright.num import product

HOW = assumptions("epoch-2024").network
THREE = Fabric.from_network(network("epoch-h100-superpod"), HOW)
GROUP = st.tuples(*[st.sampled_from([1, 2, 4, 8, 64])] * 3)


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
