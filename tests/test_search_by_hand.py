"""Pieces of the search by themselves: what ranks layouts, what is kept, bounds of small grids,
numbers near those asked for, recipes near a job.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, inf
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL, SET
from meshwright.catalog import cluster as catalogue_cluster
from meshwright.catalog import model as catalogue
from meshwright.describe.assumptions import MemoryCount
from meshwright.describe.cluster import Cluster
from meshwright.describe.holding import Holding
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network
from meshwright.schedule.dealt import Cut
from meshwright.search import families, nearby, recipes, several
from meshwright.search.best import MOST_TIES, NEARLY, Best
from meshwright.search.merit import burden, merit, seconds_of, weigh
from meshwright.search.nearest import Nearest
from meshwright.search.pieces import Pieces, bound, exact
from meshwright.search.space import Space

TWO = Network(
    "n", (Dim("node", 1e9, 0.0, size=8), Dim("net", 1e9, 0.0, size=4096))
)


def job(chips: int = 64, batch: int = 64, **fields: Any) -> Job:
    net = fields.pop("network", TWO)
    how = replace(SET, **fields)
    return Job(MODEL, Cluster(CHIP, net, chips), batch, assumptions=how)


# What ranks.


def test_seconds_over_the_chance_to_fit() -> None:
    """1 TB of which all may be used: half of it has next to no risk, all of it one of a half."""
    how = MemoryCount(
        framework_bytes=0.0,
        capacity_share=1.0,
        risk_width=0.1,
        holding=Holding(),
    )
    risky = job(memory=how)
    assert merit(risky, 3.0, 1e12) == pytest.approx(6.0)
    assert seconds_of(risky, (6.0, 1e12)) == pytest.approx(3.0)
    assert weigh(job()) is None and seconds_of(job(), (6.0, 1e12)) == 6.0
    by = weigh(risky)
    assert by is not None and by(3.0, 1e12) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"dp": 8}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"tp": 2, "cp": 2, "pp": 2}, (3, 0, 0, 1, 0, 0, 0, 0, 2)),
        ({"ep": 2, "etp": 2, "dp_replicate": 2}, (3, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"tp": 2, "sequence_parallel": False}, (1, 0, 0, 1, 1, 0, 0, 0, 1)),
        ({"sequence_parallel": False}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"zero": 1}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"zero": 3}, (0, 0, 0, 3, 0, 0, 0, 0, 1)),
        ({"pp": 2, "schedule": "zbv"}, (1, 0, 1, 1, 0, 0, 0, 0, 4)),
        ({"pp": 1, "schedule": "zbv"}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        (
            {"pp": 2, "schedule": "interleaved", "interleave": 3},
            (1, 0, 0, 1, 0, 0, 0, 0, 6),
        ),
        # 12 layers over 8 stages, 12, 8; 14 slots over 7, 12
        (
            {"pp": 2, "schedule": "interleaved", "interleave": 4},
            (1, 0, 0, 1, 0, 0, 0, 1, 8),
        ),
        (
            {"pp": 2, "schedule": "interleaved", "interleave": 6},
            (1, 0, 0, 1, 0, 0, 0, 0, 12),
        ),
        ({"pp": 8}, (1, 0, 0, 1, 0, 0, 0, 1, 8)),
        ({"pp": 7, "stages": "slots"}, (1, 0, 0, 1, 0, 1, 0, 0, 7)),
        ({"pp": 12, "stages": "slots"}, (1, 0, 0, 1, 0, 1, 0, 1, 12)),
        ({"pp": 2, "stages": "slots"}, (1, 0, 0, 1, 0, 1, 0, 0, 2)),
        ({"microbatch": 4}, (0, 0, 0, 1, 0, 0, 0, 0, 1)),
        ({"microbatch": 3}, (0, 0, 0, 1, 0, 0, 1, 0, 1)),
        ({"tp": 4, "placement": {"tp": (2, 2)}}, (1, 1, 0, 1, 0, 0, 0, 0, 1)),
        ({"tp": 4, "placement": {"tp": (4, 1)}}, (1, 0, 0, 1, 0, 0, 0, 0, 1)),
    ],
)
def test_the_simpler_of_equals(
    fields: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert burden(Layout(**fields), 12) == expected


# What is kept.


def kept(*merits: float, **fields: Any) -> Best:
    rows = [(merit, 0.0) for merit in merits]
    return Best(choice=None, rows=rows, **{"k": 2, **fields})  # type: ignore[arg-type]


def test_limits_of_newcomers() -> None:
    """The second of two; with a slack of a half up to 1.5 times the first, and what replays may
    make as good as these; never beyond `within`, unless the first is sure.
    """
    near = pytest.approx
    assert kept().limit == inf and kept().first == inf
    assert kept(2.0).limit == inf
    assert kept(2.0, within=5.0).limit == near(5.0)
    assert kept(2.0, 7.0, 9.0).limit == near(7.0)
    assert kept(2.0, 7.0, 9.0, within=3.0).limit == near(3.0)
    assert kept(2.0, 2.5, 9.0, slack=0.5).limit == near(3.0 * NEARLY)
    assert kept(2.0, 7.0, 9.0, slack=0.5).limit == near(7.0 * NEARLY)
    assert kept(2.0, 7.0, within=1.0, sure=True).limit == near(2.0 * NEARLY)
    assert kept(2.0, 7.0, trial=2.5).limit == 2.5
    full = kept(*[2.0] * MOST_TIES, slack=0.5)
    assert full.limit == near(2.0), "no room for more"
    nearly = kept(*[2.0] * (MOST_TIES - 1), slack=0.5)
    assert nearly.limit == near(3.0 * NEARLY)


def test_a_trial_drops_nothing_that_was_found() -> None:
    """What is looked for among other rows says nothing of those before."""
    best = kept(2.0, 7.0, k=5, trial=2.5)
    assert best.limits[0] == 2.5
    assert best.kept[0] == inf


def test_what_was_left_out() -> None:
    assert kept(2.0).complete(100.0), "fewer than asked for"
    assert kept(2.0, 7.0).complete(6.0)
    assert not kept(2.0, 7.0).complete(7.0)
    assert not kept(2.0, within=5.0).complete(6.0)
    assert kept(2.0, within=5.0).complete(5.0)
    sure = kept(2.0, within=1.0, sure=True)
    assert sure.complete(2.0 * NEARLY) and not sure.complete(2.1)
    ties = kept(2.0, 2.5, slack=0.5)
    assert ties.complete(2.6) and not ties.complete(3.1)
    assert not kept(*[2.0] * MOST_TIES, slack=0.5).complete(2.0)


# Grids: 1 x 1 x (an unfolded and a folded schedule) x (two ZeRO stages) x 3 rows.


class Both:
    """Options of two schedules and two ZeRO stages."""

    shape = (1, 1, 2, 2)

    def part(self, at: Any) -> Both:
        return self


def pieces(barred: np.ndarray | None = None) -> Pieces:
    pipe = np.array([[3.0, 5.0, np.inf], [4.0, 2.0, 9.0]])
    after = np.array(
        [
            [[1.0, 2.0, 3.0], [0.5, 4.0, 1.0]],
            [[2.0, 1.0, 1.0], [6.0, 3.0, 0.0]],
        ]
    )
    return Pieces(
        left=np.arange(3),
        choice=Both(),  # type: ignore[arg-type]
        pipe=pipe[None, None, :, None],
        after=after[None, None],
        kept=(np.array([[[10.0, 20.0]], [[30.0, 5.0]]])[None, ..., 0, :].reshape(1, 1, 1, 2, 2),),
        held=(np.array([[1.0, 2.0], [3.0, 4.0]])[None, None, :, None],),
        of=np.array([0, 1, 1]),
        folded=np.array([0, 1]),
        place=np.array([0, 0]),
        barred=barred,
        ends=("first",),
    )  # fmt: skip


def test_a_grid_is_the_sum_of_its_terms() -> None:
    """Seconds of the order and of what follows, by ZeRO stage; bytes of states and activations; at
    most 24.
    """
    p = pieces()
    seconds, use = exact(p, 24.0)
    assert use[0, 0].tolist() == [
        [[11.0, 22.0], [31.0, 7.0]], [[13.0, 24.0], [33.0, 9.0]],
    ]  # fmt: skip
    assert seconds[0, 0].tolist() == [
        [[4.0, 7.0, inf], [inf, 9.0, inf]], [[6.0, 3.0, 10.0], [inf, 5.0, 9.0]],
    ]  # fmt: skip
    assert p.legal == 4 + 6, "whether they fit or not"
    floor = np.full((1, 1, 2, 1, 3), 3.0), np.full((1, 1, 2, 1, 3), 2.5)
    seconds, _ = exact(p._replace(floors=(floor,)), 24.0)
    assert seconds[0, 0, 0, 0].tolist() == [5.5, 7.0, inf]
    barred = np.zeros((1, 1, 2, 2, 3), dtype=bool)
    barred[0, 0, 1, 0, 1] = True
    seconds, _ = exact(pieces(barred), 24.0)
    assert seconds[0, 0, 1, 0].tolist() == [6.0, inf, 10.0]
    assert pieces(barred).legal == 9


@pytest.mark.parametrize("capacity", [4.0, 9.0, 24.0, 100.0])
def test_bounds_are_below_the_grid(capacity: float) -> None:
    for p in pieces().by_fold():
        seconds, _ = exact(p, capacity)
        found = bound(p, capacity)
        least = seconds.min(axis=(0, 1, 2, 3))
        assert np.all(found.seconds <= least)
        assert np.all(found.by_schedule[:, :, :, 0] <= seconds.min(axis=3))
        assert np.all(found.by_zero[:, :, 0] <= seconds.min(axis=2))
        for limit in (3.0, 4.5, 9.0):
            good = seconds <= limit
            for axis, least_of in enumerate(found.by_option):
                mine = least_of <= limit
                others = tuple(i for i in range(5) if i != axis)
                assert np.all(mine >= good.any(axis=others))
                if capacity == 100.0:  # nothing is in its way
                    assert np.all(mine == good.any(axis=others))
        if capacity == 100.0:
            assert np.array_equal(found.seconds, least)


def test_folded_schedules_by_themselves() -> None:
    """Each with what follows it; the same points as the whole grid."""
    p = pieces(np.arange(12).reshape(1, 1, 2, 2, 3) == 7)
    whole, use = exact(p, 24.0)
    parts = [exact(part, 24.0) for part in p.by_fold()]
    assert np.array_equal(whole, np.concatenate([s for s, _ in parts], 2))
    assert np.array_equal(use, np.concatenate([u for _, u in parts], 2))
    both = bound(p._replace(barred=None), 24.0)
    assert both.bytes.tolist() == [11.0, 7.0, 7.0]


def test_rows_of_a_grid() -> None:
    """The last two rows share the memory of the second unplaced one."""
    p = pieces()
    some = p.rows(np.array([1, 2]))
    assert some.of.tolist() == [0, 0] and some.left.tolist() == [1, 2]
    whole, part = exact(p, 24.0), exact(some, 24.0)
    assert np.array_equal(whole[0][..., 1:], part[0])
    assert np.array_equal(whole[1][..., 1:], part[1])
    both = p.rows(np.array([0, 1]))
    assert np.array_equal(exact(both, 24.0)[0], whole[0][..., :2])
    none = p.rows(np.array([], dtype=int))
    assert none.kept[0].shape[-1] == 0 and none.pipe.shape[-1] == 0


# Numbers near those asked for.


def test_fewer_chips_that_fill_nodes() -> None:
    """100 chips, 64 sequences: 4 in common (of whole nodes none); 96, 64 chips of nodes of eight
    have at least twice as much."""
    found = {
        (j.cluster.chips, j.cluster.sizes[0])
        for j in nearby.fewer_chips(job(100))
    }
    for chips, ports in found:
        assert 50 <= chips < 100 and chips % 8 == 0 and ports == 8
    assert {chips for chips, _ in found} == {96, 64}
    again = nearby.fewer_chips(job(96, 64))
    assert [j.cluster.chips for j in again] == [64], "32 in common with 96"
    assert nearby.fewer_chips(job(64, 64)) == []
    ring = Network("r", (Dim("x", 1e9, 0.0, size=8, kind="ring"),))
    assert nearby.fewer_chips(job(8, 4, network=ring)) == []


def test_ports_of_a_switch_that_is_no_power_of_two() -> None:
    """Racks of 72: 64 of each."""
    rack = Network(
        "r", (Dim("rack", 1e9, 0.0, size=72), Dim("net", 1e9, 0.0, size=99))
    )
    found = nearby.fewer_chips(job(144, 128, network=rack))
    assert [(j.cluster.chips, j.cluster.sizes[0]) for j in found] == [
        (128, 64)
    ]
    used = nearby.on(job(144, 128, network=rack), 128, 64)
    assert used.cluster.network.dims[0].size == 64
    assert used.cluster.network.dims[1:] == rack.dims[1:]
    same = nearby.on(job(144, 128, network=rack), 128)
    assert same.cluster.network == rack


def row(merit: float, dp: int) -> tuple[float, ...]:
    found = [merit, 0.0, *[1.0] * 12]
    found[nearby.DP] = float(dp)
    return tuple(found)


def test_where_chips_and_batch_bind_dp() -> None:
    """128 and 32 have 32 in common: a dp of 8 is no less than a quarter of it. 96 and 64 have as
    much, but of the third that is left other axes must take 3."""
    from meshwright.search.space import DEGREES

    assert (2, *DEGREES)[nearby.DP - 1] == "dp"
    at = job(128, 32)
    assert nearby.dp_is_bound(at, None)
    assert not nearby.dp_is_bound(at, row(1.0, 8))
    assert nearby.dp_is_bound(at, row(1.0, 9))
    assert nearby.dp_is_bound(job(96, 64), row(1.0, 1))


def test_the_fewest_chips_that_are_as_fast_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As fast: up to what the model can tell, here 5 %."""
    monkeypatch.setattr(nearby, "resolution", lambda job: 0.05)
    at, asked, took = job(100), [], {96: 9.0, 64: 8.0}

    def look(j: Job, within: float) -> Any:
        asked.append((j.cluster.chips, within))
        mine = took[j.cluster.chips]
        return row(mine, 32) if mine <= within else None

    def used(best: Any) -> int:
        return nearby.on_fewer(at, look, best).cluster.chips

    assert used(row(10.0, 4)) == 64
    assert asked == [(96, 10.5), (64, pytest.approx(9.45))]
    assert used(row(7.7, 4)) == 64, "8 within 5 % of 7.7"
    assert used(row(7.6, 4)) == 100
    assert used(None) == 64
    took[64] = 9.4
    assert used(row(10.0, 4)) == used(None) == 64
    took[64] = 9.5
    assert used(row(10.0, 4)) == used(None) == 96


def test_why_fewer_chips_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "resolution", lambda job: 0.05)

    def why(chips: int, ports: int, best: float, every: Any) -> str:
        at = job(chips)
        less = nearby.on(at, 48, ports)
        return nearby.why_fewer(at, less, row(best, 1), every)

    assert why(96, 6, 8.0, row(10.0, 1)).startswith(
        "48 of 96 chips (6 of each 8): the fastest layout that uses all 96"
        " evenly takes 1.25 times as long; "
    )
    for as_fast in (0.96, 1.0, 1.04):
        said = why(96, 8, 1.0, row(as_fast, 1))
        assert "is no faster, as far as the model can tell" in said
    assert "no layout that fits uses all 96" in why(96, 8, 1.0, None)
    assert "100 do not fill units of 8" in why(100, 8, 1.0, None)
    every = nearby.on(job(100), 48)
    assert not nearby.why_fewer(every, every, row(1.0, 1), None)


def test_batches_near_the_one_asked_for() -> None:
    """102 sequences on 128 chips have 2 in common: multiples of 32, 16, 8 and 4 within an
    eighth."""
    at = job(128, 102)
    found = list(nearby.batches(at))
    assert found == [96, 104]
    for batch in found:
        assert gcd(batch, 128) >= 4 and abs(batch - 102) <= 102 / 8
    assert list(nearby.batches(job(64, 64))) == []

    def look(j: Job, within: float) -> Any:
        took = {96: 8.0, 104: 7.0}[j.batch]
        return row(took, 8) if took <= within else None

    said = nearby.better_batch(at, at, look, row(10.0, 4))
    # 10 / 7 x 104 / 102 times as many tokens a second
    assert said is not None and "104" in said
    assert "(+2.0%)" in said and "1.46 times" in said and "7 s" in said
    few = nearby.better_batch(at, at, lambda j, within: None, row(10.0, 4))
    assert few is None
    limits = []
    nearby.better_batch(
        at, at, lambda j, within: limits.append(within), row(10.0, 4)
    )
    assert limits == pytest.approx([960 / 102 / 1.05, 1040 / 102 / 1.05])
    even = job(64, 64)
    assert nearby.better_batch(even, even, look, row(1.0, 1)) is None


def test_a_batch_that_all_whole_nodes_share_is_named_with_its_chips() -> None:
    """100 chips, 62 sequences, answered on 64 chips: the 12 nodes that 96 chips fill share 64."""
    at = job(100, 62)
    used = nearby.on(at, 64)
    assert nearby.whole(at).cluster.chips == 96
    assert nearby.whole(used) is used

    def look(j: Job, within: float) -> Any:
        mine = 7.0 if (j.cluster.chips, j.batch) == (96, 64) else 99.0
        return row(mine, 8) if mine <= within else None

    said = nearby.better_batch(at, used, look, row(8.0, 2))
    # 8 / 7 x 64 / 62 times as many tokens a second
    assert said is not None and "64 sequences (+3.2%) on 96 chips" in said
    assert "1.18 times" in said and "62 and 96 chips have only 2" in said


# Recipes and several spaces.


def test_the_nearest_recipe() -> None:
    """In precision, then in the kind of chip, then in chips and twice in the sequence."""
    some = recipes.recipes()
    one = some[0]
    net = catalogue_cluster(f"{one.chips}x{one.chip}")
    kind = {"bf16": "bf16", "fp8": "fp8"}.get(one.precision, "bf16")
    at = Job(
        catalogue(one.model), net, 512, seq=one.seq, precision=PRECISIONS[kind]
    )
    found = recipes.nearest(at)
    assert found is not None and found.model == one.model

    def apart(r: recipes.Recipe) -> tuple[Any, ...]:
        from math import log2

        far = abs(log2(one.chips / r.chips)) + 2 * abs(log2(one.seq / r.seq))
        return r.precision != kind, r.chip != one.chip, far

    mine = apart(found)
    for r in some:
        if r.model == one.model and apart(r)[2] <= recipes.MOST_APART:
            assert mine <= apart(r) or r.chip != one.chip
    laid = recipes.layout(at, found)
    assert laid.chips <= one.chips
    assert laid.sequence_parallel is (found.tp > 1)
    assert laid.schedule == ("interleaved" if found.v > 1 else "1f1b")
    far = replace(at, seq=one.seq * 2**20)
    assert recipes.nearest(far) is None
    plain = found._replace(tp=1, cp=1, pp=2, v=1)
    assert recipes.layout(at, plain).dp == one.chips // 2
    many = found._replace(tp=one.chips * 2)
    assert recipes.layout(at, many).dp == 1


def test_the_first_of_several_spaces() -> None:
    one, two = kept(3.0, 4.0), kept(2.0, 5.0)
    assert several.first([(None, one), (None, two)]) == (2.0, 0.0)  # type: ignore[list-item]
    assert several.first([(None, kept())]) is None  # type: ignore[list-item]


# Groups as near as can be, families, fronts, walks.


def test_groups_that_lie_as_near_as_can_be() -> None:
    """Nodes of 8: alone in the network each axis fills nodes first; a placed tp of 2 in a node
    leaves room for 4 of dp, and pp never shares a group with tp or cp."""
    free = Nearest(
        tp=4, cp=2, pp=3, dp=16, ep=2, zero=3, dp_replicate=2, sizes=(8, 64)
    )
    for axis, ranks in (
        ("tp", (4, 1)), ("dp", (8, 2)), ("pp", (3, 1)), ("replicas", (8, 4)),
        ("shards", (8, 2)), ("copies", (2, 1)), ("ep", (2, 1)), ("edp", (8, 8)),
        ("edp shards", (8, 4)), ("edp copies", (2, 1)), ("etp", (1, 1)),
    ):  # fmt: skip
        assert free.group(axis) == ranks, axis
    at = replace(free, placement={"tp": (2, 2)})
    assert at.group("tp") == (2, 2)
    assert at.group("dp") == (4, 4) and at.group("replicas") == (4, 8)
    assert at.group("pp") == (3, 1) and at.group("shards") == (4, 4)
    assert at.group("edp") == (8, 8), "experts mix tp and dp"
    staged = replace(free, placement={"pp": (3, 1)})
    assert staged.group("ep") == (2, 1)
    assert staged.group("edp") == pytest.approx((8 / 3, 24))
    three = replace(free, sizes=(2, 4, 64))
    assert three.group("dp") == (2, 4, 2)


def test_families_are_a_whole_space_without_overlap() -> None:
    """Each layout is in one: by pipelines, tp and what ZeRO shards."""
    from itertools import product

    base = job()
    found = families.families(base, Space())
    assert list(found) == list(families.NAMES.values())
    for pp, tp, zero in product((1, 2), (1, 2, 4), (0, 1, 2, 3)):
        mine = [
            name
            for name, space in found.items()
            if all(
                space.values(axis) is None or value in space.values(axis)
                for axis, value in (("pp", pp), ("tp", tp), ("zero", zero))
            )
        ]
        big = "ZeRO-2 or 3" if zero >= 2 else "ZeRO-0 or 1"
        expected = f"pipelines, {big}"
        if pp == 1:
            expected = f"no {expected}"
            if zero >= 2:
                expected = "FSDP with tp" if tp > 1 else "FSDP only"
        assert mine == [expected], (pp, tp, zero)
    only = families.families(base, Space(zero=(0,), pp=(1,)))
    assert list(only) == ["no pipelines, ZeRO-0 or 1"]
    assert families.parts(base, [Space()], False) == [("", Space())]
    assert len(families.parts(base, [Space(), Space()], True)) == 10


class Shown:
    """A prediction as fronts see it."""

    def __init__(self, seconds: float, bytes_: float) -> None:
        self.step_time_s = seconds
        self.memory_bytes = {"allocated": bytes_}


def test_a_front_of_several_plans() -> None:
    """By time; each needs a tenth less than the one before; at most eight."""
    from meshwright.search.plan import _thinned

    class Plan:
        def __init__(self, *pareto: Shown) -> None:
            self.pareto = pareto

    one = Plan(Shown(1.0, 100.0), Shown(4.0, 81.1), Shown(3.0, 90.0))
    two = Plan(Shown(2.0, 95.0), Shown(5.0, 80.9), Shown(6.0, 79.0))
    found = _thinned([one, two])  # type: ignore[list-item]
    assert [x.step_time_s for x in found] == [1.0, 3.0, 5.0]
    many = Plan(*(Shown(k, 0.5**k) for k in range(20)))
    assert len(_thinned([many])) == 8  # type: ignore[list-item]
    assert _thinned([Plan()]) == ()  # type: ignore[list-item]


def test_recipes_are_near_by_chips_and_twice_by_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four times the chips are as far as twice the tokens; precision and the chip come first; more
    than six doublings say nothing."""
    base = recipes.recipes()[0]
    at = Job(
        catalogue(base.model), catalogue_cluster("1024xh100-sxm"), 1024, seq=4096,
        precision=PRECISIONS["bf16"],
    )  # fmt: skip
    fine = base._replace(
        chip="h100-sxm", chips=1024, seq=4096, precision="bf16"
    )

    def nearest(*some: recipes.Recipe) -> recipes.Recipe | None:
        monkeypatch.setattr(recipes, "recipes", lambda: some)
        return recipes.nearest(at)

    half, tokens = fine._replace(chips=384), fine._replace(seq=8192)
    far = fine._replace(chips=128)
    assert nearest(tokens, half) == half, "1.4 doublings against 2"
    assert nearest(far, tokens) == tokens, "3 against 2"
    fp8 = fine._replace(precision="fp8")
    assert nearest(fp8, far) == far
    assert nearest(fine._replace(seq=2**15), fine._replace(seq=2**16)) == (
        fine._replace(seq=2**15)
    )
    assert nearest(fine._replace(seq=2**16)) is None
    assert nearest(fine._replace(chips=16)) == fine._replace(chips=16)
    assert nearest(fine._replace(chips=8)) is None
    assert nearest(fine._replace(model="another")) is None
    assert nearest() is None


def test_rows_of_one_table_may_be_dealt_by_different_rules() -> None:
    """Ten layers, with embedding and loss as layers in every other row: each row is dealt as by
    itself."""
    p, v = (
        np.array([1.0, 2, 4, 4, 5, 5, 2, 2]),
        np.array([1.0, 1, 1, 1, 1, 1, 3, 3]),
    )
    slots = np.array([False, True] * 4)
    for folded in (False, True):
        every = Cut.of(10, p, v, folded, slots)
        for row in range(len(p)):
            one = Cut.of(10, p[row], v[row], folded, bool(slots[row]))
            for name in ("most", "spare", "first", "last", "plain"):
                of = np.broadcast_to(getattr(every, name), p.shape)
                assert of[row] == getattr(one, name), (row, name)
            assert np.broadcast_to(every.fuller, p.shape)[row] == one.fuller
            for rank in range(int(p[row])):
                found = every.rank_layers(float(rank))
                assert found[row] == one.rank_layers(float(rank))
