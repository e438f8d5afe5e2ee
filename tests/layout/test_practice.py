"""What practice keeps near: a node is what the nearest switch joins."""

from __future__ import annotations

from dataclasses import replace

from by_hand import CHIP, MODEL, SET
from meshwright import Cluster, Dim, Job, Layout, Network
from meshwright.layout import practice


def test_a_node_is_what_the_nearest_switch_joins() -> None:
    """Nodes of 4 in racks of 12: six ranks of tp leave one; on the axes of a torus none does."""
    dims = (("node", 4), ("rack", 3), ("net", 999))
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    at = Job(MODEL, Cluster(CHIP, racks, 24), 24, assumptions=SET)
    assert practice.NEAR.holds(at, Layout(tp=4, dp=1))
    assert not practice.NEAR.holds(at, Layout(tp=6, dp=1))
    said = practice.NEAR.sentence(at, Layout(tp=6, dp=1))
    assert said == "tp 6 leaves the node domain of 4 chips"
    ring = tuple(
        Dim(n, 1e9, 0.0, size=s, kind="ring") for n, s in (("x", 2), ("y", 4))
    )
    torus = replace(at, cluster=Cluster(CHIP, Network("t", ring), 8))
    assert practice.NEAR.holds(torus, Layout(tp=8, dp=1))
