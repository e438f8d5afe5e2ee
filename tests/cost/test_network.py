"""Collectives over the dimensions of a network: the table of Subramanian et al. 2024, and laws that
hold for any network.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import assumptions, network
from meshwright.cost.load import KINDS as COLLECTIVES
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.network import Dim, Network
from meshwright_studies.reproduce.lbl.defects import LBL_CODE

FAST, SLOW = 0.7 * 900e9, 0.7 * 100e9
"""B200: bytes a second that NVLink and InfiniBand reach, one way."""
NEAR, FAR = 2.5e-6, 5e-6
"""Latency of a hop inside and between domains."""
LBL, CODE = (
    Fabric.from_network(network("lbl-b200-nvs64"), how.network)
    for how in (assumptions("lbl-2024"), LBL_CODE)
)
GROUPS = [
    (1, 1),
    (8, 1),
    (64, 1),
    (1, 8),
    (1, 512),
    (8, 16),
    (2, 3),
    (64, 4),
    (4, 128),
]
VOLUMES = (0.0, 3e3, 1e6, 105e6, 8e9)


def table(kind: str, V: float, near: int, far: int) -> float:
    """Seconds as the paper's code has them, row by row: `near` ranks in a domain, `far` domains."""
    p = near * far
    share = 1.0 if kind in ("broadcast", "reduce") else (p - 1) / p
    if V == 0 or p == 1:
        return 0.0
    if near == 1:
        return FAR * (p - 1) + share * V / SLOW
    if far == 1:
        return NEAR * (p - 1) + share * V / FAST
    twice = 2 if kind == "all_reduce" else 1
    return (
        twice * max(share * V / (near * SLOW), share * V / FAST)
        + FAR * (far - 1)
        + NEAR * (p - far)
    )


@pytest.mark.parametrize(
    "kind",
    ["all_gather", "reduce_scatter", "broadcast", "reduce", "all_reduce"],
)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("V", VOLUMES)
def test_every_row_of_the_code_s_table(
    kind: str, group: tuple[int, int], V: float
) -> None:
    assert CODE.time(kind, V, group) == pytest.approx(
        table(kind, V, *group), rel=1e-12
    )
    if kind != "all_reduce":
        assert LBL.time(kind, V, group) == CODE.time(kind, V, group)


@pytest.mark.parametrize("group", GROUPS)
def test_repaired_all_reduce_is_always_both_halves(
    group: tuple[int, int],
) -> None:
    assert LBL.time("all_reduce", 1e8, group) == pytest.approx(
        2 * table("all_gather", 1e8, *group), rel=1e-12
    )


@pytest.mark.parametrize(
    ("near", "stages"), [(1, 1), (1, 16), (4, 4), (4, 16), (8, 64), (2, 6)]
)
def test_pipeline_hop(near: int, stages: int) -> None:
    """The mean over the p - 1 links, of which p / near - 1 leave the domain; the code takes those
    as free unless all do.
    """
    V, group = 13e6, (near, stages // near)
    slow = stages // near - 1
    fast, far = NEAR + V / FAST, FAR + V / SLOW
    links = max(stages - 1, 1)
    assert LBL.how.hop == "mean"
    assert LBL.load("send", V, group).seconds == pytest.approx(
        ((links - slow) * fast + slow * far if stages > 1 else 0) / links
    )
    code = (
        0.0
        if stages == 1
        else far
        if near == 1
        else (links - slow) * fast / links
    )
    assert CODE.load("send", V, group).seconds == pytest.approx(code)
    worst = Fabric.from_network(
        network("lbl-b200-nvs64"), replace(LBL.how, hop="slowest")
    )
    assert worst.load("send", V, group).seconds == pytest.approx(
        0 if stages == 1 else far if slow else fast
    )


RATE, WAIT, RANKS = (
    st.floats(1e9, 2e12),
    st.floats(0, 1e-4),
    st.sampled_from([1, 2, 3, 4, 8, 16, 72]),
)
KIND = st.sampled_from(sorted(COLLECTIVES))
HOW = st.sampled_from([NetworkTime("ring"), NetworkTime("best")])
THREE = st.tuples(RATE, RATE, RATE), st.tuples(WAIT, WAIT, WAIT)
GROUP = st.tuples(RANKS, RANKS, RANKS)
BYTES = st.floats(1, 1e12)


def fabric(
    rates: tuple[float, ...], waits: tuple[float, ...], how: NetworkTime
) -> Fabric:
    return Fabric(rates, waits, (False,) * len(rates), how)


@given(*THREE, HOW, KIND, BYTES, GROUP, st.integers(0, 2), st.floats(1, 100))
def test_a_faster_link_or_a_shorter_wait_never_costs_time(
    rates, waits, how, kind, V, group, i, k
) -> None:
    before = fabric(rates, waits, how).time(kind, V, group)
    faster = tuple(r * k if j == i else r for j, r in enumerate(rates))
    sooner = tuple(w / k if j == i else w for j, w in enumerate(waits))
    assert fabric(faster, waits, how).time(kind, V, group) <= before * (
        1 + 1e-12
    )
    assert fabric(rates, sooner, how).time(kind, V, group) <= before * (
        1 + 1e-12
    )


@given(*THREE, HOW, KIND, BYTES, GROUP, st.floats(1, 100))
def test_more_bytes_never_take_less(
    rates, waits, how, kind, V, group, k
) -> None:
    net = fabric(rates, waits, how)
    assert net.time(kind, V, group) <= net.time(kind, V * k, group) * (
        1 + 1e-12
    )


@given(*THREE, BYTES, GROUP)
def test_ring_all_reduce_is_reduce_scatter_and_all_gather(
    rates, waits, V, group
) -> None:
    net = fabric(rates, waits, NetworkTime("ring"))
    both = net.time("reduce_scatter", V, group) + net.time(
        "all_gather", V, group
    )
    assert net.time("all_reduce", V, group) == pytest.approx(both)
    best = fabric(rates, waits, NetworkTime("best"))
    assert best.time("all_reduce", V, group) <= both * (1 + 1e-12)


@given(*THREE, HOW, KIND, BYTES)
def test_one_rank_or_no_bytes_cost_nothing(rates, waits, how, kind, V) -> None:
    net = fabric(rates, waits, how)
    assert net.time(kind, V, (1, 1, 1)) == 0
    assert net.time(kind, 0.0, (4, 2, 2)) == 0


@given(RATE, WAIT, KIND, BYTES, st.sampled_from([2, 4, 8, 64]))
def test_dimensions_that_are_alike_are_one(rate, wait, kind, V, n) -> None:
    """n ranks side by side in one dimension cost the same wherever that dimension stands."""
    net = fabric((rate,) * 3, (wait,) * 3, NetworkTime("ring"))
    times = [
        net.time(kind, V, tuple(n if j == i else 1 for j in range(3)))
        for i in range(3)
    ]
    assert times == pytest.approx([times[0]] * 3)


@given(
    *THREE,
    HOW,
    KIND,
    st.lists(st.tuples(BYTES, GROUP), min_size=1, max_size=20),
)
def test_arrays_are_scalars(rates, waits, how, kind, rows) -> None:
    net = fabric(rates, waits, how)
    V, groups = (
        np.array([v for v, _ in rows]),
        tuple(
            np.array([g[i] for _, g in rows], dtype=float) for i in range(3)
        ),
    )
    one_by_one = [net.time(kind, v, g) for v, g in rows]
    assert np.array_equal(net.time(kind, V, groups), one_by_one)
    hops = [net.load("send", v, g).seconds for v, g in rows]
    assert np.array_equal(net.load("send", V, groups).seconds, hops)
    assert all(t >= 0 for t in one_by_one) and all(
        (t > 0) == (prod(g) > 1) for t, (_, g) in zip(hops, rows, strict=True)
    )


NVLINK, BEYOND = 360e9, 50e9
"""Bytes a second and way: NVLink of an H100 as NCCL reaches it, and a 400 Gbit/s interface."""
SHARP = Fabric(
    (NVLINK, BEYOND),
    (1e-6, 5e-6),
    (True, False),
    NetworkTime(collective="best"),
)
"""A switch of 8 that adds up, and a network beyond it that does not."""


def test_a_switch_that_adds_up() -> None:
    """8 H100, 1 GB: 2 x 7/8 x 1e9 / 360e9 s of a ring over 480/370 (NCCL issue 1455) = 3.747106 ms,
    and a hop up and down.
    """
    assert SHARP.time("all_reduce", 1e9, (8, 1)) == pytest.approx(
        3.749106e-3, rel=1e-6
    )
    plain = replace(SHARP, reduces=(False, False))
    assert plain.time("all_reduce", 1e9, (8, 1)) == pytest.approx(
        2 * (7 / 8 * 1e9 / NVLINK + 7e-6), rel=1e-12
    )


LINK = 64e9
"""Bytes a second of one link of the mesh below, and way."""
MESH = Dim("mesh", 7 * LINK, 0.0, 8, kind="mesh", efficiency=1.0)
BEYOND_THE_MESH = Dim("far", 50e9, 0.0, efficiency=1.0)


def of_dims(*dims: Dim, collective: str = "ring") -> Fabric:
    return Fabric.from_network(Network("n", dims), NetworkTime(collective))


@pytest.mark.parametrize("collective", ["ring", "best", "levels", "book"])
@pytest.mark.parametrize(
    ("g", "seconds"), [(2, 0.5e-3), (4, 0.25e-3), (8, 0.125e-3)]
)
def test_a_group_in_a_mesh_has_only_the_links_between_its_members(
    collective: str, g: int, seconds: float
) -> None:
    """64 MB gathered in a mesh of 8 with 64 GB/s a link: a chip receives (g-1)/g of it over g - 1
    links.
    """
    net = of_dims(MESH, collective=collective)
    assert net.time("all_gather", 64e6, (g,)) == pytest.approx(
        seconds, rel=1e-12
    )
    assert net.time("reduce_scatter", 64e6, (g,)) == pytest.approx(
        seconds, rel=1e-12
    )
    assert net.time("all_reduce", 64e6, (g,)) == pytest.approx(
        2 * seconds, rel=1e-12
    )


def test_a_whole_mesh_is_as_a_switch_and_a_part_has_its_share_for_numbers_and_arrays() -> (
    None
):
    """Only the whole group uses all links; beyond the mesh, 2 ranks of it carry half of what one
    would.
    """
    mesh, switch = (
        of_dims(MESH, BEYOND_THE_MESH),
        of_dims(replace(MESH, kind="switch"), BEYOND_THE_MESH),
    )
    for kind in COLLECTIVES:
        assert mesh.time(kind, 64e6, (8, 4)) == switch.time(kind, 64e6, (8, 4))
        sizes = np.array([2.0, 4.0, 8.0])
        one_by_one = [mesh.time(kind, 64e6, (g, 1)) for g in sizes.tolist()]
        assert np.array_equal(
            mesh.time(kind, 64e6, (sizes, np.ones(3))), one_by_one
        )
    slow = of_dims(MESH, replace(BEYOND_THE_MESH, bandwidth=10e9))
    assert slow.time("all_gather", 64e6, (2, 4)) == pytest.approx(
        7 / 8 * 64e6 / (2 * 10e9), rel=1e-12
    )
