"""Collectives as NCCL makes them: laws that hold for any network, numbers by hand, bounds for the
search.
"""

from __future__ import annotations

from math import log2

import pytest

from meshwright import network
from meshwright.cost.collectives.nccl import NVLS_GROWS, blend
from meshwright.cost.in_network import GAIN
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.network import Dim, Network
from meshwright.describe.transport import transport, transports
from refusals import refusal

HOW = NetworkTime("nccl")
PERLMUTTER, H200, B200 = (
    Fabric.from_network(network(name), HOW)
    for name in ("perlmutter", "dgx-h200", "dgx-b200")
)


def test_a_tree_by_hand() -> None:
    """64 KiB added up on 32 x 4 A100: LL in a tree of five levels, as measured in 186 us (arXiv
    2410.00273).
    """
    slingshot, mesh = transport("slingshot"), transport("nvlink3-mesh")
    waits = 2 * (3 * mesh.hop_ll + 5 * slingshot.climb_ll)
    moved = 2 * 65536 / (4 * 0.7 * 25e9 * slingshot.climb_rate_ll)
    expected = (
        mesh.launch + slingshot.launch + blend(waits, moved, slingshot.mix_ll)
    )
    assert PERLMUTTER.time("all_reduce", 65536.0, (4, 32)) == pytest.approx(
        expected, rel=1e-12
    )
    assert expected == pytest.approx(186e-6, rel=0.15)


def test_the_tuner_changes_protocol_where_measured() -> None:
    """B200, all-gather of 8: 8 MiB by LL in 44 us, 16 MiB by Simple in 104
    (ai-dynamo/aiconfigurator): no smooth law has both. 512 ranks of Perlmutter: 64 MiB by LL take
    longer than 128 MiB by Simple."""
    assert B200.time("all_gather", 2.0**23, (8, 1)) == pytest.approx(
        44e-6, rel=0.1
    )
    assert B200.time("all_gather", 2.0**24, (8, 1)) == pytest.approx(
        104e-6, rel=0.1
    )
    assert PERLMUTTER.time("all_gather", 2.0**26, (4, 128)) > PERLMUTTER.time(
        "all_gather", 2.0**27, (4, 128)
    )


@pytest.mark.parametrize(
    ("gpus", "gain"), [(4, 1.0), (5, 1.14), (6, 1.19), (7, 1.26), (8, 1.29)]
)
def test_the_switch_gains_with_the_gpus_that_take_part(
    gpus: int, gain: float
) -> None:
    """H200, 8 GiB, over the ring of 4 (stas00/ml-engineering, network/README.md)."""

    def bus(n: int) -> float:
        return (
            2
            * (n - 1)
            / n
            * 2.0**33
            / H200.time("all_reduce", 2.0**33, (n, 1))
        )

    assert bus(gpus) / bus(4) == pytest.approx(gain, rel=0.06)


def test_the_gain_of_no_switch_is_above_what_floors_assume() -> None:
    """V (n-1)/n (m+1)/(m-1) at `sharp` of the rate, twice as much for a ring."""
    most = 2 * (NVLS_GROWS - 1) / (NVLS_GROWS + 1)
    assert all(t.sharp * most <= GAIN for t in transports().values())


def test_a_kind_of_link_that_nobody_knows_is_refused() -> None:
    with refusal("transport 'infinband'.*infiniband"):
        Fabric.from_network(
            Network("n", (Dim("a", 1e9, 0.0, transport="infinband"),)), HOW
        ).time("all_gather", 1e6, (2,))


def test_every_kind_of_link_says_where_its_numbers_are_from() -> None:
    for t in transports().values():
        assert t.sources["*"]["source"] and t.sources["*"]["date"]
        assert not t.like or t.like in transports()
        assert 0 < t.believed <= 1 and 0 < t.ll <= 0.5 + 1e-9
    assert log2(NVLS_GROWS) == 3
