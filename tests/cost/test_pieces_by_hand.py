"""Pieces of collectives and products by hand: the factors that a faster or slower link would
hide.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Dim, Network
from meshwright.cost import hop, in_network
from meshwright.cost.load import Busy, Load
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import LBL


def test_a_reduction_in_the_switch_keeps_its_links_as_long_as_it_takes() -> (
    None
):
    """8 chips of 100 GB/s: 2 (n-1)/n V / W over the gain, and the switch is busy for just that."""
    net = Network(
        "n", (Dim("nvlink", 1e11, 0.0, size=8, efficiency=1.0, reduces=True),)
    )
    links = Fabric.from_network(net, LBL.network)
    slow = Load(1.0, 0.0, Busy((1.0,)))
    found = in_network.in_network_all_reduce(links, 8e9, (8.0,), slow)
    paid = 2 * 8e9 / 1e11 * 7 / 8 / in_network.GAIN
    assert found.seconds == pytest.approx(paid)
    assert found.busy[0] == pytest.approx(paid)


def test_a_reduction_goes_up_and_down_once_where_there_are_several() -> None:
    """A hop of 1 s in a node of 8 and of 10 s between 4 of them; each only where it is spanned, and
    only where its switches add up."""
    dims = (
        Dim("node", 1e11, 1.0, size=8, efficiency=1.0, reduces=True),
        Dim("net", 1e10, 10.0, size=4, efficiency=1.0, reduces=True),
    )
    links = Fabric.from_network(Network("n", dims), LBL.network)
    slow = Load(1e9, 1e9, Busy((1e9, 1e9)))
    for group, hops in (((8.0, 1.0), 2), ((1.0, 4.0), 20), ((8.0, 4.0), 22)):
        found = in_network.in_network_all_reduce(links, 1.0, group, slow)
        assert found.latency == hops and found.seconds == pytest.approx(hops)
        assert (
            in_network.in_network_all_reduce(links, 0.0, group, slow) == slow
        )
    deaf = replace(links, reduces=(True, False))
    assert (
        in_network.in_network_all_reduce(deaf, 1.0, (8.0, 4.0), slow) == slow
    )
    near = in_network.in_network_all_reduce(deaf, 1.0, (8.0, 1.0), slow)
    assert near.latency == 2.0


def test_what_leaves_a_chip_pays_for_the_farthest() -> None:
    """Of messages of which a half stays, a quarter goes near and a quarter far, a half pays far."""
    assert hop.charged_share((0.5, 0.25, 0.25), (4.0, 2.0), "mean") == (
        0.5,
        0.25,
        0.25,
    )
    stays, near, far = hop.charged_share(
        (0.5, 0.25, 0.25), (4.0, 2.0), "slowest"
    )
    assert (stays, near, far) == (0.5, 0.0, 0.5)
