"""Corners of costs by hand: nothing to send, one dimension only, kernels that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import CHIP
from meshwright import Dim, Network
from meshwright.cost import chip, fit, offload
from meshwright.cost.network import Fabric
from meshwright.count.work import Pass
from meshwright.describe.assumptions import ChipTime, NetworkTime
from meshwright.describe.measured import MeasuredTable
from meshwright.describe.transport import Transport

A0, W0 = 1e-6, 300e9


def one_switch(option: str, **tables: MeasuredTable) -> Fabric:
    dim = Dim("node", W0, A0, 8, efficiency=1.0, collectives=tables)
    return Fabric.from_network(Network("n", (dim,)), NetworkTime(option))


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


def test_there_are_no_trees_in_a_node() -> None:
    """Eight ranks of a node whose switch adds up nothing: whatever is chosen takes 14 hops."""
    slow = Transport("slow", inside=True, hop=9e-6, hop_ll=8e-6, ll=0.5)
    dim = Dim("node", W0, A0, 8, efficiency=1.0)
    net = Fabric.from_network(Network("n", (dim,)), NetworkTime("nccl"))
    net = replace(net, transports=(slow,))
    for sent in (1.0, 1e5):
        least = net.bound.load("all_reduce", sent, (8.0,)).seconds
        assert least >= 14 * 8e-6
        assert least <= net.load("all_reduce", sent, (8.0,)).seconds


def test_a_floor_has_no_part_that_bytes_do_not_pay() -> None:
    net = one_switch("nccl")
    floor = net.bound.load("all_gather", 1e6, (4.0,))
    assert floor.seconds > 0.0 and floor.latency == 0.0
    assert net.bound.load("all_gather", 0.0, (4.0,)).seconds == 0.0


def test_copies_to_the_host_reach_a_share_of_the_link() -> None:
    link = replace(CHIP, host_bandwidth=10.0, host_reached=0.5)
    assert offload.copy_seconds(link, 20.0) == 4.0


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
