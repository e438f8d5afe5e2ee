"""What ranks layouts, numbers near those asked for, recipes near a job: worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

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
from meshwright.layout.placement import Nearest
from meshwright.search import Space, burden, nearby, plan, recipes, why_simpler
from meshwright.search.best import RankedRow
from meshwright.search.merit import Burden, merit, seconds_of, weigh
from meshwright.search.space import DEGREES

TWO = Network(
    "n", (Dim("node", 1e9, 0.0, size=8), Dim("net", 1e9, 0.0, size=4096))
)


def job(chips: int = 64, batch: int = 64, **fields: Any) -> Job:
    net = fields.pop("network", TWO)
    how = replace(SET, **fields)
    return Job(MODEL, Cluster(CHIP, net, chips), batch, assumptions=how)


TWELVE = replace(job(), model=replace(MODEL, layers=12))


def placed(tp: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Tensor parallelism over both dimensions of a network, nothing else over either."""
    return {"tp": tp} | dict.fromkeys(("cp", "dp", "pp"), (1, 1))


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
    assert seconds_of(risky, row(6.0, 1, 1e12)) == pytest.approx(3.0)
    assert weigh(job()) is None and seconds_of(job(), row(6.0, 1)) == 6.0
    by = weigh(risky)
    assert by is not None and by(3.0, 1e12) == pytest.approx(6.0)


PIECES = {"pp": 2, "schedule": "interleaved"}


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"dp": 8, "microbatch": 4, "zero": 1}, {}),
        ({"sequence_parallel": False}, {}),
        ({"pp": 1, "schedule": "zbv"}, {}),
        ({"tp": 2, "cp": 2, "pp": 2}, {"axes": 3, "pieces": 2}),
        ({"ep": 2, "etp": 2, "dp_replicate": 2}, {"axes": 3}),
        ({"tp": 2, "sequence_parallel": False}, {"axes": 1, "whole": 1}),
        ({"zero": 3}, {"zero": 3}),
        # no published run of a dense model shards gradients and not weights
        ({"zero": 2}, {"unseen": 1, "zero": 2}),
        ({"pp": 2, "schedule": "zbv"}, {"axes": 1, "odd": 1, "pieces": 4}),
        (PIECES | {"interleave": 3}, {"axes": 1, "pieces": 6}),
        # 12 layers over 8 stages, 12, 8; 14 slots over 7, 12
        (PIECES | {"interleave": 4}, {"axes": 1, "unlike": 1, "pieces": 8}),
        (PIECES | {"interleave": 6}, {"axes": 1, "pieces": 12}),
        ({"pp": 8}, {"axes": 1, "unlike": 1, "pieces": 8}),
        ({"pp": 7, "stages": "slots"}, {"axes": 1, "dealt": 1, "pieces": 7}),
        ({"pp": 12, "stages": "slots"}, {"axes": 1, "dealt": 1, "unlike": 1, "pieces": 12}),
        ({"microbatch": 3}, {"uneven": 1}),
        ({"tp": 4, "placement": placed((2, 2))}, {"axes": 1, "outside": 1}),
        ({"tp": 4, "placement": placed((4, 1))}, {"axes": 1}),
    ],
)  # fmt: skip
def test_the_simpler_of_equals(
    fields: dict[str, Any], more: dict[str, int]
) -> None:
    """What each choice adds to one stage on one rank, which no recipe has."""
    plain = Burden(0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1)
    assert burden(TWELVE, Layout()) == plain
    assert burden(TWELVE, Layout(**fields)) == plain._replace(**more)


def test_what_makes_a_layout_simpler_is_the_first_that_differs() -> None:
    """Of the same axes ZeRO-1 is simpler than ZeRO-3, whatever the microbatch; nothing is simpler
    than itself."""
    odd, sharded = Layout(dp=8, microbatch=3), Layout(dp=8, zero=3)
    assert why_simpler(TWELVE, odd, sharded) == "a lower ZeRO stage"
    assert why_simpler(TWELVE, sharded, odd) == ""
    assert why_simpler(TWELVE, odd, odd) == ""
    even = Layout(dp=8, microbatch=4)
    assert (
        why_simpler(TWELVE, even, odd) == "a microbatch that is a power of two"
    )


def test_of_ties_what_is_published_wins() -> None:
    """Megatron-Bridge trains llama3-70b on 64 H100 in bf16 with tp 4, cp 2, pp 4, five chunks a
    device; on 1,024 the same degrees; in FP8 it takes others."""
    recipe = Layout(
        tp=4, cp=2, pp=4, interleave=5, schedule="interleaved", zero=1
    )
    here = Job("llama3-70b", "64xh100-sxm", batch="512seq")
    for chips in ("64xh100-sxm", "1024xh100-sxm"):
        other = Job("llama3-70b", chips, batch="512seq")
        assert burden(other, recipe)[:2] == (0, 0)
    assert burden(here, replace(recipe, interleave=4))[:2] == (0, 1)
    assert burden(here, replace(recipe, microbatch=2))[:2] == (0, 1)
    ours = replace(catalogue("llama3-70b"), name="my own file")
    assert burden(replace(here, model=ours), recipe)[:2] == (0, 0)
    deeper = replace(ours, layers=84)
    assert burden(replace(here, model=deeper), recipe)[:2] == (0, 1)
    titan = Job("llama3-70b", "64xh100-sxm", "512seq", framework="torchtitan")
    assert burden(titan, recipe)[:2] == (0, 1), "NVIDIA's, not torchtitan's"
    narrow = Job("llama3-70b", "64xh100-sxm", "512seq", precision="fp8")
    assert burden(narrow, recipe)[:2] == (0, 1)
    plain = replace(recipe, interleave=1, schedule="1f1b")
    words = "the degrees of a published recipe"
    assert why_simpler(here, recipe, plain) == words
    found = plan(here).best
    assert found is not None and burden(here, found.layout)[:2] == (0, 0)


def test_what_another_framework_ran_is_not_shown() -> None:
    """torchtitan trained dense models with ZeRO-3 and tp, Megatron Core never; by a framework that
    no run used any run speaks."""
    sharded = Layout(tp=4, dp=16, zero=3, microbatch=1)
    titan = {"framework": "torchtitan"}
    for fields, unseen in (({}, 1), (titan, 0), ({"framework": "unknown"}, 0)):
        asked = Job("llama3-70b", "64xh100-sxm", batch="512seq", **fields)
        assert burden(asked, sharded).unseen == unseen


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
    used = nearby.on_chips(job(144, 128, network=rack), 128, 64)
    assert used.cluster.network.dims[0].size == 64
    assert used.cluster.network.dims[1:] == rack.dims[1:]
    same = nearby.on_chips(job(144, 128, network=rack), 128)
    assert same.cluster.network == rack


def sizes(chips: int, kind: str) -> list[tuple[int, ...]]:
    """Of fewer chips: nodes of 4 in racks of 5."""
    rack = Dim("rack", 1e9, 0.0, size=5, kind=kind)
    node, net = Dim("node", 1e9, 0.0, size=4), Dim("net", 1e9, 0.0)
    at = job(chips, 48, network=Network("r", (node, rack, net)))
    return [each.cluster.sizes for each in nearby.fewer_chips(at)]


def test_units_between_node_and_network() -> None:
    """Nodes of 4 in racks of 12. 40 chips leave a rack partly used, and 10 nodes are no even number
    in each of 4 racks; 36 and 24 chips fill racks. In racks of at most 5 nodes, 8 nodes are 2 racks
    of 4 and 6 are 2 of 3; 9 would be 3 of 3, and 36 chips are in 2 racks. A ring of 5 nodes is
    whole or not used.
    """
    dims = ("node", 4), ("rack", 3), ("net", 999)
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    found = nearby.fewer_chips(job(40, 24, network=racks))
    assert [j.cluster.chips for j in found] == [36, 24]
    assert {j.cluster.sizes[:2] for j in found} == {(4, 3)}
    assert nearby.unfilled_unit(job(40, network=racks)) == (12, "rack")
    assert sizes(36, "switch") == [(4, 4, 2), (4, 3, 2)]
    assert sizes(32, "switch") == [(4, 4, 2), (4, 3, 2)], "all, spread anew"
    assert sizes(48, "switch") == [(4, 4, 3)]
    assert sizes(40, "switch") == [(4, 4, 2), (4, 3, 2)]
    assert sizes(45, "ring") == [(4, 5, 2)]


def row(merit: float, dp: int, held: float = 0.0) -> RankedRow:
    degrees = tuple(float(dp) if name == "dp" else 1.0 for name in DEGREES)
    return RankedRow(merit, held, degrees, (0, 0, 0, 0), ())


def test_where_chips_and_batch_bind_dp() -> None:
    """128 and 32 have 32 in common: a dp of 8 is no less than a quarter of it. 96 and 64 have as
    much, but of the third that is left other axes must take 3."""
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
        less = nearby.on_chips(at, 48, ports)
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
    every = nearby.on_chips(job(100), 48)
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
    assert list(nearby.batches(job(2, 9))) == [8]
    even = job(64, 64)
    assert nearby.better_batch(even, even, look, row(1.0, 1)) is None


@pytest.mark.parametrize(
    ("chips", "near"), [(10, "8, 16"), (12, "8, 16"), (1001, "1,000, 1,008")]
)  # fmt: skip
def test_chips_that_fill_nodes_are_named(chips: int, near: str) -> None:
    found = plan(job(chips), Space(relaxed=False))
    assert found.best is None
    assert found.notes[0].endswith(
        f": {chips:,} chips do not fill units of 8 (node) evenly: {near} would, or --relaxed"
    )


def test_a_batch_that_all_whole_nodes_share_is_named_with_its_chips() -> None:
    """100 chips, 62 sequences, answered on 64 chips: the 12 nodes that 96 chips fill share 64."""
    at = job(100, 62)
    used = nearby.on_chips(at, 64)
    assert nearby.whole_units(at).cluster.chips == 96
    assert nearby.whole_units(used) is used

    def look(j: Job, within: float) -> Any:
        mine = 7.0 if (j.cluster.chips, j.batch) == (96, 64) else 99.0
        return row(mine, 8) if mine <= within else None

    said = nearby.better_batch(at, used, look, row(8.0, 2))
    # 8 / 7 x 64 / 62 times as many tokens a second
    assert said is not None and "64 sequences (+3.2%) on 96 chips" in said
    assert "1.18 times" in said and "divisor of 62 and 96 chips is 2" in said


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
        return recipes.nearest_recipe(at)

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
    assert nearest(fine._replace(model="gpt3-175b")) is None
    assert nearest() is None


@pytest.mark.parametrize(
    ("schedule", "replicas"), [("1f1b", (2, 2)), ("dualpipe", (4, 2))]
)
def test_copies_of_a_stage_may_lie_on_other_ranks_of_the_pipeline(
    schedule: str, replicas: tuple[int, int]
) -> None:
    """Nodes of four, two ranks of a pipeline in each: two replicas lie beside them; under DualPipe
    the copies of a stage, twice as many, may fill the node.
    """
    layout = Nearest(
        dp=4,
        pp=4,
        schedule=schedule,
        placement={"pp": (2, 2)},
        sizes=(4, 8),
    )
    assert layout.group("replicas") == replicas
