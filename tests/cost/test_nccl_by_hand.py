"""NCCL's times and its tuner's beliefs computed once more, for one group at a time and plainly,
from what `docs/collectives.md` and NVIDIA/nccl, src/graph/tuning.cc, say (commit 5067397c).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor, inf, log2, sqrt

import numpy as np
import pytest

from meshwright.cost import floors, nccl_choice
from meshwright.cost.collectives import nccl
from meshwright.cost.links import Links
from meshwright.cost.network import Fabric
from meshwright.cost.span import over
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.network import Dim, Network
from meshwright.describe.transport import Transport

NEAR = Transport(
    "near", inside=True, launch=9e-6, hop=1.5e-6, hop_ll=0.7e-6, ll=0.45,
    hop_ll128=1.1e-6, ll128=0.7, channel_ll128=30e9,
    copied=0.6, mix=0.8, mix_ll=0.9, sharp=0.9, sharp_wait=6e-6, sharp_mix=0.7,
    exchange=0.85, exchange_launch=11e-6, exchange_copied=0.4, exchange_mix=0.6,
    believed=0.75, believed_ll=(39e9, 21e9, 13e9), believed_step=1.7e-6,
    believed_ll128=(21e9, 22e9, 15e9), believed_sharp=0.8,
)  # fmt: skip
FAR = Transport(
    "far", launch=17e-6, hop=7e-6, hop_ll=4e-6, climb=15e-6, climb_ll=8e-6,
    hop_ll128=3e-6, climb_ll128=6e-6, ll128=0.9,
    ll=0.4, ll_node=60e9, climb_rate=0.9, climb_rate_ll=0.2, alone=0.7, mix=1.2,
    mix_ll=1.1, exchange=0.8, exchange_launch=23e-6, exchange_mix=0.9,
    believed=0.65,
)  # fmt: skip
NODE, RATE_NEAR, RATE_FAR = 8, 300e9, 40e9
DIMS = (
    Dim("node", RATE_NEAR, 1e-6, NODE, efficiency=1.0, reduces=True),
    Dim("net", RATE_FAR, 5e-6, efficiency=1.0),
)
GROUPS = ((8, 1), (2, 1), (5, 1), (1, 8), (1, 2), (4, 2), (8, 3), (8, 16))
SIZES = (100.0, 9e3, 3e5, 7e6, 2e8, 5e9)


def links(near: Transport = NEAR, dims: tuple[Dim, ...] = DIMS) -> Fabric:
    """A node of 8 and a network of nodes, with these transports."""
    fabric = Fabric.from_network(Network("n", dims), NetworkTime("nccl"))
    return replace(fabric, transports=(near, FAR)[: len(dims)])


def mixed(wait: float, bytes_: float, mix: float) -> float:
    return sqrt(wait**2 + 2 * mix * wait * bytes_ + bytes_**2)


HOPS = {
    "LL": (NEAR.hop_ll, FAR.hop_ll, FAR.climb_ll, NEAR.ll),
    "LL128": (NEAR.hop_ll128, FAR.hop_ll128, FAR.climb_ll128, NEAR.ll128),
    "Simple": (NEAR.hop, FAR.hop, FAR.climb, 1.0),
}
"""Protocol -> seconds of a hop in a node, of one out of it by a ring and by a tree, and the share
of the links in a node; the tuner likes the first of those that it believes to take as long."""


def cards(g: int, protocol: str) -> float:
    """Bytes a second out of a node by g rings side by side, each with its own card."""
    alone = RATE_FAR * (FAR.alone if g == 1 else 1.0)
    each = {
        "LL": min(FAR.ll * RATE_FAR, FAR.ll_node / g),
        "LL128": min(FAR.ll128 * alone, NEAR.channel_ll128 or inf),
        "Simple": alone,
    }
    return g * each[protocol]


def ring(g: int, n_: int, V: float, rounds: int, protocol: str) -> float:
    """g ranks in each of n_ nodes; K = rounds (n - 1) steps, of which rounds (n_ - 1) leave."""
    n = g * n_
    K, out = rounds * (n - 1), rounds * (n_ - 1)
    hop, hop_far, _, share = HOPS[protocol]
    wait = (K - out) * hop + out * hop_far
    near = V * (K + NEAR.copied) / n / RATE_NEAR / share if g > 1 else 0.0
    far = V * K / n / cards(g, protocol) if n_ > 1 else 0.0
    if n_ > 1:
        mix = FAR.mix if protocol == "Simple" else FAR.mix_ll
    else:
        mix = NEAR.mix_ll if protocol == "LL" else NEAR.mix
    return mixed(wait, max(near, far), mix)


def tree(g: int, n_: int, V: float, protocol: str) -> float:
    depth = max(ceil(log2(n_)), 1)
    hop, _, climb, share = HOPS[protocol]
    wait = 2 * (g - 1) * hop + 2 * depth * climb
    near = V / RATE_NEAR / share if g > 1 else 0.0
    out = (
        RATE_FAR * g * FAR.climb_rate_ll
        if protocol == "LL"
        else cards(g, protocol) * FAR.climb_rate
    )
    far = V / out if n_ > 1 else 0.0
    return mixed(wait, 2 * max(near, far), FAR.mix_ll)


def sharp(g: int, V: float) -> float:
    m = min(max(g, 2), 8)
    part = (g - 1) / g * (m + 1) / (m - 1)
    return mixed(
        NEAR.sharp_wait, part * V / RATE_NEAR / NEAR.sharp, NEAR.sharp_mix
    )


def launch(n_: int) -> float:
    return NEAR.launch + (FAR.launch if n_ > 1 else 0.0)


# What the tuner believes.


def byte(g: int, n_: int) -> float:
    near = 1 / (RATE_NEAR * NEAR.believed) if g > 1 else 0.0
    far = 1 / (RATE_FAR * FAR.believed * g) if n_ > 1 else 0.0
    return max(near, far)


def most_ll(n_: int) -> float:
    return NEAR.believed_ll[0 if n_ == 1 else 1 if n_ == 2 else 2]


def byte_ll128(g: int, n_: int, share: float, most: float) -> float:
    """Seconds a byte by LL128: a share of each rate, and no more than `most` through a card."""
    near = 1 / (share * RATE_NEAR * NEAR.believed) if g > 1 else 0.0
    card = min(share * RATE_FAR * FAR.believed, most)
    return max(near, 1 / card / g) if n_ > 1 else near


def ring_believed(
    g: int, n_: int, V: float, rounds: int, protocol: str
) -> float:
    n = g * n_
    K, out = rounds * (n - 1), rounds * (n_ - 1)
    step = NEAR.believed_step if n_ > 1 else 0.0
    first, hop, hop_far, slow = {
        "LL": (
            6.6e-6,
            max(0.6e-6, step),
            5.0e-6 if g == 1 else 2.7e-6,
            max(2 * byte(g, n_), 1 / most_ll(n_)),
        ),
        "LL128": (
            14e-6,
            max(1.9e-6, step),
            8.5e-6 if g == 1 else 4e-6,
            byte_ll128(g, n_, 0.92, 21e9),
        ),
        "Simple": (8.4e-6, max(3.4e-6, 3 * step), 14e-6, byte(g, n_)),
    }[protocol]
    wait = first + (K - out) * hop + out * hop_far
    if protocol == "Simple" and rounds == 2 and n_ > 1 and V / n >= 64 * 8:
        wait *= 1.4
    return wait + V * K / n * slow


SIMPLE = [0.9] * 7 + [0.8, 0.7, 0.6, 0.6] + [0.5] * 4 + [
    0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9, 1.0,
]  # fmt: skip
LL = [1.0] * 4 + [0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4] + [
    0.5, 0.6, 0.7, 0.8, 0.9, *[1.0] * 6,
]  # fmt: skip
LL128 = [1.0] * 5 + [0.9, 0.8, 0.8, 0.8, 0.7] + [0.6] * 6 + [
    0.8, 0.9, 0.9, 0.9, 0.9, *[1.0] * 4,
]  # fmt: skip
"""treeCorrectionFactor of tuning.cc, by log2(bytes / 64)."""


def tree_believed(g: int, n_: int, V: float, protocol: str) -> float:
    at = min(max(floor(log2(V / 64)), 0), 24)
    depth = floor(log2(n_))
    if protocol == "LL":
        wait = 6.8e-6 + 2 * ((g - 1) * 0.6e-6 + depth * 5.0e-6)
        slow = max(byte(g, n_) / (0.92 / 3.8), 1 / most_ll(n_)) / LL[at]
    elif protocol == "LL128":
        wait = 14e-6 + 2 * ((g - 1) * 1.25e-6 + depth * 8.5e-6)
        most = 22e9 if n_ <= 2 else 15e9
        slow = byte_ll128(g, n_, 0.92 * 120 / 128, most) / LL128[at]
    else:
        wait = 8.4e-6 + 2 * ((g - 1) * 4.0e-6 + depth * 14e-6)
        slow = byte(g, n_) / (0.92 * SIMPLE[at])
    return wait + 2 * V * slow


def ring_taken(g: int, n_: int, V: float, rounds: int) -> tuple[float, float]:
    """(believed, really) of the ring that the tuner likes best, LL before LL128 before Simple."""
    return min(
        (
            (ring_believed(g, n_, V, rounds, p), ring(g, n_, V, rounds, p))
            for p in HOPS
        ),
        key=lambda pair: pair[0],
    )


def all_reduce(g: int, n_: int, V: float) -> float:
    """The time of what the tuner takes."""
    best, took = ring_taken(g, n_, V, 2)
    if n_ > 1:
        trees = {p: tree_believed(g, n_, V, p) for p in HOPS}
        liked = min(trees, key=trees.__getitem__)
        return tree(g, n_, V, liked) if trees[liked] < best else took
    quicker = sharp(g, 1e15) < ring(g, 1, 1e15, 2, "Simple")
    believed = 25e-6 + V * byte(g, 1) / NEAR.believed_sharp
    return sharp(g, V) if quicker and believed < best else took


def gather(g: int, n_: int, V: float) -> float:
    return ring_taken(g, n_, V, 1)[1]


def all_to_all(g: int, n_: int, V: float) -> float:
    """Each rank sends V/n to each other one: g - 1 in the node, the rest out."""
    n = g * n_
    moved = V * (g - 1) / n / (RATE_NEAR * NEAR.exchange)
    moved += V * g * (n_ - 1) / n / (RATE_FAR * FAR.exchange)
    moved += NEAR.exchange_copied * V / n / (RATE_NEAR * NEAR.exchange)
    wait = NEAR.exchange_launch + (FAR.exchange_launch if n_ > 1 else 0.0)
    return mixed(
        wait, moved, FAR.exchange_mix if n_ > 1 else NEAR.exchange_mix
    )


def broadcast(g: int, n_: int, V: float) -> float:
    """The whole vector passes every link, n - 1 steps one after the other."""
    wait = (g - 1) * n_ * NEAR.hop + (n_ - 1) * FAR.hop
    near = V / RATE_NEAR if g > 1 else 0.0
    far = V / (RATE_FAR * g) if n_ > 1 else 0.0
    far /= FAR.alone if g == 1 else 1.0
    return mixed(wait, max(near, far), (FAR if n_ > 1 else NEAR).mix)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("V", SIZES)
def test_times_of_collectives(group: tuple[int, int], V: float) -> None:
    net, (g, n_) = links(), group
    start = launch(n_)
    at = tuple(map(float, group))
    for kind, plain in (
        ("all_reduce", start + all_reduce(g, n_, V)),
        ("all_gather", start + gather(g, n_, V)),
        ("reduce_scatter", start + gather(g, n_, V)),
        ("broadcast", start + broadcast(g, n_, V)),
        ("reduce", start + broadcast(g, n_, V)),
        ("all_to_all", all_to_all(g, n_, V)),
    ):
        found = net.load(kind, V, at)
        assert found.seconds == pytest.approx(plain, rel=1e-9), kind


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("V", SIZES)
def test_what_the_tuner_believes_of_rings(
    group: tuple[int, int], V: float, rounds: int
) -> None:
    on = over(links(), tuple(map(float, group)))
    for believed, protocol in zip(
        nccl_choice._ring(on, V, rounds), HOPS, strict=True
    ):
        plain = ring_believed(*group, V, rounds, protocol)
        assert believed == pytest.approx(plain)


def choices() -> set[tuple[bool, ...]]:
    found = set()
    for group, V in itertools.product(GROUPS, SIZES):
        net = links()
        on = over(net, tuple(map(float, group)))
        nvls = group[1] == 1
        took = nccl_choice.all_reduce(on, V, nvls)
        # which of LL128 and Simple is quicker says nothing where a ring or a tree takes LL
        took = took._replace(
            ll128=took.ll128 & ~np.bool_(took.ll),
            tree_ll128=took.tree_ll128 & ~np.bool_(took.tree_ll),
        )
        found.add(tuple(map(bool, took)))
    return found


def test_every_choice_is_among_them() -> None:
    """Rings and trees by LL, LL128 and Simple, and the switch: so that the times above are of
    each.
    """
    took = [nccl_choice.TunerChoice(*one) for one in choices()]
    for field in nccl_choice.TunerChoice._fields:
        assert {getattr(one, field) for one in took} == {True, False}
    for field in ("tree_ll", "tree_ll128"):
        assert {getattr(one, field) for one in took if one.tree} == {
            True,
            False,
        }


@pytest.mark.parametrize("V", [64.0 * 1.5 * 2**i for i in range(25)])
def test_corrections_of_trees(V: float) -> None:
    """Each step of the tables, on sixteen nodes."""
    on = over(links(), (8.0, 16.0))
    for believed, protocol in zip(nccl_choice._tree(on, V), HOPS, strict=True):
        assert believed == pytest.approx(tree_believed(8, 16, V, protocol))


@pytest.mark.parametrize("group", [(1, 1), (8, 1), (1, 4), (4, 3)])
def test_links_are_busy_for_what_passes_them(group: tuple[int, int]) -> None:
    """A ring's all-gather: (n-1)/n of each node's vector, shared by its ranks; a broadcast all of
    it; nothing in a dimension that the group does not span."""
    net, (g, n_), V = links(), group, 6e8
    n = g * n_
    for kind, part in (("all_gather", (n - 1) / n), ("broadcast", 1.0)):
        found = net.load(kind, V, tuple(map(float, group)))
        near = part * V / RATE_NEAR if g > 1 else 0.0
        far = part * V / g / RATE_FAR if n_ > 1 else 0.0
        assert found.busy == pytest.approx((near, far))
    found = net.load("all_to_all", V, tuple(map(float, group)))
    near, far = V * (g - 1) / n / RATE_NEAR, V * g * (n_ - 1) / n / RATE_FAR
    assert found.busy == pytest.approx((near, far))


@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 5), (8, 8), (16, 8)])
def test_the_switch_gains_up_to_eight_members(n: int, m: int) -> None:
    """All a rank has goes up, and its part of the sum comes down."""
    net = links(dims=(replace(DIMS[0], size=72),))
    way = nccl.nvls_load(net, over(net, (float(n),)).span)
    share = (n - 1) / n * (m + 1) / (m - 1)
    assert way.slow == pytest.approx(share / RATE_NEAR / NEAR.sharp)
    assert (way.wait, way.mix) == (NEAR.sharp_wait, NEAR.sharp_mix)


def test_the_switch_is_taken_only_where_it_is_quicker_than_a_ring() -> None:
    """At 0.3 of the rate a ring in the same node carries more, whatever the tuner believes."""
    group, V = (8.0, 1.0), 5e9
    slow = links(replace(NEAR, sharp=0.3))
    took = slow.load("all_reduce", V, group).seconds
    assert took == pytest.approx(launch(1) + ring(8, 1, V, 2, "Simple"))
    found = links().load("all_reduce", V, group)
    assert found.seconds == pytest.approx(launch(1) + sharp(8, V))
    # a rank's vector goes up, and its part of the sum comes down
    assert found.busy == pytest.approx((9 / 8 * V / RATE_NEAR, 0.0))
    deaf = links(dims=(replace(DIMS[0], reduces=False), DIMS[1]))
    assert deaf.load("all_reduce", V, group).seconds == pytest.approx(took)
    assert not nccl.adds_up(deaf) and nccl.adds_up(links())
    assert not nccl.adds_up(links(replace(NEAR, sharp=0.0)))


# Bounds: no group of as many ranks, wherever they lie, is quicker.


def test_floors_of_one_switch_are_the_quickest_way() -> None:
    """Of rings by Simple and LL (with the smaller mix of near and far) and the switch."""
    net, V = links(), 5e9
    start = launch(1)
    part = 7 / 8 * 9 / 7 * V / RATE_NEAR / NEAR.sharp
    assert net.bound.load("all_reduce", V, (8.0, 1.0)).seconds == (
        pytest.approx(start + mixed(NEAR.sharp_wait, part, NEAR.sharp_mix))
    )
    few = net.bound.load("all_gather", 100.0, (8.0, 1.0)).seconds
    b = 100.0 * (7 + NEAR.copied) / 8 / RATE_NEAR / NEAR.ll
    assert few == pytest.approx(start + mixed(7 * NEAR.hop_ll, b, NEAR.mix_ll))
    b = V * (7 + NEAR.copied) / 8 / RATE_NEAR
    assert net.bound.load("all_gather", V, (8.0, 1.0)).seconds == (
        pytest.approx(start + mixed(7 * NEAR.hop, b, NEAR.mix))
    )


def test_a_floor_counts_ll128_where_it_is_on() -> None:
    """Where steps by Simple take long nothing in a node is quicker; between nodes by a transport that
    has a share for it."""
    V, slow = 7e6, replace(NEAR, hop=6e-6)
    net, off = links(slow), links(replace(slow, ll128=0.0))
    node, two = (8.0, 1.0), (8.0, 2.0)
    inside = net.bound.load("all_gather", V, node).seconds
    wait, b = 7 * NEAR.hop_ll128, V * (7 + NEAR.copied) / 8
    b /= RATE_NEAR * NEAR.ll128
    assert inside == pytest.approx(launch(1) + mixed(wait, b, NEAR.mix))
    assert inside < off.bound.load("all_gather", V, node).seconds
    without = with_far(slow, ll128=0.0).bound.load("all_gather", V, two)
    assert without.seconds == off.bound.load("all_gather", V, two).seconds
    between = net.bound.load("all_gather", V, two).seconds
    assert between < without.seconds


def test_there_are_no_trees_in_a_node() -> None:
    """Eight ranks of a node whose switch adds up nothing: whatever is chosen takes 14 hops."""
    slow = Transport("slow", inside=True, hop=9e-6, hop_ll=8e-6, ll=0.5)
    net = links(slow, (replace(DIMS[0], reduces=False),))
    for sent in (1.0, 1e5):
        least = net.bound.load("all_reduce", sent, (8.0,)).seconds
        assert least >= 14 * 8e-6
        assert least <= net.load("all_reduce", sent, (8.0,)).seconds


def test_a_floor_has_no_part_that_bytes_do_not_pay() -> None:
    net = links(dims=DIMS[:1])
    floor = net.bound.load("all_gather", 1e6, (4.0,))
    assert floor.seconds > 0.0 and floor.latency == 0.0
    assert net.bound.load("all_gather", 0.0, (4.0,)).seconds == 0.0


@pytest.mark.parametrize("V", SIZES)
@pytest.mark.parametrize("g", [2, 5, 8])
def test_a_node_alone_sends_as_one_of_many(g: int, V: float) -> None:
    alone, one = links(dims=DIMS[:1]), links()
    for kind in ("all_reduce", "all_gather"):
        took = alone.load(kind, V, (float(g),))
        assert took.seconds == one.load(kind, V, (float(g), 1.0)).seconds


def test_ll128_is_for_nvlink_and_cards_beside_it() -> None:
    """Off where the transport has no share for it: PCIe, and cards that share no switch with the
    GPUs (Slingshot, Omni-Path)."""
    V, two = 7e6, (8.0, 2.0)
    off = links(replace(NEAR, ll128=0.0))
    took = off.load("all_gather", V, (8.0, 1.0)).seconds
    assert took == pytest.approx(launch(1) + ring(8, 1, V, 1, "Simple"))
    on = links().load("all_gather", V, (8.0, 1.0)).seconds
    assert on == pytest.approx(launch(1) + ring(8, 1, V, 1, "LL128"))
    both = links().load("all_gather", V, two).seconds
    assert both == pytest.approx(launch(2) + ring(8, 2, V, 1, "LL128"))
    simple = pytest.approx(launch(2) + ring(8, 2, V, 1, "Simple"))
    assert off.load("all_gather", V, two).seconds == simple
    apart = with_far(ll128=0.0)
    assert apart.load("all_gather", V, two).seconds == simple
    assert apart.load("all_reduce", 2e6, two).seconds == (
        off.load("all_reduce", 2e6, two).seconds
    )


@pytest.mark.parametrize(
    ("limit", "shared", "rate"),
    [(None, 1, 36e9), (30e9, 1, 30e9), (30e9, 2, 15e9), (60e9, 1, 36e9)],
)
def test_a_card_limits_ll128(
    limit: float | None, shared: int, rate: float
) -> None:
    """To what a channel sends, whatever the links carry; half of it where two GPUs share a card, as
    two of 20 GB/s each."""
    net = links(
        replace(NEAR, channel_ll128=limit),
        (DIMS[0], replace(DIMS[1], bandwidth=shared * 40e9, shared_by=shared)),
    )
    for g in (8.0, 4.0):
        slow = nccl.leaving_ll128(net, over(net, (g, 2.0)).span)
        assert slow * g * rate == pytest.approx(1.0)
    assert nccl.leaving_ll128(net, over(net, (1.0, 2.0)).span) * min(
        FAR.alone * 36e9, rate
    ) == pytest.approx(1.0)


def test_releases_to_2_11_count_shorter_steps() -> None:
    """9.6 us over the network by Simple, and no part of the host."""
    old = replace(links(), how=replace(links().how, send_channels="one"))
    at = over(old, (8.0, 4.0)).span
    waits = nccl_choice._ring_waits(old, at, 1.0)
    assert waits.simple == pytest.approx(8.4e-6 + 28 * 3.4e-6 + 3 * 9.6e-6)
    assert waits.ll == pytest.approx(6.6e-6 + 28 * 0.6e-6 + 3 * 2.7e-6)
    assert waits.ll128 == pytest.approx(14e-6 + 28 * 1.9e-6 + 3 * 4e-6)


def test_a_step_of_ll128_takes_the_host_at_least() -> None:
    slow = links(replace(NEAR, believed_step=5e-6))
    waits = nccl_choice._ring_waits(slow, over(slow, (8.0, 4.0)).span, 1.0)
    assert waits.ll128 == pytest.approx(14e-6 + 28 * 5e-6 + 3 * 4e-6)


@pytest.mark.parametrize(
    "law",
    [
        (nccl_choice.tuner_seconds,),
        (nccl_choice.ll128_seconds, False),
        (nccl_choice.ll128_seconds, True),
    ],
)
def test_two_gpus_of_a_card_share_what_the_tuner_takes_it_for(
    law: tuple[Callable[..., float], *tuple[bool, ...]],
) -> None:
    each, half = (
        over(net, (1.0, 4.0)).once(*law)
        for net in (
            links(),
            links(dims=(DIMS[0], replace(DIMS[1], shared_by=2))),
        )
    )
    assert half == pytest.approx(2 * each)


def test_a_tree_of_lone_ranks_has_a_part_of_their_cards() -> None:
    """By Simple, up and down."""
    net = links()
    *_, simple = nccl.trees(net, over(net, (1.0, 4.0)).span)
    rate = FAR.climb_rate * FAR.alone * RATE_FAR
    assert simple[1] == pytest.approx(2 / rate)


def with_far(near: Transport = NEAR, **fields: float) -> Fabric:
    far = replace(FAR, **fields)
    return replace(links(), transports=(near, far))


@pytest.mark.parametrize(
    ("net", "quicker"),
    [
        (links(), True),
        (with_far(hop=1e-6), False),
        (with_far(hop_ll=0.5e-6), False),
        (with_far(hop_ll128=1e-6), False),
        (with_far(hop_ll128=1e-6, ll128=0.0), True),
        (with_far(hop=1.5e-6, hop_ll=0.7e-6), True),
        # a node's rate over 1 + 0.6 of the copies: 187.5 GB/s, by LL 84.4, in exchanges 159
        (links(dims=(DIMS[0], replace(DIMS[1], bandwidth=188e9))), False),
        (links(dims=(DIMS[0], replace(DIMS[1], bandwidth=187e9))), True),
        (with_far(climb_rate_ll=2.2), False),
        (links(dims=(replace(DIMS[0], latency=9e-6), DIMS[1])), False),
    ],
)
def test_where_nearer_groups_are_the_quickest(
    net: Links, quicker: bool
) -> None:
    assert nccl.nearer_is_quicker(net) is quicker
    if not quicker:
        bound = nccl.Nccl().floor(net, "all_gather", 1e9, (8.0, 2.0))
        assert bound == floors.any_links(net, "all_gather", 1e9, (8.0, 2.0))


def test_an_unlimited_protocol() -> None:
    """Without a limit of LL, twice the seconds a byte; a network's card alone by LL too."""
    free = links(replace(NEAR, believed_ll=()))
    waits = nccl_choice._ring_waits(free, over(free, (8.0, 2.0)).span, 1.0)
    assert waits.slow_ll == pytest.approx(2 * byte(8, 2))
    no_limit = with_far(ll_node=None)
    way = nccl.ring_ll(no_limit, over(no_limit, (1.0, 4.0)).span)
    assert way.slow == pytest.approx(3 / 4 / (FAR.ll * RATE_FAR))
    assert inf > way.wait == pytest.approx(3 * FAR.hop_ll)
