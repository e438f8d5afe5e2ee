"""Collectives over the dimensions of a network: switches that add up, and meshes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Dim, Network
from meshwright.cost.load import KINDS as COLLECTIVES
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime

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
    """Only the whole group uses all links, but in a mesh without a size, which is the group; beyond
    the mesh, 2 ranks of it carry half of what one would.
    """
    for dim, share in (
        (MESH, 1 / 7),
        (replace(MESH, size=None), 1.0),
        (replace(MESH, kind="switch"), 1.0),
    ):
        assert dim.used(2) == share
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
