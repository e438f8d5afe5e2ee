"""Loads: no dimension is busy for longer than a collective takes, floors hold wherever ranks lie,
faster links never cost.
"""

from __future__ import annotations

from math import prod
from operator import mul

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.floors import any_links
from meshwright.cost.links import Group
from meshwright.cost.load import KINDS, Load
from meshwright.cost.network import NAMED, Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network
from meshwright.layout.placement import Nearest
from meshwright_studies.reproduce.lbl.rings import DefectiveRing

RATES, WAITS, BYTES = (
    st.floats(1e9, 1e12),
    st.floats(0, 1e-4),
    st.floats(1.0, 1e11),
)
COLLECTIVE = st.sampled_from(list(NAMED))
SIZES = (4, 3, 8)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Three dimensions of any kind, in no order of speed."""
    kinds = draw(
        st.lists(
            st.sampled_from(["switch", "mesh", "ring", "line"]),
            min_size=3,
            max_size=3,
        )
    )
    dims = [
        Dim(
            str(i),
            draw(RATES),
            draw(WAITS),
            size,
            kind,
            reduces=draw(st.booleans()),
        )
        for i, (kind, size) in enumerate(zip(kinds, SIZES, strict=True))
    ]
    return Network("any", tuple(dims))


GROUPS = st.tuples(
    *(
        st.sampled_from([d for d in range(1, n + 1) if n % d == 0])
        for n in SIZES
    )
)


@settings(max_examples=300)
@given(networks(), COLLECTIVE, st.sampled_from(KINDS), BYTES, GROUPS)
def test_no_dimension_is_busy_for_longer_than_it_takes(
    net, option, kind, V, group
) -> None:
    load = Fabric.from_network(net, NetworkTime(option)).load(kind, V, group)
    assert load.busy.most <= load.seconds * (1 + 1e-12)
    assert 0 <= load.latency <= load.seconds * (1 + 1e-12)
    if prod(group) == 1:
        assert load.seconds == load.latency == load.busy.most == 0


@settings(max_examples=300)
@given(networks(), COLLECTIVE, st.sampled_from(KINDS), BYTES, GROUPS, GROUPS)
def test_a_floor_holds_for_every_place_and_every_larger_group(
    net, option, kind, V, few, many
) -> None:
    fabric = Fabric.from_network(net, NetworkTime(option))
    if prod(few) > prod(many):
        few, many = many, few
    nearest: Group = Nearest(dp=prod(few), placement={}, sizes=SIZES).group(
        "dp"
    )
    floor = fabric.bound.load(kind, V, nearest)
    for group in (few, many):
        load = fabric.load(kind, V, group)
        assert floor.seconds <= load.seconds * (1 + 1e-9)
        assert floor.latency <= load.latency * (1 + 1e-9)
        # all links of a chip together are busy as long as its bytes take over all of them
        sent = sum(map(mul, load.busy, fabric.rates))
        least = any_links(fabric, kind, V, few).seconds * sum(fabric.rates)
        assert least <= sent * (1 + 1e-9) or option == "free"
    stages: Group = Nearest(
        pp=prod(few), dp=1, placement={}, sizes=SIZES
    ).group("pp")
    assert fabric.bound.load("send", V, stages).seconds <= fabric.load(
        "send", V, few
    ).seconds * (1 + 1e-9)


@settings(max_examples=200)
@given(
    st.tuples(RATES, RATES),
    st.tuples(WAITS, WAITS),
    BYTES,
    st.integers(0, 1),
    st.floats(1, 10),
)
def test_a_faster_link_is_never_busier(rates, waits, V, i, faster) -> None:
    """Where it flips the choice from ring to tree, the tree's longer traffic does not count against
    it.
    """

    def cost(speed: tuple[float, float]) -> Load:
        dims = [
            Dim(str(k), r, w, 4)
            for k, (r, w) in enumerate(zip(speed, waits, strict=True))
        ]
        return Fabric.from_network(
            Network("two", tuple(dims)), NetworkTime("best")
        ).load("all_reduce", V, (4, 4))

    before = cost(rates)
    after = cost(
        tuple(r * (faster if k == i else 1.0) for k, r in enumerate(rates))
    )
    assert after.seconds <= before.seconds * (1 + 1e-12)
    assert all(
        a <= b * (1 + 1e-12)
        for a, b in zip(after.busy, before.busy, strict=True)
    )


HERE = dict.fromkeys(("tp", "cp", "dp", "pp"), (1, 1))
"""Where the ranks of one device lie."""


def test_free_far_hops_have_no_floor() -> None:
    """The defect of the LBL code makes a pipeline that is farther away the faster one."""
    net = Network("two", (Dim("near", 1e10, 1e-6, 4), Dim("far", 1e9, 1e-5)))
    fabric = Fabric.from_network(
        net,
        NetworkTime(
            "ring", hop="mean", algorithm=DefectiveRing(free_hops=True)
        ),
    )
    far, near = (
        Layout(pp=8, dp=1, placement={**HERE, "pp": (2, 4)}),
        Layout(pp=8, dp=1, placement={**HERE, "pp": (4, 2)}),
    )
    assert (
        fabric.load("send", 1e9, far.group("pp")).seconds
        < fabric.load("send", 1e9, near.group("pp")).seconds
    )
    assert fabric.bound.load("send", 1e9, near.group("pp")).seconds == 0
