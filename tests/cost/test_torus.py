"""Collectives on torus axes against a simulation of the load of every link, and their laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from meshwright import Dim, Network
from meshwright.cost import torus
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import BOOK_SUM

W = 1.8e11
V = 1e12
"""So long that hops do not matter."""


def dim(n, kind="ring", name="x", rate=W):
    """An axis; a line of one link has half the rate of a ring."""
    return Dim(
        name,
        rate if kind == "ring" else rate / 2,
        1e-6,
        n,
        kind,
        efficiency=1.0,
    )


def rings(*sizes, kind="ring"):
    return (tuple(torus.axis(dim(n, kind), n) for n in sizes),)


def gather(V, span):
    """Seconds of an all-gather."""
    return torus.collective("all_gather", V, span).seconds


def all_to_all(S, span):
    return torus.collective("all_to_all", S, span).seconds


def steps(a, b, n, kind):
    """Directed links (from, step) of the shortest ways from a to b, with the share of the traffic
    each takes.
    """
    if kind == "line":
        sign = 1 if b > a else -1
        return [((x, sign), 1.0) for x in range(a, b, sign)]
    ahead = (b - a) % n
    ways = (
        [(1, ahead)]
        if 2 * ahead < n
        else [(-1, n - ahead)]
        if 2 * ahead > n
        else [(1, ahead), (-1, ahead)]
    )
    return [
        (((a + s * i) % n, s), 1 / len(ways))
        for s, hops in ways
        for i in range(hops)
    ]


def exchange_seconds(shape, kind, S):
    """Everyone sends S/n to everyone, dimension by dimension along shortest ways: the busiest link
    over its rate.
    """
    load = Counter()
    n = int(np.prod(shape))
    for source, target in product(product(*map(range, shape)), repeat=2):
        at = list(source)
        for axis, size in enumerate(shape):
            for (x, sign), share in steps(at[axis], target[axis], size, kind):
                where = (*at[:axis], x, *at[axis + 1 :])
                load[where, axis, sign] += share * S / n
            at[axis] = target[axis]
    return max(load.values()) / (W / 2)


@pytest.mark.parametrize("kind", ["ring", "line"])
@pytest.mark.parametrize(
    "shape",
    [
        (2,),
        (3,),
        (4,),
        (7,),
        (8,),
        (4, 4),
        (2, 4),
        (3, 5),
        (4, 2, 4),
        (2, 3, 4),
        (1, 8, 1),
    ],
)
def test_all_to_all_is_the_load_of_the_busiest_link(shape, kind):
    S = 1e11
    assert all_to_all(S, rings(*shape, kind=kind)) == pytest.approx(
        exchange_seconds(shape, kind, S), rel=1e-12
    )


def gather_seconds(n, stride, size, kind):
    """All-gathers of every stride-th chip of an axis, all groups at once, both ways round: the
    busiest link.
    """
    load = Counter()
    groups = [[g + i * stride for i in range(n)] for g in range(stride)]
    if stride == 1:
        groups = [list(range(first, first + n)) for first in range(0, size, n)]
    closed = kind == "ring" and n * stride == size
    for group in groups:
        for i, a in enumerate(group):
            order = (
                [group[(i + k) % n] for k in range(1, n)]
                if closed
                else group[i + 1 :]
            )
            back = order[::-1] if closed else group[:i][::-1]
            ahead = (
                [(order, 1, (n - 1) / 2)]
                if closed
                else [(order, 1, len(order))]
            )
            for members, sign, hops in [
                *ahead,
                (back, -1, (n - 1) / 2 if closed else len(back)),
            ]:
                x = a
                for k, b in enumerate(members):
                    share = min(1.0, max(0.0, hops - k))
                    while x != b and share:
                        load[x, sign] += share * V / n
                        x = (x + sign) % size
    return max(load.values()) / (W / 2)


@pytest.mark.parametrize(
    ("n", "stride", "size", "kind"),
    [
        (4, 1, 4, "ring"),
        (5, 1, 5, "ring"),
        (16, 1, 16, "ring"),
        (4, 1, 4, "line"),
        (4, 1, 16, "ring"),
        (2, 1, 16, "ring"),
        (8, 2, 16, "ring"),
        (2, 8, 16, "ring"),
        (4, 4, 16, "ring"),
        (4, 2, 8, "line"),
    ],
)
def test_all_gather_on_a_whole_axis_or_a_part_of_it(n, stride, size, kind):
    part = torus.axis(dim(size, kind), n, stride)
    expected = gather_seconds(n, stride, size, kind)
    ours = gather(V, ((part,),))
    # where groups do not close, the links at the ends of a row of strided groups are shared by
    # fewer of them
    assert (
        ours == pytest.approx(expected, rel=1e-12)
        if n * stride == size or stride == 1
        else ours >= expected
    )


@pytest.mark.parametrize(
    "shape",
    [(2, 4), (4, 4), (2, 2, 4), (2, 16), (4, 5, 7), (3, 3, 3), (1, 8, 1)],
)
def test_axes_side_by_side_can_be_kept_equally_busy(shape):
    """Cut the vector in parts that pass the axes in different orders: a mixture loads all axes
    alike, as we say.
    """
    n = np.prod(shape)
    orders = []
    for order in permutations(range(len(shape))):
        load, held = np.zeros(len(shape)), 1
        for axis in order:
            load[axis] = held * (shape[axis] - 1) / n
            held *= shape[axis]
        orders.append(load)
    loads = np.array(orders)
    weight = np.ones(len(loads)) / len(loads)
    # the price of a busy axis rises until no order is better than another
    for _ in range(20000):
        total = weight @ loads
        price = np.exp(400 * (total - total.max()))
        weight = 0.999 * weight
        weight[np.argmin(loads @ price)] += 0.001
    expected = gather(V, rings(*shape))
    assert (weight @ loads).max() * V / W == pytest.approx(expected, rel=0.02)


def test_levels_of_a_hierarchy():
    """The book, part 12: V (D - 1)/(D W) of the slowest level; all-to-all over m nodes V (m -
    1)/(m^2 W_node).
    """
    levels = (
        (torus.axis(Dim("nvlink", 450e9, 0.0, 8, efficiency=1.0), 8),),
        (torus.axis(Dim("ib", 50e9, 0.0, 4, efficiency=1.0), 4),),
    )
    assert gather(V, levels) == pytest.approx(
        V * max(7 / 8 / 450e9, 3 / 4 / 400e9)
    )
    assert all_to_all(V / 32, levels) == pytest.approx(V * 3 / 16 / 400e9)


def test_a_group_may_lie_on_its_own_parts_of_the_axes():
    """Every second chip of y, and all of z: the parts are named by their dimension; x is idle."""
    network = Network("t", (dim(4), dim(8, name="y"), dim(4, name="z")))
    f = Fabric.from_network(
        network, replace(BOOK_SUM.network, ring_factor="exact")
    )
    z, y = (
        torus.axis(d, 4, stride)._replace(dim=i)
        for i, d, stride in ((2, network.dims[2], 1), (1, network.dims[1], 2))
    )
    load = f.load(
        "all_gather", V, torus.TorusGroup.on((1, 4, 4), ((z,), (y,)))
    )
    assert load.busy == pytest.approx(
        (0, V / 4 * 3 / 4 / (W / 2), V * 3 / 4 / W)
    )
    assert load.seconds == max(load.busy)
