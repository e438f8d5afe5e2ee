"""Corners of costs by hand: nothing to send, one dimension only, kernels that were measured."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from math import ceil, log2
from types import SimpleNamespace
from typing import Any

import pytest

from by_hand import CHIP
from meshwright.cost import chip, fit, host, measured, offload, shapes
from meshwright.cost.free import Free
from meshwright.cost.network import Fabric
from meshwright.count.work import Message, Op, Pass, Product
from meshwright.describe.assumptions import ChipTime, NetworkTime
from meshwright.describe.kernels import kernels
from meshwright.describe.measured import MeasuredTable
from meshwright.describe.network import Dim, Network
from meshwright.describe.transport import Transport

A0, W0 = 1e-6, 300e9


def one_switch(option: str, **tables: MeasuredTable) -> Fabric:
    dim = Dim("node", W0, A0, 8, efficiency=1.0, collectives=tables)
    return Fabric.of(Network("n", (dim,)), NetworkTime(option))


def test_nothing_is_sent_in_no_time() -> None:
    """By free links, and at least where nothing is known but a table."""
    net = one_switch("free")
    for load in (
        Free().load(net, "all_reduce", 0.0, (4.0,)),
        Free().hop(net, 0.0, (4.0,)),
        Free().floor(net, "all_reduce", 5.0, (4.0,)),
        Free().hop_floor(net, 5.0, (4.0,)),
    ):
        assert load[:2] == (0.0, 0.0)
    table = MeasuredTable(
        ("ranks", "bytes"), ((2.0, 8.0), (0.0, 1e12)), (3.0,) * 4
    )
    known = one_switch("measured", all_gather=table, send=table).bound
    for sent in (0.0, 1e9):
        assert known.load("all_gather", sent, (4.0,)).seconds == 0.0
        assert known.hop(sent, (4.0,)).seconds == 0.0


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_least_of_one_switch_is_the_best_way_on_it(ranks: int) -> None:
    """A tree without its chain, which a nearer group would have longer: nothing to wait for."""
    net = one_switch("best")
    sent = 1e6
    found = net.bound.load("all_reduce", sent, (float(ranks),))
    ring = 2 * (ranks - 1) * (sent / ranks / W0 + A0)
    assert found.seconds == pytest.approx(min(ring, 2 * sent / W0))
    assert found.seconds <= net.load("all_reduce", sent, (float(ranks),)).seconds  # fmt: skip


def test_bytes_of_measured_kernels_were_moved_while_they_were_measured() -> (
    None
):
    """So were those of passes fused into them, where any was measured; of others they count."""
    of = chip.rates(CHIP, "bf16", ChipTime(memory_efficiency=1.0))
    table = MeasuredTable(("elements",), ((1.0, 2.0),), (1.0, 1.0))
    known = of._replace(kernels={"norm": table}, memory=5.0)
    plain = of._replace(memory=5.0)

    def shows(kernel: str, r: chip.ChipRates) -> float:
        return float(chip.exposed_memory(Pass(memory=20.0, kernel=kernel), 1.0, r))  # fmt: skip

    assert shows("norm", known) == shows("fused", known) == 0.0
    assert shows("other", known) == shows("", known) == 3.0
    assert shows("norm", plain) == shows("fused", plain) == 3.0


def test_what_is_usual_of_a_message_and_an_operation() -> None:
    """A message goes to one place, an operation is one product, not panels of one."""
    assert Message("all_gather", "tp", 8.0).copies == 1
    op = Op("x", "vector", Pass(), Pass())
    assert op.panels == 0.0 and op.saved == op.weights == op.scratch == 0.0


@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
def test_levels_of_a_tree(nodes: int) -> None:
    """Two more nodes, one more level."""
    dims = Dim("node", 1e12, 0.0, 8, efficiency=1.0), Dim("net", 1e12, 5e-6, efficiency=1.0)  # fmt: skip
    net = Fabric.of(Network("n", dims), NetworkTime("best"))
    climb = 2 * ceil(log2(nodes)) * 5e-6
    ring = 2 * (nodes - 1) * 5e-6
    found = net.load("all_reduce", 1.0, (1.0, float(nodes)))
    assert found.latency == pytest.approx(min(climb, ring))


def test_there_are_no_trees_in_a_node() -> None:
    """Eight ranks of a node whose switch adds up nothing: whatever is chosen takes 14 hops."""
    slow = Transport("slow", inside=True, hop=9e-6, hop_ll=8e-6, ll=0.5)
    dim = Dim("node", W0, A0, 8, efficiency=1.0)
    net = Fabric.of(Network("n", (dim,)), NetworkTime("nccl"))
    net = replace(net, transports=(slow,))
    for sent in (1.0, 1e5):
        least = net.bound.load("all_reduce", sent, (8.0,)).seconds
        assert least >= 14 * 8e-6
        assert least <= net.load("all_reduce", sent, (8.0,)).seconds


@pytest.mark.parametrize(
    ("kernel", "moves"), [("fused-softmax", 1), ("torch", 2), ("cudnn", 1)]
)
def test_attention_with_its_scores_in_memory_is_three_kernels(
    kernel: str, moves: int
) -> None:
    """Scores, softmax, product with the values: each is launched once; plain torch moves the scores
    a second time. 8 FLOPs of 1 FLOP/s at the share of products with scores, 6 B of 2 B/s."""
    of = replace(kernels("a100"), launch_s=0.25)
    rates: Any = SimpleNamespace(
        of=of,
        how=SimpleNamespace(stack=SimpleNamespace(kernel=kernel)),
        peak16=1.0,
        memory=2.0,
    )
    work = Pass(8.0, 0.0, 6.0, engine="wide", sizes=(1.0, 1.0, 1.0, 128.0))
    computes, moved = shapes._attention(work, rates)
    assert computes == pytest.approx(8.0 / of.scores + 3 * 0.25)
    assert moved == moves * 3.0


def test_nothing_goes_round_a_ring_in_no_time() -> None:
    """Of one rank or without bytes no step is taken, so none is waited for; of four, three are."""
    dim = Dim("node", W0, A0, 8)
    net = Fabric.of(Network("n", (dim,)), NetworkTime("ring", efficiency=1.0))
    for volume, ranks in ((0.0, 4), (W0, 1)):
        none = net.load("ring", volume, (ranks,))
        assert (none.seconds, none.latency) == (0.0, 0.0)
    found = net.load("ring", W0, (4,))
    assert found.latency == pytest.approx(3 * A0)
    assert found.seconds == pytest.approx(3 / 4 + 3 * A0)


def test_what_is_counted_at_best_does_not_change() -> None:
    """It is part of what caches know a network by."""
    net = one_switch("ring").bound
    with pytest.raises(FrozenInstanceError):
        net.algorithm.of = None  # type: ignore[misc, attr-defined]


def test_a_floor_has_no_part_that_bytes_do_not_pay() -> None:
    net = one_switch("nccl")
    floor = net.bound.load("all_gather", 1e6, (4.0,))
    assert floor.seconds > 0.0 and floor.latency == 0.0
    assert net.bound.load("all_gather", 0.0, (4.0,)).seconds == 0.0


def test_products_without_levels_take_their_arithmetic_or_their_bytes() -> (
    None
):
    """Two products of 4 FLOPs in 2 FLOP/s and 6 bytes in 1 B/s, launched in 1 s each."""
    r = chip.ChipRates(2.0, 1.0, 1.0, 1.0, 1.0, (1.0, 1.0))
    work = Pass(4.0, 0.0, 6.0, products=(Product(1.0, 2.0, 1.0, 1.0),))
    assert chip.pass_time([work, work], r) == 2 * 6.0


def test_copies_to_the_host_reach_a_share_of_the_link() -> None:
    link = replace(CHIP, host_bandwidth=10.0, host_reached=0.5)
    assert offload.copy_seconds(link, 20.0) == 4.0


def test_no_seconds_of_the_host_show() -> None:
    assert host.host_excess(3.0, 0.0) == 0.0


def test_sizes_outside_what_was_measured() -> None:
    table = MeasuredTable(("bytes",), ((1.0, 10.0, 100.0),), (1.0, 2.0, 3.0))
    for size, outside in ((1.0, False), (50.0, False), (100.0, False), (200.0, True), (0.1, True)):  # fmt: skip
        assert bool(measured.axes_outside(table, (size,))) is outside, size


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
