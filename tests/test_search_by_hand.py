"""What is simpler of equals, and which recipe is near a job: worked out on paper."""

from __future__ import annotations

import random
from dataclasses import replace
from math import log2
from typing import Any

import pytest

from by_hand import CHIP, MODEL, SET
from meshwright import Cluster, Dim, Layout, Network
from meshwright.catalog import chip
from meshwright.catalog import cluster as catalogue_cluster
from meshwright.catalog import model as catalogue
from meshwright.describe.job import PRECISIONS, Job
from meshwright.prediction.classes import chip_family
from meshwright.search import (
    complexity,
    nearest_recipe,
    plan,
    recipes,
    why_simpler,
)

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


PIECES = {"pp": 2, "schedule": "interleaved"}


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"dp": 8, "microbatch": 4, "zero": 1}, {}),
        ({"sequence_parallel": False}, {}),
        ({"pp": 1, "schedule": "zbv"}, {}),
        ({"tp": 2, "cp": 2, "pp": 2}, {"axes": 3, "pieces": 2}),
        ({"ep": 2, "etp": 2, "dp_replicate": 2}, {"axes": 3}),
        ({"tp": 2, "sequence_parallel": False}, {"axes": 1, "whole_sequences": 1}),
        ({"zero": 3}, {"zero": 3}),
        # no published run of a dense model shards gradients and not weights
        ({"zero": 2}, {"unseen": 1, "zero": 2}),
        ({"pp": 2, "schedule": "zbv"}, {"axes": 1, "rare_schedule": 1, "pieces": 4}),
        (PIECES | {"interleave": 3}, {"axes": 1, "pieces": 6}),
        # 12 layers over 8 stages, 12, 8; 14 slots over 7, 12
        (PIECES | {"interleave": 4}, {"axes": 1, "unlike_stages": 1, "pieces": 8}),
        (PIECES | {"interleave": 6}, {"axes": 1, "pieces": 12}),
        ({"pp": 8}, {"axes": 1, "unlike_stages": 1, "pieces": 8}),
        ({"pp": 7, "stages": "slots"}, {"axes": 1, "named_stages": 1, "pieces": 7}),
        ({"pp": 12, "stages": "slots"}, {"axes": 1, "named_stages": 1, "unlike_stages": 1, "pieces": 12}),
        ({"microbatch": 3}, {"odd_microbatch": 1}),
        ({"tp": 4, "placement": placed((2, 2))}, {"axes": 1, "tp_leaves_switch": 1}),
        ({"tp": 4, "placement": placed((4, 1))}, {"axes": 1}),
    ],
)  # fmt: skip
def test_the_simpler_of_equals(
    fields: dict[str, Any], more: dict[str, int]
) -> None:
    """What each choice adds to one stage on one rank, which no recipe has."""
    plain = complexity(TWELVE, Layout())
    assert plain == (0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1)
    assert complexity(TWELVE, Layout(**fields)) == plain._replace(**more)


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
        assert complexity(other, recipe)[:2] == (0, 0)
    assert complexity(here, replace(recipe, interleave=4))[:2] == (0, 1)
    assert complexity(here, replace(recipe, microbatch=2))[:2] == (0, 1)
    ours = replace(catalogue("llama3-70b"), name="my own file")
    assert complexity(replace(here, model=ours), recipe)[:2] == (0, 0)
    deeper = replace(ours, layers=84)
    assert complexity(replace(here, model=deeper), recipe)[:2] == (0, 1)
    titan = Job("llama3-70b", "64xh100-sxm", "512seq", framework="torchtitan")
    assert complexity(titan, recipe)[:2] == (0, 1), (
        "NVIDIA's, not torchtitan's"
    )
    narrow = Job("llama3-70b", "64xh100-sxm", "512seq", precision="fp8")
    assert complexity(narrow, recipe)[:2] == (0, 1)
    plain = replace(recipe, interleave=1, schedule="1f1b")
    words = "the layout of a published recipe"
    assert why_simpler(here, recipe, plain) == words
    found = plan(here).best
    assert found is not None and complexity(here, found.layout)[:2] == (0, 0)


def test_what_another_framework_ran_is_not_shown() -> None:
    """torchtitan trained dense models with ZeRO-3 and tp, Megatron Core never; by a framework that
    no run used any run speaks."""
    sharded = Layout(tp=4, dp=16, zero=3, microbatch=1)
    titan = {"framework": "torchtitan"}
    for fields, unseen in (({}, 1), (titan, 0), ({"framework": "unknown"}, 0)):
        asked = Job("llama3-70b", "64xh100-sxm", batch="512seq", **fields)
        assert complexity(asked, sharded).unseen == unseen


# Numbers near those asked for.


def test_the_nearest_recipe_is_that_of_a_plain_comparison() -> None:
    """Of all that are published of the model for such chips, within six doublings of chips and
    twice those of tokens: the precision first, then the chip, then the fewest doublings."""
    rng, distinct = random.Random(5), set()
    rows = recipes()
    for _ in range(150):
        r = rng.choice(rows)
        at = Job(
            catalogue(r.model),
            catalogue_cluster(
                f"{int(r.chips * 2 ** rng.uniform(-6, 6)) or 1}x{r.chip}"
            ),
            1024,
            seq=2 ** rng.randint(10, 17),
            precision=PRECISIONS[rng.choice(["bf16", "fp8"])],
        )
        N, T = at.cluster.chips, at.T
        near = [
            (
                o.precision != at.precision.compute,
                o.chip != r.chip,
                abs(log2(N / o.chips)) + 2 * abs(log2(T / o.seq)),
                n,
            )
            for n, o in enumerate(rows)
            if o.model == r.model
            and chip_family(chip(o.chip)) == chip_family(chip(r.chip))
        ]
        near = [each for each in near if each[2] <= 6]
        expected = rows[min(near)[3]] if near else None
        assert nearest_recipe(at) == expected
        distinct.add(expected)
    assert None in distinct and len(distinct) > 30
