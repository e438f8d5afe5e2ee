"""Where ranks lie, against lists of them: each rank by its number, in the node that a launcher puts
it in.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from meshwright import Job, Space
from meshwright.catalog import cluster, network
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.layout import AXES, Layout
from meshwright.layout.placement import (
    launched,
    launcher_shares,
    least_inside,
    placed,
)
from meshwright.layout.rules import broken
from meshwright.num import divisors
from meshwright.search import placements

STAGES_NEARER = ("tp", "cp", "pp", "dp")
ORDERS = {
    "megatron-core": (AXES, STAGES_NEARER),
    "megatron-bridge": (AXES, STAGES_NEARER),
    "megatron-deepspeed": (AXES,),
    "megatron-2021": (AXES,),
    "deepspeed": (AXES,),
    "torchtitan": (AXES,),
    "automodel": (AXES,),
}
"""Framework -> orders of the axes, nearest first, as its sources have them."""
CHIPS = (9, 12, 13, 15, 20, 22, 24, 30, 36, 40, 48, 100)
RINGS = Fabric.from_network(
    network("dgx-h100"), NetworkTime(collective="ring")
)
Row = dict[str, int]


def layouts(ranks: int) -> Iterator[Row]:
    for tp in divisors(ranks):
        for cp in divisors(ranks // tp):
            for dp in divisors(ranks // tp // cp):
                pp = ranks // tp // cp // dp
                yield {"tp": tp, "cp": cp, "dp": dp, "pp": pp}


def groups(row: Row, order: Sequence[str], axis: str) -> Iterator[list[int]]:
    """The ranks of each group of an axis, numbered with the first axis of the order nearest."""
    apart = prod(row[a] for a in order[: order.index(axis)])
    for first in range(prod(row.values())):
        if first // apart % row[axis] == 0:
            yield [first + k * apart for k in range(row[axis])]


def fewest(row: Row, order: Sequence[str], nodes: Sequence[int]) -> Row:
    """Of each axis the fewest ranks that some group has in a node where it has any: as many
    adapters of that node, and so of all, serve the group's ring."""
    return {
        axis: min(
            min(Counter(nodes[rank] for rank in group).values())
            for group in groups(row, order, axis)
        )
        for axis in order
    }


def as_started(
    row: Row, order: Sequence[str], node: int, here: Row
) -> list[Row]:
    """What each axis has in a node (`fewest`) under those starts that leave it what it is timed
    with: nodes filled one after the other, and where that leaves one in part, as many on each, or
    whole blocks on each."""
    ranks, each = prod(row.values()), prod(here.values())
    starts = {node}
    if ranks % node:
        starts |= {node // each * each, each}
        if ranks % -(-ranks // node) == 0:
            starts.add(ranks // -(-ranks // node))
    counts = [
        fewest(row, order, [rank // of for rank in range(ranks)])
        for of in starts
    ]
    return [has for has in counts if all(here[a] <= has[a] for a in order)]


@pytest.mark.parametrize("node", [4, 8])
@pytest.mark.parametrize("order", [AXES, STAGES_NEARER])
@pytest.mark.parametrize("ranks", CHIPS)
def test_no_group_has_more_neighbours_than_its_ranks(
    ranks: int, order: tuple[str, ...], node: int
) -> None:
    """All degrees: some way to start the ranks gives every group what it is timed with, and where
    all nodes are full the only one does. A group is timed with fewer than it has only where that
    many do not divide it, or its ranks are as far apart as does not divide a node. A ring goes
    round n ranks by as many channels, so each adapter carries V (n - 1)/n over that many."""
    sizes = (node, -(-ranks // node))
    for row in layouts(ranks):
        layout = placed(Layout(**row), sizes, order)
        here = {axis: layout.placement[axis][0] for axis in AXES}
        assert all(prod(layout.placement[a]) == row[a] for a in AXES)
        starts = as_started(row, order, node, here)
        assert starts, (row, here)
        for axis in AXES:
            n, apart = (
                row[axis],
                prod(row[a] for a in order[: order.index(axis)]),
            )
            most = min(has[axis] for has in starts)
            if node % apart or n % most:
                continue
            assert here[axis] == most, (row, axis, here, starts)
            load = RINGS.load("all_gather", 1e9, layout.group(axis))
            crosses = (n - 1) / n / most if n > most else 0.0
            carried = load.busy[1] * RINGS.rates[1]
            assert carried == pytest.approx(1e9 * crosses), (row, axis)


@pytest.mark.parametrize("node", [4, 8, 36])
@pytest.mark.parametrize("ranks", CHIPS)
def test_the_law_of_borders_counts_ranks(ranks: int, node: int) -> None:
    nodes = [rank // node for rank in range(ranks)]
    for row in layouts(ranks):
        least, apart = fewest(row, AXES, nodes), 1
        for axis in AXES:
            law = least_inside(row[axis], apart, node, ranks)
            if node % apart == 0 or ranks <= node:
                assert law == least[axis], (row, axis)
            else:
                assert law == 1 <= least[axis]
            apart *= row[axis]


@pytest.mark.parametrize("name", [*ORDERS, "maxtext"])
def test_a_plan_proposes_what_the_framework_can_number(name: str) -> None:
    """Every placement that a search tries is one in which the framework numbers its ranks, and
    every such placement is tried; JAX fills each node with a mesh, by any axes that do."""
    for ranks in (12, 20, 24, 36, 40):
        job = Job("llama3-8b", f"{ranks}xh100-sxm", ranks, framework=name)
        sizes = job.cluster.sizes
        for row in layouts(ranks):
            table = {a: np.array([float(row[a])]) for a in AXES}
            _, found = placements(job, table, Space())
            tried = {
                tuple(tuple(int(n[i]) for n in found[a]) for a in AXES)
                for i in range(len(found["tp"][0]))
            }
            if name != "maxtext":
                each = (launcher_shares(row, sizes, o) for o in ORDERS[name])
                assert tried == {
                    tuple(tuple(map(int, n[a])) for a in AXES) for n in each
                }, (ranks, row)
            elif ranks % 8 == 0:
                every = _meshes(row, 8, ranks // 8)
                assert tried == every, (ranks, row)


def _meshes(
    row: Row, node: int, nodes: int
) -> set[tuple[tuple[int, int], ...]]:
    """Of each axis (ranks in a node, nodes), so that all multiply up to both."""
    whole = [row[axis] for axis in AXES]
    return {
        tuple((n, of // n) for n, of in zip(inside, whole, strict=True))
        for inside in itertools.product(*map(divisors, whole))
        if prod(inside) == node and prod(whole) == node * nodes
    }


@pytest.mark.parametrize(
    ("row", "shares"),
    [
        # tp 2 and cp 2 take half of a node; 3 replicas leave it, and JAX takes stages instead
        (
            {"tp": 2, "cp": 2, "dp": 3, "pp": 2},
            ((2, 1), (2, 1), (1, 3), (2, 1)),
        ),
        (
            {"tp": 1, "cp": 1, "dp": 3, "pp": 8},
            ((1, 1), (1, 1), (1, 3), (8, 1)),
        ),
        (
            {"tp": 4, "cp": 1, "dp": 3, "pp": 2},
            ((4, 1), (1, 1), (1, 3), (2, 1)),
        ),
    ],
)
def test_jax_fills_nodes(
    row: Row, shares: tuple[tuple[int, int], ...]
) -> None:
    """Where Megatron's ranks of the next stage are in another node, those of JAX are in this one."""
    on = cluster("24xh100-sxm")
    jax, numbers = (
        Job("llama3-8b", on, 24, framework=name)
        for name in ("maxtext", "megatron-core")
    )
    layout = Layout(**row)
    at = launched(jax, layout).placement
    assert tuple(at[axis] for axis in AXES) == shares
    far = launched(numbers, layout).placement
    assert far["pp"] == (1, row["pp"])
    half = replace(layout, placement=far)
    (why,) = broken(jax, half)
    assert "fills slices of 8" in why
    assert not broken(numbers, half)
