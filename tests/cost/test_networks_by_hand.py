"""Collectives on rings, trees, levels and axes, messages between stages, and bounds of them,
written once more for one group of a node and a network.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from typing import Any

import pytest

from meshwright import Dim, Network
from meshwright.cost import (
    dispatch_kernels,
    fit,
    floors,
    hop,
    in_network,
    measured,
    overlap,
    torus,
    tree,
)
from meshwright.cost.collectives import levels
from meshwright.cost.load import NOTHING, Busy, Load, beside, least, stream
from meshwright.cost.network import (
    NAMED,
    Fabric,
    algorithm_and_source,
)
from meshwright.describe.assumptions import LBL, Hide, HidePass, NetworkTime
from meshwright.describe.measured import MeasuredTable, Overhead
from meshwright.describe.transport import Transport
from meshwright.exchange.reach import Draw
from refusals import refusal

A0, A1 = 1e-6, 7e-6
W0, W1 = 300e9, 40e9
V = 1e9
GROUPS = ((8, 1), (2, 1), (1, 8), (1, 3), (4, 2), (8, 5))


def links(
    option: str = "ring", dims: tuple[Dim, ...] | None = None, **how: Any
) -> Fabric:
    two = (
        Dim("node", W0, A0, 8, efficiency=1.0),
        Dim("net", W1, A1, efficiency=1.0),
    )
    return Fabric.from_network(
        Network("n", dims or two), NetworkTime(option, **how)
    )


def floats(group: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(map(float, group))


def crossing(g: int, n_: int) -> tuple[float, float]:
    """Seconds of the whole vector: every rank of a node has its own card."""
    return (V / W0 if g > 1 else 0.0), (V / (g * W1) if n_ > 1 else 0.0)


EIGHTH = max(V * 7 / 8 / W0, V / 8 * 4 / 5 / W1)
"""Each level by itself: 7/8 of V in a node of 8, 4/5 of an eighth between 5 of them."""
ROUND = V * 39 / 40 / W0 + 35 * A0 + 4 * A1
GATHER = {
    "ring": ROUND,
    "best": ROUND,
    "measured": ROUND,  # of what was not measured, the best
    "levels": EIGHTH + A0 + A1,
    "book": EIGHTH,  # hops hide under the bytes
    "free": 0.0,
}
"""Seconds of an all-gather of V over 8 x 5 ranks."""


@pytest.mark.parametrize("option", [name for name in NAMED if name != "nccl"])
def test_every_algorithm_gathers(option: str) -> None:
    """But for NCCL's, whose numbers are those of `test_nccl_by_hand.py`."""
    found = links(option).load("all_gather", V, (8.0, 5.0))
    assert found.seconds == pytest.approx(GATHER[option])


@pytest.mark.parametrize("group", GROUPS)
def test_rings_and_trees(group: tuple[int, int]) -> None:
    """n - 1 hops, n_ - 1 of them between nodes; trees: a chain of a node and ceil(log2 n_) levels,
    up and down.
    """
    net, (g, n_), at = links(), group, floats(group)
    n, both = g * n_, crossing(g, n_)
    hops = (n - n_) * A0 + (n_ - 1) * A1
    part = (n - 1) / n
    one = Load(max(both) * part + hops, hops)
    for kind, times, share in (
        ("all_gather", 1, part),
        ("reduce_scatter", 1, part),
        ("all_reduce", 2, 2 * part),
    ):
        found = net.load(kind, V, at)
        assert found.seconds == pytest.approx(times * one.seconds)
        assert found.latency == pytest.approx(times * hops)
        assert found.busy == pytest.approx(tuple(share * s for s in both))
    for kind in ("broadcast", "reduce"):
        found = net.load(kind, V, at)
        assert found[:2] == pytest.approx((max(both) + hops, hops))
        assert found.busy == pytest.approx(both)
    climb = 2 * ((g - 1) * A0 + ceil(log2(n_)) * A1)
    for chains, wait in ((True, climb), (False, climb - 2 * (g - 1) * A0)):
        found = tree.all_reduce(net, V, at, chains)
        assert found[:2] == pytest.approx((wait + 2 * max(both), wait))
        assert found.busy == pytest.approx(tuple(2 * s for s in both))
    ring, best = 2 * one.seconds, links("best").load("all_reduce", V, at)
    assert best.seconds == pytest.approx(min(ring, climb + 2 * max(both)))
    assert best.latency == pytest.approx(min(2 * hops, climb))
    # all messages start at once; each rank's own card carries what leaves the node
    found = net.load("all_to_all", V, at)
    wait = A1 if n_ > 1 else A0
    near, far = V * (g - 1) / n / W0, V * g * (n_ - 1) / n / W1
    assert found[:2] == pytest.approx((wait + near + far, wait))
    blocks = net.load("ring", V, at)
    assert blocks.seconds == pytest.approx(
        (n - 1) * ((A1 + V / n / W1) if n_ > 1 else (A0 + V / n / W0))
    )


@pytest.mark.parametrize("group", GROUPS)
def test_levels(group: tuple[int, int]) -> None:
    """(g - 1)/g of V/(S W) in each level at once; one hop in each that is spanned."""
    net, (g, n_), at = links("levels"), group, floats(group)
    near, far = V * (g - 1) / g / W0, V * (n_ - 1) / n_ / g / W1
    hops = (A0 if g > 1 else 0.0) + (A1 if n_ > 1 else 0.0)
    for kind, times in (("all_gather", 1), ("all_reduce", 2)):
        found = net.load(kind, V, at)
        assert found.seconds == pytest.approx(times * (max(near, far) + hops))
        assert found.latency == pytest.approx(times * hops)
        assert found.busy == pytest.approx((times * near, times * far))
    assert levels.phase(net, V, at, whole=True) == pytest.approx(
        crossing(g, n_)
    )
    bound = net.bound.load("all_reduce", V, at)
    n = g * n_
    both = 2 * V * (n - 1) / n / (W0 + W1)
    assert bound[:2] == pytest.approx((both + 2 * A0, 2 * A0))
    tiny = net.load("all_gather", 0.5, at).seconds
    assert tiny == pytest.approx(hops, rel=1e-3)
    passed = net.bound.load("broadcast", V, at)
    assert passed.seconds == links().load("broadcast", V, at).seconds


@pytest.mark.parametrize("group", GROUPS)
def test_what_no_group_undercuts(group: tuple[int, int]) -> None:
    """(n-1)/n of V through all links of a chip at once, twice for an all-reduce; by switches that
    add up so much less.
    """
    net, at = links(), floats(group)
    n = group[0] * group[1]
    passed = V * (n - 1) / n / (W0 + W1)
    for kind, times in (
        ("all_gather", 1),
        ("all_to_all", 1),
        ("all_reduce", 2),
    ):
        found = floors.any_links(net, kind, V, at)
        assert found[:2] == pytest.approx((times * passed, 0.0))
        assert found.busy == (0.0, 0.0)
    adding = replace(net, reduces=(False, True))
    found = floors.any_links(adding, "all_reduce", V, at)
    assert found.seconds == pytest.approx(2 * passed * 370 / 480)
    hopped = floors.any_hop(net, V, at)
    assert hopped == Load(V / W0, 0.0, Busy((0.0, 0.0)))
    assert floors.any_hop(net, V, (1.0, 1.0)).seconds == 0.0


def test_bounds_know_no_place() -> None:
    """On links of which the nearer are the faster the nearest group is a bound; else any links."""
    net = links()
    bound, at = net.bound, (4.0, 2.0)
    assert bound.load("all_gather", V, at) == net.load(
        "all_gather", V, at
    )._replace(busy=Busy())
    assert bound.load("send", V, (4.0, 2.0)) == net.load(
        "send", V, at
    )._replace(busy=Busy())
    odd = replace(net, rates=(W1, W0))
    assert odd.bound.load("all_gather", V, at).seconds == pytest.approx(
        floors.any_links(odd, "all_gather", V, at).seconds
    )
    assert odd.bound.load("send", V, at).seconds == pytest.approx(V / W0)
    inner = replace(net.bound, injected=net.bound.algorithm)
    for mine, other in ((inner.algorithm.floor, net.algorithm.floor),):
        assert (
            mine(net, "all_gather", V, at).seconds
            == other(net, "all_gather", V, at).seconds
        )
    assert inner.algorithm.hop_floor(net, V, at) == bound.load("send", V, at)
    best = links("best")
    free = tree.all_reduce(best, 1.0, (8.0, 2.0), chains=False)
    assert best.bound.load("all_reduce", 1.0, (8.0, 2.0)).seconds == (
        pytest.approx(free.seconds)
    )
    uneven = replace(best, latencies=(A1, A0))
    assert uneven.bound.load("all_reduce", V, at).seconds == pytest.approx(
        2 * V * 7 / 8 / (W0 + W1)
    )


# Switches that add up.


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


# Messages between stages.


def test_one_channel_to_another_node() -> None:
    """NCCL of 2021 fills no fast card, and every slow one; in a node links are what they are."""
    one, several = (links(send_channels=how) for how in ("one", "several"))
    assert hop.link(several, 1) == W1
    assert hop.link(one, 1) == 18.3e9 == one.transports[1].channel
    assert hop.link(one, 0) == hop.link(several, 0) == W0
    assert hop.point_to_point(one, V, 1) == A1 + V / 18.3e9
    slow = Dim("net", 12.5e9, A1, efficiency=1.0)
    two = (Dim("node", W0, A0, 8, efficiency=1.0), slow)
    assert hop.link(links(dims=two, send_channels="one"), 1) == 12.5e9


def test_a_hop_between_stages() -> None:
    """Eight stages on two nodes of four: 6 of 7 boundaries are near; the slowest is far."""
    near, far = A0 + V / W0, A1 + V / W1
    at = (4.0, 2.0)
    slow = links().load("send", V, at)
    assert slow == Load(
        pytest.approx(far), A1, Busy((0.0, pytest.approx(V / W1)))
    )
    mean = links(hop="mean").load("send", V, at)
    assert mean.seconds == pytest.approx((6 * near + far) / 7)
    inside = links().load("send", V, (4.0, 1.0))
    assert inside == Load(
        pytest.approx(near), A0, Busy((pytest.approx(V / W0), 0.0))
    )
    assert hop.point_to_point(links(), 0.0, 1) == 0.0
    both = links().neighbours(V)
    assert [load.seconds for load in both] == pytest.approx([near, far])
    mesh = (Dim("mesh", W0, A0, 5, "mesh", efficiency=1.0),)
    assert hop.link(links(dims=mesh), 0) == W0 / 4


@pytest.mark.parametrize(
    ("p", "v", "node"), [(16, 2, 4), (2, 3, 2), (4, 2, 1), (8, 1, 8)]
)
def test_shares_of_the_next_stage_by_counting(
    p: int, v: int, node: int
) -> None:
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


def test_ranks_drawn_and_the_farther_of_two() -> None:
    """Of 2 nodes of 4: oneself 1/8, in the node 3/8, beyond 1/2."""
    assert hop.any_rank((4.0, 2.0)) == (1 / 8, 3 / 8, 1 / 2)
    assert hop.any_rank((4, 2, 8)) == (1 / 64, 3 / 64, 4 / 64, 56 / 64)
    assert hop.farthest((4.0, 2.0)) == (0.0, 0.0, 1.0)
    assert hop.farthest((4.0, 1.0)) == (0.0, 1.0, 0.0)
    assert hop.farthest((1.0, 1.0)) == (1.0, 0.0, 0.0)
    # both stay, one of them at most near, and the rest
    found = hop.farther((0.5, 0.25, 0.25), (0.2, 0.3, 0.5))
    assert found == pytest.approx((0.1, 0.75 * 0.5 - 0.1, 1 - 0.75 * 0.5))
    with pytest.raises(ValueError, match="zip"):
        hop.farther((0.5, 0.5), (1.0,))
    loads = (Load(4.0, 1.0, Busy((4.0,))), Load(8.0, 2.0, Busy((8.0,))))
    found_ = hop.mean(loads, (0.5, 0.25, 0.25))
    assert found_ == Load(3.0, 0.75, Busy((3.0,)))
    with pytest.raises(ValueError, match="zip"):
        hop.mean(loads, (0.5, 0.5))


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


# Loads.


def test_loads_add_up_and_stand_beside_each_other() -> None:
    a, b = Load(3.0, 1.0, Busy((2.0, 1.0))), Load(5.0, 4.0, Busy((1.0, 3.0)))
    assert a + b == Load(8.0, 5.0, Busy((3.0, 4.0)))
    assert a + NOTHING is a is NOTHING + a
    assert a * 2.0 == Load(6.0, 2.0, Busy((4.0, 2.0))) and a * 1.0 is a
    assert NOTHING * 7.0 is NOTHING
    assert a.busy.most == 2.0 and Busy().most == 0.0
    assert Busy((1.0,)) + Busy() == Busy((1.0,)) == Busy() + Busy((1.0,))
    with pytest.raises(ValueError, match="zip"):
        Busy((1.0,)) + Busy((1.0, 2.0))
    assert stream(a, b).seconds == 5.0, "hops, longer than bytes"
    assert stream(a, a).seconds == 4.0, "the busiest dimension"
    assert beside(a, b) == Load(5.0, 4.0, Busy((3.0, 4.0)))
    assert beside(b, b).seconds == 6.0
    assert least(a, b) == Load(3.0, 1.0, Busy((1.0, 1.0)))


# Axes of a torus, and switches above them.
RING = Dim("x", 100e9, 1e-6, 8, "ring", efficiency=1.0)
LINE = Dim("y", 60e9, 1e-6, 4, "line", efficiency=1.0)


@pytest.mark.parametrize(
    ("dim", "n", "stride", "rate", "hops"),
    [
        (RING, 8, 1, 100e9, 4),
        (RING, 7, 1, 50e9, 6),
        (RING, 4, 2, 50e9, 2 * 2),
        (RING, 2, 1, 50e9, 1),
        (LINE, 4, 1, 60e9, 3),
        (LINE, 2, 2, 30e9, 2),
        (RING, 1, 1, 50e9, 0),
    ],
)
def test_parts_of_an_axis(
    dim: Dim, n: int, stride: int, rate: float, hops: float
) -> None:
    found = torus.axis(dim, n, stride)
    assert found == (n, rate, pytest.approx(hops * 1e-6), True, 0)


def test_switches_and_parts_by_themselves() -> None:
    switch = Dim("s", 10e9, 3e-6, 16, efficiency=0.5)
    assert torus.axis(switch, 4) == (4, 5e9, 3e-6, False, 0)
    assert torus.axis(switch, 1).latency == 0.0
    assert torus.axis(switch, 4, efficiency=1.0).rate == 10e9
    assert torus.Part(3, 1.0) == (3, 1.0, 0.0, False, 0)
    assert torus.exchange_load(torus.Part(5, 1.0, row=True)) == 6 / 5
    assert torus.exchange_load(torus.Part(5, 1.0)) == 4 / 5
    parts = (torus.Part(4, 2.0, 3.0), torus.Part(2, 6.0, 9.0))
    assert torus.send(16.0, parts) == 3.0, "a hop, longer than 2 s"
    assert torus.send(16.0, parts, 2.0) == 6.0
    assert torus.send(80.0, parts) == 10.0
    assert torus.send(0.0, parts) == 0.0


@pytest.mark.parametrize("factor", ["exact", "one"])
def test_collectives_on_two_axes_and_a_switch(factor: str) -> None:
    """Ring of 8 and line of 4 side by side, 160 GB/s; above them 3 pods that see V/32."""
    above = Dim("dcn", 10e9, 9e-6, efficiency=1.0)
    net = links("book", (RING, LINE, above), ring_factor=factor)
    at = (8.0, 4.0, 3.0)
    part = (lambda n: (n - 1) / n) if factor == "exact" else (lambda n: 1.0)
    inside = part(32) * V / 160e9
    outside = part(3) * V / 32 / 10e9
    hops = (4 + 3) * 1e-6 + 9e-6
    for kind, times in (("all_gather", 1), ("all_reduce", 2)):
        found = net.load(kind, V, at)
        assert found.busy == pytest.approx(
            (times * inside, times * inside, times * outside)
        )
        assert found.latency == pytest.approx(times * hops)
        assert found.seconds == pytest.approx(times * max(inside, outside))
        few = net.load(kind, 1.0, at)
        assert few.seconds == few.latency == pytest.approx(times * hops)
    row = net.load("all_gather", V, (8.0, 1.0, 1.0))
    assert row.busy == pytest.approx((part(8) * V / 100e9, 0.0, 0.0))
    found = net.load("all_to_all", V, at)
    # of what a rank sends 1/3 stays in its pod; 64/4/8 and 16/4/4 on the axes
    assert found.busy == pytest.approx(
        (V / 3 * 2 / 100e9, V / 3 * 1 / 60e9, V * 2 / 3 / 10e9)
    )
    assert algorithm_and_source(net)[0] == NAMED["book"].title
    assert algorithm_and_source(links("best"))[0] == NAMED["best"].title
    assert net.algorithm is NAMED["book"]


def test_where_nearer_links_are_the_faster() -> None:
    """Not on axes, two of which carry twice as much as one, nor in a mesh far away, nor where only
    far switches add up."""
    slow = Dim("y", 10e9, 9e-6, 4, "switch", efficiency=1.0)
    near = Dim("x", 90e9, 1e-6, 4, "switch", efficiency=1.0)
    for dims, faster in (
        ((near, slow), True),
        ((near, replace(near, name="z")), True),
        ((slow, near), False),
        ((near, replace(slow, latency=0.5e-6)), False),
        ((replace(near, bandwidth=9e9), slow), False),
        ((replace(near, kind="ring"), slow), False),
        ((near, replace(slow, kind="mesh")), False),
        ((replace(near, kind="mesh"), slow), True),
        ((near, replace(slow, reduces=True)), False),
        ((replace(near, reduces=True), slow), True),
    ):
        assert links("ring", dims).nearer_is_faster is faster


# Tables, laws and kernels that send a token once.


def test_between_and_beyond_measured_points() -> None:
    """1, 5 and 7 s at 10, 30 and 40: lines between and beyond, the first below the first."""
    table = MeasuredTable(("bytes",), ((10.0, 30.0, 40.0),), (1.0, 5.0, 7.0))
    for size, seconds in ((10, 1), (20, 3), (35, 6), (60, 11), (5, 1)):
        assert measured.table_seconds(table, (size,)) == pytest.approx(seconds)
        assert (measured.axes_outside(table, (size,)) == "") == (
            10 <= size <= 40
        )
    falling = MeasuredTable(("bytes",), ((1.0, 2.0),), (2.0, 1.0))
    assert measured.table_seconds(falling, (9.0,)) == 0.0
    one = MeasuredTable(("ranks", "bytes"), ((4.0,), (0.0, 10.0)), (1.0, 3.0))
    assert measured.table_seconds(one, (8.0, 5.0)) == 2.0
    two = MeasuredTable(
        ("m", "n"), ((0.0, 2.0), (0.0, 4.0)), (0.0, 4.0, 2.0, 14.0)
    )  # m + n + m n
    for m, n in ((1.0, 2.0), (2.0, 1.0), (3.0, 5.0)):
        assert measured.table_seconds(two, (m, n)) == pytest.approx(
            m + n + m * n
        )
    assert measured.axes_outside(two, (2.01, 4.1)) == "n 4.1 (measured 0 to 4)"
    assert measured.axes_outside(two, (1.0, 2.0)) == ""


def test_overhead_of_an_engine() -> None:
    """10 + 2 m + 3 l + 0.5 l m at 2 ranks, twice that at 4; of one size wherever."""
    values = (10.0, 2.0, 3.0, 0.5)
    of = Overhead((2.0, 4.0), *((v, 2 * v) for v in values))
    at_two = 10 + 2 * 5 + 3 * 7 + 0.5 * 35
    for ranks, times in ((2.0, 1.0), (3.0, 1.5), (4.0, 2.0)):
        found = measured.overhead(of, ranks, 7.0, 5.0)
        assert found == pytest.approx(times * at_two)
    three = Overhead((2.0, 4.0, 8.0), *((v, 2 * v, 8 * v) for v in values))
    for ranks, times in ((3.0, 1.5), (6.0, 5.0)):
        found = measured.overhead(three, ranks, 7.0, 5.0)
        assert found == pytest.approx(times * at_two)
    with refusal("ranks must ascend"):
        Overhead((4.0, 2.0), *((v, v) for v in values))
    one = Overhead((2.0,), *((v,) for v in values))
    assert measured.overhead(one, 8.0, 7.0, 5.0) == pytest.approx(at_two)


def test_a_measured_collective_is_taken_where_all_ranks_are() -> None:
    """3 s for four ranks of the node, whatever the formula says; beyond it the formula."""
    table = MeasuredTable(
        ("ranks", "bytes"), ((2.0, 8.0), (0.0, 1e12)), (3.0,) * 4
    )
    dims = (
        Dim(
            "node",
            W0,
            A0,
            8,
            efficiency=1.0,
            collectives={"all_gather": table, "send": table},
        ),
        Dim("net", W1, A1, efficiency=1.0),
    )
    net, plain = links("measured", dims), links("best")
    found = net.load("all_gather", V, (4.0, 1.0))
    assert found.seconds == pytest.approx(3.0)
    assert found.busy == plain.load("all_gather", V, (4.0, 1.0)).busy
    quick = replace(table, seconds=(1e-9,) * 4)
    fast = replace(dims[0], collectives={"all_gather": quick})
    load = links("measured", (fast, dims[1])).load("all_gather", V, (4.0, 1.0))
    small = pytest.approx(1e-9)
    assert load == Load(small, small, Busy((small, 0.0)))
    for group in ((4.0, 2.0), (1.0, 4.0), (1.0, 1.0)):
        same = plain.load("all_gather", V, group)
        assert net.load("all_gather", V, group) == same
    assert net.load("broadcast", V, (4.0, 1.0)) == plain.load(
        "broadcast", V, (4.0, 1.0)
    )
    # nothing is known of what a table says elsewhere
    assert net.bound.load("all_gather", V, (4.0, 1.0)).seconds == 0.0
    assert net.bound.load("send", V, (4.0, 1.0)).seconds == 0.0
    assert net.bound.load("broadcast", V, (4.0, 1.0)).seconds > 0.0
    assert hop.point_to_point(net, V, 0) == pytest.approx(3.0)
    assert hop.point_to_point(plain, V, 0) == pytest.approx(A0 + V / W0)


def test_lines_and_planes_through_points() -> None:
    line = fit.alpha_beta((0.0, 10.0, 30.0), (2.0, 4.0, 8.0))
    assert line == pytest.approx((2.0, 5.0, 0.0))
    falling = fit.alpha_beta((1.0, 2.0), (2.0, 1.0))
    assert falling.rate == float("inf") and falling.latency > 0
    steep = fit.alpha_beta((1.0, 2.0), (1.0, 4.0))
    assert steep.latency == 0.0
    # b = sum x/t / sum (x/t)^2 with x/t of 1 and 1/2
    assert 1 / steep.rate == pytest.approx(1.5 / 1.25)
    assert steep.error == pytest.approx((0.2 + 0.4) / 2)
    with pytest.raises(ValueError, match="two different sizes"):
        fit.alpha_beta((3.0, 3.0), (1.0, 2.0))
    with pytest.raises(ValueError, match="zip"):
        fit.alpha_beta((3.0, 4.0), (1.0,))
    rows = [
        (l, m, 3 + 5 * m + 7 * l + 2 * l * m) for l in (1, 4) for m in (2, 9)
    ]
    found, error = fit.bilinear(rows)
    assert found == pytest.approx((3.0, 5.0, 7.0, 2.0))
    assert error == pytest.approx(0.0, abs=1e-12)
    small = [(l, m, 0.3 + 0.5 * m) for l in (1, 4) for m in (2, 9)]
    assert fit.bilinear(small)[0] == pytest.approx((0.3, 0.5, 0.0, 0.0))
    lower = [(l, m, 10.0 - l) for l in (1, 4) for m in (2, 9)]
    found, error = fit.bilinear(lower)
    assert min(found) >= 0.0 and error == pytest.approx(1.5 / 9)


def test_what_a_fit_leaves_is_a_share_of_the_largest_seconds() -> None:
    """1 + m l milliseconds but for one that is 10 % longer than the largest."""
    rows = [
        (l, m, 1e-3 * (1 + l * m)) for l in (1.0, 2.0, 4.0) for m in (1.0, 3.0)
    ]
    _, none = fit.bilinear(rows)
    assert none < 1e-9
    l, m, t = rows[-1]
    found, error = fit.bilinear([*rows[:-1], (l, m, 2 * t)])
    least = [found[0] + m * found[1] + l * found[2] + l * m * found[3] for l, m, _ in rows]  # fmt: skip
    took = [t for *_, t in rows[:-1]] + [2 * t]
    missed = max(abs(a - b) for a, b in zip(least, took, strict=True))
    assert error == pytest.approx(missed / max(took)) and error > 0.01


def test_nothing_that_takes_no_time_is_fitted_exactly() -> None:
    rows = [(l, m, 0.0) for l in (1.0, 2.0) for m in (1.0, 3.0)]
    assert fit.bilinear(rows) == ((0.0, 0.0, 0.0, 0.0), 0.0)


@pytest.mark.parametrize("group", [(8, 1), (8, 4), (1, 4), (1, 1)])
def test_tokens_that_travel_once_to_each_node(group: tuple[int, int]) -> None:
    """4 of the experts: N (1 - (1 - 1/N)^4) nodes, and n (1 - (1 - 1/n)^4) ranks inside, at 0.85 of
    the rate of a link that is slower than what 20 SMs bring.
    """
    near = Transport("near", inside=True, exchange_launch=2e-6)
    far = Transport("far", exchange_launch=5e-6)
    net = replace(links(), transports=(near, far))
    (g, n_), k = group, 4
    n, token = g * n_, V / k

    def reached(x: int) -> float:
        return x * (1 - (1 - 1 / x) ** k)

    inside = token * reached(n) * (g - 1) / g / 0.85 / W0
    outside = token * reached(n_) * (n_ - 1) / n_ / W1
    start = 2e-6 + (5e-6 if n_ > 1 else 0.0)
    found = net.load("deepep", V, floats(group), Draw(k))
    if n == 1:
        assert found[:2] == (0.0, 0.0)
        return
    both = (inside**2 + outside**2) ** 0.5
    assert found[:2] == pytest.approx((start + both, start))
    assert found.busy == pytest.approx((inside, outside))
    assert net.load("deepep", 0.0, floats(group), Draw(k))[:2] == (0.0, 0.0)
    free = links("free").load("deepep", V, floats(group), Draw(k))
    assert free[:2] == (0.0, 0.0) and not any(free.busy)
    bound = net.bound.load("deepep", V, floats(group), Draw(k))
    assert bound[:2] == pytest.approx((token * (n - 1) / n / W0, 0.0))
    assert bound == dispatch_kernels.floor_load(net, V, floats(group), Draw(k))


# What hides.


def test_what_sticks_out() -> None:
    """6 s of messages behind half of 8 s of work; at most three quarters of them hide; a tenth of
    the hidden seconds slows the work.
    """
    how = Hide("layer", 0.5, 0.1, most=0.75)
    assert overlap.outlasting(8.0, 6.0, how) == (2.0, pytest.approx(0.4))
    assert overlap.outlasting(20.0, 6.0, how).shown == 1.5
    assert overlap.outlasting(8.0, 6.0, how).total == pytest.approx(2.4)
    both = overlap.Exposed(1.0, 2.0) + overlap.Exposed(3.0, 4.0)
    assert both == (4.0, 6.0) and both * 2.0 == (8.0, 12.0)
    own, mine = (
        Load(5.0, 0.0, Busy((5.0, 0.0))),
        Load(6.0, 0.0, Busy((4.0, 2.0))),
    )
    for name, shown in (("free", 0.0), ("shared", 1.0), ("serial", 3.0)):
        found = overlap.behind(8.0, own, mine, HidePass("pass", links=name))
        assert found == (shown, 0.0)
    slow = overlap.behind(1.0, own, mine, HidePass("pass", slow=0.5))
    assert slow == (6.0, 0.0), "no more than all of it"
    assert overlap.summa(1.0, 5.0, 8.0) == 1.0 + 3.0
    assert overlap.summa(1.0, 50.0, 8.0) == 1.0


def test_seconds_hide_once() -> None:
    """10 s of work: of 6 s nothing shows, of 7 s more 3 s; what never hides is added."""
    a, b, c = Hide("step"), Hide("step", slow=0.5), Hide()
    one, two = {a: Load(6.0)}, {b: Load(7.0)}
    both = overlap.merge_budgets([one, two, {a: Load(0.5)}])
    assert both == {a: Load(6.5), b: Load(7.0)}
    assert overlap.excess(10.0, both) == pytest.approx(3.5 + 0.5 * 3.5)
    assert overlap.excess(10.0, {a: Load(6.0), c: Load(5.0)}) == 5.0
    assert overlap.sum_loads(both).seconds == 13.5
