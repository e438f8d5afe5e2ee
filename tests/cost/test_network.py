"""Collectives over the dimensions of a network: the table of Subramanian et al. 2024, switches that
add up, and meshes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Dim, Network, assumptions, network
from meshwright.cost.load import KINDS as COLLECTIVES
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
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


NVLINK, BEYOND = 360e9, 50e9
"""Bytes a second and way: NVLink of an H100 as NCCL reaches it, and a 400 Gbit/s interface."""


def of_eight(adds: bool) -> Fabric:
    """A switch of 8, which adds up or not, and a network beyond it that does not."""
    how = NetworkTime(collective="best")
    return Fabric((NVLINK, BEYOND), (1e-6, 5e-6), (adds, False), how)


def test_a_switch_that_adds_up() -> None:
    """8 H100, 1 GB: 2 x 7/8 x 1e9 / 360e9 s of a ring over 480/370 (NCCL issue 1455) = 3.747106 ms,
    and a hop up and down; without it a ring. All messages of an exchange start at once.
    """
    sharp, plain = of_eight(True), of_eight(False)
    for net, kind, seconds in (
        (sharp, "all_reduce", 3.749106e-3),
        (plain, "all_reduce", 2 * (7 / 8 * 1e9 / NVLINK + 7e-6)),
        (plain, "all_to_all", 7 / 8 * 1e9 / NVLINK + 1e-6),
    ):
        assert net.time(kind, 1e9, (8, 1)) == pytest.approx(seconds, rel=1e-6)


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


def test_a_whole_mesh_is_as_a_switch_and_a_part_has_its_share() -> None:
    """Only the whole group uses all links; beyond the mesh, 2 ranks of it carry half of what one
    would.
    """
    mesh, switch = (
        of_dims(MESH, BEYOND_THE_MESH),
        of_dims(replace(MESH, kind="switch"), BEYOND_THE_MESH),
    )
    for kind in COLLECTIVES:
        assert mesh.time(kind, 64e6, (8, 4)) == switch.time(kind, 64e6, (8, 4))
    slow = of_dims(MESH, replace(BEYOND_THE_MESH, bandwidth=10e9))
    assert slow.time("all_gather", 64e6, (2, 4)) == pytest.approx(
        7 / 8 * 64e6 / (2 * 10e9), rel=1e-12
    )
