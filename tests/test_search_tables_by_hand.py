"""More pieces of the search, each against numbers worked out on paper or a plain loop: what is
kept, rows, bounds by law, what a refusal names, what would help.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from by_hand import BACKWARD, CHIP, FORWARD, MODEL, SET
from meshwright import assumptions, predict
from meshwright.catalog import chip as catalogue_chip
from meshwright.catalog import cluster as catalogue_cluster
from meshwright.catalog import model as catalogue
from meshwright.cost.load import Busy, Load
from meshwright.describe.cluster import Cluster
from meshwright.describe.framework import framework as catalogue_framework
from meshwright.describe.job import Job
from meshwright.describe.layout import AXES, Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.layout.placement import placed
from meshwright.layout.rules import EVEN_BATCH
from meshwright.layout.stages import stage_layers
from meshwright.prediction.certainty import resolution
from meshwright.schedule import get
from meshwright.search import (
    framework,
    laws,
    named,
    nearby,
    placement,
    several,
    unfit,
)
from meshwright.search.best import ROUNDING, Best
from meshwright.search.cascade import search
from meshwright.search.evaluate import brute, each_dp
from meshwright.search.kinds import Kind, differs
from meshwright.search.legal import legal_options
from meshwright.search.merit import burden, seconds_of
from meshwright.search.nearest import abreast, nearest, stacked
from meshwright.search.options import options
from meshwright.search.plan import Plan, plan
from meshwright.search.ranked import Ranked
from meshwright.search.selectors import changed, choices_of, neighbours
from meshwright.search.space import Space
from meshwright.search.strategies import strategies
from meshwright.search.table import distinct
from meshwright.step import by_order, step_time
from test_search import random_job

SIX = replace(MODEL, layers=6, vocab=100)
NODES = Network(
    "nodes", (Dim("node", 1e30, 0.0, size=4), Dim("net", 1e30, 0.0, size=999))
)
ORDERED = replace(SET, overlap=replace(SET.overlap, pp="interleaved"))
"""Sends wait where the order of a schedule has them wait."""


def job(
    chips: int = 8,
    batch: int = 8,
    model: Model = SIX,
    how: Any = SET,
    network: Network = NODES,
) -> Job:
    cluster = Cluster(CHIP, network, chips)
    return Job(
        model, cluster, batch, assumptions=how, attention_kernel="unfused"
    )


def columns(**values: list[float]) -> dict[str, Any]:
    return {name: np.array(each, float) for name, each in values.items()}


# What is kept.


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_search_keeps_what_can_run_and_nothing_else(relaxed: bool) -> None:
    """With room for all, as many rows as layouts that fit, each with a time: with one replica a
    second ZeRO stage is none."""
    space = Space(
        schedule=("1f1b", "gpipe"), zero=(0, 1), recompute=("none",),
        microbatch=(1,), tp=(1, 2), cp=(1,), pp=(1, 4, 8), placements=False,
    )  # fmt: skip
    found = brute(job(), space, 10**4, relaxed)
    assert search(job(), space, 10**4, relaxed).rows == found.rows
    assert len(found.rows) == found.feasible > 0
    assert all(np.isfinite(row[0]) for row in found.rows)
    shown = found.layouts("megatron", 2)
    assert {int(x.pp) for x in shown} == {1, 4}
    assert all(x.zero == 0 for x in shown if x.replicas == 1)
    assert all(x.chips == 8 or (relaxed and x.chips < 8) for x in shown)


def test_nothing_is_found_where_nothing_is_legal() -> None:
    """Four heads are not cut in three, two layers not dealt to four stages."""
    for space in (Space(tp=(3,)), Space(pp=(4,))):
        for relaxed in (False, True):
            found = search(job(12, model=MODEL), space, 1, relaxed)
            assert found.rows == [] and found.searched == 0


def test_several_spaces_are_within_what_was_found_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second best of all so far, by what ranks and not by bytes."""
    asked = []
    merits = {1: (7.0,), 2: (9.0, 8.0), 4: (5.0,), 8: (6.0,)}

    def found(j: Any, space: Any, k: int, *_: Any, **limits: Any) -> Any:
        asked.append(limits["within"])
        (tp,) = space.values("tp")
        rows = [(merit, 0.5) for merit in merits[tp]]
        return Best(k, None, rows=rows)  # type: ignore[arg-type]

    monkeypatch.setattr(several, "search", found)
    several.several(job(), [Space(tp=(tp,)) for tp in merits], 2, False)
    assert asked == [np.inf, np.inf, 8.0, 7.0]


def test_the_quickest_is_asked_for_strict_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def none(
        j: Any, space: Any, k: int, relaxed: bool, *_: Any, **__: Any
    ) -> Any:
        asked.append(relaxed)
        return Best(k, None)  # type: ignore[arg-type]

    monkeypatch.setattr(several, "search", none)
    assert several.quickest([Space()], job()) is None
    assert several.quickest([Space()], job(), relaxed=True) is None
    assert asked == [False, True]


# Rows.


def test_a_row_for_every_dp_of_an_interval() -> None:
    """1 to 3; 2, 5 and 8; from 4 to 3 none."""
    rows = columns(tp=[1, 2, 3])
    low, high, step = (np.array(x, float) for x in ([1, 2, 4], [3, 8, 3], [1, 3, 1]))  # fmt: skip
    found = each_dp(rows, low, high, step)
    assert found["tp"].tolist() == [1, 1, 1, 2, 2, 2]
    assert found["dp"].tolist() == [1, 2, 3, 2, 5, 8]


def test_columns_whose_product_is_beyond_64_bits() -> None:
    """Five of 2^16 values each: a whole number of 80 bits, of which 64 would lose the first."""
    every = np.array(
        [[n >> bit & 1 for n in range(32)] for bit in range(5)], float
    )
    index, number = distinct([65535.0 * column for column in every])
    assert sorted(number.tolist()) == list(range(32)) and len(index) == 32


def test_an_axis_does_not_leave_a_node_that_has_room_for_it() -> None:
    """Relaxed, on nodes of 4: two ranks of tp are in one node whether replicas fill it or not; of
    four ranks of pp four are, or as many as one or two of tp leave room for."""
    for degrees, near in (
        ({"tp": 2, "cp": 1, "pp": 1, "dp": 2}, {(2, 1, 1, 2)}),
        ({"tp": 1, "cp": 2, "pp": 1, "dp": 1}, {(1, 2, 1, 1)}),
        ({"tp": 1, "cp": 1, "pp": 3, "dp": 1}, {(1, 1, 3, 1)}),
        ({"tp": 2, "cp": 1, "pp": 4, "dp": 1}, {(2, 1, 2, 1), (1, 1, 4, 1)}),
    ):  # fmt: skip
        table = columns(**{axis: [n] for axis, n in degrees.items()})
        _, shares = placement.placements(job(), table, True, True)
        axes = (shares[axis][0].tolist() for axis in degrees)
        assert {*zip(*axes, strict=True)} == near, degrees


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-tp-cp"])  # fmt: skip
def test_guesses_lie_where_launchers_put_them(order: str) -> None:
    """As `layout.placed` says of each row by itself, in the first order of the launcher."""
    by = replace(catalogue_framework("megatron-core"), orders=(order, "dp-pp-tp-cp"))  # fmt: skip
    of = catalogue_cluster("32xh100-sxm")
    at = Job(catalogue("llama3-8b"), of, 32, framework=by)
    sizes, axes = at.cluster.sizes, tuple(order.split("-"))
    count = at.cluster.chips
    every = [
        {"tp": a, "cp": b, "pp": c, "dp": count // (a * b * c)}
        for a, b, c in product((1, 2, 4, 8), repeat=3)
        if count % (a * b * c) == 0
    ]
    table = columns(**{a: [row[a] for row in every] for a in AXES})
    _, shares = placement.placements(
        at, placement.usual(at, table), True, False
    )
    found = [
        tuple(tuple(float(share[i]) for share in shares[a]) for a in AXES)
        for i in range(len(shares["tp"][0]))
    ]
    told = [placed(Layout(**row), sizes, axes).placement for row in every]
    assert len(every) > 4
    assert found == [tuple(tuple(map(float, one[a])) for a in AXES) for one in told]  # fmt: skip


def test_stages_that_have_something_to_hold() -> None:
    """Six layers are six stages at most; in chunks, and where they count as layers, embedding and
    loss are two more. Papers' chunks hold as many layers each."""
    p = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9])

    def fills(name: str, v: int, how: Any, stages: str = "even") -> list[int]:
        kind = Kind(replace(get(name), stages=stages), (v,))
        mask = kind.filled(job(how=how), p, np.full(9, float(v)))
        return [int(x) for x in p[np.broadcast_to(mask, p.shape)]]

    assert fills("1f1b", 1, ORDERED) == [1, 2, 3, 4, 5, 6]
    assert fills("1f1b", 1, SET) == [1, 2, 3, 4, 5, 6]
    assert fills("1f1b", 1, ORDERED, "slots") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert fills("interleaved", 2, ORDERED) == [1, 2, 3, 4]
    assert fills("interleaved", 2, SET) == [1, 3]
    assert fills("1f1b", 1, ORDERED, "1,2,3") == [3]


def test_slots_count_where_they_deal_layers_otherwise() -> None:
    for layers in range(2, 14):
        at = job(model=replace(SIX, layers=layers))
        for stages in range(1, layers + 1):
            even, slots = (
                [len(mine) for mine in stage_layers(layers, stages, how)]
                for how in ("even", "slots")
            )
            said = bool(differs(at, np.array(float(stages))))
            assert said == (even != slots), (layers, stages)


# Bounds.


def test_the_law_of_even_pipelines_is_their_time() -> None:
    """Six layers of 1 s forward and 2 s backward, eight microbatches: on p stages 8 + p - 1 times
    what a stage computes."""
    at = job(how=ORDERED, model=replace(SIX, vocab=0))
    space = Space(schedule=("1f1b",), recompute=("none",), zero=(0,))
    choice = options(at, space)
    p = [1.0, 2.0, 3.0, 6.0]
    one = [1.0] * 4
    table = columns(
        tp=one, cp=one, dp=one, ep=one, etp=one, panels=one, microbatch=one,
        interleave=one, pp=p,
    )  # fmt: skip
    assert by_order(at)
    shapes = nearest(at, table, choice, "megatron")
    expected = [(8 + n - 1) * 6 / n * (FORWARD + BACKWARD) for n in p]
    found = laws.law(at, table, choice, laws.layers(shapes))
    assert found == pytest.approx(expected)


def test_what_some_rows_lack_is_nothing() -> None:
    """Tuples of seconds stacked: one that is empty is of zeros."""
    found = stacked([(1.0, np.array([2.0, 3.0])), ()], [2, 1])
    assert [x.tolist() for x in found] == [[1, 1, 0], [2, 3, 0]]


# What a refusal names.


def test_devices_side_by_side() -> None:
    """A row of columns each; what is one number in all stays, and what one sends nothing of is 0."""
    column = np.array([1.0, 2.0, 3.0])
    assert abreast([2.0, 2.0]) == 2.0
    assert abreast([column, column]) is column
    assert abreast([1.0, 2.0]).tolist() == [[1.0], [2.0]]
    assert abreast([0.0, column]).tolist() == [[0.0] * 3, [1.0, 2.0, 3.0]]
    sent, none = Load(column, 0.0, Busy([column])), Load()
    found = abreast([none, sent])
    assert isinstance(found.busy, Busy) and found.latency == 0.0
    assert found.seconds.tolist() == found.busy[0].tolist()
    assert found.seconds.tolist() == [[0.0] * 3, [1.0, 2.0, 3.0]]


def test_the_last_device_may_have_most_to_update() -> None:
    """With the blocks of multi-token prediction beside the head: on the grid as in each layout."""
    network = Network("n", (Dim("near", 2e10, 1e-6, 2), Dim("far", 1e9, 1e-5)))
    at = Job(
        Model("ends", 4, 256, 4, 1024, 50000, 128, mtp_layers=1),
        Cluster(catalogue_chip("h100-sxm"), network, 8),
        16,
    )
    space = Space(
        tp=(1,), cp=(1,), pp=(2, 4), microbatch=(1,), recompute=("none",)
    )
    every = brute(at, space, 400)
    assert len(every.rows) > 100
    for row in every.rows:
        took = step_time(at, every.layout(row, space.scheme, 2))
        assert seconds_of(at, row) == pytest.approx(took, rel=1e-12)


def test_the_nearest_values_are_named() -> None:
    """pp 17 of 24 layers on 64 chips."""
    at = job(64, 64, replace(SIX, layers=24))
    said = named.at_fault(at, Space(pp=(17,)), False)
    assert said == ["pp may be 2, 4, 8, 16 (the nearest) here, not 17"]


def test_the_twelve_nearest_values_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the 42 divisors of 2,880 chips, those near 17."""
    tried = set[int]()

    def nothing(j: Any, space: Space, relaxed: bool) -> Any:
        tried.update(space.values("pp"))
        return Best(1, None)  # type: ignore[arg-type]

    monkeypatch.setattr(named, "smallest", nothing)
    assert named.at_fault(job(2880), Space(pp=(17,)), False) == []
    assert tried == {17} | {4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24}


def test_units_between_node_and_network() -> None:
    """Nodes of 4 in racks of 12. 40 chips leave a rack partly used, and 10 nodes are no even number
    in each of 4 racks; 36 and 24 chips fill racks.
    """
    dims = ("node", 4), ("rack", 3), ("net", 999)
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    found = nearby.fewer_chips(job(40, 24, network=racks))
    assert [j.cluster.chips for j in found] == [36, 24]
    assert {j.cluster.sizes[:2] for j in found} == {(4, 3)}


def test_nodes_spread_evenly_over_racks_that_they_do_not_fill() -> None:
    """Nodes of 4 in racks of at most 5: 8 nodes are 2 racks of 4 and 6 are 2 of 3; 9 would be 3 of
    3, and 36 chips are in 2 racks. A ring of 5 nodes is whole or not used.
    """

    def sizes(chips: int, kind: str) -> list[tuple[int, ...]]:
        rack = Dim("rack", 1e9, 0.0, size=5, kind=kind)
        node, net = Dim("node", 1e9, 0.0, size=4), Dim("net", 1e9, 0.0)
        at = job(chips, 48, network=Network("r", (node, rack, net)))
        return [each.cluster.sizes for each in nearby.fewer_chips(at)]

    assert sizes(36, "switch") == [(4, 4, 2), (4, 3, 2)]
    assert sizes(32, "switch") == [(4, 4, 2), (4, 3, 2)], "all, spread anew"
    assert sizes(48, "switch") == [(4, 4, 3)]
    assert sizes(40, "switch") == [(4, 4, 2), (4, 3, 2)]
    assert sizes(45, "ring") == [(4, 5, 2)]


# What would help.


@pytest.mark.parametrize(
    ("needed", "named_", "factor"),
    [
        (12, 12, "1.5"), (13, 16, "2"), (17, 24, "3"), (25, 32, "4"), (33, 48, "6"), (49, 64, "8"),
        (65, 96, "12"), (97, 128, "16"), (129, 192, "24"), (193, 256, "32"),
    ],
)  # fmt: skip
def test_the_fewest_chips_that_would_do(
    needed: int, named_: int, factor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(CHIP, hbm_bytes=1.0)
    at = replace(job(), cluster=Cluster(tiny, NODES, 8))
    monkeypatch.setattr(
        unfit, "fits", lambda j, s, relaxed: j.cluster.chips >= needed
    )
    space = Space(tp=(1,), cp=(1,), pp=(1,), recompute=("none",), zero=(0,))
    _, said = unfit.nearest_fit(at, space, False, ())
    assert said[-1].startswith(
        f"{named_} chips of this kind ({factor} times as many)"
    )


def test_rules_that_leave_nothing() -> None:
    """Four replicas do not share three sequences evenly; with idle chips, and a microbatch that is
    not full, five share six.
    """
    one = Space(tp=(1,), cp=(1,), pp=(1,))
    counts, said = unfit.rejections(job(4, 3), one, False)
    assert sum(counts.values()) == len(said) == 1
    counts, _ = unfit.rejections(job(5, 6), one, False)
    assert counts == {EVEN_BATCH.name: 1}
    assert unfit.rejections(job(5, 6), one, True) == ({}, ())
    three = Space(tp=(1, 3), cp=(1,), pp=(1,))
    counts, said = unfit.rejections(job(12, 12), three, True)
    assert sum(counts.values()) == 1 and "tp" in said[0], "four heads"


def test_the_rule_that_nothing_keeps_is_said_first() -> None:
    """tp 3 breaks the heads, which are asked first; no combination shares one sequence over its
    replicas.
    """
    three = Space(tp=(1, 3), cp=(1,), pp=(1,))
    counts, said = unfit.rejections(job(12, 1), three, False)
    assert list(counts) == ["heads over tp", "batch over dp"]
    assert "batch of 1" in said[0] and "heads 4" in said[1]


# Spaces and plans.


def test_a_strict_set_searches_strict_spaces() -> None:
    """Whatever is left open; another set leaves it open."""
    strict, _ = strategies(job(how=SET), Space())
    assert SET.strict and all(space.relaxed is False for space in strict)
    assert {*strict[0].values("pp")} == {1, 2, 3, 6}
    free = replace(ORDERED, strict=False)
    for asked in (None, True, False):
        found, _ = strategies(job(how=free), Space(relaxed=asked))
        assert all(space.relaxed is asked for space in found)
        assert all(space.values("pp") is None for space in found)
    relaxed, _ = strategies(job(how=SET), Space(relaxed=True))
    assert all(space.relaxed for space in relaxed)
    assert relaxed[0].values("pp") is None


def test_papers_chunks_divide_the_layers() -> None:
    """And there are several: one is no interleaving."""
    chosen = options(job(how=SET), Space(schedule=("interleaved",)))
    assert chosen.chunks == ((2, 3, 6),)


@pytest.fixture(scope="module")
def small() -> Iterator[Plan]:
    """A plan of 2 layers on 4 chips of one switch, and what is nearly as good."""
    how = replace(assumptions("realistic"), choices=())
    at = Job(
        replace(MODEL, vocab=1024, hidden=64),
        Cluster(
            catalogue_chip("h100-sxm"),
            Network("s", (Dim("node", 1e11, 1e-6),)),
            4,
        ),
        8,
        assumptions=how,
    )
    yield plan(at, Space(recompute=("none",), microbatch=(1,)), top=5)


def test_what_the_model_cannot_tell_apart_ties() -> None:
    """The best with itself, and what is slower by no more than the resolution."""
    at = Job(catalogue("llama3-8b"), catalogue_cluster("64xh100-sxm"), 64)
    least = resolution(at)
    assert 0.0 < least < 0.2

    def took(seconds: float) -> Any:
        return SimpleNamespace(merit_s=seconds, job=at)

    one = Plan(took(2.0), (took(2.0 + 2.0 * least),))
    assert one.tie(took(2.0)) and one.tie(took(2.0 + 1.98 * least))
    assert not one.tie(took(2.0 + 2.02 * least))
    assert one.slower(took(2.0)) == 0.0 and one.slower(took(3.0)) == 0.5
    assert Plan(took(2.0), (took(1.0),)).tie(took(1.5)) is False


def test_its_own_family_is_no_slower(small: Plan) -> None:
    mine = [x for x in small.families if x.prediction is small.best]
    assert len(mine) == 1 and mine[0].slower == 0.0 and mine[0].tie
    # the best of each other one stands beside it
    others = {x.name for x in small.families if x.prediction is not small.best}
    assert len(others) == len(small.families) - 1 >= 3


def test_a_plan_of_nothing_counts_nothing() -> None:
    assert Plan(None).feasible == 0 and Plan(None).searched == 0


TOGETHER = {
    "cascade": {"FEW": 0, "GUESSES": 2, "FIRST": 4, "ROUND": 6, "PLACED_AT_ONCE": 2},
    "evaluate": {"BLOCK": 40, "POINTS": 200, "PLACED_AT_ONCE": 2, "MORE_AT_ONCE": 3},
    "relaxed": {
        "FEW": 16, "FIRST": 4, "GUESSES": 2, "FIRST_INTERVALS": 4, "PROMISING": 1, "CROSSED": 5,
        "BLOCK": 40, "SHARDS": 30,
    },
    "times": {"TOGETHER": 16},
}  # fmt: skip
"""Rows that are worked on at once, so few that small spaces take every turn of a search."""


@pytest.mark.parametrize("seed", range(16))
def test_a_small_space_is_its_layouts_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way it is searched; seconds and bytes are those of each layout by itself."""
    rng = random.Random(900 + seed)
    while True:
        at, space, relaxed = random_job(rng)
        size = at.cluster.chips * at.batch
        if 12 <= size <= (32 if relaxed else 96):
            break
    every = brute(at, space, 400, relaxed)
    assert search(at, space, 400, relaxed).rows == every.rows
    for module, numbers in TOGETHER.items():
        for name, number in numbers.items():
            of = f"meshwright.search.{module}.{name}"
            monkeypatch.setattr(of, number, raising=False)
    assert search(at, space, 2, relaxed).rows == every.rows[:2]
    found = search(at, space, 1, relaxed, slack=0.1)
    assert found.rows[0] == every.rows[0] if every.rows else not found.rows
    dims = len(at.cluster.network.dims)
    chosen = every.rows[:3] + every.rows[3::40]
    shown = [every.layout(row, space.scheme, dims) for row in chosen]
    for row, layout in zip(chosen, shown, strict=True):
        p = predict(at, layout)
        assert p.fits and p.step_time_s == pytest.approx(seconds_of(at, row))
        assert p.memory_bytes["allocated"] == pytest.approx(row[1])


# By replay, on axes, under a framework.


def test_the_simplest_of_what_is_as_good() -> None:
    """Milliseconds: of rows within the best the one of fewest axes, none that is slower, and none
    at all within less than the best."""
    quick = replace(CHIP, matrix_flops={"bf16": 2.0**44})
    at = replace(job(model=MODEL), cluster=Cluster(quick, NODES, 8))
    space = Space(microbatch=(1,), recompute=("none",), zero=(0,))
    best = search(at, space, 500)
    of = Ranked(at, [(space, best)], False)
    assert best.first < 1e-3
    near = [row for row in best.rows if row[0] <= best.first * ROUNDING]
    found = of.simplest(best.first)
    assert found is not None and found.merit == pytest.approx(best.first)
    fewest = min(burden(best.layout(row, "megatron", 2), 2) for row in near)
    assert burden(found.layout, 2) == fewest
    assert of.simplest(best.first * 0.99) is None
    slow = of.simplest(np.inf)
    assert slow is not None and burden(slow.layout, 2) == min(
        burden(best.layout(row, "megatron", 2), 2) for row in best.rows
    )


def test_a_plan_on_axes_places_ranks_in_one_way() -> None:
    """tp nearest, then cp, dp, pp: as many layouts as with that placement alone, and it says so."""
    ring = tuple(
        Dim(n, 1e12, 1e-6, size=s, kind="ring")
        for n, s in (("x", 2), ("y", 4))
    )
    at = job(model=MODEL, network=Network("t", ring))
    space = Space(microbatch=(1,), zero=(0,), recompute=("none",))
    found = plan(at, space, top=1)
    spaces, _ = strategies(at, space)
    one = sum(
        brute(at, replace(each, placements=False)).searched for each in spaces
    )
    every = sum(brute(at, each).searched for each in spaces)
    assert found.searched == one < every
    assert any("only one placement" in note for note in found.notes)


def test_what_a_framework_bars_is_a_pair_of_options() -> None:
    """This project's trainer shards no weights where a pipeline comes back (ZB-V); one stage has no
    schedule."""
    at = replace(
        job(8, 8, MODEL),
        assumptions=assumptions("realistic"),
        framework=catalogue_framework("meshwright"),
    )
    space = Space(
        schedule=("1f1b", "zbv"), zero=(0, 3), recompute=("none",),
        sequence_parallel=(False,), dp_replicate=(1,),
    )  # fmt: skip
    choice = options(at, space)
    p = np.array([1.0, 2.0, 2.0])
    rows = Layout(pp=p, dp=8 / p, interleave=np.ones(3), sequence_parallel=False)  # fmt: skip
    barred = framework.barred(at, rows, choice)
    assert barred is not None and barred.shape == (
        1,
        1,
        2,
        len(choice.zero),
        3,
    )
    for k, way in enumerate(choice.schedules):
        for z, sharding in enumerate(choice.zero):
            bad = way.schedule == "zbv" and sharding.zero == 3
            assert barred[0, 0, k, z].tolist() == [False, bad, bad], (way, z)


def test_chips_that_do_not_fill_nodes_have_no_strict_place() -> None:
    """Six replicas on nodes of 4: half a node more would be needed; four and eight have one."""
    for dp, times in ((6, 0), (4, 1), (8, 1)):
        table = columns(tp=[1], cp=[1], pp=[1], dp=[dp])
        assert placement.count(job(dp), table).tolist() == [times]


def test_values_to_choose_from_are_those_near_a_layouts_own() -> None:
    """By the factor between them; and 1."""
    at = job(4096, 4096)
    found = choices_of(at, Layout(tp=64, dp=64))["tp"]
    every = [2**k for k in range(13)]

    def far(n: Any) -> float:
        return float(max(n / 64, 64 / n))

    left = [far(n) for n in every if n not in found]
    assert {1, 64} <= {*found} < {*every}
    assert max(far(n) for n in found if n != 1) <= min(left)


def test_a_space_of_the_trainer_holds_what_its_program_holds() -> None:
    """Bytes of each row are those of its layout by itself."""
    at = Job(
        replace(catalogue("llama3-8b"), layers=4),
        catalogue_cluster("8xh100-sxm"),
        16,
        framework=catalogue_framework("meshwright"),
    )
    space = Space(
        tp=(1, 2), cp=(1,), pp=(1, 2), microbatch=(1,), zero=(0, 1), recompute=("none",),
        schedule=("1f1b",), dp_replicate=(1,), placements=False,
    )  # fmt: skip
    found = brute(at, space, 100)
    assert len(found.rows) >= 4
    for row in found.rows[:6]:
        layout = found.layout(row, space.scheme, len(at.cluster.network.dims))
        held = predict(at, layout).memory_bytes["allocated"]
        assert held == pytest.approx(row[1])


FEW = Space(
    schedule=("1f1b",), zero=(0,), recompute=("none",), microbatch=(1,),
    tp=(1, 2), cp=(1,), pp=(1,), placements=False,
)  # fmt: skip


def test_what_fits_is_counted_whatever_is_kept() -> None:
    """A limit that nothing meets keeps no row, and counts all of them."""
    every = brute(job(), FEW, 10)
    none = brute(job(), FEW, 10, within=1e-12)
    assert none.rows == [] and none.feasible == every.feasible > 0
    assert none.too_big == every.too_big == 0


def test_sequence_parallelism_is_a_choice_from_two_ranks_on() -> None:
    """With one rank there is nothing to cut, with two there are both."""
    found = brute(job(), replace(FEW, sequence_parallel=(False, True)), 10)
    assert sorted(
        (x.tp, x.sequence_parallel) for x in found.layouts("megatron", 2)
    ) == [(1, True), (2, False), (2, True)]
    assert found.feasible == 3


def test_what_a_framework_bars_is_not_counted() -> None:
    """Of two stages four ways: two schedules, with and without shards; the trainer shards no
    weights where a pipeline comes back."""
    at = replace(
        job(8, 32, replace(SIX, layers=8)),
        assumptions=assumptions("realistic"),
        framework=catalogue_framework("meshwright"),
    )
    space = Space(
        schedule=("1f1b", "zbv"), zero=(0, 3), recompute=("none",),
        sequence_parallel=(False,), dp_replicate=(1,),
    )  # fmt: skip
    choice = options(at, space)
    table = columns(
        tp=[1, 1, 1], cp=[1, 1, 1], pp=[2, 2, 2], dp=[4, 4, 4], ep=[1, 1, 1],
        etp=[1, 1, 1], microbatch=[1, 1, 1], panels=[1, 1, 1], interleave=[1, 2, 1],
    )  # fmt: skip
    ways = legal_options(at, table, choice, "megatron")
    assert ways.tolist() == [2, 1, 2]


def test_replicas_take_the_chips_that_are_left() -> None:
    """And are one where a degree takes more than there are."""
    eight = Layout(tp=2, dp=4)
    assert changed(eight, "tp", 4).dp == 2
    assert changed(eight, "tp", 16).dp == 1


def test_neighbours_take_what_they_take() -> None:
    """Without a pipeline nothing is replayed: the seconds are those of the prediction."""
    found = neighbours(job(4, 8), Layout(tp=2, dp=2, schedule="1f1b"))
    made = [each for each in found if each.prediction]
    plain = [x for x in made if x.prediction and x.prediction.layout.pp == 1]
    assert plain
    for each in plain:
        assert each.prediction
        assert each.seconds == each.prediction.step_time_s


def test_a_batch_that_has_twice_as_much_in_common() -> None:
    """Nine sequences on two chips have 1 in common, eight have 2."""
    assert list(nearby.batches(job(2, 9))) == [8]
