"""Nodes filled in part whose chips share an adapter: what it gives to those that run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshwright import Job, catalog, predict
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.layout import AXES
from meshwright.layout.placement import (
    launcher_shares,
    node_ranks,
    rank_shares,
)
from meshwright.num import divisors, product

ETHERNET = catalog.network("ethernet-100g")
"""Nodes of 8 with one adapter of 100 Gbit/s."""
ADAPTER = ETHERNET.dims[1].rate() * 8
RINGS = NetworkTime(collective="ring")
SHARED = sorted(
    name
    for name in catalog.names("networks")
    if any(d.shared_by > 1 for d in catalog.network(name).dims)
)


def degrees(ranks: int) -> Iterator[tuple[int, int, int, int]]:
    """Of tp, cp, dp and pp, whose product is the number of ranks."""
    for tp in divisors(ranks):
        for cp in divisors(ranks // tp):
            for dp in divisors(ranks // tp // cp):
                yield tp, cp, dp, ranks // tp // cp // dp


def crossing(ranks: int, node: int, stride: int, group: int) -> int:
    """Groups of an axis of ranks numbered in a row, on nodes filled one after the other, that share
    an adapter: the most that one node has together with others.
    """
    crossed = [0] * -(-ranks // node)
    for first in range(ranks):
        if first // stride % group == 0:
            members = {(first + i * stride) // node for i in range(group)}
            for place in members if len(members) > 1 else ():
                crossed[place] += 1
    return max(crossed)


def sending(ranks: int, node: int, stride: int) -> int:
    """The most ranks of a node whose next stage is in another."""
    places = [
        r // node
        for r in range(ranks - stride)
        if r // node != (r + stride) // node
    ]
    return max(map(places.count, places), default=0)


@pytest.mark.parametrize("node", [4, 6, 8])
def test_no_group_gets_more_of_an_adapter_than_its_launcher_leaves_it(
    node: int,
) -> None:
    """Ranks one by one, nodes filled one after the other (8, 8, 4), all degrees: a ring of g ranks
    in a node gets g/k of its adapter, never more than one over the rings that cross there, and
    exactly that where no other axis leaves the nodes; nor does a message to the next stage.
    """
    exact = 0
    for ranks in range(node + 1, 6 * node):
        nodes = -(-ranks // node)
        sizes = (node, nodes)
        for row in degrees(ranks):
            each = dict(zip(AXES, map(float, row), strict=True))
            shares = launcher_shares(each, sizes)
            here = [shares[axis][0] for axis in AXES]
            if shares == rank_shares(each, sizes):
                continue  # as many ranks in each node, or blocks of them
            k = min(node_ranks(shares.values(), 1), node)
            leaving, stride = [shares[a][1] > 1 for a in AXES], 1
            for g, group, beyond in zip(here, row, leaving, strict=True):
                if rings := crossing(ranks, node, stride, group):
                    assert g / k <= 1 / rings + 1e-9, (ranks, row)
                if beyond and sum(leaving) == 1:
                    assert g / k == pytest.approx(1 / rings), (ranks, row)
                    exact += 1
                stride *= group
            assert k >= sending(ranks, node, ranks // row[-1]), (ranks, row)
    assert exact


@pytest.mark.parametrize("name", SHARED)
def test_full_nodes_answer_as_ever(name: str) -> None:
    """All chips of a node run: the network itself; one of them has an adapter alone."""
    net = catalog.network(name)
    fabric = Fabric.from_network(net, RINGS)
    inside = [dim.size or 1 for dim in net.dims[:-1]]
    for nodes in (2, 3, 5, 12):
        for row in degrees(product(inside) * nodes):
            each = dict(zip(AXES, map(float, row), strict=True))
            shares = launcher_shares(each, (*inside, nodes))
            assert fabric.under(*shares.values()) is fabric
    alone = fabric.under((*(1.0 for _ in inside), 3.0))
    for one, rate, dim in zip(
        alone.rates, fabric.rates, net.dims, strict=True
    ):
        assert one == pytest.approx(rate * dim.shared_by)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_so_many_of_a_node_take_as_many_parts_of_its_adapter(
    ranks: int,
) -> None:
    """k of 8 on one of 100 Gbit/s have 1/k of it each, and together all of it."""
    fabric = Fabric.from_network(ETHERNET, RINGS).under((float(ranks), 5.0))
    assert fabric.rates[1] == pytest.approx(ADAPTER / ranks)
    assert fabric.rates[0] == ETHERNET.dims[0].rate()
    n, sent = 5.0 * ranks, 1e15
    seconds = fabric.time("all_gather", sent, (float(ranks), 5.0))
    assert seconds == pytest.approx(sent * (n - 1) / n / ADAPTER, rel=1e-6)


@pytest.mark.parametrize("zero", [1, 3])
def test_more_chips_on_as_many_adapters_gather_no_faster(zero: int) -> None:
    """13 chips, as all numbers from 9 on: (n - 1)/n of the weights leave each node by one adapter.
    20 took 8.3 s for what 24 take 3.1, and 15 took 43.
    """

    def sync(chips: int) -> float:
        on = catalog.cluster(f"{chips}xa100-80", ETHERNET)
        p = predict(Job("llama3-8b", on, 2 * chips), zero=zero)
        return p.time_s["dp_comm"] + p.time_s["overlap_slowdown"]

    full = sync(24)
    for chips in (20, 18, 15, 13, 12, 9):
        assert sync(chips) == pytest.approx(full, rel=0.15), chips
