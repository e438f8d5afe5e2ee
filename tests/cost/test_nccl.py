"""Collectives as NCCL makes them: laws that hold for any network, numbers by hand, bounds for the
search.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2, prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshwright import catalog, network
from meshwright.cost.in_network import GAIN
from meshwright.cost.load import KINDS
from meshwright.cost.nccl import NVLS_GROWS, Nccl, blend, nearer_is_quicker
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.network import Dim, Network
from meshwright.describe.transport import transport, transports
from meshwright.layout.placement import Nearest
from refusals import refusal

HOW = NetworkTime("nccl")
SWITCHED = [
    name
    for name in catalog.names("networks")
    if len(network(name).dims) > 1
    and all(d.kind in ("switch", "mesh") for d in network(name).dims)
]
FABRICS = {name: Fabric.from_network(network(name), HOW) for name in SWITCHED}
PERLMUTTER, H100 = FABRICS["perlmutter"], FABRICS["dgx-h100"]
BYTES = st.floats(1.0, 1e11)
RANKS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """A network and a group that fits on it."""
    name = draw(st.sampled_from(SWITCHED))
    sizes = [d.size or 512 for d in network(name).dims]
    return name, tuple(
        draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        for n in sizes
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
    b200 = FABRICS["dgx-b200"]
    assert b200.time("all_gather", 2.0**23, (8, 1)) == pytest.approx(
        44e-6, rel=0.1
    )
    assert b200.time("all_gather", 2.0**24, (8, 1)) == pytest.approx(
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
    h200 = FABRICS["dgx-h200"]

    def bus(n: int) -> float:
        return (
            2
            * (n - 1)
            / n
            * 2.0**33
            / h200.time("all_reduce", 2.0**33, (n, 1))
        )

    assert bus(gpus) / bus(4) == pytest.approx(gain, rel=0.06)


@settings(max_examples=300)
@given(groups(), st.sampled_from(KINDS), BYTES)
def test_one_rank_or_nothing_to_send_costs_nothing_and_no_link_is_busy_for_longer(
    where, kind, V
) -> None:
    name, group = where
    load = FABRICS[name].load(kind, V, group)
    assert load.busy.most <= load.seconds * (1 + 1e-12)
    assert load.latency <= load.seconds * (1 + 1e-12)
    assert (load.seconds > 0) == (prod(group) > 1)
    assert FABRICS[name].time(kind, 0.0, group) == 0


@settings(max_examples=200)
@given(
    st.sampled_from(SWITCHED),
    st.sampled_from(KINDS),
    st.lists(st.tuples(BYTES, RANKS, RANKS), min_size=1),
)
def test_arrays_are_scalars(name, kind, rows) -> None:
    fabric = FABRICS[name]
    rest = (1,) * (len(fabric.rates) - 2)
    one_by_one = [fabric.load(kind, V, (g, *rest, n)) for V, g, n in rows]
    V, g, n = (
        np.array(column, dtype=float) for column in zip(*rows, strict=True)
    )
    load = fabric.load(kind, V, (g, *(np.ones(len(rows)) for _ in rest), n))
    assert np.array_equal(load.seconds, [x.seconds for x in one_by_one])
    assert np.array_equal(
        np.broadcast_to(load.latency, len(rows)),
        [x.latency for x in one_by_one],
    )


@settings(max_examples=400)
@given(groups(), groups(), st.sampled_from(KINDS), BYTES)
# by LL128: quicker than LL and than Simple
@example(("dgx-a100", (4, 1)), ("dgx-a100", (4, 1)), "all_reduce", 3e6)
def test_a_floor_holds_for_every_place_and_every_larger_group(
    few, many, kind, V
) -> None:
    """On the machines of the catalogue, where the nearest group is the quickest, and more bytes
    never lower it.
    """
    name = few[0]
    sizes = tuple(d.size or 512 for d in network(name).dims)
    a, b = (
        few[1],
        tuple(
            min(x, y) for x, y in zip((*many[1], 1, 1), sizes, strict=False)
        ),
    )
    if prod(a) > prod(b):
        a, b = b, a
    nearest = Nearest(dp=prod(a), placement={}, sizes=sizes).group("dp")
    bound = FABRICS[name].bound
    floor = bound.load(kind, V, nearest)
    for group in (a, b):
        assert floor.seconds <= FABRICS[name].time(kind, V, group) * (1 + 1e-9)
    assert floor.seconds <= bound.load(kind, 1.3 * V, nearest).seconds * (
        1 + 1e-12
    )


def test_the_machines_of_the_catalogue_have_tight_floors() -> None:
    """Else the search would fall back to what all links of a chip can carry."""
    assert [
        name for name in SWITCHED if not nearer_is_quicker(FABRICS[name].bound)
    ] == []


@settings(max_examples=300)
@given(
    groups(),
    st.sampled_from(KINDS),
    BYTES,
    st.integers(0, 2),
    st.floats(1, 10),
)
@example(("jean-zay-v100", (4, 2)), "all_gather", 1.0, 1, 2.0)
def test_a_faster_link_never_costs_time_with_the_same_choice(
    where, kind, V, i, faster
) -> None:
    name, group = where
    net = network(name)
    dims = tuple(
        replace(d, bandwidth=d.bandwidth * (faster if j == i else 1))
        for j, d in enumerate(net.dims)
    )
    better = Fabric.from_network(
        replace(net, dims=dims), replace(HOW, algorithm=Nccl(seen=net.dims))
    )
    assert better.time(kind, V, group) <= FABRICS[name].time(
        kind, V, group
    ) * (1 + 1e-12)


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
