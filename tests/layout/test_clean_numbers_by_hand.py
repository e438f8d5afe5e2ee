"""Chips and batches near those asked for that divide evenly: worked out on paper."""

from __future__ import annotations

from math import gcd

from by_hand import CHIP, MODEL, SET
from meshwright import Cluster, Dim, Job, Network
from meshwright.layout import clean

TWO = Network(
    "n", (Dim("node", 1e9, 0.0, size=8), Dim("net", 1e9, 0.0, size=4096))
)


def job(chips: int = 64, batch: int = 64, network: Network = TWO) -> Job:
    return Job(MODEL, Cluster(CHIP, network, chips), batch, assumptions=SET)


def test_fewer_chips_that_share_the_batch() -> None:
    """Of every divisor of the batch the largest multiple, of chips and of whole nodes of eight: 100
    chips, which fill no nodes, and 64 sequences: 96 and 64. 96 have 32 in common with 64, so 64.
    Chips whose rest is no power of two: also as many as leave one."""

    def ways(chips: int, batch: int, at: Network = TWO) -> list[int]:
        return [
            j.cluster.chips for j in clean.fewer_chips(job(chips, batch, at))
        ]

    assert ways(100, 64) == [96, 64]
    assert ways(96, 64) == [64], "32 in common with 96"
    assert ways(64, 64) == []
    assert ways(13, 12) == [12, 8], "12 lie as 6 in each of two nodes"
    assert ways(20, 20) == [16]
    assert ways(23, 15) == [21, 20, 16, 15]
    assert ways(192, 64) == [128], "all 64 are common, and 3 is left over"
    ring = Network("r", (Dim("x", 1e9, 0.0, size=8, kind="ring"),))
    assert ways(8, 4, ring) == []
    mesh = Network("m", (Dim("node", 1e9, 0.0, 8, "mesh"), TWO.dims[1]))
    assert ways(13, 12, mesh) == [8], "a mesh is whole or not used"


def test_ports_of_a_switch_that_is_no_power_of_two() -> None:
    """Racks of 72: 64 of each."""
    rack = Network(
        "r", (Dim("rack", 1e9, 0.0, size=72), Dim("net", 1e9, 0.0, size=99))
    )
    found = clean.fewer_chips(job(144, 128, network=rack))
    assert [j.cluster.chips for j in found] == [128]
    assert found[0].cluster.sizes == (64, 2)
    used = clean.on_chips(job(144, 128, network=rack), 128, 64)
    assert used.cluster.network.dims[0].size == 64
    assert used.cluster.network.dims[1:] == rack.dims[1:]
    same = clean.on_chips(job(144, 128, network=rack), 128)
    assert same.cluster.network == rack


def sizes(chips: int, kind: str) -> list[tuple[int, ...]]:
    """Of fewer chips: nodes of 4 in racks of 5."""
    rack = Dim("rack", 1e9, 0.0, size=5, kind=kind)
    node, net = Dim("node", 1e9, 0.0, size=4), Dim("net", 1e9, 0.0)
    at = job(chips, 48, network=Network("r", (node, rack, net)))
    return [each.cluster.sizes for each in clean.fewer_chips(at)]


def test_units_between_node_and_network() -> None:
    """Nodes of 4 in racks of 12. 40 chips leave a rack partly used, and 10 nodes are no even number
    in each of 4 racks; 36 and 24 chips fill racks, 32 do not, but are 8 replicas of 4, and 39 fill
    no node. In racks of at most 5 nodes, 8 nodes are 2 racks of 4 and 6 are 2 of 3; 9 would be 3 of
    3, and 36 chips are in 2 racks. A ring of 5 nodes is whole or not used.
    """
    dims = ("node", 4), ("rack", 3), ("net", 999)
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    found = clean.fewer_chips(job(40, 24, network=racks))
    assert [j.cluster.chips for j in found] == [39, 36, 32, 24]
    assert [j.cluster.sizes[1] for j in found] == [3, 3, 2, 3]
    assert clean.unfilled(job(40, network=racks))
    assert not clean.unfilled(job(36, network=racks))
    assert sizes(36, "switch") == [(4, 4, 2), (4, 3, 2)]
    anew, *_, last = sizes(32, "switch")
    assert anew == (4, 4, 2) and last == (4, 3, 2), "all, spread anew"
    assert sizes(48, "switch") == [(4, 4, 3)]
    assert sizes(40, "switch") == [(4, 4, 2), (4, 3, 2)]
    assert sizes(45, "ring") == [(4, 5, 2)]


def test_where_chips_and_batch_bind_dp() -> None:
    """128 and 32 have 32 in common: a dp of 8 is no less than a quarter of it. 96 and 64 have as
    much, but of the third that is left other axes must take 3."""
    at = job(128, 32)
    assert clean.dp_is_bound(at, None)
    assert not clean.dp_is_bound(at, 8)
    assert clean.dp_is_bound(at, 9)
    assert clean.dp_is_bound(job(96, 64), 1)


def test_powers_of_two_where_pipelines_starve() -> None:
    """8 replicas of 8 stages share 64 sequences as 8 microbatches each, which fill them; 16 replicas
    leave 4. An eighth of 96 chips are 12, and part of a torus is not used."""
    assert not clean.is_starved(job(64, 64), dp=8, pp=8, microbatch=1)
    assert clean.is_starved(job(128, 64), dp=16, pp=8, microbatch=1)
    assert clean.is_starved(job(64, 64), dp=8, pp=8, microbatch=2)

    def ways(chips: int, at: Network = TWO) -> list[int]:
        return [
            j.cluster.chips
            for j in clean.powers_of_two(job(chips, network=at))
        ]

    assert ways(96) == [64, 32, 16]
    assert ways(64) == [32, 16, 8]
    torus = [Dim(x, 1e9, 0.0, size=4, kind="ring") for x in "xy"]
    hosts = Dim("hosts", 1e9, 0.0)
    assert ways(16, Network("torus", (*torus, hosts))) == []


def test_batches_near_the_one_asked_for() -> None:
    """102 sequences on 128 chips have 2 in common: multiples of 32, 16, 8 and 4 within an
    eighth."""
    found = list(clean.batches(job(128, 102)))
    assert found == [96, 104]
    for batch in found:
        assert gcd(batch, 128) >= 4 and abs(batch - 102) <= 102 / 8
    assert list(clean.batches(job(64, 64))) == []
    assert list(clean.batches(job(2, 9))) == [8]
