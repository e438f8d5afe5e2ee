"""Hierarchical collectives and the levels of messages between neighbours."""

import pytest

from meshwright import assumptions, network
from meshwright.cost import hop
from meshwright.cost.network import Fabric

HOW = assumptions("epoch-2024").network
THREE = Fabric.from_network(network("epoch-h100-superpod"), HOW)


@pytest.mark.parametrize(
    ("p", "v", "node"), [(16, 2, 4), (2, 3, 2), (4, 2, 1), (8, 1, 8)]
)
def test_shares_by_counting(p: int, v: int, node: int) -> None:
    """Steps from stage to stage, chunk after chunk, inside a node and to another one; the other
    layers stay on their chip.
    """
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
